"""JointPolicy: several policies that play one game; PastSelves: self-play against earlier versions of the learner."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlframe.data.observation import any_action
from rlframe.data.players import PlayerLayout, PlayerView
from rlframe.data.timestep import Array, Batch, BoolArray, EnvSpec, IntArray
from rlframe.errors import IncompatibleError
from rlframe.utils.every import Every
from rlframe.utils.schema import COUNT, DICT, GENERATOR, Kind, Schema, array, check_state, list_of, part
from rlframe.utils.serialize import checked_bits
from rlframe.worker.collector.ding_policy import as_rows


class JointPolicy:
    """Passes each policy the observations of its players, and joins their actions.

    A policy that has several seats acts in all of them at once. To distinguish its games, player p of env i has the env
    id ``p * N + i``. Only active players act; the other entries of an action are ignored.

    Args:
        policies: Collect or eval faces, one for each player, or a single one for self-play.
    """

    _player_spec: EnvSpec

    def __init__(self, policies: Any) -> None:
        is_single = hasattr(policies, 'forward')
        adapted: dict[int, Any] = {}  # one for a policy that is given several times
        self._given: list[Any] = [
            adapted.setdefault(id(policy), as_rows(policy, lambda: self._player_spec))
            for policy in ([policies] if is_single else policies)
        ]
        self._plays_itself = is_single
        self._distinct: list[Any] = []
        for policy in self._given:
            if policy not in self._distinct:
                self._distinct.append(policy)
        self.player_num = len(self._given)
        """Players that it acts for, P."""
        self._env_num = 0

    def sit(self, spec: EnvSpec, env_num: int) -> None:
        """Takes the seats of N envs: policy p acts for player p.

        Args:
            spec: Spec of one env.
            env_num: Number of envs, N.

        Raises:
            IncompatibleError: If the envs have a single player, or not as many players as there are policies.
        """
        if spec.player is None:
            raise IncompatibleError(
                f'{spec.name} has one player',
                where='policy',
                remedy="Envs of one player need collector.type='sample' or 'episode' and evaluator.type='interaction'.",
            )
        if self._plays_itself:
            self._given = self._given[:1] * spec.player_num
            self.player_num = spec.player_num
        if len(self._given) != spec.player_num:
            raise IncompatibleError(
                f'{spec.name} has {spec.player_num} players',
                where='policy',
                got=f'{len(self._given)} policies',
                expected=f'{spec.player_num}, one for each player',
                remedy='The same policy may be given several times.',
            )
        self._player_spec = spec.player
        self._env_num, self._layout = env_num, PlayerLayout(spec.player, spec.player_num)
        # place of each given policy among the distinct ones
        self._index = np.array([self._distinct.index(policy) for policy in self._given])
        self.seating = np.tile(np.arange(spec.player_num), (env_num, 1))
        """Which policy acts for each player of each env, [N, P]."""
        self._idle = any_action(spec.player.action_space)

    def view(self, obs: Array) -> PlayerView:
        """Returns the players' observations and rewards, [n, P]."""
        return self._layout.view(obs)

    def slot(self, player: Any, env_id: IntArray) -> IntArray:
        """Returns the ids that players of envs have for the policies."""
        slot: IntArray = player * self._env_num + env_id
        return slot

    def policy_of(self, player: int) -> Any:
        """Returns the policy that was given for a player."""
        return self._given[player]

    def forward(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        """Returns the joint action [n, P, ...].

        The column ``acting`` [n, P] is the policy that acted for each player; other outputs of policy k are in columns
        ``k/name``.
        """
        seen = self._layout.view(obs)
        acting = self._index[self.seating[env_id]]  # [n, P]
        count = len(env_id)
        idle = np.repeat(np.repeat(self._idle[None, None], self.player_num, 1), count, 0)
        columns = {'action': idle, 'acting': acting}
        for k, policy in enumerate(self._distinct):
            row, player = np.nonzero(seen.active & (acting == k))
            if not len(row):
                continue
            output = policy.forward(seen.obs[row, player], self.slot(player, env_id[row]), **settings)
            for name, values in output.items():
                key = name if name == 'action' else f'{k}/{name}'
                if key not in columns:
                    columns[key] = np.zeros((*acting.shape, *values.shape[1:]), values.dtype)
                columns[key][row, player] = values
        return Batch.unchecked(columns, count)

    def given_for(self, player: int) -> int:
        """Returns which of the different policies was given for a player."""
        return int(self._index[player])

    def is_own(self, player: int, output: Batch) -> BoolArray:
        """Whether the policy given for a player chose the action, in each row of ``forward``'s answer, [n]."""
        is_own: BoolArray = output['acting'][:, player] == self.given_for(player)
        return is_own

    def said_for(self, player: int, output: Batch, rows: Array) -> dict[str, Array]:
        """Returns the output of the policy given for a player, for some rows of ``forward``'s answer."""
        start = f'{self.given_for(player)}/'
        own = {name[len(start) :]: column for name, column in output.items() if name.startswith(start)}
        return {name: column[rows, player] for name, column in {'action': output['action'], **own}.items()}

    def reset(self, env_id: IntArray | None) -> None:
        """Tells all policies that games begin anew."""
        if env_id is None or not self._env_num:
            ids = None
        else:
            ids = self.slot(np.arange(self.player_num)[:, None], env_id).ravel()
        for policy in self._distinct:
            policy.reset(ids)

    def get_attribute(self, name: str) -> Any:
        """Returns a fact about the first policy."""
        return self._given[0].get_attribute(name)

    def begin_round(self, train_iter: int, envstep: int) -> None:
        """Prepares for a round of collection, after so many train iterations and env steps."""

    def state_dict(self) -> dict[str, Any]:
        """Returns its own state, in addition to the policies'."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""


def check_flags(flags: Sequence[bool] | None, player_num: int) -> list[int]:
    """Returns the players whose flag is set; all if no flags are given.

    Raises:
        IncompatibleError: If there are more or fewer flags than players, or none is set.
    """
    chosen = [True] * player_num if flags is None else list(flags)
    if len(chosen) != player_num or not any(chosen):
        raise IncompatibleError(
            'one switch for each player',
            where='policy.collect.collector.record',
            got=flags,
            expected=f'{player_num} of True and False, at least one of them True',
        )
    return [player for player, is_set in enumerate(chosen) if is_set]


LEARNER = 0
"""The player of a seat: the learner, or k for snapshot k - 1."""


def as_snapshot(face: Any) -> Any:
    """Returns an eval face that ignores the learner's exploration settings."""
    return face._replace(forward=lambda obs, env_id, **settings: face.forward(obs, env_id))


class PastSelves(JointPolicy):
    """A learner that plays with itself, and in some games against snapshots of itself.

    The players are drawn when a game starts: the learner in all seats, or the learner in a random seat and a random
    snapshot in each other seat. Snapshots do not explore, and their moves are not recorded. Until the first snapshot is
    taken, the learner plays against itself. If a snapshot is replaced during a game, the game continues with the new
    one.

    Args:
        learner: Collect face of the trained policy.
        make_opponent: Returns the eval face of another policy of the same kind, to be given weights.
        snapshot_freq: Interval between two snapshots: train iterations, or ``'N env steps'``.
        keep: Number of snapshots kept, the newest ones.
        newest_share: Share of games in which the learner plays with itself.
        rng: Generator that draws the players.
    """

    def __init__(
        self,
        learner: Any,
        make_opponent: Callable[[], Any],
        *,
        snapshot_freq: int | str,
        keep: int,
        newest_share: float,
        rng: np.random.Generator,
    ) -> None:
        super().__init__(learner)
        self._make_opponent, self._rng = make_opponent, rng
        self._every, self._keep, self._newest_share = Every.of(snapshot_freq), keep, newest_share
        self._taken, self._last = 0, 0  # snapshots so far, and when the last one was taken

    @property
    def snapshots(self) -> list[Any]:
        """The snapshots; if there are too many, the next one replaces the oldest."""
        return self._distinct[1:]

    def sit(self, spec: EnvSpec, env_num: int) -> None:
        super().sit(spec, env_num)
        self._index = np.arange(1 + self._keep)
        self.seating = np.full_like(self.seating, LEARNER)

    def given_for(self, player: int) -> int:
        return LEARNER

    def begin_round(self, train_iter: int, envstep: int) -> None:
        now = self._every.now(train_iter, envstep)
        if now - self._last < self._every.length:
            return
        place = self._taken % self._keep
        if place == len(self.snapshots):
            self._distinct.append(as_snapshot(self._make_opponent()))
        self.snapshots[place].load_state_dict(self._distinct[LEARNER].state_dict())
        self._taken, self._last = self._taken + 1, now

    def reset(self, env_id: IntArray | None) -> None:
        super().reset(env_id)
        if self._env_num:
            self._draw(np.arange(self._env_num) if env_id is None else env_id)

    def _draw(self, env_id: IntArray) -> None:
        """Draws the players of the games that begin in these envs, [n]."""
        count, player_num = len(env_id), self.player_num
        has_past = (self._rng.random(count) >= self._newest_share) & (self._taken > 0)
        seat = self._rng.integers(player_num, size=count)
        players = 1 + self._rng.integers(max(len(self.snapshots), 1), size=(count, player_num))
        players[np.arange(count), seat] = LEARNER
        self.seating[env_id] = np.where(has_past[:, None], players, LEARNER)

    def state_dict(self) -> dict[str, Any]:
        return {
            'rng': copy.deepcopy(self._rng.bit_generator.state),
            'seating': self.seating.copy(),
            'taken': self._taken,
            'last_iter': self._last,
            'snapshots': [copy.deepcopy(face.state_dict()) for face in self.snapshots],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(state, self._schema())
        players = 1 + len(state['snapshots'])
        seated = Kind(f'players below {players}', lambda v: bool(((v >= 0) & (v < players)).all()))
        check_state(state, {'seating': seated})
        self._rng.bit_generator.state = copy.deepcopy(checked_bits(state['rng']))
        self.seating = state['seating'].copy()
        self._taken, self._last = state['taken'], state['last_iter']
        self._distinct[1:] = [as_snapshot(self._make_opponent()) for _ in state['snapshots']]
        for k, (face, saved) in enumerate(zip(self.snapshots, state['snapshots'], strict=True)):
            with part(f'snapshots.{k}'):
                face.load_state_dict(saved)

    def _schema(self) -> dict[str, Schema]:
        fits = list_of(DICT).fits
        snapshots = Kind(
            f'a list of at most {self._keep} dicts', lambda v: fits(v) and len(v) <= self._keep, DICT
        )
        return {
            'rng': GENERATOR,
            'seating': array('iu', self.seating.shape),
            'taken': COUNT,
            'last_iter': COUNT,
            'snapshots': snapshots,
        }
