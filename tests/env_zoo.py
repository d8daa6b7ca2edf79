"""Envs that keep their state in every way that a plain copy of the attributes loses, and envs whose state cannot be saved."""

from __future__ import annotations

import dataclasses
import enum
import mmap
import random
from collections import OrderedDict, deque
from typing import Any

import gymnasium
import numpy as np

SAVED: dict[str, type[ZooEnv]] = {}
"""Envs that go on exactly."""
REFUSED: dict[str, tuple[type[ZooEnv], str]] = {}
"""Envs that have no state, and where the reason is."""


def saved(env: Any) -> Any:
    SAVED[env.__name__] = env
    return env


def refused(where: str) -> Any:
    def register(env: Any) -> Any:
        REFUSED[env.__name__] = env, where
        return env

    return register


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


@saved
class SharedEntities(ZooEnv):
    def begin(self):
        self.agent, self.ghost = Body(1), Body(5)
        self.entities = [self.agent, self.ghost]

    def move(self, action):
        self.agent.x += action
        return [body.x for body in self.entities], self.entities[0] is self.agent


@saved
class Views(ZooEnv):
    def begin(self):
        self.board = np.zeros((6, 6), np.int32)
        self.row, self.back, self.bits = self.board[2], self.board[::-1, ::2], self.board.view(np.uint8)
        self.one = self.board[1:2, 1:2]

    def move(self, action):
        self.row[action] += 1
        self.one[0, 0] += 3
        return self.board.tolist(), self.back.tolist(), int(self.bits.sum()), self.row.base is self.board


@saved
class DrawsFromSpace(ZooEnv):
    def make(self):
        self.goals = gymnasium.spaces.Dict(a=gymnasium.spaces.Discrete(9), b=gymnasium.spaces.Box(0, 1, (3,)))

    def begin(self):
        self.goals.seed(int(self.np_random.integers(99)))
        self.action_space.seed(int(self.np_random.integers(99)))

    def move(self, action):
        drawn = self.goals.sample()
        return int(self.action_space.sample()), int(drawn['a']), drawn['b'].tolist()


@saved
class SpaceOfItsClass(ZooEnv):
    hidden = gymnasium.spaces.Discrete(1000)

    def begin(self):
        self.hidden.seed(int(self.np_random.integers(99)))

    def move(self, action):
        return int(self.hidden.sample())


@saved
class NewSpace(ZooEnv):
    def begin(self):
        self.inner = gymnasium.spaces.Box(-1, 1, (40, 40), seed=int(self.np_random.integers(99)))

    def move(self, action):
        self.inner.high[0, 0] += 1
        return self.inner.sample().tobytes(), float(self.inner.high[0, 0])


@saved
class NumpyScalars(ZooEnv):
    def begin(self):
        self.total, self.half, self.flag = np.float64(0), np.float16(0.1), np.bool_(False)
        self.letter, self.when = np.str_('a'), np.datetime64('2020-01-01', 'D')

    def move(self, action):
        self.total += np.float64(0.1)
        self.half = self.half + np.float16(0.01)
        self.flag = ~self.flag
        self.when = self.when + 1
        values = self.total, self.half, self.flag, self.letter, self.when
        return [(type(value).__name__, str(value)) for value in values]


@saved
class ArrayOrders(ZooEnv):
    def begin(self):
        self.fortran = np.asfortranarray(self.np_random.random((30, 20)).astype(np.float32))
        self.swapped = np.arange(4, dtype='>i4')
        self.none, self.flat = np.zeros((0, 3)), np.float32(2) * np.ones(())
        self.fixed = np.arange(5)
        self.fixed.flags.writeable = False
        self.text = np.array(['ab', 'c'])
        self.whole = np.frombuffer(b'abcdef', np.uint8)

    def move(self, action):
        self.fortran += 0.1
        self.swapped[0] += 1
        return (
            float(self.fortran.ravel('K').cumsum()[-1]), self.fortran.flags.f_contiguous,
            self.swapped.dtype.str, self.swapped.tolist(), self.none.shape, self.flat.shape,
            self.fixed.flags.writeable, self.text.tolist(), self.whole.tolist(), self.whole.flags.writeable,
        )  # fmt: skip


@saved
class Structured(ZooEnv):
    def begin(self):
        self.rows = np.zeros(3, [('x', 'f8'), ('y', 'i4', (2,)), ('z', [('a', 'u1'), ('b', 'S3')])])
        self.aligned = np.zeros(2, np.dtype({'names': ['a', 'b'], 'formats': ['u1', 'f8']}, align=True))
        self.x = self.rows['x']

    def move(self, action):
        self.x[action % 3] += 1
        self.aligned['b'] += 1
        self.rows['z']['b'][0] = b'abc'
        return self.rows.tolist(), self.aligned.tolist(), self.aligned.dtype.itemsize


class Facing(enum.IntEnum):
    NORTH = 0
    EAST = 1
    SOUTH = 2
    WEST = 3


@saved
class NamedValues(ZooEnv):
    def begin(self):
        self.facing = Facing.NORTH

    def move(self, action):
        self.facing = Facing((self.facing + action) % 4)
        return self.facing.name, self.facing is Facing(int(self.facing))


