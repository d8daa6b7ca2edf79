"""Comm collectors and comm learners: their creation by registered names, and those over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlframe.data.timestep import Batch
from rlframe.option_names import named
from rlframe.parallel.base_parallel_collector import BaseParallelCollector
from rlframe.parallel.comm_collector import BaseCommCollector
from rlframe.parallel.comm_learner import BaseCommLearner, CommLearnerConfig
from rlframe.parallel.comm_worker import CommConfig, CommWorker
from rlframe.parallel.held_weights import TaskAbandoned
from rlframe.parallel.transport.messages import Beat, Collected, Finished, Orders, Task
from rlframe.registry import (
    COMM_COLLECTOR_REGISTRY,
    COMM_LEARNER_REGISTRY,
    PARALLEL_COLLECTOR_REGISTRY,
    with_type,
)
from rlframe.remote.payload import unpack
from rlframe.utils.field import option

PARTS = 19
"""Parts of fake data in a task."""


def create_parallel_collector(cfg: Mapping[str, Any] | str, **kwargs: Any) -> BaseParallelCollector:
    """Builds the parallel collector named by ``cfg``, or by ``cfg.type``, by default ``zergling``.

    Further arguments are those of its constructor, such as ``make_collector``, and, with a name, options.

    Raises:
        RegistryError: If no parallel collector has that name; the closest one is named.
    """
    section, arguments = named(PARALLEL_COLLECTOR_REGISTRY, cfg, kwargs)
    return PARALLEL_COLLECTOR_REGISTRY.build({'type': 'zergling', **section}, section, **arguments)


def get_parallel_collector_cls(cfg: Mapping[str, Any] | str) -> type[BaseParallelCollector]:
    """Returns the class named by ``cfg.type``, or by ``cfg``."""
    return PARALLEL_COLLECTOR_REGISTRY.get_cls(cfg)


def create_comm_collector(cfg: Mapping[str, Any] | str, **kwargs: Any) -> BaseCommCollector:
    """Builds the comm collector named by ``cfg``, by ``cfg.type`` or, as in DI-engine, by ``cfg.comm_collector_type``.

    Further arguments are those of its constructor, such as ``collector`` and ``transport``, and, with a name, options.

    Raises:
        RegistryError: If no comm collector has that name; the closest one is named.
    """
    section, arguments = named(COMM_COLLECTOR_REGISTRY, cfg, kwargs)
    section = with_type(section, 'comm_collector_type')
    return COMM_COLLECTOR_REGISTRY.build(section, section, **arguments)


def create_comm_learner(cfg: Mapping[str, Any] | str, **kwargs: Any) -> BaseCommLearner:
    """Builds the comm learner named by ``cfg``, ``cfg.type`` or ``cfg.comm_learner_type``; see ``create_comm_collector``."""
    section, arguments = named(COMM_LEARNER_REGISTRY, cfg, kwargs)
    section = with_type(section, 'comm_learner_type')
    return COMM_LEARNER_REGISTRY.build(section, section, **arguments)


def _is_port(port: Any) -> bool:
    first = port[0] if isinstance(port, list) and port else port
    return isinstance(first, int) and not isinstance(first, bool) and 0 < first < 65536


class OverHTTPConfig(CommConfig):
    """Options of comm collectors and comm learners over HTTP, with DI-engine's names."""

    host: str = option(
        '127.0.0.1', doc='host of the coordinator, if no address is given', may_change=True, reaches='network'
    )
    port: int | list[int] = option(
        7235,
        doc='port of the coordinator, if no address is given',
        check=lambda port: '' if _is_port(port) else 'a port, or a list of them of which the first counts',
        may_change=True,
        reaches='network',
    )
    path_data: str | None = option(
        './data', ignored='arrays travel with their messages', may_change=True, reaches='file'
    )
    path_policy: str = option(
        './policy', ignored='weights travel with their messages', may_change=True, reaches='file'
    )


class FlaskFSLearnerConfig(OverHTTPConfig, CommLearnerConfig):
    """Options of ``FlaskFileSystemLearner``."""


class _OverHTTP(CommWorker):
    """What both have in common."""

    _cfg: OverHTTPConfig
    transport_type = 'flask_fs'

    def _address(self) -> str:
        port = self._cfg.port
        return f'http://{self._cfg.host}:{port[0] if isinstance(port, list) else port}'


