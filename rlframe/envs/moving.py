"""Moving: an agent that turns, accelerates and brakes is to stop inside a circle; its actions are hybrid."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlframe.data.timestep import FloatArray

ACCELERATE, TURN, BRAKE = range(3)


class Moving(gymnasium.Env[Any, Any]):
    """A point on the square [-1, 1]² moves in its direction at its speed, and is to stop inside a circle of radius 0.1.

    In each of at most 200 steps it chooses to accelerate, by up to 0.5, to turn, by up to π / 2 to either side, or to brake, by
    0.1. An action always has both parameters, acceleration in [0, 1] and rotation in [-1, 1]; only the one of its choice
    counts. Then it moves by 0.005 times its speed.

    A step earns by how much the point comes nearer to the circle's centre, minus 0.001; 1 more where it stops inside, which
    ends the episode. Leaving the square, or step 201, ends it with the reward -1.

    Observations, float32 [10]: position, speed, cosine and sine of the direction, the circle's centre, distance to it,
    whether that is less than the radius, and the share of the steps that are over.

    Source:
        The rules of Moving-v0 of gym-hybrid (github.com/thomashirtz/gym-hybrid), after Xiong et al., Parametrized Deep
        Q-Networks Learning (2018).
    """

    observation_space = spaces.Box(-math.inf, math.inf, (10,), np.float32)
    parameters = spaces.Box(np.array([0, -1], np.float32), np.array([1, 1], np.float32))
    action_space = spaces.Tuple((spaces.Discrete(3), parameters))
    radius, steps = 0.1, 200

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        super().reset(seed=seed)
        self._step, self._speed = 0, 0.0
        limit = 1 - self.radius
        self._centre = self.np_random.uniform(-limit, limit, 2)
        self._place = self.np_random.uniform(-1, 1, 2)
        self._angle = float(self.np_random.uniform(0, 2 * math.pi))
        return self._obs(), {}

    def step(self, action: Any) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        choice, (acceleration, rotation) = action
        before = self._distance
        self._step += 1
        # act
        if choice == ACCELERATE:
            self._speed += 0.5 * float(np.clip(acceleration, 0, 1))
        elif choice == TURN:
            turn = math.pi / 2 * float(np.clip(rotation, -1, 1))
            self._angle = (self._angle + turn) % (2 * math.pi)
        else:
            self._speed = max(self._speed - 0.1, 0.0)
        # move
        self._place = self._place + 0.005 * self._speed * self._direction
        # judge
        is_success = self._distance < self.radius and self._speed == 0
        is_over = bool(np.abs(self._place).max() > 1 or self._step > self.steps)
        reward = before - self._distance - 0.001 + is_success
        if is_over and not is_success:
            reward = -1.0
        ended = is_success or is_over
        return self._obs(), float(reward), ended, False, {'is_success': is_success} if ended else {}

    @property
    def _direction(self) -> FloatArray:
        return np.array([math.cos(self._angle), math.sin(self._angle)])

    @property
    def _distance(self) -> float:
        return math.dist(self._place, self._centre)

    def _obs(self) -> FloatArray:
        distance = self._distance
        done = self._step / self.steps
        numbers = distance, float(distance <= self.radius), done
        obs = [*self._place, self._speed, *self._direction, *self._centre, *numbers]
        return np.array(obs, np.float32)
