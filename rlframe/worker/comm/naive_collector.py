"""NaiveCollector: a collector without envs, for tests of coordinators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.data.batch import Batch
from rlframe.registry import COMM_COLLECTOR_REGISTRY
from rlframe.transport.messages import Beat, Collected, Finished, Orders, Taken, Task
from rlframe.utils.field import Field
from rlframe.worker.comm.comm_interface import BaseCommCollector
from rlframe.worker.comm.comm_worker import CommConfig, CommWorker
from rlframe.worker.parallel.held_weights import TaskAbandoned

PARTS = 19
"""Parts of fake data in a task."""


class NaiveConfig(CommConfig):
    """Options of ``NaiveCollector``."""

    host: str
    port: int


@COMM_COLLECTOR_REGISTRY.register('naive')
class NaiveCollector(CommWorker, BaseCommCollector):
    """Answers every task by 19 parts of one fake row each, unless the coordinator has enough before.

    Args:
        args: Options, or host and port, as DI-engine has them.
        prefix: Begins its name.
        kwargs: Arguments of ``CommWorker``: ``transport`` or ``address``, ``name``, ``fingerprint``.
    """

    role = 'collector'
    _cfg: NaiveConfig
    config = dict(
        host=Field(
            '127.0.0.1',
            doc='host of the coordinator, if no address is given',
            may_change=True,
            reaches='network',
        ),
        port=Field(7235, range='[1, 65535]', doc='its port', may_change=True, reaches='network'),
    )

    def __init__(self, *args: Any, prefix: str = '', **kwargs: Any) -> None:
        is_host = bool(args) and isinstance(args[0], str)
        cfg: Mapping[str, Any] | None = dict(zip(('host', 'port'), args, strict=False)) if is_host else None
        if args and not is_host:
            cfg = args[0]
        self.transport_type = 'flask_fs' if is_host else 'in_process'
        name = kwargs.pop('name', '') or 'naive'
        CommWorker.__init__(self, cfg, name=f'{prefix}{name}', **kwargs)
        self._count = 0
        self.pushed = self.dropped = 0
        """Fake rows that the coordinator took, and others."""

    @property
    def produced(self) -> int:
        return self._count

    def _address(self) -> str:
        return f'http://{self._cfg.host}:{self._cfg.port}'

    @property
    def collector_uid(self) -> str:
        """The collector's id in the run; empty before it has joined."""
        return self._membership.worker

    def get_policy_update_info(self, path: str) -> Any:
        """Returns None: it has no policy."""
        return None

    def send_stepdata(self, stepdata: Any) -> None:
        """Takes the data of the next ``send_metadata``."""
        self._stepdata = stepdata

    def send_metadata(self, metadata: Collected) -> Taken:
        """Sends a part; returns what became of it."""
        self._count += metadata.rows
        self.dropped += metadata.rows
        taken: Taken
        taken, _ = self._ask(metadata, Taken, self._stepdata)
        self.pushed, self.dropped = self.pushed + taken.pushed, self.dropped - taken.pushed
        return taken

    def join(self) -> None:
        """Waits until it has ended."""
        self.wait()

    def ping(self) -> bool:
        """Returns whether the coordinator answers."""
        self._ask(self._beat(), Orders)
        return True

    def shutdown(self) -> None:
        """Ends the work; the same as ``close``."""
        self.close()

    def _work_on(self, task: Task) -> Finished:
        for part in range(PARTS):
            if self._stopped or self._interrupt:
                raise TaskAbandoned(self._stopped or self._interrupt)
            self.send_stepdata(Batch(data=np.full(1, part)))
            facts = {'returns': [], 'episode_count': 0}
            if self.send_metadata(Collected(task.task, part, 1, 1, 0, 0, facts)).stop:
                break
        return Finished(
            task.task, True, '', {'collector_done': True, 'eval_flag': False, 'step_count': PARTS}
        )

    def _beat(self) -> Beat:
        task = self._task.task if self._task is not None else ''
        return Beat('naive', task, self._count, 0, 0, {})

    _interrupt = ''

    def _abandon(self, reason: str) -> None:
        self._interrupt = reason

    def _release(self) -> None: ...
