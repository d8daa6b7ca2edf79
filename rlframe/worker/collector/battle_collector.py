"""Collectors of training samples and of episodes for games of several players."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlframe.data.players import OpenMoves, PlayerView, outcome, result_of
from rlframe.data.timestep import NO_INFO, Array, Batch, IntArray, TimeStep
from rlframe.data.trajectory import TrajectoryRecorder
from rlframe.errors import ConfigError
from rlframe.registry import SERIAL_COLLECTOR_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.schema import DICT, NUMBER, check_state, list_of, load_arrays, part, saved_arrays
from rlframe.worker.collector.base_serial_collector import SerialCollector, SerialCollectorConfig
from rlframe.worker.collector.episode_log import WINDOW
from rlframe.worker.collector.joint_policy import JointPolicy, check_flags
from rlframe.worker.collector.rollout import Step
from rlframe.worker.collector.serial_collector import (
    EpisodeCollectorConfig,
    EpisodeSerialCollector,
    SampleSerialCollector,
)

ARRAYS = ('return', 'length', 'first', 'count')
"""Attributes of ``PlayerRecorder`` that are saved."""
Infos = list[list[dict[str, Any]]]


class PlayerLog:
    """The players' returns in the last episodes."""

    def __init__(self) -> None:
        self._window: deque[list[float]] = deque(maxlen=WINDOW)

    def add(self, returns: list[float]) -> None:
        """Counts an episode, by the return of each player."""
        self._window.append(returns)

    def add_results(self, infos: Sequence[Sequence[Mapping[str, Any]]]) -> None:
        """Counts the episodes of a collector in another process, by the results that it returned for each player."""
        for episode in zip(*infos, strict=True):
            self.add([info['eval_episode_return'] for info in episode])

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

    def state(self) -> list[list[float]]:
        """Returns a copy of the returns, a list for each episode."""
        return [list(returns) for returns in self._window]

    def load_state(self, state: list[list[float]]) -> None:
        """Continues from ``state()``."""
        check_state(state, list_of(list_of(NUMBER)))
        self._window = deque(map(list, state), maxlen=WINDOW)


