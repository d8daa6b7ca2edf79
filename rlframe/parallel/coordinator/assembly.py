"""Creates the parts of a coordinator from the config of an experiment: server, commander and data."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from rlframe.config.schema import CoordinatorConfig
from rlframe.data.faces import ACTING
from rlframe.data.timestep import Batch, EnvSpec, from_tree, to_tree
from rlframe.errors import ConfigError
from rlframe.parallel.coordinator.base_parallel_commander import (
    BaseParallelCommander,
    create_parallel_commander,
    value_in,
)
from rlframe.parallel.transport.answering import Server
from rlframe.parallel.transport.base import joined, merged, split
from rlframe.parallel.transport.messages import Collected
from rlframe.registry import BUFFER_REGISTRY, ENV_REGISTRY, POLICY_REGISTRY, TRANSPORT_REGISTRY
from rlframe.run.progress import Progress
from rlframe.utils.field import fields_of
from rlframe.utils.schema import COUNT, LIST, Kind, Schema, check_state, list_of
from rlframe.utils.seed import component_rng

PART = Kind('rows, data and extras of a part', lambda v: LIST.fits(v) and len(v) == 3 and COUNT.fits(v[0]))
STATE: Schema = {'fresh': list_of(PART), 'owed': COUNT, 'learned': COUNT, 'stale': COUNT}
ADDRESS = ('host', 'port')
"""Options of a server beside those of its section ``transport``."""
STOP_VALUE = ('policy.eval.evaluator.stop_value', 'env.stop_value')


class CoordinatedRun:
    """A run without a budget, which writes nothing; a subclass does."""

    def is_spent(self, progress: Progress, updates_due: int) -> bool:
        """Returns whether a budget is spent, if the due updates are made, too."""
        return False

    def collected(self, message: Collected, progress: Progress) -> None:
        """Takes the facts that a collector sent with its data."""

    def learned(self, info: Mapping[str, float], progress: Progress) -> None:
        """Takes the training variables and metrics of a learner."""

    def evaluated(self, facts: Mapping[str, Any], weights: Version | None, is_best: bool) -> None:
        """Takes the result of an evaluation and the evaluated weights."""

    def take_state(self, state: Any, train_iter: int) -> None:
        """Takes the whole state of the learner, for a checkpoint."""


class Version(NamedTuple):
    """Weights of a policy."""

    version: int
    """Grows with each publication."""
    train_iter: int
    """Train iterations that they contain."""
    weights: Any
    """Tree of arrays, which nobody changes."""


class TrainingData:
    """Keeps the data of collectors for the learner, at the replay ratio of serial mode.

    With a replay buffer, each part of ``n_sample`` new items makes ``update_per_collect`` updates due, once the buffer
    has enough of them. Without one, each part is used once, as a whole and in the order of arrival, unless it is too old.

    Args:
        buffer: The replay buffer; None for an on-policy policy.
        batch_size: Size of a batch from the buffer.
        update_per_collect: Updates due for each part.
        max_staleness: Train iterations that a part may be behind without a replay buffer; None: any number.
    """

    def __init__(
        self, buffer: Any, batch_size: int = 1, update_per_collect: int = 1, max_staleness: int | None = None
    ) -> None:
        self.buffer = buffer
        """The replay buffer, an ``IBuffer``, or None."""
        self._batch_size, self._max_staleness = batch_size, max_staleness
        self.reward_models: Any = None
        """What pays for rows as they arrive and as they are drawn, a ``RewardModels``; None: the env alone."""
        self._actor: Any = None  # a face of the policy that reward models ask
        self.updates_per_part = 1 if buffer is None else update_per_collect
        """Updates that a part makes due; without a buffer, a part is one batch."""
        # parts for an on-policy policy: rows, data and extras of each
        self._fresh: deque[tuple[int, Any, Mapping[str, Any]]] = deque()
        self.owed = self.learned = self.given = 0
        """Updates that the data made due, that were made, and whose data the learner has got."""
        self.stale = 0
        """Rows of parts that were discarded because they were too old."""
        self._extras: dict[str, Any] = {}  # for the learner, with its next data

    def pay_by(self, models: Any, policy: Any) -> None:
        """Lets reward models pay for rows, which may ask how likely the policy takes actions; None: the env alone."""
        self.reward_models = models
        self._actor = policy.collect_mode if models is not None and models.asks_policy else None

    def follow(self, weights: Mapping[str, Any]) -> None:
        """Takes the newest weights, by which the policy says how likely actions are."""
        if self._actor is not None:
            self._actor.load_state_dict({name: tree for name, tree in weights.items() if name != ACTING})

    @property
    def due(self) -> int:
        """Updates that remain to be made for the data that arrived."""
        return self.owed - self.learned

    def push(self, rows: int, data: Any, envstep: int, counts: bool = True) -> int:
        """Takes a part of a collector, with its extras for the learner; returns how many items were accepted.

        Updates are due for it if it ``counts``.
        """
        data, extras = split(data)
        if self.reward_models is not None:
            data = self.reward_models.pay(data)
        if self.buffer is None:
            self._fresh.append((rows, data, extras))
            self.owed += 1
            return rows
        self._extras = merged(self._extras, extras)
        accepted: int = self.buffer.push(data, envstep)
        if counts and self.buffer.count() >= self._batch_size:
            self.owed += self.updates_per_part
        return accepted

    def draw(self, train_iter: int) -> tuple[int, Any]:
        """Returns the data of the next round of updates, and the number of updates; 0 if none is due.

        Batches from a replay buffer come as one ``Batch`` with as many rows as all of them.
        """
        if self.buffer is None:
            self._discard_old(train_iter)
        open_ = self.owed - self.given
        if open_ <= 0:
            return 0, None
        if self.buffer is None:
            self.given += 1
            _, data, extras = self._fresh.popleft()
            return 1, joined(data, self._taken_extras(extras))
        count = min(self.updates_per_part, open_)
        drawn = list(self.buffer.batches(count, self._batch_size, train_iter))
        if self.reward_models is not None:
            drawn = [self.reward_models.pay_sampled(batch) for batch in drawn]
        self.given += count
        return count, joined(drawn[0] if count == 1 else Batch.cat(drawn), self._taken_extras({}))

    def _taken_extras(self, extras: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the extras of data that the learner gets now, and those that wait."""
        taken = merged(self._extras, extras)
        self._extras = {}
        return taken

    def _discard_old(self, train_iter: int) -> None:
        """Discards parts at the front that are older than allowed; what they bring beside data goes on."""
        limit = self._max_staleness
        while limit is not None and self._fresh:
            rows, data, extras = self._fresh[0]
            if train_iter - int(np.min(data['collect_iter'])) <= limit:
                return
            self._fresh.popleft()
            self.owed, self.stale = self.owed - 1, self.stale + rows
            self._extras = merged(self._extras, extras)

    def report(self, updates: int, priorities: Mapping[str, Any] | None = None) -> None:
        """Takes note of updates that were made, and of the priorities of their data."""
        self.learned = min(self.learned + updates, self.owed)
        if priorities and self.buffer is not None:
            self.buffer.update(priorities)

    def learner_lost(self, made: int) -> None:
        """Makes the updates due again that are not among the ``made`` ones in the saved state of a lost learner."""
        if self.buffer is None:
            self.learned = self.given  # the parts that it had received are lost with it
        else:
            self.learned = self.given = min(made, self.owed)

    def state_dict(self) -> dict[str, Any]:
        """Returns the waiting data and the counts; the replay buffer is saved on its own."""
        fresh = [[rows, to_tree(data), extras] for rows, data, extras in self._fresh]
        return {'fresh': fresh, 'owed': self.owed, 'learned': self.learned, 'stale': self.stale}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``; data that a learner had received are drawn again, or lost without a buffer."""
        check_state(state, STATE)
        self._fresh = deque((rows, from_tree(data), extras) for rows, data, extras in state['fresh'])
        self.owed, self.learned, self.stale = state['owed'], state['learned'], state['stale']
        if self.buffer is None:
            self.learned = self.owed - len(self._fresh)
        self.given = self.learned


def options_of(cfg: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of the coordinator in the config of an experiment."""
    section = value_in(cfg, 'parallel.coordinator', {})
    return {name: section[name] for name in fields_of(CoordinatorConfig) if name in section}