@COMM_COLLECTOR_REGISTRY.register('flask_fs')
class FlaskFileSystemCollector(_OverHTTP, BaseCommCollector):
    """Collects for a coordinator that it reaches over HTTP; the name is DI-engine's."""

    def send_stepdata(self, path: str, stepdata: Any) -> None:  # type: ignore[override]  # the public signature
        """Takes the training data of the next ``send_metadata``, which sends both in one request; ``path`` is not used."""
        super().send_stepdata(stepdata)


@COMM_COLLECTOR_REGISTRY.register('naive')
class NaiveCollector(FlaskFileSystemCollector):
    """Answers every task by 19 parts of one fake row each, unless the coordinator has enough before.

    Args:
        args: Options, or host and port, as DI-engine has them.
        prefix: Begins its name.
        kwargs: Arguments of ``CommWorker``: ``transport`` or ``address``, ``name`` and ``fingerprint``.
    """

    _interrupt = ''

    def __init__(self, *args: Any, prefix: str = '', name: str = '', **kwargs: Any) -> None:
        has_host = bool(args) and isinstance(args[0], str)
        cfg = dict(zip(('host', 'port'), args, strict=False)) if has_host else next(iter(args), None)
        super().__init__(cfg, name=f'{prefix}{name or "naive"}', **kwargs)
        self._count = 0

    @property
    def produced(self) -> int:
        return self._count

    @property
    def progress(self) -> int:
        return self._count

    def get_policy_update_info(self, path: str) -> Any:
        """Returns None: it has no policy."""
        return None

    def join(self) -> None:
        """Waits until it has ended."""
        self.wait()

    def ping(self) -> bool:
        """Returns whether the coordinator answers."""
        self._ask(Beat('', self.progress), Orders)
        return True

    def shutdown(self) -> None:
        """Ends the work; the same as ``close``."""
        self.close()

    def _work_on(self, task: Task) -> Finished:
        for part in range(PARTS):
            if self._stopped or self._interrupt:
                raise TaskAbandoned(self._stopped or self._interrupt)
            self._count += 1
            if self.send(Batch(data=np.full(1, part)), Collected(task.task, part, 1, 1, 0, 0, {})).stop:
                break
        facts = {'collector_done': True, 'eval_flag': False, 'step_count': PARTS}
        return Finished(task.task, True, '', facts)

    def _abandon(self, reason: str) -> None:
        self._interrupt = reason

    def _release(self) -> None: ...


@COMM_LEARNER_REGISTRY.register('flask_fs')
class FlaskFileSystemLearner(_OverHTTP, BaseCommLearner):
    """Learns for a coordinator that it reaches over HTTP; the name is DI-engine's."""

    _cfg: FlaskFSLearnerConfig

    @staticmethod
    def load_data_fn(
        path: str, meta: Mapping[str, Any] | None = None, decompressor: Callable[[Any], Any] | None = None
    ) -> Any:
        """Returns the payload in a file with the bytes that ``payload.pack`` returned.

        Args:
            path: The file.
            meta: Facts about the data, which are added to them if they are a dict.
            decompressor: Applied to the data; None: they are returned as they are.

        Raises:
            MessageError: If it is not what rlframe writes.
        """
        data = unpack(np.fromfile(path, np.uint8), path)
        data = data if decompressor is None else decompressor(data)
        return {**data, **meta} if meta and isinstance(data, dict) else data


class InClusterConfig(OverHTTPConfig):
    """Options of ``RayCommCollector``."""

    num_cpus: float | None = option(
        None,
        range='[0, inf)',
        unit='logical CPUs',
        doc='CPUs that Ray reserves for each worker that -m parallel starts; None: 1, or policy.learn.num_learners for the learner, if'
        ' all workers fit, else 0',
        may_change=True,
    )
    num_gpus: float | None = option(
        None,
        range='[0, inf)',
        unit='logical GPUs',
        doc='GPUs that Ray reserves for the worker, which sees no others; None: policy.learn.num_learners for a learner on GPUs, else 0',
        may_change=True,
    )


class RayLearnerConfig(InClusterConfig, FlaskFSLearnerConfig):
    """Options of ``RayCommLearner``."""


@COMM_COLLECTOR_REGISTRY.register('ray')
class RayCommCollector(FlaskFileSystemCollector):
    """Collects for a coordinator in a Ray cluster, where ``-m parallel`` starts it as an actor."""

    _cfg: InClusterConfig


@COMM_LEARNER_REGISTRY.register('ray')
class RayCommLearner(FlaskFileSystemLearner):
    """Learns for a coordinator in a Ray cluster, where ``-m parallel`` starts it as an actor."""

    _cfg: RayLearnerConfig
