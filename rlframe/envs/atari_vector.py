"""AtariVector: N games in ALE's own threads, and the rows that all Atari envs return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode

from rlframe.data.timestep import NO_INFO, Array, BoolArray, IntArray, TimeStep
from rlframe.envs.atari_protocol import AtariSettings

NOOP, FIRE = 0, 1
"""Numbers of these actions, in every game that has them."""
GAME_GOES_ON = 'game_goes_on'
"""Key of the info of an episode that a lost life ended."""
SEEDS = 2**31 - 2**16
"""Seeds of ALE are below 2^31; a vector of N envs takes N in a row."""
RETURN = 'eval_episode_return'


class GameRows:
    """Stacks frames, ends episodes with lives, clips rewards and adds up the returns of whole games.

    Args:
        env_num: Number of games, N.
        settings: How they are played.
    """

    def __init__(self, env_num: int, settings: AtariSettings) -> None:
        self._settings, self.env_num = settings, env_num
        self.opening = FIRE if settings.fires else NOOP
        """Action that continues a game after a lost life."""
        self._stacks = np.zeros((env_num, settings.frame_stack, *settings.frame_shape), np.uint8)
        self._lives = np.zeros(env_num, np.int64)
        self._score = np.zeros(env_num)
        self.goes_on = np.zeros(env_num, np.bool_)
        """Games whose last episode ended with a life and whose next one continues the game, [N]."""

    def forget(self, env_id: Array) -> None:
        """Forgets the running games with these indices, or where a mask is true."""
        self.goes_on[env_id] = False

    def _framed(self, frames: Array) -> Array:
        """Returns frames as [n, H, W] or [n, H, W, 3]; EnvPool has colours first, ALE has them last."""
        if self._settings.grayscale or frames.ndim == 5:
            return frames.reshape(len(frames), *self._settings.frame_shape)
        return np.moveaxis(frames, 1, -1)

    def begin(self, env_id: IntArray, frames: Array, lives: Array, reward: Any = 0.0) -> Array:
        """Returns the first observations of episodes, uint8 [n, stack, ...].

        Args:
            env_id: The games, [n].
            frames: A frame of each, with an axis of colours.
            lives: Left lives, [n].
            reward: Reward of the action that continued games, [n].
        """
        going_on = self.goes_on[env_id]
        self._score[env_id] = np.where(going_on, self._score[env_id] + reward, 0.0)
        self.goes_on[env_id] = False
        self._lives[env_id] = lives
        self._stacks = self._stacks.copy()
        self._stacks[env_id] = self._framed(frames)[:, None]
        first: Array = self._stacks[env_id]
        return first

    @property
    def space(self) -> gymnasium.spaces.Box:
        """Space of the observations."""
        return gymnasium.spaces.Box(0, 255, self._stacks.shape[1:], np.uint8)

    def step(
        self,
        env_id: IntArray,
        frames: Array,
        reward: Array,
        terminated: BoolArray,
        truncated: BoolArray,
        info: Mapping[str, Any],
        is_first: BoolArray,
    ) -> TimeStep:
        """Turns rows of n games into rows of episodes.

        Args:
            env_id: The games, [n].
            frames: A frame of each, with an axis of colours.
            reward: Unclipped, [n].
            terminated: Whether the game is over, [n].
            truncated: Whether the game was cut, [n].
            info: Of a vector env; its ``lives`` are those that are left, [n].
            is_first: Rows that begin an episode and are no step, [n]; their reward and flags become 0.
        """
        lives = info['lives']
        if not is_first.any():
            return self._stepped(env_id, frames, reward, terminated, truncated, lives)
        rows, first = np.flatnonzero(~is_first), np.flatnonzero(is_first)
        begun = self.begin(env_id[first], frames[first], lives[first], reward[first])
        given = (frames, reward, terminated, truncated, lives)
        stepped = self._stepped(env_id[rows], *(column[rows] for column in given))
        infos: list[Mapping[str, Any]] = [{} if any(stepped.info) else NO_INFO] * len(env_id)
        obs = np.empty((len(env_id), *begun.shape[1:]), np.uint8)
        columns: list[Any] = [np.zeros(len(env_id), column.dtype) for column in stepped[1:4]]
        obs[first] = begun
        obs[rows] = stepped.obs
        for column, part in zip(columns, stepped[1:4], strict=True):
            column[rows] = part
        for row, info in zip(rows.tolist(), stepped.info, strict=True):
            infos[row] = info
        return TimeStep(obs, columns[0], columns[1], columns[2], infos, env_id)

    def _stepped(
        self,
        env_id: IntArray,
        frames: Array,
        reward: Array,
        terminated: Array,
        truncated: Array,
        lives: Array,
    ) -> TimeStep:
        whole = len(env_id) == self.env_num
        obs = np.empty((len(env_id), *self._stacks.shape[1:]), np.uint8)
        obs[:, :-1] = self._stacks[env_id, 1:] if not whole else self._stacks[:, 1:]
        obs[:, -1] = self._framed(frames)
        if whole:
            self._stacks = obs
        else:
            self._stacks = self._stacks.copy()
            self._stacks[env_id] = obs
        self._score[env_id] += reward
        over = terminated | truncated
        if self._settings.life_loss:
            self.goes_on[env_id] = (lives > 0) & (lives < self._lives[env_id]) & ~over
            self._lives[env_id] = lives
            terminated = terminated | self.goes_on[env_id]
        if self._settings.reward_clip:
            reward = np.sign(reward)
        infos = self._infos(env_id, terminated | truncated)
        return TimeStep(obs, reward.astype(np.float32), terminated, truncated, infos, env_id)

    def _infos(self, env_id: IntArray, done: BoolArray) -> Sequence[Mapping[str, Any]]:
        if not done.any():
            return (NO_INFO,) * len(env_id)
        infos: list[Mapping[str, Any]] = [{} for _ in env_id]
        for row in np.flatnonzero(done).tolist():
            env = env_id[row]
            is_part = self.goes_on[env]
            infos[row] = {GAME_GOES_ON: True} if is_part else {'eval_episode_return': float(self._score[env])}
        return infos


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
        self._all = np.arange(env_num)
        self._is_first = np.zeros(env_num, np.bool_)
        self.num_envs = env_num
        self.spec = emulator.spec
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
        step = rows.step(self._all, frames, reward, terminated, truncated, info, first)
        self._is_first = step.done
        return *step[:4], self._info(step.info) if self._is_first.any() else {}

    def _info(self, infos: Any) -> dict[str, Any]:
        """Returns infos in the form of a vector env, arrays with masks."""
        found: dict[str, Any] = {}
        for name, blank in ((RETURN, 0.0), (GAME_GOES_ON, False)):
            found[f'_{name}'] = np.array([name in info for info in infos])
            found[name] = np.array([info.get(name, blank) for info in infos])
        return found

    def close_extras(self, **kwargs: Any) -> None:
        self._env.close()
