"""RayCollector: collection in Ray actors from Python; an iterable of batches whose actors can be added and removed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rlframe.backend.ray.actor import reseed
from rlframe.backend.ray.arguments import (
    MakeFromPython,
    Postproc,
    check_batch_size,
    check_data_is_usable,
    check_devices,
    check_one_device,
    collector_of,
    env_makers,
    exploration_of,
    filled,
    number_of_actors,
    per_actor,
    trajectories,
    without_devices,
)
from rlframe.backend.ray.options import RAY_OPTIONS, staleness_error, with_ray_options
from rlframe.backend.ray.pool import ActorPool
from rlframe.backend.ray.publisher import Publisher
from rlframe.backend.ray.serial_collector import RaySerialCollector, check_policy, checked_total_frames
from rlframe.errors import ConfigError
from rlframe.utils.seed import component_rng


class ActorState(NamedTuple):
    """State of an actor."""

    rank: int
    incarnation: int
    """Number of actors lost at this rank before."""
    is_ready: bool
    pid: int | None
    node: str | None


class ActorFacts:
    """The properties of a RayCollector, under the names that TorchRL's class has."""

    _pool: ActorPool
    _publisher: Publisher
    delivered: int
    _devices: tuple[Any, list[Any], Any, list[Any]] = (None, [None], None, [None])

    def remote_collectors(self) -> list[Any]:
        """Returns Ray's handles of the actors, ordered by rank, but for those that wait to be replaced.

        A call of their ``collect`` would not be counted.
        """
        slots = [self._pool.slots[rank] for rank in self._pool.ranks]
        return [slot.actor for slot in slots if slot.actor is not None]

    def actor_states(self) -> tuple[ActorState, ...]:
        """Returns the state of each actor, ordered by rank."""
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

    @property
    def num_workers(self) -> int:
        """Number of actors."""
        return len(self._pool.ranks)

    @property
    def num_collectors(self) -> int:
        """Number of actors."""
        return self.num_workers

    @property
    def collected_frames(self) -> int:
        """Number of frames returned so far."""
        return self.delivered

    @property
    def policy_weights(self) -> dict[str, Any]:
        """Weights of the trained policy, as in its ``state_dict``; empty for a function."""
        weights: dict[str, Any] = self._publisher.face.state_dict()
        return weights

    @property
    def device(self) -> Any:
        """Device of policies and batches, as given.

        Another one can be set: batches are then on it unless a ``storing_device`` was given. Policies of running actors
        stay where they are.

        Raises:
            ConfigError: If it is a list of another length, or of several devices without a ``storing_device``.
        """
        return self._devices[0]

    @device.setter
    def device(self, device: Any) -> None:
        check_one_device(filled(self._devices[1], device))
        self._devices = (device, *self._devices[1:])

    @property
    def storing_device(self) -> Any:
        """Device of the batches; None if they contain numpy arrays."""
        return filled(self._devices[1], self.device)[0]

    @property
    def env_device(self) -> Any:
        """Device of the envs, as given."""
        return self._devices[2]

    @property
    def policy_device(self) -> Any:
        """Devices of the policies in the actors."""
        return self._devices[3]