def make_server(cfg: Mapping[str, Any]) -> Server:
    """Creates the server of the transport that the config names; without one, it serves threads of this process."""
    kind: Any = TRANSPORT_REGISTRY.get(value_in(cfg, 'parallel.comm_collector.type', 'in_process')).server_cls
    section = value_in(cfg, 'parallel.coordinator', {})
    declared = kind.config_fields()
    given = {name: section[name] for name in ADDRESS if section.get(name) is not None}
    given |= dict(section.get('transport', {}))
    options = {name: value for name, value in given.items() if name in declared and value is not None}
    with naming_address():
        server: Server = kind(options)
    return server


@contextmanager
def naming_address() -> Iterator[None]:
    """Gives errors about host or port their keys in the config of an experiment."""
    try:
        yield
    except ConfigError as error:
        if error.where in ADDRESS:
            error.where = f'parallel.coordinator.{error.where}'
        raise


def make_commander(
    cfg: Mapping[str, Any], spec: EnvSpec | None = None, policy: Any = None
) -> BaseParallelCommander:
    """Creates the commander that the config names.

    Args:
        cfg: The config of an experiment.
        spec: Spaces of the env, by default those of the config's env; if the config has no stop value, the reward
            threshold is used.
        policy: Command face of the policy; by default it is created. A main config without ``policy.type`` has none.
    """
    if policy is None and 'type' in cfg.get('policy', {}):
        if spec is None:
            section = value_in(cfg, 'env', {})
            spec = ENV_REGISTRY.build({'type': 'gym', **section}, section).spec
        seed = cfg.get('seed') or 0
        policy = POLICY_REGISTRY.build(cfg['policy'], cfg['policy'], spec, seed=seed).command_mode
    given: dict[str, Any] = {'policy': policy}
    if spec is not None and all(value_in(cfg, key, None) is None for key in STOP_VALUE):
        given['stop_value'] = spec.reward_threshold
    return create_parallel_commander(cfg, **given)


def make_data(cfg: Mapping[str, Any], **common: Any) -> TrainingData:
    """Creates the empty store of training data, with the config's replay buffer, which gets ``common``, if it has one."""
    section = value_in(cfg, 'policy.other.replay_buffer', None)
    if section is None:
        return TrainingData(None, max_staleness=value_in(cfg, 'parallel.coordinator.max_staleness', None))
    seed = component_rng(cfg.get('seed') or 0, 'replay_buffer').integers(2**32)
    named = {'type': 'advanced', **section}
    buffer = BUFFER_REGISTRY.build(named, section, seed=seed, **common)
    sizes = (value_in(cfg, f'policy.learn.{name}', 1) for name in ('batch_size', 'update_per_collect'))
    return TrainingData(buffer, *sizes)
