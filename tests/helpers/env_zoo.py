"""Envs that keep their state in every way that a plain copy of the attributes loses, and envs whose state cannot be saved."""

from __future__ import annotations

import dataclasses
import enum
import mmap
import random
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pygame

SAVED: dict[str, type[ZooEnv]] = {}
"""Envs that go on exactly."""


def saved(env: Any) -> Any:
    SAVED[env.__name__] = env
    return env


class ZooEnv(gymnasium.Env):
    """Counts steps; ``begin`` and ``move`` are what makes each env peculiar."""

    def __init__(self, render_mode: str | None = None) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = gymnasium.spaces.Discrete(4)
        self.render_mode = render_mode
        self.count = 0
        self.make()

    def make(self) -> None:
        """What the constructor does."""

    def begin(self) -> None:
        """What a reset does."""

    def move(self, action: int) -> Any:
        """What a step does; what it returns is compared."""
        raise NotImplementedError

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        self.begin()
        return np.array([0.0, self.np_random.random()]), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        told = self.move(int(action))
        return np.array([self.count, self.np_random.random()]), 1.0, self.count >= 37, False, {'told': told}


class Body:
    def __init__(self, x: int = 0) -> None:
        self.x = x


class Ghost(Body):
    pass


@saved
class SharedEntities(ZooEnv):
    """Objects in two places, one of which changes its class."""

    def make(self):
        self.ghost = Body()

    def begin(self):
        self.agent, self.ghost.x = Body(1), 5
        self.ghost.__class__ = Ghost
        self.entities = [self.agent, self.ghost]

    def move(self, action):
        self.agent.x += action
        told = [(type(body).__name__, body.x) for body in self.entities]
        return told, self.entities[0] is self.agent


@saved
class Spaces(ZooEnv):
    hidden = gymnasium.spaces.Discrete(1000)

    def make(self):
        self.goals = gymnasium.spaces.Dict(a=gymnasium.spaces.Discrete(9), b=gymnasium.spaces.Box(0, 1, (3,)))

    def begin(self):
        for space in (self.goals, self.hidden, self.action_space):
            space.seed(int(self.np_random.integers(99)))
        self.inner = gymnasium.spaces.Box(-1, 1, (40, 40), seed=int(self.np_random.integers(99)))

    def move(self, action):
        self.inner.high[0, 0] += 1
        drawn = self.goals.sample()
        told = int(self.action_space.sample()), int(self.hidden.sample()), float(self.inner.high[0, 0])
        return *told, int(drawn['a']), drawn['b'].tolist(), self.inner.sample().tobytes()


class Facing(enum.IntEnum):
    NORTH = 0


def fixed(array: Any) -> Any:
    """Returns an array that nobody may write to."""
    array.flags.writeable = False
    return array


def plain() -> list[Any]:
    """Returns values of every kind that is data."""
    return [
        {(0, 0), (1, 2)}, OrderedDict(b=1, a=2), deque([1], maxlen=3), frozenset({1, 2, 3}), frozenset({'a'}),
        {1: 'one', (2, 3): [4], None: 5, False: 6, 2.5: 7}, (1, [2], ()), Facing.NORTH,
        b'\x00\xff', range(3, 9, 2), 10**400, 2**70, -0.0, float('inf'), float('nan'), '\ud800',
        np.dtype('>f4'), np.float64(0), np.float16(0.1), np.bool_(False),
        np.str_('a'), np.datetime64('2020-01-01', 'D'),
        np.asfortranarray(np.arange(600.0, dtype=np.float32).reshape(30, 20)), np.arange(4, dtype='>i4'),
        np.zeros((0, 3)), np.ones(()), fixed(np.arange(5)), np.array(['ab', 'c']), np.frombuffer(b'abc', np.uint8),
    ]  # fmt: skip


class Holder(ZooEnv):
    """Holds a content, or values of every kind."""

    content: Any = None

    def begin(self):
        self.held = plain() if self.content is None else self.content


@saved
class ShrunkSet(ZooEnv):
    """The order of a set, and what it pops, depend on all that was ever in it."""

    def begin(self):
        self.free = set(range(0, 400, 8))
        self.few = set(range(100, 50, -7))

    def move(self, action):
        taken = self.free.pop()
        self.free -= {8 * action, 16 * action}
        self.few.add(taken * 3 + action * 64)
        if len(self.free) < 5:
            self.free |= set(range(0, 64 * 9, 8 + action))
        return taken, list(self.few), list(self.free)


@saved
class Cycles(ZooEnv):
    def begin(self):
        self.loop: Any = {'n': 0}
        self.loop['self'] = self.loop
        self.list: Any = [1]
        self.list.append((self.list, self))
        self.body = Body()
        self.body.env = self
        self.chain: Any = None
        for index in range(3000):
            self.chain = [index, self.chain]

    def move(self, action):
        self.loop['self']['n'] += 1
        self.body.env.body.x += 2
        return self.loop['n'], self.list[1][0] is self.list, self.body.x, self.chain[1][0]


