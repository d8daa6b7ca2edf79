"""Recorded data: whether a policy can learn from them alone, and those that a replay buffer begins with.

Both are read before a run has a folder; the latter are pushed before its first env step.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.config.schema import ExperimentConfig
from rlframe.data.dataset import Selection, check_source, open_data
from rlframe.data.episodes import ordered_columns
from rlframe.data.faces import attribute_of
from rlframe.data.observation import obs_dtype
from rlframe.data.recording import STEP, Recording
from rlframe.data.sources import DataSource, MixedSource
from rlframe.data.timestep import Batch, EnvSpec
from rlframe.data.trajectory import TrajectoryRecorder
from rlframe.errors import ConfigError
from rlframe.policy.parts.recorded import transitions_of
from rlframe.registry import BUFFER_REGISTRY, POLICY_REGISTRY
from rlframe.utils.seed import component_rng
from rlframe.worker.collector.dataset_collector import READ_AT_ONCE
from rlframe.worker.collector.serial_collector import replay
from rlframe.worker.replay_buffer.data_buffer import BufferWithData

if TYPE_CHECKING:
    from rlframe.policy import Policy
    from rlframe.worker import IBuffer

KEY = 'policy.other.replay_buffer.init_from'
UNLIMITED = {'max_use': math.inf, 'max_staleness': math.inf}
"""Options by which items go that are kept as data."""


def check_data(source: DataSource, name: str, batch_size: int, where: str) -> None:
    """Checks, before a run has a folder, that a policy can learn from data.

    Args:
        source: The data.
        name: Registered name of the policy.
        batch_size: Rows of a batch.
        where: The option that names the data, for errors.

    Raises:
        ConfigError: If columns are missing that it learns from, it needs an order that they do not have, or a batch cannot
            have rows of all data.
    """
    kind: Any = POLICY_REGISTRY.get(name)
    needed = _columns_of(_inputs(kind))
    names = source.names()
    missing = [] if names is None else [column for column in needed if column not in names]
    if missing:
        raise ConfigError(
            f'{name} learns from the column {missing[0]}, and the data have none',
            where=where,
            got=sorted(names or ()),
            expected=' and '.join(map(repr, needed)),
            remedy='bc learns from observations and actions alone.',
        )
    if getattr(kind, 'needs_order', False):
        ordered_columns(source)
    elif isinstance(source, MixedSource):
        source.check_size(batch_size)


def reads_rewards(name: str) -> bool:
    """Whether a policy learns from the rewards of recorded data, and so from where episodes end."""
    inputs = _inputs(POLICY_REGISTRY.get(name))
    return 'reward' in inputs or not inputs


def _inputs(kind: Any) -> Sequence[str]:
    """Returns the columns that the update of a policy reads; none if it does not say it."""
    inputs: Sequence[str] = getattr(getattr(kind, 'update_class', None), 'inputs', ())
    return inputs


def _columns_of(inputs: Sequence[str]) -> tuple[str, ...]:
    """Returns the columns of recorded data of which the inputs of an update are made, in the end."""
    if 'reward' not in inputs:
        return tuple(name for name in STEP if name in inputs)
    return STEP if 'next_obs' in inputs else tuple(name for name in STEP if name != 'next_obs')


class GivenData:
    """The recorded data of a config, in memory: whole episodes in time order.

    Args:
        cfg: The config of the run.
        spec: Spaces of its env.

    Raises:
        ConfigError: If there are no such data, they are of another env, or lack columns that replayed transitions have.
    """

    def __init__(self, cfg: ExperimentConfig, spec: EnvSpec) -> None:
        self._cfg, self._spec = cfg, spec
        section: Mapping[str, Any] = cfg.policy.other.replay_buffer or {}
        self._share: float = section.get('init_share', 0.0)
        self._room: float = section.get('replay_buffer_size', math.inf)
        self.updates: int = section.get('init_updates', 0)
        """Updates from the data alone, before the first env step."""
        given = section.get('init_from')
        listed = given if isinstance(given, list | tuple) else [given]
        listed = [each for each in listed if each is not None]
        self.episodes = [episode for data in listed for episode in _episodes(data, spec)]
        """Columns of each episode, [T, ...]."""
        if listed:
            self._check_count()

    def _check_count(self) -> None:
        """Refuses data that are fewer rows than an update takes of them, or more than the replay buffer holds."""
        need = self._cfg.policy.learn.batch_size
        if not self.updates:
            need = round(self._share * need)
        if not self._share and len(self) > self._room:
            raise ConfigError(
                'these data would push each other out of the replay buffer',
                where=KEY,
                got=f'{len(self)} rows',
                expected=f'at most {self._room} (policy.other.replay_buffer.replay_buffer_size)',
                remedy='Or keep them apart, as a share of each batch: policy.other.replay_buffer.init_share=0.5.',
            )
        if len(self) < need:
            raise ConfigError(
                f'an update takes {need} rows of these data',
                where=KEY,
                got=f'{len(self)} rows',
                expected=f'at least {need}',
            )

    def __len__(self) -> int:
        return sum(map(len, self.episodes))

    def beside(self, own: IBuffer | None) -> IBuffer | None:
        """Returns the replay buffer of the run: with a share, one that keeps the data beside what ``own`` takes."""
        section: Any = self._cfg.policy.other.replay_buffer
        if own is None or section is None or not self._share:
            return own
        kept = copy.deepcopy(section)
        kept.update({name: value for name, value in UNLIMITED.items() if name in section})
        kept.replay_buffer_size = len(self) + (section.replay_buffer_size if self._has_expert else 0)
        seed = int(component_rng(self._cfg.seed, 'replay_data').integers(2**32))
        data: IBuffer = BUFFER_REGISTRY.build(kept, kept, seed=seed, instance_name='data')
        if getattr(own, 'hindsight', None) is not None:
            data.hindsight.goals = own.hindsight.goals  # type: ignore[attr-defined]  # they are of one class
        return BufferWithData(own, data, self._share)

    def push(self, buffer: IBuffer, policy: Policy) -> None:
        """Pushes the data as the policy would have collected them, and lets it look at them; they are forgotten then."""
        if not self.episodes:
            return
        whole = Batch.cat(self.episodes)
        reader = policy.get_attribute('data_reader')
        if reader is not None:
            reader(lambda: (whole[i : i + READ_AT_ONCE] for i in range(0, len(whole), READ_AT_ONCE)))
        rows = _transitions(self.episodes, policy, self._marks_episodes)
        if isinstance(buffer, BufferWithData):
            buffer.push_data(rows)
        else:
            buffer.push(rows, 0)
        self.episodes = []

    @property
    def _has_expert(self) -> bool:
        """Whether an expert adds to the data as it acts."""
        return self._cfg.policy.collect.get('model_path') is not None

    @property
    def _marks_episodes(self) -> bool:
        """Whether rows that are collected say to which episode they belong."""
        return bool(self._cfg.policy.collect.collector.get('mark_episodes'))


def _episodes(data: Any, spec: EnvSpec) -> list[Batch]:
    """Returns the episodes of recorded data with the columns and types of env steps."""
    source: Any = open_data(data, KEY, Selection(memory=math.inf))
    check_source(source, spec, KEY)
    source.check_ends(spec, KEY)
    rows = getattr(source, 'rows', None)
    if not isinstance(rows, Batch):
        raise ConfigError('bad value', where=KEY, got=data, expected='the path of recorded data')
    missing = [name for name in STEP if name not in rows]
    if missing:
        raise ConfigError(
            f'a replay buffer takes whole env steps, and the data have no column {missing[0]}',
            where=KEY,
            got=sorted(rows.keys()),
            expected=' and '.join(map(repr, STEP)),
        )
    dtype = obs_dtype(spec.observation_space)[0]
    columns = {name: np.asarray(rows[name]) for name in STEP}
    if dtype.names is None:
        columns |= {name: columns[name].astype(dtype, copy=False) for name in ('obs', 'next_obs')}
    kept: Mapping[str, Any] = columns | ({'episode': rows['episode']} if 'episode' in rows else {})
    found = Recording(dict(kept), {}, '', '').episodes()
    whole = Batch(columns)
    cuts = zip(found.start.tolist(), (found.start + found.length).tolist(), strict=True)
    return [whole[start:stop] for start, stop in cuts]


def _transitions(episodes: Sequence[Batch], policy: Policy, marks_episodes: bool) -> Batch:
    """Returns episodes as the rows that a collector would have pushed, [M, ...]."""
    made = [_of_episode(episode, policy, marks_episodes) for episode in episodes]
    shape = attribute_of(policy, 'reward_shaping')
    if shape is not None:
        made = [shape(episode) for episode in made]
    nstep = policy.get_attribute('nstep')
    if nstep == 1:
        return Batch.cat(made)
    return replay(made, TrajectoryRecorder(len(made), nstep, policy.get_attribute('discount_factor')))


def _of_episode(episode: Batch, policy: Policy, marks_episodes: bool) -> Batch:
    count = len(episode)
    cut = episode['truncated'].copy()
    cut[-1] |= not episode['terminated'][-1]  # what follows is unknown
    block = episode.replace(truncated=cut).map(lambda column: column[None])
    rows = transitions_of(policy, block).replace(collect_iter=np.zeros(count, np.int32))
    if not marks_episodes:
        return rows
    return rows.replace(env_id=np.zeros(count, np.int32), episode_step=np.arange(count, dtype=np.int32))
