"""RayCollector: collection in Ray actors from Python, an iterable of batches, with actors that come and go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rlframe.errors import ConfigError
from rlframe.registry import SERIAL_COLLECTOR_REGISTRY
from rlframe.utils.seed import component_rng
from rlframe.worker.collector.ray_actor import reseed
from rlframe.worker.collector.ray_arguments import (
    MODES,
    MakeFromPython,
    Postproc,
    check_data_is_usable,
    check_devices,
    check_divisible,
    number_of_actors,
    per_actor,
    trajectories,
)
from rlframe.worker.collector.ray_options import RAY_OPTIONS
from rlframe.worker.collector.ray_pool import ActorPool
from rlframe.worker.collector.ray_serial_collector import RaySerialCollector


class ActorState(NamedTuple):
    """What is known of an actor."""

    rank: int
    incarnation: int
    """How many were lost in its place before."""
    is_ready: bool
    pid: int | None
    node: str | None


class RayCollector(RaySerialCollector):
    """Collects in Ray actors; iterating over it gives batches until ``total_frames`` were delivered.

    A config makes one by ``collector.backend='ray'`` (``from_config``). The parameters here are those of TorchRL's class of
    this name; a frame is a training sample. Ray is used where it runs, and ended only if it was started here.

    Args:
        create_env_fn: What makes an env: a Gymnasium id, a class or a function; or a list with one for each collector.
        policy: A policy of rlframe, a module or function from observations to actions; None acts at random.
        frames_per_batch: Frames of a batch: with ``sync`` over all collectors, else of one.
        total_frames: Frames after which the iteration ends; -1: never.
        device: Of the policy in the actors, and of the batches; 'cpu' where not given; or a list with one for each, of the
            policies only.
        storing_device: Of the batches, which then hold tensors; numpy arrays where neither it nor ``device`` is given.
        env_device: Of the envs, which are on the CPU.
        policy_device: Of the policy in the actors.
        create_env_kwargs: Arguments of ``create_env_fn``; or a list.
        max_frames_per_traj: Env steps after which an episode is truncated; -1: no limit but the env's own.
        init_random_frames: Frames, counted as they are delivered, during which actions are random; -1: none. All actors
            share them, so without ``sync`` such a batch may be of several.
        reset_at_each_iter: Whether every batch begins with new episodes.
        postproc: Changes each batch before it is handed out.
        split_trajs: Whether a batch is handed out as a list of pieces of episodes.
        exploration_type: 'random' acts as the policy does to collect, 'deterministic' as it thinks best.
        collector_class: Registered type of the collector in the actors.
        collector_kwargs: Options of it; or a list.
        num_workers_per_collector: Envs of each actor.
        sync: Whether a batch has the same share of every actor, in order; else it is that of whoever is first.
        ray_init_config: Arguments of ``ray.init``, used where Ray is not running.
        remote_configs: Resources of an actor (1 CPU where not given); or a list.
        num_collectors: Number of actors; that of a list, else 1, where not given.
        update_after_each_batch: Whether each request brings the newest weights; else ``update_policy_weights_`` does.
        max_weight_update_interval: Batches of an actor after which it gets the newest weights in any case; -1: no limit.
        seed: Env i of actor r begins with the seed f(seed, r, i).
        options: Further options of the backend, such as ``max_in_flight`` and ``collect_timeout``.

    Raises:
        ConfigError: If arguments contradict each other; with the numbers.
        ResourceError: If the cluster has not what the actors need.
        SerializationError: If something cannot be handed to actors; with the path to it.

    Source:
        Bou et al., TorchRL: A data-driven decision-making library for PyTorch (2023), for the parameters.
    """

    _frames: int | None = None
    _postproc: Postproc | None = None
    _split = False
    _devices: tuple[Any, list[Any], Any, list[Any]] = (None, [None], None, [None])
    total_frames = -1
    """Frames after which the iteration ends; -1: never."""

    def __init__(  # noqa: PLR0913  # the public signature
        self,
        create_env_fn: Any,
        policy: Any = None,
        *,
        frames_per_batch: int,
        total_frames: int = -1,
        device: Any = None,
        storing_device: Any = None,
        env_device: Any = None,
        policy_device: Any = None,
        create_env_kwargs: Any = None,
        max_frames_per_traj: int | None = -1,
        init_random_frames: int | None = -1,
        reset_at_each_iter: bool = False,
        postproc: Postproc | None = None,
        split_trajs: bool = False,
        exploration_type: str | None = None,
        collector_class: str = 'sample',
        collector_kwargs: Any = None,
        num_workers_per_collector: int = 1,
        sync: bool = False,
        ray_init_config: Mapping[str, Any] | None = None,
        remote_configs: Any = None,
        num_collectors: int | None = None,
        update_after_each_batch: bool = False,
        max_weight_update_interval: int = -1,
        seed: int = 0,
        **options: Any,
    ) -> None:
        count = number_of_actors(create_env_fn, num_collectors)
        units = num_workers_per_collector * (count if sync else 1)
        check_divisible(
            frames_per_batch, units, 'the envs of all collectors' if sync else 'the envs of a collector'
        )
        if exploration_type not in MODES:
            raise ConfigError(
                'bad value', where='exploration_type', got=exploration_type, expected=f'one of {MODES}'
            )
        resources = per_actor(remote_configs or {}, count, 'remote_configs')
        policy_devices = per_actor(
            policy_device if policy_device is not None else device, count, 'policy_device'
        )
        check_devices(policy_devices, resources, 'policy_device')
        check_devices(per_actor(env_device, count, 'env_device'), [{}] * count, 'env_device')
        storing = per_actor(storing_device, count, 'storing_device')
        check_data_is_usable(policy, sync, storing)
        own = {name: options.pop(name) for name in list(options) if name in RAY_OPTIONS}
        if options:
            raise ConfigError(f'{next(iter(options))} is not a known argument', where=next(iter(options)))
        backend = {
            **own,
            'backend': 'ray',
            'num_collectors': count,
            'sync': sync,
            'update_after_each_batch': update_after_each_batch,
            'max_weight_update_interval': max_weight_update_interval,
            'ray_init_config': dict(ray_init_config or {}),
            'remote_configs': resources,
        }
        given = {'type': collector_class, 'sync': sync, 'mark_episodes': split_trajs}
        collectors = [
            {**given, **each} for each in per_actor(collector_kwargs or {}, count, 'collector_kwargs')
        ]
        kind: Any = SERIAL_COLLECTOR_REGISTRY.get(collector_class)
        for section in collectors:
            kind.resolve_config(section)
        cfg = kind.resolve_config({**collectors[0], **backend})
        self._devices = device, storing, env_device, policy_devices
        self._env_num, self._frames, self.total_frames = (
            num_workers_per_collector,
            frames_per_batch,
            total_frames,
        )
        self._random_frames, self._postproc, self._split = init_random_frames or -1, postproc, split_trajs
        make = MakeFromPython(
            per_actor(create_env_fn, count, 'create_env_fn'),
            per_actor(create_env_kwargs, count, 'create_env_kwargs'),
            policy,
            collectors,
            num_workers_per_collector,
            max_frames_per_traj if max_frames_per_traj and max_frames_per_traj > 0 else None,
            exploration_type != 'deterministic',
            policy_devices,
            seed,
        )
        face = make.face(policy)
        pool = ActorPool(cfg, section='', make=make)
        try:
            self._set_up(kind, cfg, pool, face)
        except BaseException:
            pool.close()
            raise
        self._trained, self._random = face, make.at_random(face, seed, 0)
        self._reset_always = reset_at_each_iter
        if not sync:
            self._request_size = frames_per_batch
        self._budget = total_frames if total_frames >= 0 and not sync else None

    # an iterable of batches

    def iterator(self) -> Iterator[Any]:
        """Yields batches until ``total_frames`` were delivered; the last one may go beyond."""
        while not self._is_done:
            yield self.next()

    @property
    def _is_done(self) -> bool:
        return 0 <= self.total_frames <= self.delivered

    def __iter__(self) -> Iterator[Any]:
        return self.iterator()

    def next(self) -> Any:
        """Returns the next batch.

        Raises:
            ValueError: If ``total_frames`` were delivered, or the actors were ended.
        """
        if self._is_done:
            raise ValueError(f'all of the total_frames={self.total_frames} were delivered')
        if (wants_random := self.delivered < self._random_frames) != self._at_random:
            self.reset_policy(self._random if wants_random else self._trained)
        count = self._frames
        if count is not None and self._budget is not None:
            count = min(count, self._budget - self.delivered)
        batch = self.collect(count, train_iter=None)
        if self._split:
            return [self._finished(piece) for piece in trajectories(batch)]
        return self._finished(batch)

    def _finished(self, batch: Any) -> Any:
        device = self.storing_device
        if device is not None:
            batch = batch.map(lambda column: column.copy()).to(device)
        return batch if self._postproc is None else self._postproc(batch)

    # weights, seeds, states

    def update_policy_weights_(self, worker_rank: int | None = None) -> None:
        """Gives the present weights to one actor, or to all, with the next requests; it waits for nobody.

        Raises:
            ConfigError: If there is no such actor.
            ValueError: If the actors were ended.
        """
        self._pool.check_open()
        self._publisher.renew(self._known(worker_rank))

    def set_seed(self, seed: int, static_seed: bool = False) -> int:
        """Begins anew in every env, with seeds of which each actor has its own.

        Args:
            seed: Seed of the experiment.
            static_seed: Whether all actors take the seeds of the first one.

        Returns:
            Another seed, for whatever is seeded next.
        """
        self._drain()
        ranks = self._pool.ranks
        self._pool.ask_all('set_seed', {rank: (seed, 0 if static_seed else rank) for rank in ranks})
        if self._sync:
            reseed(self._publisher.face, seed, 0)
        return int(component_rng(seed, 'next_seed').integers(2**31))

    # actors that come and go

    def _known(self, rank: int | None) -> list[int]:
        if rank is not None and rank not in self._pool.ranks:
            raise ConfigError(
                'no such actor', where='worker_rank', got=rank, expected=f'one of {self._pool.ranks}'
            )
        return self._pool.ranks if rank is None else [rank]

    def remote_collectors(self) -> tuple[ActorState, ...]:
        """Returns what is known of each actor, in the order of their ranks."""
        slots = [self._pool.slots[rank] for rank in self._pool.ranks]
        return tuple(
            ActorState(
                slot.rank,
                slot.incarnation,
                slot.facts is not None,
                slot.facts.pid if slot.facts else None,
                slot.facts.node if slot.facts else None,
            )
            for slot in slots
        )

    def add_collectors(
        self,
        create_env_fn: Any = None,
        num_envs: int = 1,
        policy: Any = None,
        collector_kwargs: Any = None,
        remote_configs: Any = None,
    ) -> list[int]:
        """Starts further actors, which take part from the next request on, and returns their ranks.

        Args:
            create_env_fn: What makes their envs; as before where not given.
            num_envs: How many actors.
            policy: Nothing else than the policy that is trained here.
            collector_kwargs: Options of their collectors; as before where not given.
            remote_configs: Their resources; as before where not given.

        Raises:
            ConfigError: If another policy is given, or ``frames_per_batch`` cannot be divided any more.
        """
        if policy is not None:
            raise ConfigError('all actors act with the policy that is trained here', where='policy')
        if self._sync and self._frames is not None:
            units = self._env_num * (len(self._pool.ranks) + num_envs)
            check_divisible(self._frames, units, 'the envs of all collectors')
        make = self._pool.make.joined(self._pool.next_rank, create_env_fn, collector_kwargs)
        ranks = self._pool.add(num_envs, remote_configs, make)
        self._to_reset.update(ranks)  # they know nothing of how to act at present
        return ranks

    def remove_collectors(self, ranks: Sequence[int]) -> None:
        """Ends actors; what they were asked for is waited for and kept.

        Raises:
            ConfigError: If there is no such actor, or none would remain.
        """
        self._pool.check_open()
        for rank in ranks:
            self._known(rank)
        if len(set(ranks)) == len(self._pool.ranks):
            raise ConfigError('one actor has to remain', where='ranks', got=list(ranks))
        while not self._pool.load.keys().isdisjoint(ranks):
            self._take(self._wait())
        for rank in set(ranks):
            self._pool.remove(rank)
            self._headers.pop(rank, None)
            self._to_reset.discard(rank)

    def stop_remote_collectors(self) -> None:
        """Ends all actors; what they were asked for counts as lost."""
        self.close()

    def shutdown(self) -> None:
        """Ends all actors, and Ray if it was started here; may be called twice."""
        self.stop_remote_collectors()

    def __enter__(self) -> RayCollector:
        return self

    def __exit__(self, *exception: object) -> None:
        self.shutdown()

    @property
    def num_workers(self) -> int:
        """Number of actors."""
        return len(self._pool.ranks)

    @property
    def device(self) -> Any:
        """Device of policies and batches, as it was given."""
        return self._devices[0]

    @property
    def storing_device(self) -> Any:
        """Device of the batches; None where they hold numpy arrays."""
        own = self._devices[1][0]
        return own if own is not None or isinstance(self.device, list | tuple) else self.device

    @property
    def env_device(self) -> Any:
        """Device of the envs, as it was given."""
        return self._devices[2]

    @property
    def policy_device(self) -> Any:
        """Devices of the policies in the actors."""
        return self._devices[3]
