"""Games of EnvPool in which players move in turn, such as Go, chess and poker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict

from rlframe.data.timestep import Array
from rlframe.envs import pool_manager
from rlframe.envs.player_env import PlayerEnv
from rlframe.errors import EnvError, IncompatibleError

OWN = {'num_envs', 'batch_size', 'num_threads', 'seed', 'max_episode_steps'}
"""Options of EnvPool that a game sets itself; with a time limit, EnvPool would call each end a truncation."""


class PoolGame(PlayerEnv):
    """A game of EnvPool, whose observations are ``{'observation', 'action_mask'}``.

    EnvPool takes a seed only when it creates a game, so each episode is a new pool of one game (0.5 to 3 ms).

    Args:
        task_id: EnvPool's id of the game, such as ``'TicTacToe-v1'``.
        render_mode: None, or ``'rgb_array'`` if the game can be drawn.
        kwargs: Options of ``envpool.make``.

    Raises:
        MissingDependencyError: If EnvPool is not installed.
        EnvError: If the task or its options are unknown.
        IncompatibleError: If its players do not move in turn.
    """

    _pool: Any = None

    def __init__(self, task_id: str, render_mode: str | None = None, **kwargs: Any) -> None:
        if own := sorted(OWN & kwargs.keys()):
            raise EnvError(
                f'{own[0]} is not for a game, which ends by its rules', where=f'env.kwargs.{own[0]}'
            )
        spec = pool_manager.task_spec(task_id, kwargs)
        if not pool_manager.moves_in_turn(spec):
            raise IncompatibleError(
                f'{task_id!r} is no game in which players move in turn', where='env.env_id'
            )
        drawn = {} if render_mode is None else {'render_mode': render_mode}
        self._task_id = task_id
        self._options = {**kwargs, **drawn}
        actions = spec.gymnasium_action_space
        mask = Box(0, 1, (int(actions.n),), np.int8)
        space = Dict(observation=spec.gymnasium_observation_space, action_mask=mask)
        self._mover = 0
        players = SimpleNamespace(
            possible_agents=range(spec.config.max_num_players),
            observation_space=lambda _: space,
            action_space=lambda _: actions,
            metadata={'render_modes': ['rgb_array']},
            render_mode=render_mode,
            render=lambda: self._pool.render()[0],
            close=self._leave,
        )
        super().__init__(players, task_id)

    def _begin(self, seed: int) -> None:
        self._leave()
        self._pool = pool_manager.make_pool(
            self._task_id, num_envs=1, num_threads=1, seed=seed % pool_manager.SEEDS, **self._options
        )
        obs, info = self._pool.reset()
        self._record_position(obs, np.zeros(len(obs)), False, False, info)

    def _play(self, action: Array) -> None:
        obs, reward, terminated, truncated, info = self._pool.step(np.array([action[self._mover]], np.int32))
        self._record_position(obs, reward, bool(terminated[0]), bool(truncated[0]), info)

    def _record_position(
        self, obs: Array, reward: Array, terminated: bool, truncated: bool, info: Any
    ) -> None:
        """Records a position: the rewards of all players, and the observation of the next, or at the end of all."""
        self._mover = int(info['current_player'][0])
        for row, player in enumerate(info['players']['id'].tolist()):
            if player == self._mover or terminated or truncated:
                seen = {'observation': obs[row], 'action_mask': info['legal_action_mask'][0]}
                self._note(player, seen, float(reward[row]), (terminated, truncated))
            else:
                self._record['reward'][0, player] += reward[row]

    def _leave(self) -> None:
        pool = self._pool
        self._pool = None
        if pool is not None:
            pool.close()
