"""Envs that keep their state in every way that a plain copy of the attributes loses, and envs whose state cannot be saved."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import functools
import itertools
import mmap
import os
import random
import threading
import weakref
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque, namedtuple
from types import SimpleNamespace
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
class SharedGenerator(ZooEnv):
    def begin(self):
        self.rng = self.np_random

    def move(self, action):
        return self.rng.integers(1000), self.rng is self.np_random


@saved
class SharedDict(ZooEnv):
    def begin(self):
        self.stats = {'hits': 0}
        self.views = {'a': self.stats, 'b': [self.stats]}

    def move(self, action):
        self.stats['hits'] += action
        return self.views['b'][0]['hits']


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
class NumericClock(ZooEnv):
    def begin(self):
        self.clock, self.window, self.screen, self.surf = 0.0, [], {'x': 0}, 1

    def move(self, action):
        self.clock += 0.1
        self.window.append(action)
        self.screen['x'] += action
        self.isopen = self.viewer = self.clock
        return self.clock, len(self.window), self.screen['x']


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
class ChangedSpace(ZooEnv):
    def make(self):
        self.inner = gymnasium.spaces.Box(-1, 1, (40, 40))

    def begin(self):
        self.inner.seed(3)

    def move(self, action):
        self.inner.high[0, 0] += 1
        return self.inner.sample().tobytes(), float(self.inner.high[0, 0])


@saved
class NumpyScalars(ZooEnv):
    def begin(self):
        self.total, self.half, self.flag = np.float64(0), np.float16(0.1), np.bool_(False)
        self.letter, self.long, self.when = np.str_('a'), np.longlong(3), np.datetime64('2020-01-01', 'D')

    def move(self, action):
        self.total += np.float64(0.1)
        self.half = self.half + np.float16(0.01)
        self.flag = ~self.flag
        self.when = self.when + 1
        values = self.total, self.half, self.flag, self.letter, self.long, self.when
        return [(type(value).__name__, str(value)) for value in values]


@saved
class ArrayOrders(ZooEnv):
    def begin(self):
        self.fortran = np.asfortranarray(self.np_random.random((30, 20)).astype(np.float32))
        self.mixed = np.copy(self.np_random.random((3, 4, 5)).transpose(1, 2, 0), order='K')
        self.swapped = np.arange(4, dtype='>i4')
        self.none, self.flat = np.zeros((0, 3)), np.float32(2) * np.ones(())
        self.fixed = np.arange(5)
        self.fixed.flags.writeable = False
        self.text = np.array(['ab', 'c'])
        self.whole = np.frombuffer(b'abcdef', np.uint8)

    def move(self, action):
        self.fortran += 0.1
        self.mixed[0] *= 1.001
        self.swapped[0] += 1
        flags = [a.flags.f_contiguous for a in (self.fortran, self.mixed)]
        return (
            float(self.fortran.ravel('K').cumsum()[-1]), self.mixed.tobytes('A'), self.mixed.strides, flags,
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
        return self.rows.tolist(), self.aligned.tolist(), self.aligned.dtype.isalignedstruct


@saved
class ObjectArray(ZooEnv):
    def begin(self):
        self.body = Body()
        self.cells = np.empty((2, 2), object)
        self.cells[:] = [[self.body, None], [[1], 'x']]

    def move(self, action):
        self.body.x += 1
        self.cells[1, 0].append(action)
        return self.cells[0, 0].x, len(self.cells[1, 0]), self.cells[0, 0] is self.body


class Slotted:
    __slots__ = ('__dict__', 'x', 'y')


class MoreSlots(Slotted):
    __slots__ = ('z',)


@saved
class Slots(ZooEnv):
    def begin(self):
        self.point = MoreSlots()
        self.point.x, self.point.z, self.point.other = 1, [2], 3

    def move(self, action):
        self.point.x += 1
        self.point.z.append(action)
        self.point.other += 2
        return self.point.x, len(self.point.z), self.point.other, hasattr(self.point, 'y')


Point = namedtuple('Point', 'x y')


class Facing(enum.IntEnum):
    NORTH = 0
    EAST = 1
    SOUTH = 2
    WEST = 3


class Walls(enum.Flag):
    NONE = 0
    LEFT = 1
    RIGHT = 2
    TOP = 4


@saved
class NamedValues(ZooEnv):
    def begin(self):
        self.pos, self.facing, self.walls = Point(0, [0]), Facing.NORTH, Walls.LEFT | Walls.TOP

    def move(self, action):
        self.pos = self.pos._replace(x=self.pos.x + 1)
        self.facing = Facing((self.facing + action) % 4)
        self.walls ^= Walls.TOP
        return repr(self.pos), self.facing.name, repr(self.walls), self.facing is Facing(int(self.facing))


@saved
class Containers(ZooEnv):
    def begin(self):
        self.counts: Any = defaultdict(list)
        self.seen: Any = {(0, 0), (1, 2)}
        self.order: Any = OrderedDict(a=1, b=2)
        self.last: Any = deque([1], maxlen=3)
        self.tally: Any = Counter()
        self.frozen: Any = frozenset({3, 11, 19})
        self.chain: Any = ChainMap({}, {'base': 1})
        self.raw = bytearray(b'ab')
        self.mixed: Any = {1: 'one', (2, 3): [4], None: 5, False: 6, 2.5: 7}

    def move(self, action):
        self.counts[action].append(self.count)
        self.seen.add((action, self.count % 5))
        self.order.move_to_end('a' if action % 2 else 'b')
        self.last.append(action)
        self.tally[action] += 1
        self.chain[action] = self.count
        self.raw[0] = (self.raw[0] + 1) % 256
        return (
            repr(self.counts), list(self.seen), list(self.order), repr(self.last), self.tally.most_common(2),
            list(self.frozen), dict(self.chain), bytes(self.raw), repr(self.mixed), self.tally['no'],
        )  # fmt: skip


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
            1 + 2j, b'\x00\xff', range(3, 9, 2), slice(1, None), Ellipsis, 10**400, -0.0, float('inf'),
            datetime.datetime(2020, 1, 2, 3, fold=1, tzinfo=datetime.UTC), datetime.timedelta(3, 4, 5),
            decimal.Decimal('1.10'), np.dtype('>f4'), float, np.float32, '\ud800', (1, [2], ()), 2**70,
        ]  # fmt: skip
        self.nan = float('nan')
        self.nans = [self.nan]

    def move(self, action):
        return repr(self.values), self.nan in self.nans, [type(value) for value in self.values]


class Grid(list):
    """A list with attributes."""

    def __init__(self, items=(), name='') -> None:
        super().__init__(items)
        self.name = name


class Text(str):
    pass


class Number(float):
    pass


@saved
class DerivedTypes(ZooEnv):
    def begin(self):
        self.grid, self.text, self.number = Grid([1, 2], 'g'), Text('abc'), Number(2.5)
        self.grid.me, self.text.note, self.number.unit = self.grid, ['n'], 'm'

    def move(self, action):
        self.grid.append(action)
        self.text.note.append(action)
        kinds = [type(value).__name__ for value in (self.grid, self.text, self.number)]
        return len(self.grid.me), self.grid.name, self.text + '!', len(self.text.note), self.number * 2, kinds


class AttrDict(dict):
    def __init__(self, **items) -> None:
        super().__init__(items)
        self.__dict__ = self


@saved
class Cycles(ZooEnv):
    def begin(self):
        self.loop: Any = {'n': 0}
        self.loop['self'] = self.loop
        self.list: Any = [1]
        self.list.append((self.list, self))
        self.config = AttrDict(x=1)
        self.space = SimpleNamespace(env=self, n=0)
        self.chain: Any = None
        for index in range(3000):
            self.chain = [index, self.chain]

    def move(self, action):
        self.loop['self']['n'] += 1
        self.config.x += 1
        self.space.env.space.n += 2
        return self.loop['n'], self.list[1][0] is self.list, self.config['x'], self.space.n, self.chain[1][0]


@saved
class Generators(ZooEnv):
    def begin(self):
        seed = int(self.np_random.integers(2**31))
        kinds = (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
        self.generators = [np.random.Generator(kind(seed)) for kind in kinds]
        self.bits = self.generators[0].bit_generator
        self.twin = np.random.Generator(self.bits)
        self.old, self.python = np.random.RandomState(seed), random.Random(seed)
        self.seeds = np.random.SeedSequence(seed)
        self.draw = self.generators[2].random

    def move(self, action):
        drawn = [generator.integers(100, dtype=np.int32) for generator in self.generators]
        child = self.seeds.spawn(1)[0].generate_state(1)[0]
        spawned = self.generators[1].spawn(1)[0].random()
        return (
            drawn, self.twin.random(), self.old.standard_normal(), self.python.gauss(0, 1), int(child), spawned,
            self.draw(), self.twin.bit_generator is self.bits,
        )  # fmt: skip


@saved
class Functions(ZooEnv):
    def make(self):
        calls = [0]
        total = 0

        def count() -> int:
            nonlocal total
            calls[0] += 1
            total += calls[0]
            return total

        self.count_calls = count
        self.log: Any = []
        self.note = self.log.append
        self.twice = functools.partial(lambda env, log: (env.count, len(log)), self, self.log)
        self.method = self.helper
        self.modes = {'a': self.helper, 'b': len}
        self.lock = threading.Lock()

    def helper(self):
        return self.count * 2

    def begin(self):
        self.mode = self.modes['a']

    def move(self, action):
        self.note(action)
        with self.lock:
            return self.count_calls(), self.twice(), self.method(), self.mode()


@dataclasses.dataclass(frozen=True)
class Cell:
    x: int
    y: tuple


EMPTY = Body(-1)
BOARD = [[0] * 3 for _ in range(3)]
NOTHING = object()


@saved
class NamedObjects(ZooEnv):
    """Compares with objects of its module, and must not write to them."""

    def make(self):
        self.board, self.nothing = BOARD, NOTHING

    def begin(self):
        self.board = [row.copy() for row in BOARD]
        self.cells: Any = [EMPTY, Body(3), None]
        self.costs = {Cell(0, (1,)): 1, Cell(1, (2,)): 2}
        self.marked = {Cell(0, (1,))}
        self.nothing = NOTHING

    def move(self, action):
        self.board[1][1] += 1
        self.cells[2] = EMPTY if action % 2 else Body(4)
        self.costs[Cell(action % 2, (action % 2 + 1,))] += 1
        empty = [cell is EMPTY for cell in self.cells]
        return (
            empty, self.board, list(self.costs.values()), Cell(0, (1,)) in self.marked, BOARD[1][1],
            self.nothing is NOTHING,
        )  # fmt: skip


@saved
class KeptObjects(ZooEnv):
    """Objects of the constructor are filled in place, those of a class that nobody can import, too."""

    def make(self):
        class Hidden:
            x = 0

        self.hidden = Hidden()
        self.array = np.zeros(4)
        self.parts = {'array': self.array, 'hidden': self.hidden}
        self.read = lambda: (self.hidden.x, self.array.tolist(), self.parts['hidden'] is self.hidden)

    def move(self, action):
        self.hidden.x += action
        self.array[action] += 1
        return self.read()


# envs whose state cannot be saved


@refused('LambdaOfReset.rule')
class LambdaOfReset(ZooEnv):
    def begin(self):
        draw = int(self.np_random.integers(9))
        self.rule = lambda: draw

    def move(self, action):
        return self.rule()


@refused('MethodOfReset.mode')
class MethodOfReset(ZooEnv):
    def a(self):
        return 1

    def begin(self):
        self.mode = self.a

    def move(self, action):
        return self.mode()


@refused('FactoryOfReset.counts.default_factory')
class FactoryOfReset(ZooEnv):
    def begin(self):
        self.counts: Any = defaultdict(lambda: 7)

    def move(self, action):
        return self.counts[action]


@refused('OpenFile.file')
class OpenFile(ZooEnv):
    def make(self):
        self.file = open(os.devnull, 'rb')  # noqa: SIM115  that it stays open is what matters

    def move(self, action):
        return self.file.read(1)

    def close(self):
        self.file.close()


@refused('HeldLock.lock')
class HeldLock(ZooEnv):
    def make(self):
        self.lock = threading.Lock()

    def begin(self):
        self.lock.acquire(blocking=False)

    def move(self, action):
        return self.lock.locked()


@refused('Iterators.steps')
class Iterators(ZooEnv):
    def make(self):
        self.steps = itertools.count()

    def move(self, action):
        return next(self.steps)


@refused('PythonGenerator.script')
class PythonGenerator(ZooEnv):
    def make(self):
        self.script = (n * n for n in itertools.count())

    def move(self, action):
        return next(self.script)


@refused('WeakReference.ref')
class WeakReference(ZooEnv):
    def begin(self):
        self.body = Body()
        self.ref = weakref.ref(self.body)

    def move(self, action):
        return self.ref().x


@refused('SetOfObjects.bodies')
class SetOfObjects(ZooEnv):
    def begin(self):
        self.bodies = {Body(index) for index in range(5)}

    def move(self, action):
        return next(iter(self.bodies)).x


@refused('LocalClass.thing')
class LocalClass(ZooEnv):
    def begin(self):
        class Thing:
            x = 1

        self.thing = Thing()

    def move(self, action):
        return self.thing.x


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


class Ghost(Body):
    pass


@refused('ChangedClass.body')
class ChangedClass(ZooEnv):
    def make(self):
        self.body = Body()

    def begin(self):
        self.body.__class__ = Ghost

    def move(self, action):
        return 0


@refused('PictureToLookAt.canvas')
class PictureToLookAt(ZooEnv):
    """What it observes may be painted there."""

    def begin(self):
        import pygame

        self.canvas = pygame.Surface((4, 4))

    def move(self, action):
        return tuple(self.canvas.get_at((0, 0)))
