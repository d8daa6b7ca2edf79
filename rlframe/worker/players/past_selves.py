"""PastSelves: self-play in which some games are played against earlier versions of the learner."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlframe.data.batch import Batch
from rlframe.data.timestep import Array, EnvSpec, IntArray
from rlframe.utils.bit_state import checked_bits
from rlframe.utils.schema import COUNT, DICT, GENERATOR, Kind, Schema, array, check_state, list_of, part
from rlframe.worker.players.joint_policy import JointPolicy

LEARNER = 0
"""The player of a seat: the learner, or k for snapshot k - 1."""


class Snapshot:
    """An earlier version of the learner; it ignores the learner's exploration settings.

    Args:
        face: Eval face of a policy of the learner's kind.
    """

    def __init__(self, face: Any) -> None:
        self._face = face

    def forward(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        """Acts as in evaluation."""
        acted: Batch = self._face.forward(obs, env_id)
        return acted

    def reset(self, env_id: IntArray | None) -> None:
        """Forgets the games of these ids, or all."""
        self._face.reset(env_id)

    def state_dict(self) -> dict[str, Any]:
        """Returns the weights, and the statistics that normalise observations."""
        state: dict[str, Any] = self._face.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over ``state_dict()`` of the learner or of another snapshot."""
        self._face.load_state_dict(state)


class PastSelves(JointPolicy):
    """A learner that plays with itself, and in some games against snapshots of itself.

    The players are drawn when a game starts: the learner in all seats, or the learner in a random seat and a random
    snapshot in each other seat. Snapshots do not explore, and their moves are not recorded. Until the first snapshot is
    taken, the learner plays against itself. If a snapshot is replaced during a game, the game continues with the new
    one.

    Args:
        learner: Collect face of the trained policy.
        make_opponent: Returns the eval face of another policy of the same kind, to be given weights.
        snapshot_freq: Train iterations between two snapshots.
        keep: Number of snapshots kept, the newest ones.
        newest_share: Share of games in which the learner plays with itself.
        rng: Generator that draws the players.
    """

    def __init__(
        self,
        learner: Any,
        make_opponent: Callable[[], Any],
        *,
        snapshot_freq: int,
        keep: int,
        newest_share: float,
        rng: np.random.Generator,
    ) -> None:
        super().__init__(learner)
        self._make_opponent, self._rng = make_opponent, rng
        self._snapshot_freq, self._keep, self._newest_share = snapshot_freq, keep, newest_share
        self._taken, self._last_iter = 0, 0  # snapshots so far, and when the last one was taken

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

    def begin_round(self, train_iter: int) -> None:
        if train_iter - self._last_iter < self._snapshot_freq:
            return
        place = self._taken % self._keep
        if place == len(self.snapshots):
            self._distinct.append(Snapshot(self._make_opponent()))
        self.snapshots[place].load_state_dict(self._distinct[LEARNER].state_dict())
        self._taken, self._last_iter = self._taken + 1, train_iter

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
            'last_iter': self._last_iter,
            'snapshots': [copy.deepcopy(face.state_dict()) for face in self.snapshots],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(state, self._schema())
        players = 1 + len(state['snapshots'])
        seated = Kind(f'players below {players}', lambda v: bool(((v >= 0) & (v < players)).all()))
        check_state(state, {'seating': seated})
        self._rng.bit_generator.state = copy.deepcopy(checked_bits(state['rng']))
        self.seating = state['seating'].copy()
        self._taken, self._last_iter = state['taken'], state['last_iter']
        self._distinct[1:] = [Snapshot(self._make_opponent()) for _ in state['snapshots']]
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
