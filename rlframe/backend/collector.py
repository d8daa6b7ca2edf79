"""WorkersCollector: a serial collector that collects with collectors in other processes, if asked to a round ahead."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

from rlframe.backend.one_collector import as_one, of_one
from rlframe.backend.ready import (
    UNLIMITED,
    Ready,
    ReadyQueue,
    Staleness,
    merged,
    shares,
    writable,
)
from rlframe.backend.worker import Header, Request
from rlframe.data.faces import absorb_extras, acting_of
from rlframe.errors import CheckpointMismatchError, ConfigError
from rlframe.remote.supervisor import Call, Supervisor
from rlframe.remote.weights import Publisher
from rlframe.utils.field import ResolvedConfig
from rlframe.utils.schema import COUNT, DICT, FLAG, INT, LIST, Schema, check_state, list_of, maybe, part
from rlframe.worker.collector.base_serial_collector import ONE, ISerialCollector
from rlframe.worker.collector.battle_collector import PlayerLog
from rlframe.worker.collector.episode_log import WINDOW, EpisodeLog
from rlframe.worker.collector.serial_collector import SampleSerialCollector

TARGETS = ('n_sample', 'n_episode')
STATE: Schema = {
    'actors': list_of(maybe(DICT)),
    'pool?': DICT,
    'ranks?': list_of(COUNT),
    'to_reset': list_of(COUNT),
    'publisher?': {'version?': INT, 'weights?': DICT, 'batches?': DICT},
    'ready': list_of({'size': COUNT}),
    'held': list_of(DICT),
    'log': DICT,
    'players': LIST,
    'last_print_iter': INT,
    'discarded': COUNT,
    'counts': list_of(COUNT, 4),
}
ACTOR: Schema = {
    'collector': DICT,
    'acting': maybe(DICT),
    'rng': maybe(DICT),
    'at_random': FLAG,
}


class WorkersCollector(ISerialCollector):
    """Collects in K actors, each with envs, a policy and any registered collector.

    With ``sync``, a call collects a share from every actor, ordered by rank. With one actor and no losses it returns,
    bit for bit, what the same collector returns in this process: the policy's acting state, such as its generator, goes
    to the actor of the lowest rank with each request and comes back with the data. With ``overlap``, a call returns the
    round that the call before began, and begins the next one, which is collected while the policy learns: its weights
    are exactly one version older, whatever the speed of a process. The actors then have generators of their own.
    Without ``sync``, each actor always has ``max_in_flight`` requests, and a call returns the first data available;
    those beyond its target are kept for the next call.

    Weights are stored once per version; each request carries a reference to the newest. Actors that a pool can replace,
    because they die or do not answer in time, are replaced: their requests count as ``lost`` and are repeated.

    Args:
        kind: Class of the collector in the actors.
        cfg: Complete options of that collector and of the actors; those that a pool does not have keep their defaults.
        pool: The actors; started if they are not running.
        policy: Collect face of the trained policy.
        common: Further arguments of an ``EpisodeLog``: ``tb_logger``, ``instance_name`` and ``progress``.
    """

    _random_frames = -1  # to be delivered before the policy acts
    _reset_always = False  # whether every request starts with new episodes
    _has_failed = False  # whether an exception has ended the last call

    def __init__(
        self,
        kind: type[ISerialCollector],
        cfg: ResolvedConfig,
        pool: Supervisor,
        policy: Any,
        **common: Any,
    ) -> None:
        self._cfg = cfg
        self._log: EpisodeLog = EpisodeLog(0, print_freq=cfg['collect_print_freq'], **common)
        self._progress = self._log.progress
        self.on_step: Callable[[], None] | None = None
        """Called while the collector waits for actors."""
        self.discarded = 0
        """Env steps discarded because of ``info['abnormal']``."""
        self._kind = kind
        self._pool = pool
        self._players = PlayerLog()
        self._in_flight: int = cfg.get('max_in_flight', 1)
        self._sync = cfg.get('sync', True)
        self._overlap = bool(cfg.get('overlap'))
        self._publisher = Publisher(
            policy, pool, cfg.get('update_after_each_batch', True), cfg.get('max_weight_update_interval', -1)
        )
        self._awaited: dict[int, int] = {}  # the share of each rank in the round that is collected ahead
        self._held: list[Ready] = []  # that round, if it had to be waited for before it was due
        self._ready = ReadyQueue()
        self._carried: dict[int, int] = {}  # env steps that each actor carries over to its next request
        self._begun: dict[int, int] = {}  # the newest version when each rank began its first request
        self._to_reset: set[int] = set()
        self._request_size: int | None = None  # without sync; None: a share of the missing amount
        self._budget: int | None = None  # the total that may be delivered; None: no limit
        self._staleness = Staleness(cfg.get('max_staleness'))
        self.requested = self.delivered = self.lost = self.stale = 0
        """Training samples (or episodes) requested, returned, lost with an actor, and discarded as stale."""
        self.versions: list[int] = []
        """Versions of the weights that collected the data of the last call."""
        super().reset_policy(policy)
        weakref.finalize(self, pool.close).atexit = False  # at exit actors end by themselves
        pool.start()

    # what a collector is

    def reset_env(self, _env: Any = None) -> None:
        """Starts a new episode in every env.

        Raises:
            ConfigError: If an env is given: envs are created in the actors.
        """
        if _env is not None:
            raise ConfigError('the envs of this collector are created in other processes', where='reset_env')
        self._drain()
        self._pool.ask_all('reset_env', {rank: () for rank in self._pool.ranks})

    def reset_policy(self, _policy: Any = None) -> None:
        """Replaces the policy by the trained face, or by that face acting at random; or resets the current one."""
        super().reset_policy(_policy)
        if not self._at_random:
            self._publisher.face = self._policy
        self._to_reset.update(self._pool.ranks)

    @property
    def _at_random(self) -> bool:
        return bool(getattr(self._policy, 'acts_at_random', False))

    @property
    def carried(self) -> int:
        """Env steps carried over to the next call, in actors and here."""
        waiting: list[Ready] = [*self._ready, *self._held]
        return sum(self._carried.values()) + sum(ready.steps for ready in waiting)

    @property
    def in_flight(self) -> int:
        """Training samples (or episodes) that actors are collecting, or that wait here to be returned."""
        return self._pool.under_way + self._ready.size

    @property
    def why_inexact(self) -> str:
        return self._pool.place.why_inexact

    def status(self) -> str:
        behind = '' if self._sync else self._staleness.status(WINDOW)
        lost = f'lost {self.lost:,}' if self.lost else ''
        return ' | '.join(part for part in (behind, lost) if part)

    def training_data(self, collected: Any) -> Any:
        return self._kind.training_data(self, collected)

    def collect(
        self, per_collect_target: int | None = None, train_iter: int | None = 0, **options: Any
    ) -> Any:
        """Collects as the collector in the actors does.

        Args:
            per_collect_target: Training samples or episodes, over all actors; by default the policy's number. Can also
                be passed as ``n_sample`` or ``n_episode``.
            train_iter: Train iterations so far, for the column ``collect_iter``. None: the version of the weights.
            options: Further arguments of that collector's ``collect``, such as ``policy_kwargs``. Where these have a value
                for each env, such as ``level_seeds``, they are for the envs of each actor.

        Returns:
            As that collector returns, for all actors in the order of ranks; without ``sync``, in the order of arrival.

        Raises:
            ConfigError: If the actors' shares must be equal and cannot be.
            WorkerLostError: If more actors were lost than the options allow; with all causes.
            Exception: Any exception raised in an actor, with its traceback there.
        """
        given = [options.pop(name, None) for name in TARGETS]
        known = [self._attribute(name, None) for name in TARGETS]
        numbers = [number for number in (*given, per_collect_target, *known) if number is not None]
        if not numbers or numbers[0] < 1:
            raise ValueError(
                f'collect needs n_sample or n_episode >= 1, got {numbers[0] if numbers else None}'
            )
        self._pool.check_open()
        self._options = options
        self.versions = []
        self._has_failed = False
        start = perf_counter()
        self._given_iter = train_iter
        collected = self._collect(int(numbers[0]))
        self._log.seconds += perf_counter() - start
        if not options.get('random_collect') or options.get('record_random_collect', True):
            self._log.report(self._train_iter, self._more_metrics)
        return writable(collected) if self._attribute('on_policy', False) else collected

    def _collect(self, target: int) -> Any:
        if self._sync and self._overlap and not self._at_random:
            return self._collect_ahead(target)
        self._publish()
        if not self._sync:
            return self._collect_async(target)
        round_ = self._gather(self._ask_round(target))
        self._count_round(round_)
        return self._delivered(round_)

    def _publish(self) -> None:
        """Prepares for the requests of a call: publishes the weights, which its data are marked with."""
        self._publisher.begin()
        self._train_iter = self._publisher.version if self._given_iter is None else self._given_iter

    # one request

    @property
    def _leader(self) -> int | None:
        """Rank of the actor that uses this process's policy generator."""
        return self._pool.ranks[0] if self._sync and not self._overlap else None

    def _acting(self, rank: int) -> Any:
        acting = acting_of(self._publisher.face) if rank == self._leader else None
        return acting.state() if acting is not None else None

    def _take_acting(self, rank: int, state: Any) -> None:
        if rank == self._leader and state is not None:
            acting_of(self._publisher.face).load_state(state)

    def _ask(self, rank: int, size: int) -> Call:
        version, weights = self._publisher.for_actor(rank)
        is_reset = rank in self._to_reset
        self._to_reset.discard(rank)
        request = Request(
            size,
            self._train_iter,
            version,
            self._options_of(rank),
            self._at_random,
            is_reset,
            self._reset_always,
            self._acting(rank),
        )
        call = self._pool.ask(rank, 'collect', request, weights, size=size)
        self.requested += size
        return call

    def _options_of(self, rank: int) -> Mapping[str, Any]:
        """Returns further arguments of the collector of a rank, whose policy may have settings of its own."""
        settings_of = self._attribute('settings_of', None)
        name = 'policy_kwargs'
        if settings_of is None or not self._options.get(name):
            return self._options
        ranks = self._pool.ranks
        own = settings_of(self._options[name], ranks.index(rank), len(ranks))
        return {**self._options, name: own}

    def _wait(self) -> Call:
        """Waits for the next call that has ended; data replaced by an exception are lost."""
        before = self._pool.under_way
        try:
            return self._pool.wait(self.on_step)
        except BaseException:
            self.lost += before - self._pool.under_way
            self._has_failed = True
            raise

    def _fetch(self, call: Call) -> Any:
        """Returns the data of a call; None if they were lost."""
        self.lost += call.size  # until it is here
        data = None if call.lost else self._pool.get(call)
        if data is None:
            self._to_reset.add(call.rank)  # its replacement has no episodes, and has not been told how to act
            self._log.logger.warning(
                '%d training samples or episodes were lost with %s',
                call.size,
                self._pool.place.who(call.rank),
            )
        else:
            self.lost -= call.size
        return data

    def _count(self, rank: int, header: Header, data: Any) -> None:
        """Updates counters with the facts about received data."""
        counts = header.counts
        self.discarded += counts.discarded
        self._carried[rank] = counts.carried
        self._log.count(counts.envstep, counts.episode_count)
        self._log.add(counts.episodes, counts.infos)
        if isinstance(data, tuple):
            self._players.add_results(data[1])
        absorb_extras(self._publisher.face, header.extras)

    def _take(self, call: Call) -> None:
        """Adds the data of a call to those that are ready, unless they are lost."""
        rank, newest = call.rank, self._publisher.version
        begun = self._begun[rank]
        self._begun[rank] = newest  # the next request of this actor begins now
        data = self._fetch(call)
        if data is None:
            return
        self._count(rank, call.value, data)
        self._ready.append(Ready(call.value.version, data, call.size, newest - begun))

    def _delivered(self, parts: Sequence[Ready]) -> Any:
        """Counts and joins the data that are returned now."""
        self.delivered += sum(ready.size for ready in parts)
        self.versions = [ready.version for ready in parts]
        self._staleness.delivered(list(parts), self._publisher.version)
        return merged([ready.data for ready in parts])

    def _collect_ahead(self, target: int) -> Any:
        """Returns the round that was begun in the last call, and begins the next one; the first call begins both."""
        if not self._awaited and not self._held:
            self._publish()
            self._awaited = self._ask_round(target)
        round_ = self._held_round()
        self._held = []
        self._count_round(round_)
        self._publish()  # with the statistics that came with that round
        self._awaited = self._ask_round(target)
        return self._delivered(round_)

    def _held_round(self) -> list[Ready]:
        """Waits for the round that is collected ahead, if there is one, and keeps it."""
        if self._awaited:
            awaited = self._awaited
            self._awaited = {}
            self._held = self._gather(awaited)
        return self._held

    def _ask_round(self, target: int) -> dict[int, int]:
        """Asks every actor for its share, and returns the shares by rank."""
        equal = self._attribute('on_policy', False) and issubclass(self._kind, SampleSerialCollector)
        unit = self._pool.facts.env_num if equal else 1
        divided = shares(target, self._pool.ranks, unit, 'policy.collect.n_sample')
        for rank, size in divided.items():
            self._ask(rank, size)
        return divided

    def _gather(self, divided: Mapping[int, int]) -> list[Ready]:
        """Waits for the shares of a round, and returns them in the order of ranks."""
        taken: dict[int, Ready] = {}
        try:
            while len(taken) < len(divided):
                call = self._wait()
                data = self._fetch(call)
                if data is None:
                    self._ask(call.rank, call.size)
                else:
                    header: Header = call.value
                    ready = Ready(header.version, data, call.size, rank=call.rank, header=header)
                    taken[call.rank] = ready
        except BaseException:  # a round is delivered whole or not at all
            self.lost += sum(ready.size for ready in taken.values()) + self._pool.under_way
            self._pool.abandon()
            raise
        return [taken[rank] for rank in sorted(taken)]

    def _count_round(self, round_: Sequence[Ready]) -> None:
        for ready in round_:
            assert ready.header is not None  # it is of ``_gather``
            self._count(ready.rank, ready.header, ready.data)

    # first ready, first served

    def _collect_async(self, target: int) -> Any:
        self._keep_busy(target, self._in_flight)
        while self._ready.size < target:
            self._take(self._wait())
            is_enough = self._ready.size + self._pool.under_way >= target
            self._keep_busy(target, 1 if is_enough else self._in_flight)
        return self._delivered(self._ready.take(target))

    def _keep_busy(self, target: int, in_flight: int) -> None:
        """Discards stale batches, and sends each actor as many requests as allowed and useful.

        If enough requests are in flight for this call, busy actors get their next request in the next call, after the
        update.
        """
        self.stale += self._staleness.drop(self._ready, self._publisher.version)
        waiting = self._ready.size
        ranks = self._pool.ranks
        needed = UNLIMITED
        missing, there = target - waiting, self.delivered + waiting
        size = self._request_size or -(-target // len(ranks))
        if self._budget is not None:
            needed = max(missing, self._budget - there)
        if self._at_random:
            needed = min(needed, max(missing, self._random_frames - there))
            size = min(size, -(-needed // len(ranks)))
        load = self._pool.load
        left = needed - self._pool.under_way
        for turn in range(in_flight):
            for rank in ranks:
                if load[rank] <= turn and left > 0:
                    if load[rank] == 0:
                        self._begun[rank] = self._publisher.version
                    self._ask(rank, min(size, left))
                    load[rank] += 1
                    left -= size

    def _drain(self) -> None:
        """Waits for all requests in flight, and keeps the results for the next call; logs failures after the first."""
        self._held_round()
        has_failed = self._has_failed
        while self._pool.under_way and not (has_failed and self._pool.is_broken):
            try:
                self._take(self._wait())
            except Exception as error:
                if not has_failed:
                    raise
                self._log.logger.warning('and then: %s: %s', type(error).__name__, error)

    # records and checkpoints

    @property
    def form(self) -> str:
        count = len(self._pool.ranks)
        ahead = ' a round ahead' if self._overlap else ''
        alone = '' if self._sync else ' without sync'
        return (ONE if count == 1 else f'{count} collectors') + ahead + alone

    def _more_metrics(self) -> dict[str, float]:
        facts = {
            **self._staleness.metrics(),
            'ray/lost': float(self.lost),
            'ray/stale': float(self.stale),
            'ray/in_flight': float(self.in_flight),
            'ray/actor_restarts': float(self._pool.restarts),
        }
        tag = self._pool.place.tag
        if not tag:
            return self._players.metrics()
        return self._players.metrics() | {f'{tag}{name.removeprefix("ray")}': facts[name] for name in facts}

    def settle(self) -> None:
        self._drain()
        states = self._pool.ask_all('settle', {rank: (self._acting(rank),) for rank in self._pool.ranks})
        for rank, state in states.items():
            self._take_acting(rank, state)

    def state_dict(self) -> dict[str, Any]:
        """Returns everything that the next ``collect`` depends on: states of actors, data that wait here, counts.

        The state of one actor that always waits is that of its collector, which continues it in this process, too.
        """
        if not self._pool.is_broken:
            self._drain()
        actors = self._pool.ask_all('state', {rank: () for rank in self._pool.ranks})
        state = {
            'actors': list(actors.values()),
            'pool': self._pool.state_dict(),
            'ranks': self._pool.ranks,
            'to_reset': sorted(self._to_reset),
            'publisher': self._publisher.state_dict(),
            'ready': [ready.state_dict(self._publisher.version) for ready in self._ready],
            'held': [ready.state_dict(self._publisher.version) for ready in self._held],
            'log': self._log.state_dict(),
            'players': self._players.state(),
            'last_print_iter': self._log.last_print_iter,
            'discarded': self.discarded,
            'counts': [self.requested, self.delivered, self.lost + self._pool.under_way, self.stale],
        }
        if self.form != ONE:
            return state
        (actor,) = actors.values()
        return {**state, 'form': 'a lost collector'} if actor is None else as_one(self._kind, state, actor)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restores the state from ``state_dict()``.

        Raises:
            CheckpointMismatchError: If it was saved with another number of actors.
            CheckpointStateError: If a part is missing or invalid.
        """
        ranks = self._pool.ranks
        state = state_dict
        if 'actors' not in state_dict and len(ranks) == 1:
            state = of_one(self._kind, state_dict, self._acting(ranks[0]))
        check_state(state, STATE)
        saved: list[Any] = state['actors']
        if len(saved) != len(ranks):
            raise CheckpointMismatchError(
                f'{len(saved)} actors there, {len(ranks)} here',
                where='policy.collect.collector.num_collectors',
            )
        known = {rank: (own,) for rank, own in zip(ranks, saved, strict=True) if own is not None}
        for rank, (own,) in known.items():
            check_state(own, ACTOR, f'actors.{rank}')
        with part('ranks'):
            here = dict(zip(state.get('ranks', ranks), ranks, strict=True))
        with part('to_reset'):
            to_reset = {*(here[rank] for rank in state['to_reset']), *(set(ranks) - set(known))}
        self._drain()
        for rank, acting in self._pool.ask_all('load', known).items():
            self._take_acting(rank, acting)
        with part('pool'):
            self._pool.load_state_dict(state.get('pool', {}))
        with part('publisher'):
            self._publisher.load_state_dict(state.get('publisher', {}), here)
        self._to_reset = to_reset
        with part('ready'):
            newest = self._publisher.version
            self._ready = ReadyQueue(Ready.from_state_dict(one, newest) for one in state['ready'])
            self._held = [Ready.from_state_dict(one, newest) for one in state['held']]
        self._carried, self._awaited = {}, {}
        with part('log'):
            self._log.load_state_dict(state['log'])
        with part('players'):
            self._players.load_state(state['players'])
        self._log.last_print_iter, self.discarded = state['last_print_iter'], state['discarded']
        self.requested, self.delivered, self.lost, self.stale = state['counts']

    def begin_anew(self, state: Mapping[str, Any]) -> None:
        """Begins new episodes in all actors, with seeds of their own, and takes over the episodes that ended."""
        self._drain()
        ranks = self._pool.ranks
        self._pool.ask_all('begin_anew', {rank: (self._progress.envstep,) for rank in ranks})
        self._to_reset = set(ranks)
        self._ready.clear()
        self._held.clear()
        self._carried.clear()
        self.requested = self.delivered = self.lost = self.stale = 0
        self._log.take_over(state)
        self.discarded = state.get('discarded', 0)

    def close(self) -> None:
        """Ends the actors; may be called twice."""
        if not self._awaited:  # nobody waits for a round ahead of the last one
            self.lost += self._pool.under_way
        self._pool.close()