class PlayerRecorder:
    """Keeps the rows of several players until they are taken, each player's like a ``TrajectoryRecorder`` does.

    A row is a player's move: ``obs`` is what it saw, ``next_obs`` what it sees at its next turn or when its game is
    over, ``reward`` the sum of its rewards in between. If a player loses by another's move, its own last move ends with that
    loss. Each move becomes one row, which is complete once its ``next_obs`` is known.

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
        self._first = np.zeros((player_num, env_num), np.int64)
        self._count = np.zeros((player_num, env_num), np.int64)
        # bounds of the episodes that ended, of each player and env, among the rows that were not taken yet
        self._bounds: dict[int, list[list[tuple[int, int]]]]
        self._forget_bounds()
        self.log = PlayerLog()
        """Of the last episodes."""
        self._results: list[list[dict[str, Any]]] = [[] for _ in range(player_num)]

    def __len__(self) -> int:
        """Returns the number of finished samples of every recorded player."""
        return min(len(rows) for rows in self._rows.values())

    @property
    def held(self) -> int:
        """Moves of recorded players that are neither returned nor counted by ``len``."""
        finished = sum(len(rows) + rows.held for rows in self._rows.values())
        return finished + sum(len(moves) for moves in self._open.values()) - len(self)

    def append(self, policy: JointPolicy, step: Step, stamp: Array, reserve: int) -> None:
        """Takes one step of n envs, in which ``policy`` acted.

        ``stamp`` is the column ``collect_iter``, at least [n]; ``reserve`` samples are taken together.
        """
        before, after = policy.view(step.obs), policy.view(step.timestep.obs)
        env_id = step.timestep.env_id
        self._return[env_id] += after.reward
        self._length[env_id] += 1
        for player, moves in self._open.items():
            acted = before.active[:, player]
            output = policy.output_for(player, step.output, acted)
            moves.make({'obs': before.obs[acted, player], **output}, env_id[acted])
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
        # results of the moves
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
        # training rows
        obs = move.pop('obs')
        face = policy.policy_of(player)
        rows = face.process_transition(obs, Batch.unchecked(move, len(closing)), answer)
        rows['collect_iter'] = stamp[: len(closing)]
        if self._mark_episodes:
            rows['env_id'] = answer.env_id.astype(np.int32)
            rows['episode_step'] = number.astype(np.int32)
        self._rows[player].append(rows, env_id, answer.done, reserve)
        self._count[player, env_id] += 1

    def _end(self, step: Step) -> None:
        """Records the results of finished episodes."""
        ended = step.finished
        if not len(ended):
            return
        wins, draws = outcome(self._return[ended])
        for i, env in enumerate(ended.tolist()):
            self.log.add(self._return[env].tolist())
            for player, results in enumerate(self._results):
                result = result_of(wins[i, player], draws[i, player])
                return_ = float(self._return[env, player])
                length = int(self._length[env])
                results.append({'eval_episode_return': return_, 'eval_episode_len': length, 'result': result})
            for player, bounds in self._bounds.items():
                bounds[env].append((int(self._first[player, env]), int(self._count[player, env])))
        self._begin(ended)

    def _begin(self, env_id: IntArray) -> int:
        """Resets these envs and returns the number of dropped moves."""
        self._return[env_id], self._length[env_id] = 0.0, 0
        self._first[:, env_id] = self._count[:, env_id]
        return sum(moves.forget(env_id) for moves in self._open.values())

    def discard(self, env_id: IntArray, since: IntArray | None = None) -> int:
        """Drops the held moves of these envs, as after a step that must not count, and returns the number of dropped moves.

        If ``since`` is given, with any value, the finished rows of the running episode are dropped too.
        """
        dropped = 0
        for player, rows in self._rows.items():
            dropped += rows.discard(env_id, None if since is None else self._first[player, env_id])
        if since is not None:
            self._count[:, env_id] = self._first[:, env_id]
        return dropped + self._begin(env_id)

    def clear(self) -> int:
        """Drops all moves, held or finished, and returns their number."""
        dropped = sum(rows.clear() for rows in self._rows.values()) + self._begin(np.arange(self._env_num))
        self._forget_bounds()
        return dropped

    def _forget_bounds(self) -> None:
        self._first[:] = self._count[:] = 0
        self._bounds = {player: [[] for _ in range(self._env_num)] for player in self._rows}

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
        results = self._results
        self._results = [[] for _ in range(self._player_num)]
        return results

    def state_dict(self) -> dict[str, Any]:
        """Returns a copy of all rows, held or finished, and of the counters."""
        return {
            'rows': {str(player): rows.state_dict() for player, rows in self._rows.items()},
            'open': {str(player): moves.state_dict() for player, moves in self._open.items()},
            **saved_arrays(self, ARRAYS),
            'window': self.log.state(),
            'told': [[dict(info) for info in results] for results in self._results],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()`` of between two calls of a collector."""
        parts = {name: dict.fromkeys(map(str, self._rows), DICT) for name in ('rows', 'open')}
        window, told = list_of(list_of(NUMBER, self._player_num)), list_of(list_of(DICT), self._player_num)
        check_state(state, {**parts, 'window': window, 'told': told})
        self._forget_bounds()
        for player in self._rows:
            for name, keeper in (('rows', self._rows[player]), ('open', self._open[player])):
                with part(f'{name}.{player}'):
                    keeper.load_state_dict(state[name][str(player)])
        load_arrays(self, ARRAYS, state)
        self.log.load_state(state['window'])
        self._results = [[dict(info) for info in results] for results in state['told']]


class PlayerCollectorConfig(SerialCollectorConfig):
    """Options of every collector of games."""

    record: list[bool] | None = option(
        None, doc='whether the moves of each player are returned; None: of all players'
    )


class PlayerCollector(SerialCollector):
    """Shared base of multi-player collectors: a policy and a recorder for each player."""

    _cfg: PlayerCollectorConfig
    _recorder: Any  # a PlayerRecorder
    recorded: list[bool] | None = None
    """For each player, whether its moves are returned, from the next ``reset_env`` on; None: as the config says."""

    def reset_policy(self, _policy: Any = None) -> None:
        """Replaces the policies (one per player, one for all, or a joint one), or resets the current ones."""
        if _policy is not None:
            _policy = _policy if isinstance(_policy, JointPolicy) else JointPolicy(_policy)
            if self._env is not None:
                _policy.assign_players(self._env.spec, self._env.env_num)
        super().reset_policy(_policy)

    def reset(self, _policy: Any = None, _env: Any = None) -> None:
        if _policy is not None and _env is not None:
            self._policy = self._rollout = None  # they need not fit the new envs
        super().reset(_policy, _env)

    def _begin(self) -> None:
        if self._env is not None and self._policy is not None:
            self._policy.assign_players(self._env.spec, self._env.env_num)
        super()._begin()

    def _make_recorder(self, env_num: int, policy: Any = None) -> Any:
        player_num = self._policy.player_num
        flags = self._cfg.record if self.recorded is None else self.recorded
        recorded = check_flags(flags, player_num)
        return PlayerRecorder(env_num, player_num, recorded, self._make_rows, self._mark_episodes)

    def _make_rows(self, player: int, env_num: int) -> TrajectoryRecorder:
        """Creates the recorder that the policy of one player needs."""
        return super()._make_recorder(env_num, self._policy.policy_of(player))

    def _append(
        self, step: Step, stamp: Array, level_seeds: Array | None, episode_step: Array | None, reserve: int
    ) -> None:
        self._recorder.append(self._policy, step, stamp, reserve)

    def _more_metrics(self) -> dict[str, float]:
        metrics: dict[str, float] = self._recorder.log.metrics()
        return metrics

    def training_data(self, collected: Any) -> Any:
        """Returns the samples, or episodes, of all recorded players together."""
        data = [own for own in collected[0] if len(own)]
        if all(isinstance(own, Batch) for own in data):
            return Batch.cat(data)
        return [episode for own in data for episode in own]


