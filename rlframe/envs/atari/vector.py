"""AtariVector: N games in ALE's own threads."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode

from rlframe.data.timestep import Array
from rlframe.envs.atari.protocol import AtariSettings
from rlframe.envs.atari.rows import GAME_GOES_ON, GameRows

SEEDS = 2**31 - 2**16
"""Seeds of ALE are below 2^31; a vector of N envs takes N in a row."""
RETURN = 'eval_episode_return'


class AtariVector(gymnasium.vector.VectorEnv[Array, Array, Array]):
    """Steps N games at a time, one thread for each core.

    Its frames are those of ``AtariGame``. An ended episode begins anew in the next step (``NEXT_STEP``); after a lost life,
    that step continues the game.

    Args:
        env_num: Number of games, N.
        game: ALE's name of the game.
        settings: How to play.
        emulator: One env of the game, for its actions.
    """

    def __init__(self, env_num: int, game: str, settings: AtariSettings, emulator: Any) -> None:
        self._env = AtariVectorEnv(
            game,
            env_num,
            frameskip=settings.frame_skip,
            maxpool=settings.frame_skip > 1,
            stack_num=1,
            img_height=settings.screen_size,
            img_width=settings.screen_size,
            grayscale=settings.grayscale,
            noop_max=settings.noop_max,
            use_fire_reset=settings.fires,
            repeat_action_probability=settings.sticky_actions,
            full_action_space=settings.full_action_space,
            max_num_frames_per_episode=settings.max_frames,
            episodic_life=False,
            reward_clipping=False,
        )
        self._rows = GameRows(env_num, settings)
        self._all, self._is_first = np.arange(env_num), np.zeros(env_num, np.bool_)
        self.num_envs, self.spec = env_num, emulator.spec
        self.metadata = {**emulator.metadata, 'autoreset_mode': AutoresetMode.NEXT_STEP}
        self.single_observation_space = self._rows.space
        self.single_action_space = emulator.action_space
        self.observation_space = gymnasium.vector.utils.batch_space(self._rows.space, env_num)
        self.action_space = self._env.action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Array, dict[str, Any]]:
        seed = seed % SEEDS if seed is not None else None
        frames, info = self._env.reset(seed=seed)
        self._rows.forget(self._all)
        self._is_first[:] = False
        return self._rows.begin(self._all, frames, info['lives']), {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        rows, first = self._rows, self._is_first
        if (continuing := rows.goes_on & first).any():
            actions = np.where(continuing, rows.opening, actions)
        frames, reward, terminated, truncated, info = self._env.step(actions)
        if (
            over := continuing & (terminated | truncated)
        ).any():  # the game ended in the step that continued it
            rows.forget(over)
            frames, info = self._env.reset(options={'reset_mask': over})
        columns = rows.step(self._all, frames, reward, terminated, truncated, info, first)
        self._is_first = columns.terminated | columns.truncated
        return *columns[:4], self._info(columns.infos) if self._is_first.any() else {}

    def _info(self, infos: Any) -> dict[str, Any]:
        """Returns infos in the form of a vector env, arrays with masks."""
        found: dict[str, Any] = {}
        for name, blank in ((RETURN, 0.0), (GAME_GOES_ON, False)):
            found[f'_{name}'] = np.array([name in info for info in infos])
            found[name] = np.array([info.get(name, blank) for info in infos])
        return found

    def close_extras(self, **kwargs: Any) -> None:
        self._env.close()
