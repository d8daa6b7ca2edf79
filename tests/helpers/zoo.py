"""The zoo: toy envs that are told apart by what they show, earn and tell. It imports no torch, so that workers start quickly."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

Step = tuple[Any, Any, bool, bool, dict[str, Any]]
CLASSES = np.eye(4, dtype=np.float32)


class Toy(gymnasium.Env):
    """Shows zeros, earns 1 in each step, and ends after ``length`` steps; the animals of the zoo override what they do otherwise."""

    observation_space: Any = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space: Any = spaces.Discrete(2)
    length: int | None = 5
    """Steps of an episode; None: it does not end."""
    ending = 'terminated'
    """How it ends; the other one is 'truncated'."""
    episode, steps = -1, 0
    """Number of the episode, and of its steps so far."""

    def begin(self, seed: int | None) -> None:
        """Begins an episode."""

    def obs(self) -> Any:
        """Returns what it shows."""
        return np.zeros(self.observation_space.shape, self.observation_space.dtype)

    def act(self, action: Any) -> Any:
        """Does a step and returns its reward."""
        return 1.0

    def is_over(self) -> bool:
        """Whether the episode has ended."""
        return self.steps == self.length

    def info(self) -> dict[str, Any]:
        """Returns what it tells beside."""
        return {}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode += 1
        self.steps = 0
        self.begin(seed)
        return self.obs(), self.info()

    def step(self, action: Any) -> Step:
        self.steps += 1
        reward = self.act(action)
        obs, is_over = self.obs(), self.is_over()
        return (
            obs,
            reward,
            is_over and self.ending == 'terminated',
            is_over and self.ending == 'truncated',
            self.info(),
        )


# contextual bandits: the obs is a one-hot class, and one action is right for each


class IdentityEnv(Toy):
    """The action that names the class earns 1; 8 steps an episode."""

    observation_space = spaces.Box(0, 1, (4,), np.float32)
    action_space = spaces.Discrete(4)
    length = 8

    def obs(self) -> Any:
        self._class = int(self.np_random.integers(4))
        return CLASSES[self._class].copy()

    def act(self, action: Any) -> Any:
        return float(action == self._class)


class RightActionEnv(IdentityEnv):
    """Earns up to 1, for an action near the right one of the class."""

    right: Any = None
    """The right action of each class, [4, ...]."""

    def act(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        distance = np.abs(np.asarray(action, float) - self.right[self._class]).reshape(-1)
        return float(1 - distance.clip(0, 1).mean())


class BoxEnv(RightActionEnv):
    action_space = spaces.Box(np.array([[-2, 0]], np.float32), np.array([[1, 4]], np.float32))
    right = np.array([[[-1.8, 0.5]], [[0.8, 3.5]], [[-0.5, 1.0]], [[0.0, 2.0]]])


class MultiDiscreteEnv(RightActionEnv):
    action_space = spaces.MultiDiscrete([3, 2], start=[5, 0])
    right = np.array([[5, 1], [6, 0], [7, 0], [5, 0]])


class MultiBinaryEnv(RightActionEnv):
    action_space = spaces.MultiBinary(3)
    right = np.array([[0, 1, 1], [1, 0, 1], [0, 0, 0], [1, 1, 0]])


class TargetEnv(IdentityEnv):
    """Each class has a target, and what is missed of it is missing of the reward 1."""

    action_space = spaces.Box(-2, 1, (1,), np.float32)
    targets = np.array([-1.6, -0.8, 0.0, 0.8], np.float32)

    def act(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        return 1.0 - float(np.abs(action[0] - self.targets[self._class]))


class HybridEnv(IdentityEnv):
    """What the parameter misses of its target is missing of the reward 1 of the right class."""

    action_space = spaces.Tuple((TargetEnv.action_space, IdentityEnv.action_space))

    def act(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        missed = float(np.abs(action[0][0] - TargetEnv.targets[self._class]))
        return max(super().act(action[1]) - missed, 0.0)


class HiddenGoalEnv(IdentityEnv):
    """The right class earns 1 as a step towards a goal, whose distance is lost, whatever is named; the part ``goal`` shows it."""

    far = 100.0
    """The largest distance."""
    observation_space = spaces.Dict(
        observation=IdentityEnv.observation_space, goal=spaces.Box(0, 1, (1,), np.float32)
    )

    def obs(self) -> Any:
        self._goal = self.np_random.random(1, np.float32)
        return {'observation': super().obs(), 'goal': self._goal}

    def act(self, action: Any) -> Any:
        return super().act(action) - self.far * float(self._goal[0])


class Dials(IdentityEnv):
    """Shows where each of three dials is to stand, of five places; each that stands there earns a third."""

    observation_space = spaces.Box(0, 1, (15,), np.float32)
    action_space = spaces.MultiDiscrete([5] * 3)

    def obs(self) -> Any:
        self._wanted = self.np_random.integers(5, size=3)
        return np.eye(5, dtype=np.float32)[self._wanted].reshape(-1)

    def act(self, action: Any) -> Any:
        return float((action == self._wanted).mean())


# values and memory


class OneStateEnv(Toy):
    """Shows 1, earns 1 in every step and ends after 5, by a time limit or for good."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)

    def __init__(self, ending: str = 'truncated') -> None:
        self.ending = ending

    def obs(self) -> Any:
        return np.ones(1, np.float32)