@SERIAL_COLLECTOR_REGISTRY.register('sample_1v1')
class BattleSampleSerialCollector(PlayerCollector, SampleSerialCollector):
    """Collects until there are ``n_sample`` training samples of every recorded player.

    ``policy`` is a list with one collect face for each player, or a single one for self-play. A training sample is a
    move, from the player's turn to its next one. Samples beyond ``n_sample``, and moves whose outcome is not known yet,
    are carried over to the next call.
    """

    def collect(  # type: ignore[override]  # the signature that DI-engine's users know
        self,
        n_sample: int | None = None,
        train_iter: int = 0,
        drop_extra: bool = True,
        policy_kwargs: Mapping[str, Any] | None = None,
        *,
        random_collect: bool = False,
        record_random_collect: bool = True,
    ) -> tuple[list[Any], Infos]:
        """Collects ``n_sample`` training samples of each recorded player, by default the first policy's number.

        The other arguments and the errors are those of ``SampleSerialCollector``.

        Returns:
            For each player its samples, a ``Batch`` [n_sample] in the order of their completion (an empty list if it is
            not recorded), and for each player a dict per ended episode: ``eval_episode_return``, ``eval_episode_len``
            and ``result``, which is ``win``, ``draw`` or ``loss``.

        Raises:
            ConfigError: If the policies learn on-policy.
        """
        samples: Any = super().collect(
            n_sample, train_iter, drop_extra, random_collect, record_random_collect, policy_kwargs
        )
        return samples, self._recorder.take_infos()

    def _collect_block(
        self, target: int, settings: Mapping[str, Any], stamp: Array, levels: Array | None
    ) -> Batch:
        raise ConfigError(
            'in a turn-based game, players make different numbers of moves, so envs have no blocks of equal length',
            where='policy.collect.collector.type',
            got='sample_1v1',
            expected="'episode_1v1' for a policy that learns on-policy",
            remedy='Set policy.collect.collector.get_train_sample=True as well, and policy.collect.n_episode.',
        )


class BattleEpisodeConfig(PlayerCollectorConfig, EpisodeCollectorConfig):
    """Options of ``BattleEpisodeSerialCollector``."""


@SERIAL_COLLECTOR_REGISTRY.register('episode_1v1')
class BattleEpisodeSerialCollector(PlayerCollector, EpisodeSerialCollector):
    """Collects ``n_episode`` whole episodes, an equal share from each env, and returns each player's moves of them.

    ``policy`` is a list with one collect face for each player, or a single one for self-play.
    """

    _cfg: BattleEpisodeConfig

    def collect(  # type: ignore[override]  # episodes of each player
        self,
        n_episode: int | None = None,
        train_iter: int = 0,
        policy_kwargs: Mapping[str, Any] | None = None,
        *,
        random_collect: bool = False,
        record_random_collect: bool = True,
    ) -> tuple[list[Any], Infos]:
        """Collects whole episodes; the arguments and the errors are those of ``EpisodeSerialCollector``.

        Returns:
            For each player its part of the episodes in the order in which they ended, each with columns [T, ...] of
            which only the last row is done, or one ``Batch`` of training samples with ``get_train_sample`` (an empty
            list if it is not recorded), and for each player a dict per episode, as from
            ``BattleSampleSerialCollector``.
        """
        episodes: Any = super().collect(
            n_episode,
            train_iter,
            policy_kwargs,
            random_collect=random_collect,
            record_random_collect=record_random_collect,
        )
        return episodes, self._recorder.take_infos()

    def _shaped(self, episodes: Any, policy: Any) -> list[Any]:
        return [
            super(BattleEpisodeSerialCollector, self)._shaped(own, policy.policy_of(player)) if own else []
            for player, own in enumerate(episodes)
        ]