@saved
class Containers(ZooEnv):
    def begin(self):
        self.seen: Any = {(0, 0), (1, 2)}
        self.order: Any = OrderedDict(a=1, b=2)
        self.last: Any = deque([1], maxlen=3)
        self.frozen: Any = frozenset({1, 2, 3})
        self.mixed: Any = {1: 'one', (2, 3): [4], None: 5, False: 6, 2.5: 7}

    def move(self, action):
        self.seen.add((action, self.count % 5))
        self.order.move_to_end('a' if action % 2 else 'b')
        self.last.append(action)
        return list(self.seen), list(self.order), repr(self.last), list(self.frozen), repr(self.mixed)


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
class Values(ZooEnv):
    def begin(self):
        self.values: Any = [
            b'\x00\xff', range(3, 9, 2), 10**400, -0.0, float('inf'), float('nan'),
            np.dtype('>f4'), np.dtype([('x', 'f8', (2,))]), '\ud800', (1, [2], ()), 2**70, frozenset('ab'),
        ]  # fmt: skip

    def move(self, action):
        return repr(self.values[:-1]), sorted(self.values[-1]), [type(value) for value in self.values]


class Grid(list):
    """A list with attributes."""

    def __init__(self, items=(), name='') -> None:
        super().__init__(items)
        self.name = name


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


class Ghost(Body):
    pass


@saved
class ChangedClass(ZooEnv):
    def make(self):
        self.body = Body()

    def begin(self):
        self.body.__class__ = Ghost

    def move(self, action):
        return type(self.body).__name__


# envs whose state cannot be saved


@refused('LambdaOfReset.rule')
class LambdaOfReset(ZooEnv):
    def begin(self):
        draw = int(self.np_random.integers(9))
        self.rule = lambda: draw

    def move(self, action):
        return self.rule()


class Closing:
    def __del__(self) -> None:
        pass


@refused('ObjectWithDel.handle')
class ObjectWithDel(ZooEnv):
    def begin(self):
        self.handle = Closing()

    def move(self, action):
        return 0


@refused('MappedMemory.board')
class MappedMemory(ZooEnv):
    def make(self):
        self.board = np.frombuffer(mmap.mmap(-1, 64), np.uint8)

    def move(self, action):
        return int(self.board.sum())


@refused('AttributesAsDict.all')
class AttributesAsDict(ZooEnv):
    def begin(self):
        self.body = Body()
        self.all = vars(self.body)

    def move(self, action):
        self.all['x'] += 1
        return self.body.x


@refused('MixedOrder.mixed')
class MixedOrder(ZooEnv):
    def begin(self):
        self.mixed = np.copy(np.zeros((3, 4, 5)).transpose(1, 2, 0), order='K')

    def move(self, action):
        return self.mixed.strides


@refused('ObjectArray.cells')
class ObjectArray(ZooEnv):
    def begin(self):
        self.cells = np.empty((2, 2), object)

    def move(self, action):
        return 0


class Slotted:
    __slots__ = ('x',)


@refused('Slots.point')
class Slots(ZooEnv):
    def begin(self):
        self.point = Slotted()
        self.point.x = 1

    def move(self, action):
        self.point.x += 1
        return self.point.x


@refused('DerivedTypes.grid')
class DerivedTypes(ZooEnv):
    def begin(self):
        self.grid = Grid([1, 2], 'g')

    def move(self, action):
        return len(self.grid)


@refused('Closures.count_calls')
class Closures(ZooEnv):
    """A function of the constructor keeps a state of its own."""

    def make(self):
        total = 0

        def count() -> int:
            nonlocal total
            total += 1
            return total

        self.count_calls = count

    def move(self, action):
        return self.count_calls()


@refused('ObjectOfModule.cells[0]')
class ObjectOfModule(ZooEnv):
    """A copy would no longer be the object of the module that it is compared with."""

    def begin(self):
        self.cells: Any = [EMPTY, Body(3)]

    def move(self, action):
        return [cell is EMPTY for cell in self.cells]


@refused('ListOfModule.board')
class ListOfModule(ZooEnv):
    def make(self):
        self.board = BOARD

    def begin(self):
        self.board[0][0] += 1

    def move(self, action):
        return self.board is BOARD


@dataclasses.dataclass(frozen=True)
class Cell:
    x: int
    y: tuple


@refused('KeysOfObjects.costs')
class KeysOfObjects(ZooEnv):
    def begin(self):
        self.costs = {Cell(0, (1,)): 1}

    def move(self, action):
        return self.costs[Cell(0, (1,))]


@refused('GeneratorOfClass.dice')
class GeneratorOfClass(ZooEnv):
    """All envs of the class draw from it."""

    dice = np.random.default_rng(3)

    def move(self, action):
        return self.dice.random()


@refused('PictureToLookAt.canvas')
class PictureToLookAt(ZooEnv):
    """What it observes may be painted there."""

    def begin(self):
        import pygame

        self.canvas = pygame.Surface((4, 4))

    def move(self, action):
        return tuple(self.canvas.get_at((0, 0)))
