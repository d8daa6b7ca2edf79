"""Observations, rewards and ends of P players in one env step, and their encoding as one observation.

An env of several players is stepped like any other: its observation is one record of bytes, its action has an axis P.
So every env manager can run it, and shares, checks and saves its observations like any array.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from rlframe.data.observation import MASK_PATH, check_mask_values, obs_dtype
from rlframe.data.timestep import Array, BoolArray, EnvSpec, FloatArray, IntArray, is_finite
from rlframe.errors import EnvContractError, NonFiniteError
from rlframe.utils.schema import array, check_state, dict_of, load_arrays, rows, saved_arrays
from rlframe.utils.serialize import field_path

Columns = dict[str, Array]
ARRAYS = ('reward', 'number')
"""Attributes of ``OpenMoves`` that are saved."""
FIELDS = (('reward', np.float64), ('active', np.bool_), ('terminated', np.bool_), ('truncated', np.bool_))


class OpenMoves:
    """Holds back one player's last move in each of N envs, and sums its rewards until the player's next turn.

    A reward that comes before the first move is counted to that move, as there is no earlier one.
    """

    def __init__(self, env_num: int) -> None:
        self._columns: Columns = {}  # [N, ...]
        self._reward = np.zeros(env_num)
        self._number = np.zeros(env_num, np.int64)  # moves that were closed in the running episode
        self.is_open = np.zeros(env_num, np.bool_)
        """Whether a move is pending in each env, [N]."""

    def __len__(self) -> int:
        return int(self.is_open.sum())

    def make(self, columns: Columns, env_id: IntArray) -> None:
        """Records the moves, columns [n, ...], made in envs without a pending one, [n]."""
        for name, column in columns.items():
            if name not in self._columns:
                self._columns[name] = np.zeros((len(self.is_open), *column.shape[1:]), column.dtype)
            self._columns[name][env_id] = column
        self.is_open[env_id] = True

    def pay(self, reward: FloatArray, env_id: IntArray) -> None:
        """Adds to the rewards of the players' last moves, [n]."""
        self._reward[env_id] += reward

    def close(self, env_id: IntArray) -> tuple[Columns, FloatArray, IntArray]:
        """Returns the pending moves of these envs, their rewards [n], and the number of each in its episode."""
        columns = {name: column[env_id] for name, column in self._columns.items()}
        reward, number = self._reward[env_id], self._number[env_id]
        self._number[env_id] += 1
        self._reward[env_id] = 0.0
        self.is_open[env_id] = False
        return columns, reward, number

    def forget(self, env_id: IntArray | BoolArray) -> int:
        """Resets these envs and returns the number of dropped moves."""
        dropped = int(self.is_open[env_id].sum())
        self._reward[env_id], self._number[env_id], self.is_open[env_id] = 0.0, 0, False
        return dropped

    def state_dict(self) -> dict[str, Any]:
        """Returns a copy of all pending moves."""
        columns = {name: column.copy() for name, column in self._columns.items()}
        return {**saved_arrays(self, ARRAYS), 'is_open': self.is_open.copy(), 'columns': columns}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        env_num = len(self.is_open)
        check_state(state, {'is_open': array('b', (env_num,)), 'columns': dict_of(rows(env_num))})
        load_arrays(self, ARRAYS, state)
        self.is_open = state['is_open'].copy()
        self._columns = {name: column.copy() for name, column in state['columns'].items()}


class PlayerView(NamedTuple):
    """The results of one step for each of P players, in n envs."""

    obs: Array
    """Observation of each player at its last turn, or at its end, [n, P, ...]."""
    reward: FloatArray
    """As the game gave it, float64 [n, P]."""
    active: BoolArray
    """True for the players who act in the next step: exactly one in a turn-based game, [n, P]."""
    terminated: BoolArray
    """True for the players whose game ended in a terminal state, at this step or before, [n, P]."""
    truncated: BoolArray
    """True for the players whose game was cut off, at this step or before, [n, P]."""

    @property
    def over(self) -> BoolArray:
        """True for the players whose game is over, either way, [n, P]."""
        return self.terminated | self.truncated


class PlayerLayout:
    """Layout of the parts of P players in a record of bytes; observations of kind Dict and Tuple become structured arrays."""

    def __init__(self, player: EnvSpec, player_num: int) -> None:
        self._name = player.name
        dtype, shape = obs_dtype(player.observation_space)
        fields = [
            ('obs', dtype, (player_num, *shape)),
            *((name, kind, (player_num,)) for name, kind in FIELDS),
        ]
        self._dtype = np.dtype(fields, align=True)
        self.nbytes = self._dtype.itemsize
        """Size of a record in bytes."""

    def new_record(self) -> Array:
        """Returns an empty record [1], whose fields the caller writes."""
        return np.zeros(1, self._dtype)

    def to_bytes(self, record: Array) -> Array:
        """Returns a copy of a record [1] as bytes, uint8 [nbytes]."""
        return record.view(np.uint8).copy()

    def view(self, rows: Array) -> PlayerView:
        """Decodes records, uint8 [n, nbytes]; the observations are a view."""
        record = np.ascontiguousarray(rows).view(self._dtype)[:, 0]
        return PlayerView(record['obs'], *(record[name].copy() for name, _ in FIELDS))

    def put_obs(self, record: Array, player: int, obs: Any) -> None:
        """Writes the observation of a player.

        Raises:
            EnvContractError: If it does not have the declared shape.
            NonFiniteError: If it contains a NaN or an infinity.
            ActionMaskError: If its action mask has other values than 0 and 1.
        """
        self._put(record['obs'][0], player, obs, 'obs')

    def _put(self, target: Array, player: int, value: Any, place: str) -> None:
        if target.dtype.names is not None:
            for i, name in enumerate(target.dtype.names):
                try:
                    part = value[i] if isinstance(value, tuple) else value[name]
                except (KeyError, IndexError, TypeError) as error:
                    raise EnvContractError(
                        f'{self._name}: the {place} of player {player} has no part {name!r}'
                    ) from error
                self._put(target[name], player, part, field_path(place, name))
            return
        # a leaf
        values = np.asarray(value)
        if values.shape != target.shape[1:] or values.dtype.kind not in 'biuf':
            raise EnvContractError(
                f'{self._name}: the {place} of player {player} is of shape {values.shape} and dtype {values.dtype},'
                f' declared is {target.shape[1:]} and {target.dtype}'
            )
        if place == MASK_PATH:
            check_mask_values(values, f'{self._name}: the {place} of player {player}')
        if not is_finite(values):
            raise NonFiniteError(f'{self._name}: the {place} of player {player} is {values}')
        target[player] = values


def result_of(win: Any, draw: Any) -> str:
    """Returns 'win', 'draw' or 'loss' of a player."""
    if win:
        return 'win'
    return 'draw' if draw else 'loss'


def outcome(returns: FloatArray) -> tuple[BoolArray, BoolArray]:
    """Returns the player who won, alone with the highest return, and the players who drew, both [..., P]."""
    best = returns == returns.max(-1, keepdims=True)
    is_shared = best.sum(-1, keepdims=True) > 1
    return best & ~is_shared, best & is_shared
