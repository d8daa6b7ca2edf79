"""ShardedReplayBuffer: prioritized replay whose items are kept in Ray actors, sampled as from one buffer."""

from __future__ import annotations

import copy
import logging
import math
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rlframe.backend.options import without_backend_options
from rlframe.backend.ray.options import BUFFER, SHARD_OPTIONS, ShardsConfig
from rlframe.backend.ray.place import RayPlace
from rlframe.backend.ray.session import REMEDY
from rlframe.backend.ready import writable
from rlframe.data.timestep import Batch, FloatArray, IntArray
from rlframe.errors import BufferUnderflowError, CheckpointMismatchError
from rlframe.registry import BUFFER_REGISTRY
from rlframe.remote.supervisor import Call, Limits, Supervisor
from rlframe.remote.worker import Worker, answers
from rlframe.utils.field import to_plain
from rlframe.utils.schema import COUNT, DICT, FINITE, GENERATOR, check_state, list_of
from rlframe.worker.replay_buffer.advanced_buffer import PriorityConfig
from rlframe.worker.replay_buffer.buffer import IBuffer
from rlframe.worker.replay_buffer.options import BufferConfig
from rlframe.worker.replay_buffer.prioritized import PrioritizedSampler
from rlframe.worker.replay_buffer.ring import Ring, read_priorities, stack_items, to_items
from rlframe.worker.replay_buffer.running_episodes import RunningEpisodes, episodes_of

logger = logging.getLogger('rlframe.ray')

STRIPE = 64
"""Consecutive transitions that go to the same shard; the next ones go to the next."""
GENERATION = 2**40
"""Row numbers of one shard; those of the one that replaces it follow."""
MOST_UNANSWERED = 256
"""Calls that may wait for their answers before pushing waits, too."""


