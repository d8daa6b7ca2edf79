"""AtariGame: one game of the Arcade Learning Environment, preprocessed."""

from __future__ import annotations

from typing import Any

import ale_py
import cv2
import gymnasium
import numpy as np

from rlframe.data.timestep import Array
from rlframe.envs.atari_protocol import AtariSettings
from rlframe.envs.atari_vector import FIRE, GAME_GOES_ON, NOOP
from rlframe.errors import CheckpointStateError
from rlframe.utils.schema import COUNT, FINITE, FLAG, GENERATOR, array, check_state
from rlframe.utils.serialize import checked_bits

NO_ACTION = ale_py.Action.NOOP
"""The action that does nothing."""
ACTIONS = 18
"""Number of all actions."""
MOST_DIFFERENCE = 1024
"""Bytes by which two states of a game differ at most: they contain numbers as text."""


class AtariGame(gymnasium.Env[Array, np.int64]):
    """Plays one game.

    Frames equal those of Gymnasium's ``AtariPreprocessing`` and ``FrameStackObservation`` bit by bit, apart from the last
    frame of a game that ends within a frame skip, which these wrappers leave out. A lost life ends the episode if
    ``life_loss`` is set; the next ``reset`` without a seed then continues the game by a no-op, as SB3's
    ``EpisodicLifeEnv`` does. The last ``info`` of a game holds its unclipped return as ``eval_episode_return``.

    Args:
        emulator: ``ale_py.AtariEnv`` with a frame skip of 1 and without sticky actions.
        settings: How to play.
    """

    def __init__(self, emulator: Any, settings: AtariSettings) -> None:
        self._emulator = emulator
        self._ale = emulator.ale
        self.spec, self.metadata, self.render_mode = emulator.spec, emulator.metadata, emulator.render_mode
        self.action_space = emulator.action_space
        self.observation_space = gymnasium.spaces.Box(
            0, 255, (settings.frame_stack, *settings.frame_shape), np.uint8
        )
        ale, self._name = emulator.ale, settings.env_id
        self._codes = ale.getLegalActionSet() if settings.full_action_space else ale.getMinimalActionSet()
        self._opening = ale_py.Action(FIRE if settings.fires else NOOP)
        self._skip, self._stickiness = settings.frame_skip, settings.sticky_actions
        self._noop_max, self._ends_lives = settings.noop_max, settings.life_loss
        self._clips = settings.reward_clip
        self._size = (settings.screen_size, settings.screen_size)
        self._grab = self._ale.getScreenGrayscale if settings.grayscale else self._ale.getScreenRGB
        height, width = self._ale.getScreenDims()
        screen = (height, width) if settings.grayscale else (height, width, 3)
        self._screen, self._before = np.zeros((2, *screen), np.uint8)
        self._stack: Array = np.zeros((settings.frame_stack, *settings.frame_shape), np.uint8)
        self._action_played = NO_ACTION
        self._lives, self._score, self._goes_on = 0, 0.0, False

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        reward, is_over = self._play(self._codes[action])
        self._score += reward
        # a new array at each step: stacks that were returned stay as they were
        obs = self._stack = np.concatenate([self._stack[1:], self._drawn()])
        shown = float(np.sign(reward)) if self._clips else reward
        if is_over:
            is_truncated = self._ale.game_truncated()
            return obs, shown, not is_truncated, is_truncated, {'eval_episode_return': self._score}
        if self._ends_lives:
            lives = self._ale.lives()
            before = self._lives
            self._lives = lives
            if 0 < lives < before:  # some games show no life for a few frames before they are over
                self._goes_on = True
                return obs, shown, True, False, {GAME_GOES_ON: True}
        return obs, shown, False, False, {}

    def _play(self, code: Any) -> tuple[float, bool]:
        """Plays the frames of one env step; returns their reward and whether the game is over."""
        ale = self._ale
        last = self._skip - 1
        reward = 0.0
        is_pooled = False
        sticks = self.np_random.random(self._skip) < self._stickiness if self._stickiness else None
        for frame in range(self._skip):
            if sticks is None or not sticks[frame]:
                self._action_played = code
            reward += ale.act(self._action_played)
            if ale.game_over():
                self._grab(self._screen)
                return reward, True
            if frame == last - 1:
                self._grab(self._before)
                is_pooled = True
        self._grab(self._screen)
        if is_pooled:
            np.maximum(self._screen, self._before, out=self._screen)
        return reward, False

    def _drawn(self) -> Array:
        """Returns the screen as a frame, [1, ...]."""
        frame: Array = cv2.resize(self._screen, self._size, interpolation=cv2.INTER_AREA)
        return frame[None]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        goes_on = self._goes_on and seed is None
        self._goes_on = False
        if goes_on:
            reward, is_over = self._play(self._opening)
            self._score += reward
            goes_on = not is_over
        if not goes_on:
            self._begin_game(seed, options)
        self._lives = self._ale.lives()
        self._stack = np.repeat(self._drawn(), len(self._stack), 0)
        return self._stack, {}

    def _begin_game(self, seed: int | None, options: dict[str, Any] | None) -> None:
        """Starts a game, with the no-ops of Gymnasium's wrapper."""
        self._emulator.reset(seed=seed, options=options)
        self.np_random = self._emulator.np_random
        self._score = 0.0
        self._action_played = NO_ACTION
        noops = int(self.np_random.integers(1, self._noop_max + 1)) if self._noop_max else 0
        opening = [] if self._opening == NO_ACTION else [self._opening]
        for code in [NO_ACTION] * noops + opening:
            self._ale.act(code)
            if self._ale.game_over():
                self._ale.reset_game()
        self._grab(self._screen)

    def render(self) -> Any:
        return self._emulator.render()

    def close(self) -> None:
        self._emulator.close()


class SavedAtariGame(AtariGame):
    """A game whose emulator is saved and restored exactly."""

    def get_state(self) -> dict[str, Any]:
        """Returns the state of the emulator, the last frames and the random generator."""
        emulator = self._ale.cloneState(include_rng=True).serialize()
        return {
            'emulator': np.frombuffer(emulator, np.uint8).copy(),
            'rng': self._emulator.np_random.bit_generator.state,
            'frames': self._stack.copy(),
            'held': self._action_played.value,
            'lives': self._lives,
            'score': self._score,
            'goes_on': self._goes_on,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores the state of a game.

        Raises:
            CheckpointStateError: If it is not a state of this game.
        """
        check_state(
            state,
            {
                'emulator': array('u', (None,)),
                'rng': GENERATOR,
                'frames': array('u', self._stack.shape),
                'held': COUNT,
                'lives': COUNT,
                'score': FINITE,
                'goes_on': FLAG,
            },
        )
        own = len(self._ale.cloneState(include_rng=True).serialize())
        emulator = state['emulator'].astype(np.uint8).tobytes()
        if abs(len(emulator) - own) > MOST_DIFFERENCE or state['held'] >= ACTIONS:
            raise CheckpointStateError(f'this is not the state of {self._name}')
        try:
            self._ale.restoreState(ale_py.ALEState(emulator))
        except (SystemError, RuntimeError, ValueError, MemoryError) as error:
            raise CheckpointStateError(f'ALE cannot read this state of {self._name}: {error}') from error
        generator = self._emulator.np_random
        generator.bit_generator.state = checked_bits(state['rng'])
        self.np_random = generator
        self._stack = state['frames'].astype(np.uint8)
        self._action_played = ale_py.Action(state['held'])
        self._lives = state['lives']
        self._score, self._goes_on = state['score'], state['goes_on']
