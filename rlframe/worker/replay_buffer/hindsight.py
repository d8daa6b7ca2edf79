"""Hindsight replay: sampled rows get goals that were reached in place of those that were to be reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import numpy as np

from rlframe.data import Array, Batch, BoolArray, FloatArray, IntArray
from rlframe.data.observation import GOAL_PARTS, fields_of, has_goals
from rlframe.data.timestep import EnvSpec
from rlframe.errors import ConfigError, EnvError, EpisodeTooLongError, IncompatibleError
from rlframe.utils.field import Section, option
from rlframe.utils.lazy import LazyModule
from rlframe.worker.replay_buffer.ring import RingStorage
from rlframe.worker.replay_buffer.running_episodes import AFTER, BEFORE, RunningEpisodes

loops: Any = LazyModule('rlframe.worker.replay_buffer.new_goals')  # numba takes half a second to import
KEY = 'policy.other.replay_buffer'
"""Section of the replay buffer."""
REACHED = 'reached_goal'
"""Column of a storage: the goal that each step reached, apart from the observations that it is a part of, for reading it alone."""
ADDED = BEFORE, AFTER, REACHED
"""Columns of a storage that samples do not have."""
LAST = 'next_obs', 'terminated', 'truncated'
"""Columns of n-step rows that are those of their last step."""
CHECKED = 1000
"""Stored rewards that are compared with those that the env computes from their goals."""


def _fits(buffer: Any, cfg: Any) -> ConfigError | None:
    """Refuses replay buffers whose samples are no single steps in main memory."""
    if not getattr(buffer, 'supports_hindsight', True):
        return ConfigError(
            'hindsight gives single steps other goals, and this replay buffer samples sequences or episodes',
            expected='None',
            remedy="The replay buffers 'naive', 'advanced' and 'elastic' have it.",
        )
    if cfg.device == 'cpu':
        return None
    return ConfigError(
        f'hindsight changes each batch in main memory, and device is {cfg.device!r}',
        expected="None, or device='cpu'",
    )


class HindsightConfig(Section):
    """Section ``hindsight`` of a replay buffer."""

    strategy: Literal[None, 'future', 'final', 'episode', 'random'] = option(
        None,
        doc="goals to give: 'future': reached later in the episode; 'final': last; 'episode': anywhere in it; 'random': in any;"
        ' None: no hindsight',
        rule=_fits,
    )
    share: float = option(0.8, range='[0, 1]', doc='sampled rows that get one')
    nstep: int = option(1, range='[1, inf)', unit='env steps', doc='set by policy.nstep')
    discount_factor: float = option(
        1.0, range='[0, 1]', unit='per env step', doc='set by policy.discount_factor'
    )


def check_goals(section: Mapping[str, Any] | None, spec: EnvSpec) -> None:
    """Checks that an env has goals for the hindsight of a replay buffer, and episodes that fit into it.

    Raises:
        IncompatibleError: If it has none, or goals of another shape than what is reached.
        ConfigError: If its episodes are longer than the replay buffer.
    """
    if not section or not (section.get('hindsight') or {}).get('strategy'):
        return
    parts = fields_of(spec.observation_space)
    if not has_goals(spec.observation_space):
        raise IncompatibleError(
            f'hindsight needs an env with goals, and the observations of {spec.name} are {spec.observation_space!r}',
            where=f'{KEY}.hindsight.strategy',
            remedy=f'They have to be a Dict with the parts {", ".join(GOAL_PARTS)}.',
        )
    shapes = [parts[name].shape for name in GOAL_PARTS[1:]]
    if shapes[0] != shapes[1]:
        raise IncompatibleError(
            f'achieved goals of {spec.name} have the shape {shapes[0]}, desired ones {shapes[1]}',
            where=f'{KEY}.hindsight.strategy',
            remedy='Hindsight puts the one in place of the other.',
        )
    size = section['replay_buffer_size']
    shards = section.get('num_shards', 1)
    length = spec.max_episode_steps or 0
    if length > size // shards:
        raise ConfigError(
            f'hindsight needs whole episodes in the replay buffer, or in a shard of it, and those of {spec.name} have up to {length}'
            ' env steps',
            where=f'{KEY}.replay_buffer_size',
            got=size,
            expected=f'at least {shards * length}',
        )


class Goals(Protocol):
    """What rewards and ends of episodes depend on goals by. Goals are in Fortran order, in which sums over a goal are fast."""

    def reward(self, achieved: Array, desired: Array) -> FloatArray:
        """Returns the rewards of steps that reach some goals, [n, ...], and are to reach others, [n, ...]; [n]."""

    def terminated(self, achieved: Array, desired: Array) -> BoolArray | None:
        """Returns whether such steps end their episodes, [n]; None if that does not depend on goals."""


class Hindsight:
    """Gives rows of a batch other goals, and the rewards and ends that belong to them; sums rewards of n steps.

    Source:
        Andrychowicz et al., Hindsight Experience Replay (2017), sections 3.2 and 4.5.
    """

    def __init__(self, cfg: HindsightConfig, rng: np.random.Generator) -> None:
        self.goals: Goals | None = None
        """What computes rewards; it has to be set before rows are pushed."""
        self.episodes = RunningEpisodes()
        self._strategy = cfg.strategy
        self._share = cfg.share
        self._nstep = cfg.nstep
        self._discount_factor = cfg.discount_factor
        self._rng = rng
        self._unchecked = CHECKED

    def take(self, data: Any, most: int) -> Batch:
        """Returns the rows of the episodes that are over, after comparing the first rewards with computed ones.

        Raises:
            EnvError: If a reward depends on more than goals; the first difference is shown.
            EpisodeTooLongError: If an episode has more than ``most`` steps, even if it is not over.
        """
        rows = self.episodes.take(data)
        running = self.episodes.longest(most)
        longest = max(int(rows[BEFORE].max(initial=-1)) + 1, running)
        if longest > most:
            so_far = ' and goes on' if running == longest else ''
            raise EpisodeTooLongError(
                f'hindsight needs whole episodes in the replay buffer, and one has {longest} env steps{so_far}',
                where=f'{KEY}.replay_buffer_size',
                got=most,
                expected=f'at least {longest}',
            )
        if self._unchecked > 0 and len(rows):
            self._check(rows[: self._unchecked])
            self._unchecked -= len(rows)
        return rows.replace(**{REACHED: rows['next_obs']['achieved_goal']})

    def _check(self, rows: Batch) -> None:
        goals = self._known_goals
        achieved, desired = (rows['next_obs'][name] for name in ('achieved_goal', 'desired_goal'))
        found = {'reward': goals.reward(achieved, desired), 'terminated': goals.terminated(achieved, desired)}
        for name, computed in found.items():
            if computed is None:
                continue
            stored = np.asarray(rows[name])
            bad = np.flatnonzero(~np.isclose(computed, stored, rtol=1e-4, atol=1e-5))
            if len(bad):
                i = int(bad[0])
                raise EnvError(
                    f'hindsight needs {name} to depend on goals alone, and in {len(bad)} of {len(rows)} steps compute_{name}'
                    f' returns something else than the step: the first, with the achieved goal {achieved[i].tolist()} and the'
                    f' desired goal {desired[i].tolist()}, had {stored[i].item()}',
                    where=f'{KEY}.hindsight.strategy',
                    got=np.asarray(computed)[i].item(),
                    expected=stored[i].item(),
                    remedy='Set it to None.',
                )

    @property
    def _known_goals(self) -> Goals:
        if self.goals is None:
            raise EnvError(
                'nobody has said how goals are rewarded',
                where='hindsight',
                remedy='Set buffer.hindsight.goals.',
            )
        return self.goals

    def chances(self, count: int) -> FloatArray:
        """Draws what decides which rows of a batch get other goals, and which ones, float64 [count]."""
        return self._rng.random(count)

    def sample(self, slot: IntArray, storage: RingStorage, chance: FloatArray) -> Batch:
        """Returns copies of the rows at these slots, a share of them with other goals, as ``chances`` decide."""
        strategy = loops.STRATEGIES[self._strategy]
        marks = storage.column(BEFORE), storage.column(AFTER)
        present = storage.first % storage.capacity, len(storage)
        chosen, source = loops.choose(chance, self._share, strategy, slot, *marks, *present)
        goal = storage.read(source, REACHED)
        made = self._of_steps if self._nstep == 1 else self._of_windows
        return Batch.unchecked(made(slot, storage, chosen, goal), len(slot))

    def _of_steps(
        self, slot: IntArray, storage: RingStorage, chosen: IntArray, goal: Array
    ) -> dict[str, Any]:
        """Returns the columns of single steps, the chosen ones with other goals."""
        columns = dict(storage.gather(slot, without=ADDED).columns)
        if not len(chosen):
            return columns
        pair = np.asfortranarray(self._give(columns, chosen, goal)), np.asfortranarray(goal)
        columns['reward'][chosen] = self._known_goals.reward(*pair)
        ends = self._known_goals.terminated(*pair)
        if ends is not None:
            self._end(columns, chosen, ends)
        return columns

    def _of_windows(
        self, slot: IntArray, storage: RingStorage, chosen: IntArray, goal: Array
    ) -> dict[str, Any]:
        """Returns the columns of n-step rows, as ``NStepWindow`` makes them; a new goal that ends an episode ends the sum."""
        nstep = self._nstep
        window, length = loops.windows(slot, storage.column(AFTER), nstep)
        reward = storage.read(window, 'reward')
        is_over = None
        if len(chosen):
            achieved = storage.read(window[chosen], REACHED).reshape(-1, *goal.shape[1:])
            pair = np.asfortranarray(achieved), np.asfortranarray(np.repeat(goal, nstep, axis=0))
            reward[chosen] = self._known_goals.reward(*pair).reshape(-1, nstep)
            ends = self._known_goals.terminated(*pair)
            is_over = None if ends is None else loops.cut(length, chosen, ends.reshape(-1, nstep))

        # sum, and end where the window does
        columns = dict(storage.gather(slot, without=(*ADDED, 'reward', *LAST)).columns)
        discount = np.cumprod([1.0, *[self._discount_factor] * nstep])
        columns['reward'] = loops.add_up(reward, length, discount).astype(reward.dtype)
        columns['value_gamma'] = discount[length].astype(np.float32)
        last = window[np.arange(len(slot)), length - 1]
        columns |= {name: storage.read(last, name) for name in LAST if storage.column(name) is not None}
        if len(chosen):
            self._give(columns, chosen, goal)
        if is_over is not None:
            self._end(columns, chosen, is_over)
        return columns

    @staticmethod
    def _give(columns: dict[str, Any], chosen: IntArray, goal: Array) -> Array:
        """Writes goals, [K, ...], into the chosen rows, and returns what these have achieved, [K, ...]."""
        obs, next_obs = columns['obs'], columns['next_obs']
        parts = obs['desired_goal'], next_obs['desired_goal'], next_obs['achieved_goal']
        achieved: Array = loops.give(*map(_flat, parts), chosen, _flat(goal))
        return achieved.reshape(goal.shape)

    def _end(self, columns: dict[str, Any], chosen: IntArray, ends: BoolArray) -> None:
        """Writes which of the chosen rows end in a terminal state; an episode that ended otherwise was cut."""
        if 'truncated' in columns:
            was_done = columns['terminated'][chosen] | columns['truncated'][chosen]
            columns['truncated'][chosen] = was_done & ~ends
        columns['terminated'][chosen] = ends


def _flat(numbers: Array) -> Array:
    """Returns a view of numbers [n, ...] as [n, k]."""
    return numbers.reshape(len(numbers), -1) if numbers.ndim != 2 else numbers