class OneStateBoxEnv(OneStateEnv):
    """OneStateEnv for continuous actions."""

    action_space = spaces.Box(-2, 1, (2,), np.float32)


class RecallEnv(Toy):
    """Shows a class in its first step and nothing after it; the action of the last of 6 steps that names it earns 1."""

    observation_space = spaces.Box(0, 1, (3,), np.float32)
    action_space = spaces.Discrete(3)
    length = 6

    def begin(self, seed: int | None) -> None:
        self._class = int(self.np_random.integers(3))

    def obs(self) -> Any:
        return np.eye(3, dtype=np.float32)[self._class] if self.steps == 0 else np.zeros(3, np.float32)

    def act(self, action: Any) -> Any:
        return float(self.is_over() and action == self._class)


class RecallNumberEnv(RecallEnv):
    """Shows a number in its first step; the action of the last of 6 steps earns 1, less its distance from it.

    Without a memory, no policy earns more than 0.5 on average.
    """

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def begin(self, seed: int | None) -> None:
        self._number = float(self.np_random.uniform(-1, 1))

    def obs(self) -> Any:
        return np.array([self._number, 1] if self.steps == 0 else [0, 0], np.float32)

    def act(self, action: Any) -> Any:
        return 1.0 - abs(float(action[0]) - self._number) if self.is_over() else 0.0


# what is shown and told


class Dot(Toy):
    """Small grey images, which can be stacked, of a dot that falls and is moved left or right; in the left half it earns 1.

    Args:
        dtype: Type of the images.
    """

    size = 12
    length = size - 1

    def __init__(self, dtype: str = 'uint8', **_: Any) -> None:
        self.observation_space = spaces.Box(0, 255, (self.size, self.size), np.dtype(dtype).type)

    def begin(self, seed: int | None) -> None:
        self._column = int(self.np_random.integers(self.size))

    def obs(self) -> Any:
        image = super().obs()
        image[self.steps, self._column] = 255
        return image

    def act(self, action: Any) -> Any:
        self._column = (self._column + 2 * int(action) - 1) % self.size
        return float(self._column < self.size // 2)

    def step(self, action: Any) -> Step:
        obs, reward, is_over, _, info = super().step(action)
        return obs, reward, is_over and self._column % 2 == 0, is_over, info


class Ladder(Toy):
    """Shows its attributes; an episode has 4 steps, each of which earns the level."""

    observation_space = spaces.Box(-99, 99, (2,), np.float32)
    length = 4

    def __init__(self) -> None:
        self.level, self.speed = 1, -1.0

    def set_speed(self, speed: float) -> None:
        self.speed = speed

    def obs(self) -> Any:
        return np.array([self.level, self.speed], np.float32)

    def act(self, action: Any) -> Any:
        return float(self.level)

    def info(self) -> dict[str, Any]:
        return {'is_success': self.level >= 2} if self.is_over() else {}


class SampledEnv(Toy):
    """Shows samples of its space: numbers of different sizes, which are worth normalising; it ends after 8 steps.

    Args:
        action: Kind of the actions.
        obs: Kind of the observations.
    """

    OBS = {
        'Box': spaces.Box(np.float32([-1, -5, 0, 3]), np.float32([1, 5, 90, 4])),
        'double': spaces.Box(1.7e9, 1.7e9 + 9, (2, 2), np.float64),  # a clock
        'image': spaces.Box(0, 255, (8, 8, 3), np.uint8),
        'Discrete': spaces.Discrete(6, start=2),
        'MultiDiscrete': spaces.MultiDiscrete([3, 4]),
    }
    ACTIONS = {
        'Discrete': spaces.Discrete(4, start=2),
        'MultiDiscrete': spaces.MultiDiscrete([3, 4], start=[1, 0]),
        'MultiBinary': spaces.MultiBinary([2, 2]),
        'Box': spaces.Box(np.float32([[-1], [-2], [3]]), np.float32([[1], [7], [4]])),
        'Dict': spaces.Dict(
            way=spaces.Discrete(4, start=2), how=spaces.Box(np.float32([[-1], [3]]), np.float32([[1], [4]]))
        ),
        'Hybrid': spaces.Dict(
            how=spaces.Box(np.float32([[-1], [3]]), np.float32([[1], [4]])), way=spaces.Discrete(4, start=2)
        ),
        'Tuple': spaces.Tuple((spaces.MultiBinary([2, 2]), spaces.Tuple((spaces.Box(-3, 3, (), np.int16),)))),
    }
    length = 8

    def __init__(self, action: str = 'Discrete', obs: str = 'Box') -> None:
        self.observation_space, self.action_space = self.OBS[obs], self.ACTIONS[action]

    def begin(self, seed: int | None) -> None:
        if seed is not None:
            self.observation_space.seed(seed)

    def obs(self) -> Any:
        return self.observation_space.sample()

    def act(self, action: Any) -> Any:
        return float(self.np_random.random())


class MegabyteEnv(Toy):
    """Its obs is a megabyte of the number of its step, which goes on from episode to episode; an episode has five steps."""

    observation_space = spaces.Box(-np.inf, np.inf, (250_000,), np.float32)

    def __init__(self) -> None:
        self._all = 0

    def obs(self) -> Any:
        return np.full(250_000, self._all, np.float32)

    def act(self, action: Any) -> Any:
        self._all += 1
        return 1.0

    def is_over(self) -> bool:
        return self._all % 5 == 0


class ClosedCartPole(gymnasium.Wrapper):
    """CartPole with a time limit, which holds something that is no data: its state cannot be saved."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(gymnasium.wrappers.TimeLimit(CartPoleEnv(**kwargs), 200))
        self.handle = iter(())


# envs that fail, or take their time, when a test says so


class RankError(RuntimeError):
    """What an env raises that has enough."""


class TellingEnv(Toy):
    """Observes its process and its step; what it does at a step is read from files that a test writes.

    Args:
        folder: Where the files are: ``hang`` and ``raise`` name the process that is to do so once.
        seconds: What a step takes.
        handle: Nothing that matters.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)

    def __init__(self, folder: str = '', seconds: float = 0.0, handle: Any = None) -> None:
        self._folder, self._seconds = Path(folder), seconds

    def begin(self, seed: int | None) -> None:
        self.length = int(self.np_random.integers(5, 20))

    def obs(self) -> Any:
        return np.array([os.getpid(), self.steps], np.float64)

    def act(self, action: Any) -> Any:
        if self._seconds:
            time.sleep(self._seconds)
        if self._is_told('hang'):
            time.sleep(1000)
        if self._is_told('raise'):
            raise RankError(f'enough in {os.getpid()}')
        return 1.0

    def _is_told(self, what: str) -> bool:
        """Whether this process is to do it; once only."""
        if not self._folder.name:
            return False
        file = self._folder / what
        try:
            told = file.read_text()
        except FileNotFoundError:  # not written yet, or another process is the one and has removed it
            return False
        if told != str(os.getpid()):
            return False
        file.unlink()
        return True

    def get_state(self) -> Any:
        return {'step': self.steps, 'length': self.length, 'rng': self.np_random.bit_generator.state}

    def set_state(self, state: Any) -> None:
        self.steps, self.length = state['step'], state['length']
        self.np_random.bit_generator.state = state['rng']