@saved
class Generators(ZooEnv):
    def begin(self):
        seed = int(self.np_random.integers(2**31))
        kinds = (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
        self.generators = [np.random.Generator(kind(seed)) for kind in kinds]
        self.bits = self.generators[0].bit_generator
        self.twin = np.random.Generator(self.bits)
        self.old, self.python = np.random.RandomState(seed), random.Random(seed)

    def move(self, action):
        drawn = [generator.integers(100, dtype=np.int32) for generator in self.generators]
        spawned = self.generators[1].spawn(1)[0].random()
        return (
            drawn, self.twin.random(), self.old.standard_normal(), self.python.gauss(0, 1), spawned,
            self.twin.bit_generator is self.bits,
        )  # fmt: skip


SENTINEL = object()
EMPTY = Body(-1)
BOARD = [[0] * 3 for _ in range(3)]


@saved
class Functions(ZooEnv):
    """Functions and methods of the constructor that refer to nothing that changes, but to the env."""

    def make(self):
        self.method = self.helper
        table = np.arange(100)
        self.modes = {'a': self.helper, 'b': len, 'c': lambda count, factor=3: int(table[count]) * factor}
        self.read = lambda: (self.count, self.modes['c'](self.count))
        self.sentinel = SENTINEL

    def helper(self):
        return self.count * 2

    def begin(self):
        self.mode = self.modes['a']

    def move(self, action):
        return self.method(), self.mode(), self.read(), self.sentinel is SENTINEL


@saved
class KeptObjects(ZooEnv):
    """Objects of a class that cannot be imported, but of which the constructor made one."""

    def make(self):
        class Hidden:
            x = 0

        self.hidden = Hidden()
        self.array = np.zeros(4)
        self.parts = {'array': self.array, 'hidden': self.hidden}

    def move(self, action):
        self.hidden.x += action
        self.array[action] += 1
        return self.hidden.x, self.array.tolist(), self.parts['hidden'] is self.hidden


# what cannot be saved


class Closing:
    def __del__(self) -> None:
        pass


class Slotted:
    __slots__ = ('x',)

    def __init__(self) -> None:
        self.x = 1


@dataclasses.dataclass(frozen=True)
class Cell:
    x: int
    y: tuple


class Grid(list):
    """A list with attributes."""


UNSAVED: dict[str, Callable[[Any], Any]] = {
    'function of a reset': lambda env: lambda: env.count,
    'object that acts when it is deleted': lambda env: Closing(),
    'two views of an array': lambda env: [body := np.zeros((6, 6)), body[2]],
    'memory of a file': lambda env: np.frombuffer(mmap.mmap(-1, 64), np.uint8),
    'attributes of another object': lambda env: vars(env.body),
    'array without an order': lambda env: np.copy(np.zeros((3, 4, 5)).transpose(1, 2, 0), order='K'),
    'array of objects': lambda env: np.empty((2, 2), object),
    'structured array': lambda env: np.zeros(3, [('x', 'f8'), ('y', 'i4', (2,))]),
    'slots': lambda env: Slotted(),
    'derived type': lambda env: Grid([1, 2]),
    'object of the module, which it is compared with': lambda env: [EMPTY, Body(3)],
    'list of the module': lambda env: BOARD.append(1) or BOARD,  # type: ignore[func-returns-value]
    'objects as keys': lambda env: {Cell(0, (1,)): 1},
    'picture, in which it may look': lambda env: pygame.Surface((4, 4)),
}


class Unsaved(ZooEnv):
    """Holds from its reset on what cannot be saved.

    Args:
        name: Of what it holds.
    """

    held: Any

    def __init__(self, name: str) -> None:
        self._name = name
        super().__init__()

    def begin(self):
        self.body = Body()
        self.held = UNSAVED[self._name](self)

    def move(self, action):
        return 0


class Closure(ZooEnv):
    """A function of the constructor keeps a state of its own."""

    def make(self):
        total = 0

        def count() -> int:
            nonlocal total
            total += 1
            return total

        self.held = count

    def move(self, action):
        return self.held()


class OfClass(ZooEnv):
    """All envs of the class draw from it."""

    held = np.random.default_rng(3)

    def move(self, action):
        return self.held.random()


REFUSED: dict[str, Callable[[], ZooEnv]] = {
    **{name: partial(Unsaved, name) for name in UNSAVED},
    'function with a state': Closure,
    'generator of the class': OfClass,
}
"""Envs that have no state, because of what they hold as ``held``."""