class RayCollector(ActorFacts, RaySerialCollector):
    """Collects in Ray actors; iterating over it yields batches until ``total_frames`` were delivered.

    A config with ``collector.backend='ray'`` creates its base class. The parameters are those of TorchRL's class of
    this name; a frame is a training sample. A running Ray is reused, and ended only if it was started here.

    Args:
        create_env_fn: Creates an env: a Gymnasium id, a class, a function, or an env, which is copied; or a list with
            one for each collector.
        policy: A policy of rlframe, or a module or function from observations to actions; None: random actions.
        frames_per_batch: Frames of a batch: of all collectors together with ``sync``, else of one.
        total_frames: Frames after which the iteration ends, at least 1; the last batch is smaller if necessary, except
            for an on-policy policy. -1 or None: it never ends.
        device: Device of the policy in the actors and of the batches; 'cpu' if not given; or a list with one for each.
        storing_device: Device of the batches, which then contain tensors; numpy arrays if neither it nor ``device`` is
            given.
        env_device: Device of the envs; only the CPU is supported.
        policy_device: Device of the policy in the actors.
        create_env_kwargs: Arguments of ``create_env_fn``; or a list.
        max_frames_per_traj: Env steps after which an episode is truncated; -1: only the env's own limit.
        init_random_frames: Number of delivered frames during which actions are random; -1: none. All actors share them,
            so without ``sync`` such a batch may come from several.
        reset_at_each_iter: Whether every batch starts with new episodes.
        postproc: Transforms each batch before it is returned.
        split_trajs: Whether a batch is returned as a list of parts of episodes.
        exploration_type: 'random' explores as the policy does for collection, 'deterministic' (or 'mode', 'mean',
            'median') acts greedily; a name, or an enum's member of that name.
        collector_class: Collector in the actors: a registered type or a class. TorchRL's 'single', 'sync' and 'async' are
            'sample' here: how batches are joined is up to ``sync`` alone.
        collector_kwargs: Its options, including ``device`` and the other devices; or a list.
        num_workers_per_collector: Number of envs of each actor.
        sync: Whether a batch contains an equal share of every actor, in order; else each is that of the first actor to
            answer.
        ray_init_config: Arguments of ``ray.init``, used if Ray is not running.
        remote_configs: Resources of an actor (1 CPU if not given); or a list.
        num_collectors: Number of actors; by default the length of a list, else 1.
        update_after_each_batch: Whether each request brings the newest weights; else ``update_policy_weights_`` does.
        max_weight_update_interval: Batches of an actor after which it gets the newest weights at the latest; -1: no
            limit.
        persistent: Whether the actors stay alive when the iteration ends at ``total_frames``; else they are ended, as
            by ``shutdown``.
        seed: Env i of actor r starts with the seed f(seed, r, i).
        options: Further options of the backend, such as ``max_in_flight`` and ``collect_timeout``.

    Raises:
        ConfigError: If arguments contradict each other; with the numbers.
        ResourceError: If the cluster lacks the resources that the actors need.
        SerializationError: If an argument cannot be sent to actors; with the path to it.

    Source:
        Bou et al., TorchRL: A data-driven decision-making library for PyTorch (2023), for the parameters.
    """

    _frames: int | None = None
    _postproc: Postproc | None = None
    _split = False
    _persistent = False
    _given_policy: Any = None
    total_frames = -1
    """Frames after which the iteration ends; -1: never."""

    def __init__(  # noqa: PLR0913  # the public signature
        self,
        create_env_fn: Any,
        policy: Any = None,
        *,
        frames_per_batch: int,
        total_frames: int | None = -1,
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
        collector_class: Any = 'sample',
        collector_kwargs: Any = None,
        num_workers_per_collector: int = 1,
        sync: bool = False,
        ray_init_config: Mapping[str, Any] | None = None,
        remote_configs: Any = None,
        num_collectors: int | None = None,
        update_after_each_batch: bool = False,
        max_weight_update_interval: int = -1,
        persistent: bool = False,
        seed: int = 0,
        **options: Any,
    ) -> None:
        count = number_of_actors(create_env_fn, num_collectors)
        makers, mode = env_makers(create_env_fn), exploration_of(exploration_type)
        name, kind = collector_of(collector_class)
        given_devices = {
            'device': device,
            'storing_device': storing_device,
            'env_device': env_device,
            'policy_device': policy_device,
        }
        collector_options, given_devices = without_devices(collector_kwargs, count, given_devices)
        device, storing_device, env_device, policy_device = given_devices.values()
        frames_in_all = checked_total_frames(total_frames)
        check_policy(policy)
        check_batch_size(frames_per_batch, num_workers_per_collector * count if sync else 1)
        resources = per_actor(remote_configs or {}, count, 'remote_configs')
        policy_devices = per_actor(
            policy_device if policy_device is not None else device, count, 'policy_device'
        )
        check_devices(policy_devices, resources, 'policy_device')
        check_devices(per_actor(env_device, count, 'env_device'), [{}] * count, 'env_device')
        storing = per_actor(storing_device, count, 'storing_device')
        check_data_is_usable(policy, sync)
        check_one_device(filled(storing, device))
        own = {name: options.pop(name) for name in list(options) if name in RAY_OPTIONS}
        if options:
            raise ConfigError(f'{next(iter(options))} is not a known argument', where=next(iter(options)))
        backend = {
            **own,
            'num_collectors': count,
            'sync': sync,
            'update_after_each_batch': update_after_each_batch,
            'max_weight_update_interval': max_weight_update_interval,
            'ray_init_config': dict(ray_init_config or {}),
            'remote_configs': resources,
        }
        given = {'type': name, 'sync': sync, 'mark_episodes': split_trajs}
        collectors = [{**given, **each} for each in collector_options]
        for section in collectors:
            with_ray_options(kind, section)
        cfg: Any = with_ray_options(kind, {**collectors[0], **backend})
        if update_after_each_batch and (unreachable := staleness_error(cfg, 1)) is not None:
            raise unreachable
        self._devices = device, storing, env_device, policy_devices
        self._frames, self._persistent, self._given_policy = frames_per_batch, persistent, policy
        self._env_num = num_workers_per_collector
        self.total_frames = frames_in_all
        self._random_frames, self._postproc, self._split = init_random_frames or -1, postproc, split_trajs
        make = MakeFromPython(
            per_actor(makers, count, 'create_env_fn'),
            per_actor(create_env_kwargs, count, 'create_env_kwargs'),
            policy,
            collectors,
            [num_workers_per_collector],
            max_frames_per_traj if max_frames_per_traj and max_frames_per_traj > 0 else None,
            mode != 'deterministic',
            policy_devices,
            seed,
            kind if isinstance(collector_class, type) else None,
        )
        face = make.face(policy)
        self._trained, self._random = face, make.random_face(policy, seed, 0)
        self._reset_always = reset_at_each_iter
        pool = ActorPool(cfg, section='', make=make)
        try:
            super().__init__(kind, cfg, pool, face)
        except BaseException:
            pool.close()
            raise
        if not sync:
            self._request_size = frames_per_batch
        if self.total_frames > 0 and not self._attribute('on_policy', False):
            self._budget = self.total_frames

    # an iterable of batches

    def iterator(self) -> Iterator[Any]:
        """Yields batches until ``total_frames`` were delivered; then the actors end, unless they are ``persistent``.

        Raises:
            ValueError: If all of them were delivered already.
        """
        yield self.next()
        while not self._is_done:
            yield self.next()
        if not self._persistent:
            self.shutdown()

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
            raise ValueError(
                f'all total_frames={self.total_frames} were delivered; for more, create another collector, or call collect(n) of a'
                ' persistent one'
            )
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

    def update_policy_weights_(
        self, worker_rank: int | Sequence[int] | None = None, *, worker_ids: int | Sequence[int] | None = None
    ) -> None:
        """Sends the current weights to one, several or all actors with their next requests, without waiting.

        Args:
            worker_rank: Which actors, counted from 1 as in older releases of TorchRL: rank + 1. None: all.
            worker_ids: The same by rank, counted from 0 as in newer releases.

        Raises:
            ConfigError: If there is no such actor, or both are given.
            ValueError: If the actors were ended.
        """
        self._pool.check_open()
        if worker_rank is not None and worker_ids is not None:
            raise ConfigError('both say which actors; leave out worker_rank', where='worker_ids')
        given, first, where = worker_ids, 0, 'worker_ids'
        if worker_rank is not None:
            given, first, where = worker_rank, 1, 'worker_rank'
        ranks: Sequence[Any] = given if isinstance(given, list | tuple) else [given]
        self._publisher.renew([known for rank in ranks for known in self._known(rank, where, first)])

    def set_seed(self, seed: int, static_seed: bool = False) -> int:
        """Restarts every env, with different seeds in each actor.

        Args:
            seed: Seed of the experiment.
            static_seed: Whether all actors use the seeds of the first one.

        Returns:
            Another seed, for whatever is seeded next.
        """
        self._drain()
        ranks = self._pool.ranks
        self._pool.ask_all('set_seed', {rank: (seed, 0 if static_seed else rank) for rank in ranks})
        if self._sync:
            reseed(self._publisher.face, seed, 0)
        return int(component_rng(seed, 'next_seed').integers(2**31))

    def load_state_dict(self, state_dict: Mapping[str, Any] | Sequence[Any]) -> None:
        """Continues from ``state_dict()``, or lets each actor continue from one of its ``actors``, given as a list.

        Raises:
            CheckpointMismatchError: If it was saved with another number of actors.
        """
        if not isinstance(state_dict, Mapping):
            state_dict = {**self.state_dict(), 'actors': list(state_dict)}
        super().load_state_dict(state_dict)

    # actors can be added and removed

    def _known(self, number: int | None, where: str, first: int = 0) -> list[int]:
        """Returns the rank that a number means, if ranks are counted from ``first``; all ranks for None."""
        numbers = [rank + first for rank in self._pool.ranks]
        if number is not None and number not in numbers:
            raise ConfigError('no such actor', where=where, got=number, expected=f'one of {numbers}')
        return self._pool.ranks if number is None else [number - first]

    def add_collectors(
        self,
        create_env_fn: Any = None,
        num_envs: int | None = None,
        policy: Any = None,
        collector_kwargs: Any = None,
        remote_configs: Any = None,
        *,
        num_collectors: int | None = None,
    ) -> list[int]:
        """Starts additional actors, which collect from the next request on, and returns their ranks.

        Args:
            create_env_fn: Creates their envs; or a list with one for each actor; by default, as before.
            num_envs: Number of envs of each actor; by default, as before.
            policy: Must be the trained policy.
            collector_kwargs: Options of their collectors, or a list; by default, as before.
            remote_configs: Their resources, or a list; by default, as before.
            num_collectors: Number of actors; by default the length of a list, else 1.

        Raises:
            ConfigError: If another policy is given, or ``frames_per_batch`` is no longer divisible.
            ResourceError: If the cluster lacks the resources that they need.
        """
        self._pool.check_open()
        if policy is not None and policy is not self._given_policy:
            raise ConfigError('all actors act with the policy trained in this process', where='policy')
        count = number_of_actors(create_env_fn, num_collectors)
        if self._sync and self._frames is not None:
            here = self._env_num if num_envs is None else num_envs
            units = self._env_num * len(self._pool.ranks) + here * count
            check_batch_size(self._frames, units)
        makers = per_actor(env_makers(create_env_fn), count, 'create_env_fn')
        kwargs = per_actor(collector_kwargs, count, 'collector_kwargs')
        make = self._pool.make.joined(self._pool.next_rank, makers, num_envs, kwargs)
        resources = per_actor(remote_configs or {}, count, 'remote_configs')
        ranks = self._pool.add(resources, make)
        self._to_reset.update(ranks)  # they do not know how to act now
        return ranks

    def remove_collectors(self, ranks: Sequence[int]) -> None:
        """Ends actors, after waiting for their pending requests, whose data are kept.

        Raises:
            ConfigError: If there is no such actor, or none would remain.
        """
        self._pool.check_open()
        for rank in ranks:
            self._known(rank, 'ranks')
        if len(set(ranks)) == len(self._pool.ranks):
            raise ConfigError('at least one actor must remain', where='ranks', got=list(ranks))
        while not self._pool.load.keys().isdisjoint(ranks):
            self._take(self._wait())
        for rank in set(ranks):
            self._pool.remove(rank)
            self._headers.pop(rank, None)
            self._to_reset.discard(rank)

    def stop_remote_collectors(self) -> None:
        """Ends all actors; their pending requests count as lost."""
        self.close()

    def shutdown(self) -> None:
        """Ends all actors, and Ray if it was started here; may be called twice."""
        self.stop_remote_collectors()

    def __enter__(self) -> RayCollector:
        return self

    def __exit__(self, *exception: object) -> None:
        self.shutdown()
