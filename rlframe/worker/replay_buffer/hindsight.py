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
from rlframe.worker.replay_buffer.ring import RingStorage
from rlframe.worker.replay_buffer.running_episodes import AFTER, BEFORE, RunningEpisodes

KEY = 'policy.other.replay_buffer'
"""Section of the replay buffer."""
REACHED = 'reached_goal'
"""Column of a storage: the goal that each step reached, apart from the observations that it is a part of, for reading it alone."""
ADDED = BEFORE, AFTER, REACHED
"""Columns of a storage that samples do not have."""
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
    length = spec.max_episode_steps or 0
    if length > size:
        raise ConfigError(
            f'hindsight needs whole episodes in the replay buffer, and those of {spec.name} have up to {length} env steps',
            where=f'{KEY}.replay_buffer_size',
            got=size,
            expected=f'at least {length}',
        )


class Goals(Protocol):
    """What rewards and ends of episodes depend on goals by."""

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
            EpisodeTooLongError: If an episode has more than ``most`` steps.
        """
        rows = self.episodes.take(data)
        longest = int(rows[BEFORE].max(initial=-1)) + 1
        if longest > most:
            raise EpisodeTooLongError(
                f'hindsight needs whole episodes in the replay buffer, and one has {longest} env steps',
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

    def sample(self, slot: IntArray, storage: RingStorage) -> Batch:
        """Returns copies of the rows at these slots, a share of them with other goals."""
        columns = dict(storage.gather(slot, without=ADDED).columns)

        # choose rows, and for each the step that reached its new goal
        draw = self._rng.random(len(slot))
        (chosen,) = (draw < self._share).nonzero()
        draw = draw[chosen] / self._share if self._share else draw[:0]
        source = self._source(draw, slot[chosen], storage)
        goal = storage.read(source % storage.capacity, REACHED)

        # judge their steps by it
        if self._nstep > 1:
            self._sum_rewards(columns, slot, chosen, goal, storage)
        elif len(chosen):
            achieved = columns['next_obs']['achieved_goal'][chosen]
            columns['reward'][chosen] = self._known_goals.reward(achieved, goal)
            ends = self._known_goals.terminated(achieved, goal)
            if ends is not None:
                self._end(columns, chosen, ends)
        for name in ('obs', 'next_obs'):
            columns[name]['desired_goal'][chosen] = goal
        return Batch.unchecked(columns, len(slot))

    def _source(self, draw: FloatArray, slot: IntArray, storage: RingStorage) -> IntArray:
        """Returns the slots, not wrapped, of the steps whose goals rows get, of uniform numbers in [0, 1)."""
        if self._strategy == 'random':
            return storage.first + (draw * len(storage)).astype(np.int64)
        after: IntArray = storage.read(slot, AFTER)
        if self._strategy == 'final':
            return slot + after
        start = slot
        if self._strategy == 'episode':  # its first steps may be overwritten
            before = storage.read(slot, BEFORE)
            start = slot - np.minimum(before, (slot - storage.first) % storage.capacity)
        return start + (draw * (slot + after + 1 - start)).astype(np.int64)

    def _end(self, columns: dict[str, Any], chosen: IntArray, ends: BoolArray) -> None:
        """Writes which of the chosen rows end in a terminal state; an episode that ended otherwise was cut."""
        if 'truncated' in columns:
            was_done = columns['terminated'][chosen] | columns['truncated'][chosen]
            columns['truncated'][chosen] = was_done & ~ends
        columns['terminated'][chosen] = ends

    def _sum_rewards(
        self,
        columns: dict[str, Any],
        slot: IntArray,
        chosen: IntArray,
        goal: Array,
        storage: RingStorage,
    ) -> None:
        """Makes n-step rows of one-step rows, as ``NStepWindow`` does; a new goal that ends an episode ends the sum."""
        length = np.minimum(storage.read(slot, AFTER) + 1, self._nstep)
        step = np.arange(self._nstep)
        window = (slot[:, None] + np.minimum(step, length[:, None] - 1)) % storage.capacity  # [B, n]
        reward = storage.read(window, 'reward')
        ends = None
        if len(chosen):
            achieved = storage.read(window[chosen], REACHED)
            pairs = achieved.reshape(-1, *goal.shape[1:]), np.repeat(goal, self._nstep, axis=0)
            reward[chosen] = self._known_goals.reward(*pairs).reshape(-1, self._nstep)
            ends = self._known_goals.terminated(*pairs)
        if ends is not None:
            ends = ends.reshape(-1, self._nstep)
            ended = ends.argmax(1)
            length[chosen] = np.where(ends.any(1), np.minimum(ended + 1, length[chosen]), length[chosen])

        # sum, and end where the window does
        discount = np.cumprod([1.0, *[self._discount_factor] * self._nstep])
        total = np.zeros(len(slot))
        for i in range(self._nstep):
            total += np.where(i < length, discount[i] * reward[:, i], 0.0)
        columns['reward'] = total.astype(columns['reward'].dtype)
        columns['value_gamma'] = discount[length].astype(np.float32)
        last = window[np.arange(len(slot)), length - 1]
        for name in ('next_obs', 'terminated', 'truncated'):
            if name in columns:
                columns[name] = storage.read(last, name)
        if ends is not None:
            self._end(columns, chosen, ends[np.arange(len(chosen)), length[chosen] - 1])