def capacities(size: int, num_shards: int) -> list[int]:
    """Returns the number of items that each shard holds."""
    return [size // num_shards + (shard < size % num_shards) for shard in range(num_shards)]


class Sums(NamedTuple):
    """What sampling over all shards needs to know of one."""

    total: float = 0.0
    """Sum of its weights, which are priorities to the power of ``alpha``."""
    least: float = math.inf
    """Its smallest weight."""


NOTHING = Sums()


class Order(NamedTuple):
    """What a shard is to do, with the next call."""

    what: str
    args: tuple[Any, ...] = ()


def _make_shard(
    kind: Any, options: Mapping[str, Any], sizes: Sequence[int], goals: Any, rank: int, incarnation: int
) -> IBuffer:
    """Creates the buffer of a shard in its actor, which draws nothing itself; ``goals`` are None without hindsight."""
    buffer: IBuffer = kind({**options, 'replay_buffer_size': sizes[rank]})
    if goals is not None:
        buffer.hindsight.goals = goals  # type: ignore[attr-defined]  # the config was checked: it has hindsight
    return buffer


def shards_of(section: ShardedConfig, goals: Any = None) -> Supervisor:
    """Returns the supervisor of the shards, which have not started.

    Args:
        section: Options of the whole replay buffer.
        goals: How goals are rewarded; None without hindsight.

    Raises:
        ResourceError: If no Ray answers at the given address, or it lacks the resources that the shards need.
    """
    resources = {'num_cpus': 0, 'scheduling_strategy': 'SPREAD', **section.remote_config}
    place = RayPlace(ShardWorker, section.ray_init_config, resources, BUFFER)
    limits = Limits.of(section, section.shard_timeout, BUFFER)
    options = without_backend_options(to_plain(section), SHARD_OPTIONS)
    sizes = capacities(section.replay_buffer_size, section.num_shards)
    make = partial(_make_shard, BUFFER_REGISTRY.get_cls(section), options, sizes, goals)
    return Supervisor(place, make, section.num_shards, limits, REMEDY)


class ShardWorker(Worker):
    """Worker that holds a shard: an ordinary buffer with priorities."""

    role = 'shard of the replay buffer'

    @answers
    def work(self, orders: Sequence[Order]) -> tuple[list[Batch], Sums]:
        """Carries out orders in turn; returns the batches that were drawn, and the sums afterwards."""
        results = [getattr(self, f'_{order.what}')(*order.args) for order in orders]
        return [rows for rows in results if rows is not None], self._sums()

    def _push(self, data: Any, envstep: int, max_priority: float) -> None:
        """Adds items; those without a priority get this one."""
        self._parts._priorities.max_priority = max_priority
        self._parts.push(data, envstep)

    def _draw(self, mass: FloatArray, sums: Sums, beta: float, train_iter: int, *chance: FloatArray) -> Batch:
        """Returns the items that these points of its total weight fall on, float64 [n]; see ``PrioritizedSampler``.

        With hindsight, ``chance`` decides on their goals.
        """
        sampler, stop = self._parts._priorities, self._parts._storage.stop
        drawn = sampler.draw_at(np.array(mass), sums.total, sums.least, beta, stop)
        rows: Batch = self._parts.drawn(drawn, train_iter, *chance)
        return rows

    def _update(self, info: Mapping[str, Any]) -> None:
        """Sets new priorities."""
        self._parts.update(info)

    def _clear(self) -> None:
        """Forgets all items."""
        self._parts.clear()

    @answers
    def state(self) -> dict[str, Any]:
        """Returns the state of the buffer."""
        state: dict[str, Any] = self._parts.state_dict()
        return state

    @answers
    def load(self, state: Mapping[str, Any]) -> tuple[int, int, Sums]:
        """Restores the state from ``state()``, and returns the numbers of the first row and behind the last one."""
        self._parts.load_state_dict(state)
        storage = self._parts._storage
        return (0, 0, self._sums()) if storage is None else (storage.first, storage.stop, self._sums())

    def _sums(self) -> Sums:
        return Sums(*self._parts._priorities.sums())


class Shard(Ring):
    """The driver's record of a shard: which rows it holds, and the orders that are not sent yet.

    Args:
        capacity: Number of items that it holds.
        generation: Number of shards lost in its place before.
    """

    def __init__(self, capacity: int, generation: int = 0) -> None:
        super().__init__(capacity)
        self.generation, self.sums = generation, NOTHING
        self.orders: list[Order] = []
        """Orders that were not sent yet."""


class Sent(NamedTuple):
    """A call of a shard."""

    call: Call
    generation: int
    """Generation of the shard that it was sent to."""


class Part(NamedTuple):
    """The part of a batch that a shard draws."""

    sent: Sent
    number: int
    """Which of the draws of that call it is."""


class ShardedConfig(BufferConfig, PriorityConfig, ShardsConfig):
    """Options of ``ShardedReplayBuffer``: those of its shards, and of where they are."""


class ShardedReplayBuffer(IBuffer):
    """Keeps items in S shards, Ray actors with a prioritized buffer each, and samples them as one buffer would.

    A batch is drawn from the joint distribution of all items: each of ``size`` equal parts of the summed weights gives one
    item, whichever shard it is in; importance weights refer to all shards, too. With ``prefetch=0``, one shard returns the
    same bits as the buffer in this process. With ``prefetch=k``, k batches of a round are drawn ahead while the learner
    works, half of them in one message: their priorities are those of at most k updates before, and the sums of weights by
    which shards are chosen are a message older. Which answers are known when a batch is drawn does not depend on the speed
    of processes, so runs are repeatable either way. Between two rounds no draw is in flight, so a resumed run continues with
    the same bits.

    Source:
        Horgan et al., Distributed Prioritized Experience Replay (2018).

    A lost shard is replaced by an empty one. Its items are counted as ``lost``: ``pushed == count() + overwritten + lost``.
    Until the new one is ready, the others take its transitions; those of a sequence buffer are lost, too, as they belong to
    episodes that are there.

    Args:
        section: Complete options of the buffer and of its shards.
        pool: The shards; started if they are not running.
        common: Further arguments of every replay buffer, such as ``seed``.
    """

    _cfg: ShardedConfig

    def __init__(self, section: Mapping[str, Any], pool: Supervisor, **common: Any) -> None:
        super().__init__(section, **common)
        cfg = self._cfg
        self._pool = pool
        self.shards = [Shard(size) for size in capacities(cfg.replay_buffer_size, cfg.num_shards)]
        """The shards, by rank."""
        self.pushed = self.overwritten = self.lost = 0
        """Items accepted, overwritten by newer ones, and lost with a shard."""
        self._episodes = 0  # whole ones that were pushed
        self._running = RunningEpisodes() if cfg.hindsight.strategy else None
        self.beta = cfg.beta
        self._max_priority = 1.0
        self._beta_step = (1 - cfg.beta) / cfg.anneal_step if cfg.anneal_step else 0.0
        self._by_batch, self._by_env = cfg.is_normalization == 'batch', 'unroll_len' in section
        self._sent: deque[Sent] = deque()  # calls whose answers were not read yet
        self._ended: set[int] = set()  # numbers of those that have an answer, or were lost
        weakref.finalize(self, pool.close).atexit = False  # at exit actors end by themselves
        pool.start()

    # shards

    @property
    def _ready(self) -> list[int]:
        """Ranks of the shards that exist; waits for one if all are being replaced."""
        self._count_losses()
        while not (ready := self._pool.ready):
            self._pool.look()
            self._count_losses()
        return ready

    def _count_losses(self) -> None:
        """Counts the items of shards that were lost meanwhile."""
        for rank, shard in enumerate(self.shards):
            if (generation := self._pool.incarnation(rank)) != shard.generation:
                self.lost += len(shard)
                self.shards[rank] = Shard(shard.capacity, generation)
                logger.warning(
                    '%d transitions were lost with shard %d of the replay buffer; %d are left in the others',
                    *(len(shard), rank, sum(map(len, self.shards))),
                )

    def _send(self, rank: int, *orders: Order) -> Sent:
        """Sends a shard orders, and those that wait before them, in one call."""
        shard = self.shards[rank]
        sent = Sent(self._pool.ask(rank, 'work', [*shard.orders, *orders]), shard.generation)
        shard.orders = []
        self._sent.append(sent)
        return sent

    def _send_all(self) -> None:
        """Sends all orders that wait."""
        self._count_losses()
        for rank, shard in enumerate(self.shards):
            if shard.orders:
                self._send(rank)

    def _read(self, until: float = math.inf) -> None:
        """Reads the answers to the calls before a number, in the order of the calls, and waits for them."""
        while self._sent and self._sent[0].call.number < until:
            call, generation = self._sent.popleft()
            while call.number not in self._ended:
                self._wait()
            self._ended.remove(call.number)
            self._count_losses()
            if not call.lost and generation == self.shards[call.rank].generation:
                self.shards[call.rank].sums = call.value[1]

    def _wait(self) -> None:
        """Waits for the next call that ends; an error of a shard leaves nothing to be waited for."""
        try:
            self._ended.add(self._pool.wait().number)
        except BaseException:
            self._pool.abandon()
            self._sent.clear()
            self._ended.clear()
            raise

    # pushing

    def push(self, data: Any, cur_collector_envstep: int) -> int:
        """Adds items; in each shard, the oldest make room.

        Args:
            data: A ``Batch``, a mapping (one item), a list of mappings or, for sequences, of episodes.
            cur_collector_envstep: Env steps so far.
        """
        items = to_items(data)
        if self._running is not None and len(items):  # goals of an episode are given from its own steps
            items = episodes_of(self._running.take(items))
        if isinstance(items, list) and items and not all(isinstance(item, Batch) for item in items):
            items = stack_items(items)
        ready, pushed = self._ready, self.pushed
        for home, rows in self._parts(items) if len(items) else ():
            rank = home if home in ready else ready[home % len(ready)]
            count = len(rows) if isinstance(rows, Batch) else sum(map(len, rows))
            self.pushed += count
            if rank != home and self._by_env:  # its episodes would be cut, and joined wrongly later
                self.lost += count
                continue
            self._send(rank, Order('push', (rows, cur_collector_envstep, self._max_priority)))
            self.overwritten += self.shards[rank].advance(count)
        if len(self._sent) > MOST_UNANSWERED:
            self._read(self._sent[-MOST_UNANSWERED // 2].call.number)
        return self.pushed - pushed

    def _parts(self, items: Batch | list[Batch]) -> Iterator[tuple[int, Any]]:
        """Yields shards and the rows or episodes that belong there: those of an env together, others in stripes."""
        count = len(self.shards)
        if isinstance(items, list):
            first = self._episodes
            self._episodes += len(items)
            for i in range(min(count, len(items))):
                yield (first + i) % count, items[i::count]
        elif self._by_env:
            env_id = np.asarray(items['env_id']) if 'env_id' in items else np.zeros(len(items), np.int64)
            for shard in np.unique(env_id % count).tolist():
                yield shard, items[np.flatnonzero(env_id % count == shard)]
        else:
            start = -(self.pushed % STRIPE)
            for stripe in range(start, len(items), STRIPE):
                rows = items[max(stripe, 0) : stripe + STRIPE]
                yield self.pushed // STRIPE % count, rows

    def count(self) -> int:
        self._count_losses()
        return sum(map(len, self.shards))

    @property
    def replay_buffer_size(self) -> int:
        """Largest number of items in the shards that exist now."""
        return sum(self.shards[rank].capacity for rank in self._pool.ready)

    def metrics(self) -> dict[str, float]:
        return {
            'buffer/count': self.count(),
            'buffer/capacity': self.replay_buffer_size,
            'buffer/shards': len(self._pool.ready),
            'buffer/lost': self.lost,
        }

    def clear(self) -> None:
        """Forgets all items, and the largest priority."""
        for rank in self._ready:
            shard = self.shards[rank]
            self.overwritten += len(shard)
            shard.first = shard.stop
            self._send(rank, Order('clear'))
        self._max_priority = 1.0
        if self._running is not None:
            self._running.clear()

    # sampling

    def batches(self, count: int, size: int, cur_learner_iter: int) -> Iterator[Batch]:
        """Returns up to ``count`` batches of ``size`` items, ``prefetch`` of them drawn ahead.

        There are fewer if shards are lost meanwhile, and nothing is left.

        Raises:
            BufferUnderflowError: If there are fewer than ``size`` items.
        """
        if (have := self.count()) < max(size, 1):
            raise self._underflow(size, have)
        return self._fetched(count, size, cur_learner_iter)

    def _fetched(self, count: int, size: int, train_iter: int) -> Iterator[Batch]:
        ahead: deque[list[Part]] = deque()
        most = self._cfg.prefetch
        together = max(1, most // 2)  # batches that are asked for in one call of each shard
        while count or ahead:
            while count and len(ahead) + together <= most + 1:
                with self._lock:
                    if not ahead:
                        self._send_all()
                    self._read(ahead[0][0].sent.call.number if ahead else math.inf)
                    drawn = self._draw(min(together, count), size, train_iter)
                ahead.extend(drawn)
                count -= len(drawn) or count
            if ahead:
                with self._lock:
                    batch = self._joined(ahead.popleft(), size, train_iter)
                if batch is not None:
                    yield batch
        self._send_all()

    def sample(self, batch_size: int, cur_learner_iter: int) -> Batch | None:
        """Returns ``batch_size`` items drawn by priority now; None, with a warning, if there are not enough."""
        try:
            return next(self.batches(1, batch_size, cur_learner_iter), None)
        except BufferUnderflowError as error:
            logger.warning('returning None from %s', error)
            return None

    def _draw(self, count: int, size: int, train_iter: int) -> list[list[Part]]:
        """Asks the shards for their parts of batches, in the order of shards; empty if they hold nothing."""
        ready = [rank for rank in self._ready if self.shards[rank].sums.total > 0]
        if not ready:
            return []
        sums = [self.shards[rank].sums for rank in ready]
        below = np.cumsum([0.0, *(own.total for own in sums)])
        least = 1.0 if self._by_batch else min(own.least for own in sums)
        orders: list[list[Order]] = [[] for _ in ready]
        batches: list[list[tuple[int, int]]] = []  # shard and number of its order
        for _ in range(count):
            mass = (np.arange(size) + self._rng.random(size)) * (below[-1] / size)
            place = np.minimum(np.searchsorted(below[1:], mass, side='right'), len(ready) - 1)
            chance = [] if self._running is None else [self._rng.random(size)]
            batches.append([(i, len(orders[i])) for i in np.unique(place).tolist()])
            for i, _ in batches[-1]:
                mine = place == i
                own = Sums(sums[i].total, least)
                numbers = (
                    mass[mine] - below[i],
                    own,
                    self.beta,
                    train_iter,
                    *(each[mine] for each in chance),
                )
                orders[i].append(Order('draw', numbers))
            self.beta = min(self.beta + self._beta_step, 1.0)
        sent = {i: self._send(ready[i], *own) for i, own in enumerate(orders) if own}
        return [[Part(sent[i], number) for i, number in batch] for batch in batches]

    def _joined(self, parts: list[Part], size: int, train_iter: int) -> Batch | None:
        """Waits for the parts of a batch and joins them. Lost parts are drawn again; None if all shards are empty."""
        found: list[Batch] = []
        while parts:
            self._read(max(part.sent.call.number for part in parts) + 1)
            found += [self._addressed(*part) for part in parts if not part.sent.call.lost]
            missing = size - sum(map(len, found))
            parts = next(iter(self._draw(1, missing, train_iter)), []) if missing else []
        if sum(map(len, found)) < size:
            return None
        batch: Batch = writable(Batch.cat(found) if len(found) > 1 else found[0])
        return batch.replace(IS=batch['IS'] / batch['IS'].max()) if self._by_batch else batch

    def _addressed(self, sent: Sent, number: int) -> Batch:
        """Returns drawn rows with addresses that contain the shard and, in the unique id, its generation."""
        call, generation = sent
        count = len(self.shards)
        rows = call.value[0][number]
        found: Batch = rows.replace(
            replay_unique_id=(rows['replay_unique_id'] + generation * GENERATION) * count + call.rank,
            replay_buffer_idx=rows['replay_buffer_idx'] * count + call.rank,
        )
        return found

    def update(self, info: Mapping[str, Any]) -> None:
        """Sets new priorities; items overwritten, or lost with their shard, since they were sampled are skipped.

        Args:
            info: ``replay_unique_id`` and ``replay_buffer_idx`` as sampled, and ``priority``, each [n].

        Raises:
            ValueError: If the three differ in length.
            NonFiniteError: If a priority is NaN, infinite or negative; no priority is changed then.
        """
        reported = read_priorities(info)
        if reported is None:
            return
        unique, place, priority = reported
        PrioritizedSampler.check(priority)
        self._count_losses()
        for rank in self._pool.ready:
            shard = self.shards[rank]
            row = unique // len(self.shards) - shard.generation * GENERATION
            mine = (unique % len(self.shards) == rank) & (row >= shard.first) & (row < shard.stop)
            if mine.any():
                slot: IntArray = place[mine] // len(self.shards)
                own = {'replay_unique_id': row[mine], 'replay_buffer_idx': slot, 'priority': priority[mine]}
                self._max_priority = max(self._max_priority, float(own['priority'].max()))
                shard.orders.append(Order('update', (own,)))

    # checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Returns the states of all shards, and what joins them; empty if too many shards were lost to go on."""
        if self._pool.is_broken:
            return {}
        self._send_all()
        self._read()
        states = self._pool.ask_all('state', {rank: () for rank in range(len(self.shards))})
        self._count_losses()
        return {
            'shards': list(states.values()),
            'beta': self.beta,
            'max_priority': self._max_priority,
            'counts': [self.pushed, self.overwritten, self.lost, self._episodes],
            'running': {} if self._running is None else self._running.state_dict(),
            'rng': copy.deepcopy(self._rng.bit_generator.state),
        }

    def load_state_dict(self, _state_dict: Mapping[str, Any]) -> None:
        """Restores a ``state_dict``; ``{'data': rows}`` pushes rows.

        Raises:
            CheckpointMismatchError: If it is that of a buffer in one process, or of another number of shards.
        """
        state = _state_dict
        there = len(self.shards)
        check_state(state, DICT)
        if state.keys() == {'data'}:
            self.push(state['data'], 0)
            return
        saved = state.get('shards')
        if not isinstance(saved, list) or len(saved) != there:
            kept = f'{len(saved)} shards' if isinstance(saved, list) else 'one buffer'
            raise CheckpointMismatchError(
                f'the replay buffer was {kept} there, and is {there} shards here',
                where=f'{BUFFER}.num_shards',
            )
        numbers = {'beta': FINITE, 'max_priority': FINITE, 'rng': GENERATOR}
        check_state(state, {'shards': list_of(DICT), 'counts': list_of(COUNT, 4), 'running': DICT, **numbers})
        self._send_all()
        self._read()
        found = self._pool.ask_all('load', {rank: (own,) for rank, own in enumerate(saved)})
        self._count_losses()
        for rank, (first, stop, sums) in found.items():
            shard = self.shards[rank]
            shard.first, shard.stop, shard.sums = first, stop, sums
        self.pushed, self.overwritten, self.lost, self._episodes = map(int, state['counts'])
        if self._running is not None:
            self._running.load_state_dict(state['running'])
        self.beta, self._max_priority = float(state['beta']), float(state['max_priority'])
        self._rng.bit_generator.state = copy.deepcopy(state['rng'])
