"""PlayerRecorder: records each player's moves and rewards as separate rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlframe.data.batch import Batch
from rlframe.data.moves import OpenMoves
from rlframe.data.players import PlayerView, outcome
from rlframe.data.timestep import NO_INFO, Array, FloatArray, IntArray, TimeStep
from rlframe.data.trajectory import TrajectoryRecorder
from rlframe.utils.schema import DICT, Kind, Schema, array, check_state, list_of, part
from rlframe.worker.collector.episode_log import WINDOW
from rlframe.worker.collector.rollout import Step
from rlframe.worker.players.joint_policy import JointPolicy

_FLOATS = array('f')
RETURNS = Kind(
    'an array of floats, a row for each episode',
    lambda v: _FLOATS.fits(v) and (v.ndim == 2 or v.shape == (0,)),
)
"""Schema of the state of a ``PlayerLog``."""


class PlayerLog:
    """The players' returns in the last episodes."""

    def __init__(self) -> None:
        self._window: deque[FloatArray] = deque(maxlen=WINDOW)

    def add(self, returns: FloatArray) -> None:
        """Counts an episode, by the return of each player, [P]."""
        self._window.append(returns)

    def add_told(self, infos: Sequence[Sequence[Mapping[str, Any]]]) -> None:
        """Counts episodes of another process, as its collector told of them, a list for each player."""
        for episode in zip(*infos, strict=True):
            self.add(np.array([info['eval_episode_return'] for info in episode]))

    def metrics(self) -> dict[str, float]:
        """Returns mean returns and shares of won and drawn games of each player, over the last episodes."""
        if not self._window:
            return {}
        returns = np.array(self._window)
        wins, draws = outcome(returns)
        values = {'rollout/draw_rate': float(draws.any(1).mean())}
        for player in range(returns.shape[1]):
            values[f'rollout/player_{player}_rew_mean'] = float(returns[:, player].mean())
            values[f'rollout/player_{player}_win_rate'] = float(wins[:, player].mean())
        return values

    def state(self) -> FloatArray:
        """Returns a copy, [episodes, P]."""
        return np.array(self._window)

    def load_state(self, state: FloatArray) -> None:
        """Continues from ``state()``."""
        check_state(state, RETURNS)
        self._window = deque(state.copy(), maxlen=WINDOW)