class MovedInActors(CartPoleEnv):
    """CartPole whose actor has its arrays elsewhere in memory than a process that holds no actor."""

    def __init__(self, **kwargs: Any) -> None:
        import ray
        from moved_memory import move_from_now_on

        if ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None:
            move_from_now_on(8)
        super().__init__(**kwargs)


class SimulatorError(Exception):
    """An env's own kind of error, which takes two arguments."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f'{place}: {reason}')
        self.place, self.reason = place, reason


class ScoredEnv(Toy):
    """Its return is what it is told; from a step on it does what else it is told.

    Args:
        score: Return of an episode.
        fault: ``raise``, ``hang`` or ``nan``; empty: nothing happens.
        at: At which step of all.
    """

    def __init__(self, score: float = 1.0, fault: str = '', at: int = 40) -> None:
        self._reward, self._fault, self._at, self._all = score / 5, fault, at, 0

    def obs(self) -> Any:
        return np.array([self.steps, self._reward], np.float32)

    def act(self, action: Any) -> Any:
        self._all += 1
        fault = self._fault if self._all >= self._at else ''
        if fault == 'raise':
            raise SimulatorError('joint 3', 'lost its mind')
        if fault == 'hang':
            time.sleep(1000)
        return float('nan') if fault == 'nan' else self._reward


class SlowEnv(ScoredEnv):
    """The same with steps that take time, so that a search can be interrupted."""

    seconds = 0.003

    def act(self, action: Any) -> Any:
        time.sleep(self.seconds)
        return super().act(action)


class FailsOnce(ScoredEnv):
    """Raises at a step, and makes a file, so that no other env does it again.

    Args:
        file: Its path.
    """

    def __init__(self, file: str, **arguments: Any) -> None:
        super().__init__(fault='' if Path(file).exists() else 'raise', **arguments)
        self._file = Path(file)

    def act(self, action: Any) -> Any:
        if self._all + 1 >= self._at:
            self._file.touch()
        return super().act(action)


class FirstFails(ScoredEnv):
    """Raises in the first process that steps it.

    Args:
        folder: Where it is noted who was the first.
    """

    def __init__(self, folder: str, **arguments: Any) -> None:
        super().__init__(fault='', **arguments)
        self._first = Path(folder) / 'first'

    def act(self, action: Any) -> Any:
        with contextlib.suppress(FileExistsError):
            self._first.symlink_to(str(os.getpid()))
        self._fault = 'raise' if os.readlink(self._first) == str(os.getpid()) else ''
        return super().act(action)