class PlayerRecorder:
    """Keeps the rows of several players until they are taken, each player's like a ``TrajectoryRecorder`` does.

    A row is a player's move: ``obs`` is what it saw, ``next_obs`` what it sees at its next turn or when its game is
    over, ``reward`` the sum of its rewards in between. Only moves of the policy given for the player count. If a player
    loses by another's move, its own last move ends with that loss. Each move becomes one row, which is complete once
    its ``next_obs`` is known.

    Args:
        env_num: Number of envs, N.
        player_num: Number of players, P.
        recorded: The players whose moves are recorded.
        make_recorder: Creates the recorder of a player in N envs.
        mark_episodes: Whether to add the columns ``env_id``, another one for each player of each env, and
            ``episode_step``.
    """

    def __init__(
        self,
        env_num: int,
        player_num: int,
        recorded: Sequence[int],
        make_recorder: Callable[[int, int], TrajectoryRecorder],
        mark_episodes: bool = False,
    ) -> None:
        self._env_num, self._player_num, self._mark_episodes = env_num, player_num, mark_episodes
        self._rows = {player: make_recorder(player, env_num) for player in recorded}
        self._open = {player: OpenMoves(env_num) for player in recorded}
        self._return = np.zeros((env_num, player_num))
        self._length = np.zeros(env_num, np.int64)
        self._first = {player: np.zeros(env_num, np.int64) for player in recorded}
        self._count = {player: np.zeros(env_num, np.int64) for player in recorded}
        # bounds of the episodes that ended, of each player and env, among the rows that were not taken yet
        self._bounds: dict[int, list[list[tuple[int, int]]]] = {}
        self._forget_bounds()
        self.log = PlayerLog()
        """Of the last episodes."""
        self._told: list[list[dict[str, Any]]] = [[] for _ in range(player_num)]

    def __len__(self) -> int:
        """Returns the number of finished samples of every recorded player."""
        return min(len(rows) for rows in self._rows.values())

    @property
    def held(self) -> int:
        """Moves of recorded players that are neither returned nor among those that ``len`` counts."""
        finished = sum(len(rows) + rows.held for rows in self._rows.values())
        return finished + sum(len(moves) for moves in self._open.values()) - len(self)

    def append(self, policy: JointPolicy, step: Step, stamp: Array, reserve: int) -> None:
        """Takes one step of n envs.

        Args:
            policy: Who acted.
            step: The step.
            stamp: Column ``collect_iter``, at least [n].
            reserve: Number of samples that are taken together.
        """
        before, after = policy.view(step.obs), policy.view(step.timestep.obs)
        env_id = step.timestep.env_id
        self._return[env_id] += after.reward
        self._length[env_id] += 1
        for player, moves in self._open.items():
            acted = before.active[:, player] & policy.is_own(player, step.output)
            said = policy.said_for(player, step.output, acted)
            moves.make({'obs': before.obs[acted, player], **said}, env_id[acted])
            moves.pay(after.reward[:, player], env_id)
            knows = after.active[:, player] | after.over[:, player]  # the result of the last move
            closing = np.flatnonzero(knows & moves.is_open[env_id])
            if len(closing):
                self._close(player, closing, after, policy, step, stamp, reserve)
        self._end(step)

    def _close(
        self,
        player: int,
        closing: IntArray,
        after: PlayerView,
        policy: JointPolicy,
        step: Step,
        stamp: Array,
        reserve: int,
    ) -> None:
        """Turns the moves of a player in some rows of a step into training rows."""
        env_id = step.timestep.env_id[closing]
        move, reward, number = self._open[player].close(env_id)
        infos = step.timestep.info
        answer = TimeStep(
            after.obs[closing, player],
            reward,
            after.terminated[closing, player],
            after.truncated[closing, player],
            [infos[i] for i in closing] if infos[0] is not NO_INFO else (NO_INFO,) * len(closing),
            policy.slot(player, env_id),
        )
        obs, face = move.pop('obs'), policy.policy_of(player)
        rows = face.process_transition(obs, Batch.unchecked(move, len(closing)), answer)
        rows['collect_iter'] = stamp[: len(closing)]
        if self._mark_episodes:
            rows['env_id'], rows['episode_step'] = answer.env_id.astype(np.int32), number.astype(np.int32)
        self._rows[player].append(rows, env_id, answer.done, reserve)
        self._count[player][env_id] += 1

    def _end(self, step: Step) -> None:
        """Records the results of finished episodes."""
        ended = step.finished
        if not len(ended):
            return
        wins, draws = outcome(self._return[ended])
        for i, env in enumerate(ended.tolist()):
            self.log.add(self._return[env].copy())
            for player, told in enumerate(self._told):
                result = 'win' if wins[i, player] else 'draw' if draws[i, player] else 'loss'
                return_ = float(self._return[env, player])
                length = int(self._length[env])
                told.append({'eval_episode_return': return_, 'eval_episode_len': length, 'result': result})
            for player, bounds in self._bounds.items():
                bounds[env].append((int(self._first[player][env]), int(self._count[player][env])))
        self._begin(ended)

    def _begin(self, env_id: IntArray) -> int:
        """Resets these envs and returns the number of dropped moves."""
        self._return[env_id], self._length[env_id] = 0.0, 0
        for player in self._rows:
            self._first[player][env_id] = self._count[player][env_id]
        return sum(moves.forget(env_id) for moves in self._open.values())

    def discard(self, env_id: IntArray, since: IntArray | None = None) -> int:
        """Drops the held moves of these envs, as after a step that must not count.

        Args:
            env_id: The envs, [n].
            since: If given, with any value, the finished rows of the running episode are discarded too.

        Returns:
            How many moves were dropped.
        """
        dropped = 0
        for player, rows in self._rows.items():
            first = self._first[player][env_id] if since is not None else None
            dropped += rows.discard(env_id, first)
            if first is not None:
                self._count[player][env_id] = first
        return dropped + self._begin(env_id)

    def clear(self) -> int:
        """Drops all moves, held or finished, and returns their number."""
        dropped = sum(rows.clear() for rows in self._rows.values()) + self._begin(np.arange(self._env_num))
        self._forget_bounds()
        return dropped

    def _forget_bounds(self) -> None:
        for player in self._rows:
            self._first[player][:] = self._count[player][:] = 0
            self._bounds[player] = [[] for _ in range(self._env_num)]

    def take(self, count: int | None = None) -> list[Any]:
        """Returns the oldest ``count`` samples (all by default) of each player, an empty list for one not recorded."""
        taken = [self._rows[p].take(count) if p in self._rows else [] for p in range(self._player_num)]
        self._forget_bounds()
        return taken

    def take_episodes(self, episodes: Sequence[tuple[int, int, int]]) -> list[list[Batch]]:
        """Returns the rows of whole episodes of each player, a ``Batch`` each, and forgets all rows.

        Args:
            episodes: Env of each episode, in the requested order; the other numbers are ignored, because players make
                different numbers of moves. A player without a move in an episode has no entry for it.
        """
        taken: list[list[Batch]] = [[] for _ in range(self._player_num)]
        for player, rows in self._rows.items():
            bounds = [iter(own) for own in self._bounds[player]]
            wanted = [(env, *next(bounds[env])) for env, _, _ in episodes]
            wanted = [(env, start, stop) for env, start, stop in wanted if stop > start]
            taken[player] = rows.take_episodes(wanted) if wanted else []
        self._forget_bounds()
        return taken

    def take_infos(self) -> list[list[dict[str, Any]]]:
        """Returns the results of the episodes that ended since the last call, a list for each player."""
        told, self._told = self._told, [[] for _ in range(self._player_num)]
        return told

    def state_dict(self) -> dict[str, Any]:
        """Returns a copy of all rows, held or finished, and of the counters."""
        return {
            'rows': {str(player): rows.state_dict() for player, rows in self._rows.items()},
            'open': {str(player): moves.state_dict() for player, moves in self._open.items()},
            'return': self._return.copy(),
            'length': self._length.copy(),
            'first': {str(player): first.copy() for player, first in self._first.items()},
            'count': {str(player): count.copy() for player, count in self._count.items()},
            'window': self.log.state(),
            'told': [[dict(info) for info in told] for told in self._told],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()`` of between two calls of a collector."""
        check_state(state, self._schema())
        self._forget_bounds()
        for player in self._rows:
            for name, keeper in (('rows', self._rows[player]), ('open', self._open[player])):
                with part(f'{name}.{player}'):
                    keeper.load_state_dict(state[name][str(player)])
            self._first[player] = state['first'][str(player)].copy()
            self._count[player] = state['count'][str(player)].copy()
        self._return, self._length = state['return'].copy(), state['length'].copy()
        self.log.load_state(state['window'])
        self._told = [[dict(info) for info in told] for told in state['told']]

    def _schema(self) -> dict[str, Schema]:
        players = [str(player) for player in self._rows]
        each_env = array('iu', (self._env_num,))
        parts = {name: dict.fromkeys(players, DICT) for name in ('rows', 'open')}
        counts = {name: dict.fromkeys(players, each_env) for name in ('first', 'count')}
        told = list_of(list_of(DICT), self._player_num)
        returns = array('f', self._return.shape)
        return {**parts, **counts, 'return': returns, 'length': each_env, 'window': RETURNS, 'told': told}
