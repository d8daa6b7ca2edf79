"""RayCollector: collection in Ray actors from Python; an iterable of batches whose actors can be added and removed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlframe.backend.collector import WorkersCollector
from rlframe.backend.ray.arguments import (
    ActorArguments,
    MakeFromPython,
    Postproc,
    check_batch_size,
    check_devices,
    check_policy,
    checked_options,
    checked_total_frames,
    collector_of,
    explores,
    number_of_actors,
    one_device,
    options_per_actor,
    per_actor,
    trajectories,
)
from rlframe.backend.ray.options import INFERENCE_OPTIONS, RAY_OPTIONS
from rlframe.backend.ray.place import RayPlace
from rlframe.backend.ray.session import REMEDY
from rlframe.backend.worker import CollectorWorker, reseed
from rlframe.errors import ConfigError
from rlframe.remote.supervisor import Limits, Supervisor
from rlframe.utils.seed import component_rng


class RayCollector(WorkersCollector):
    """Collects in Ray actors; iterating over it yields batches until ``total_frames`` were delivered.

    A config with ``collector.backend='ray'`` creates its base class. The parameters are those of TorchRL's class of
    this name; a frame is a training sample. A running Ray is reused, and ended only if it was started here.

    Args:
        create_env_fn: Creates an env: a Gymnasium id, a class or a function; or a list with one for each collector.
        policy: A policy of rlframe, or a module or function from observations to actions; None: random actions.
        frames_per_batch: Frames of a batch: of all collectors together with ``sync``, else of one.
        total_frames: Frames after which the iteration ends, at least 1; the last batch is smaller if necessary, except
            for an on-policy policy. -1 or None: it never ends.
        device: Device of the policy in the actors and of the batches; 'cpu' if not given.
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
        exploration_type: 'random' explores as the policy does for collection, 'deterministic' acts greedily.
        collector_class: Collector in the actors: a registered type or a class.
        collector_kwargs: Its options; or a list.
        num_workers_per_collector: Number of envs of each actor; or a list.
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

    total_frames = -1
    """Frames after which the iteration ends; -1: never."""
    device: Any = None
    """Device of policies and batches, as given."""
    storing_device: Any = None
    """Device of the batches; None if they contain numpy arrays."""
    env_device: Any = None
    """Device of the envs, as given."""
    policy_device: Any = None
    """Device of the policies in the actors."""

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
        num_workers_per_collector: int | Sequence[int] = 1,
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
        known = [name for name in RAY_OPTIONS if name not in INFERENCE_OPTIONS]
        if unknown := next((name for name in options if name not in known), None):
            raise ConfigError(f'{unknown} is not a known argument', where=unknown)
        count = number_of_actors(create_env_fn, num_collectors)
        self.total_frames = checked_total_frames(total_frames)
        check_policy(policy, sync)
        env_nums = per_actor(num_workers_per_collector, count, 'num_workers_per_collector')
        check_batch_size(frames_per_batch, sum(env_nums) if sync else 1)
        resources = options_per_actor(remote_configs, count, 'remote_configs')
        device = one_device(device, count, 'device')
        storing_device = one_device(storing_device, count, 'storing_device')
        env_device = one_device(env_device, count, 'env_device')
        policy_device = one_device(policy_device, count, 'policy_device')
        policy_device = device if policy_device is None else policy_device
        check_devices({'env_device': env_device, 'policy_device': policy_device}, resources)
        self.device, self.env_device, self.policy_device = device, env_device, policy_device
        self.storing_device = device if storing_device is None else storing_device
        name, kind = collector_of(collector_class)
        section = {'type': name, 'sync': sync, 'mark_episodes': split_trajs}
        sections = [
            {**section, **own} for own in options_per_actor(collector_kwargs, count, 'collector_kwargs')
        ]
        backend = {
            **options,
            'num_collectors': count,
            'sync': sync,
            'update_after_each_batch': update_after_each_batch,
            'max_weight_update_interval': max_weight_update_interval,
            'ray_init_config': dict(ray_init_config or {}),
            'remote_configs': resources,
        }
        compiled = [checked_options(kind, {**own, **backend}) for own in sections]
        cfg = compiled[0]
        self._frames, self._persistent, self._given_policy = frames_per_batch, persistent, policy
        self._random_frames = init_random_frames or -1
        self._postproc = postproc
        self._split = split_trajs
        makers = per_actor(create_env_fn, count, 'create_env_fn')
        kwargs = options_per_actor(create_env_kwargs, count, 'create_env_kwargs')
        arguments = zip(makers, kwargs, env_nums, sections, strict=True)
        make = MakeFromPython(
            {rank: ActorArguments(*own) for rank, own in enumerate(arguments)},
            policy,
            seed,
            time_limit=max_frames_per_traj if max_frames_per_traj and max_frames_per_traj > 0 else None,
            explores=explores(exploration_type),
            device=policy_device,
            collector_class=kind if isinstance(collector_class, type) else None,
        )
        self._trained = make.face(policy)
        self._random = make.random_face(policy, seed, 0)
        self._reset_always = reset_at_each_iter
        place = RayPlace(CollectorWorker, cfg['ray_init_config'], cfg['remote_configs'])
        pool = Supervisor(place, make, count, Limits.of(cfg, cfg['collect_timeout'], ''), REMEDY)
        try:
            super().__init__(kind, cfg, pool, self._trained)
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
        if self._budget is not None:
            count = min(count, self._budget - self.delivered)
        batch = self.collect(count, train_iter=None)
        if self._split:
            return [self._finished(piece) for piece in trajectories(batch)]
        return self._finished(batch)

    def _finished(self, batch: Any) -> Any:
        if self.storing_device is not None:
            batch = batch.map(lambda column: column.copy()).to(self.storing_device)
        return batch if self._postproc is None else self._postproc(batch)

    # facts

    def remote_collectors(self) -> list[Any]:
        """Returns Ray's handles of the actors, ordered by rank, but for those that wait to be replaced.

        A call of their ``collect`` would not be counted.
        """
        slots = [self._pool.slots[rank] for rank in self._pool.ranks]
        return [slot.link for slot in slots if slot.link is not None]

    @property
    def num_workers(self) -> int:
        """Number of actors."""
        return len(self._pool.ranks)

    # weights, seeds, states

    def update_policy_weights_(
        self, worker_rank: int | Sequence[int] | None = None, *, worker_ids: int | Sequence[int] | None = None
    ) -> None:
        """Sends the current weights to one, several or all actors with their next requests, without waiting.

        Args:
            worker_rank: Which actors, counted from 1 as in older releases of TorchRL: rank + 1. None: all.
            worker_ids: The same by rank, counted from 0 as in newer releases; not used if ``worker_rank`` is given.

        Raises:
            ConfigError: If there is no such actor.
            ValueError: If the actors were ended.
        """
        self._pool.check_open()
        name, first, given = (
            ('worker_ids', 0, worker_ids) if worker_rank is None else ('worker_rank', 1, worker_rank)
        )
        numbers = [given] if isinstance(given, int) else given
        ranks = self._pool.ranks if numbers is None else [number - first for number in numbers]
        self._check_ranks(ranks, name, first)
        self._publisher.renew(ranks)

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

    # actors can be added and removed

    def _check_ranks(self, ranks: Sequence[int], where: str, first: int = 0) -> None:
        known = [rank + first for rank in self._pool.ranks]
        if missing := [rank + first for rank in ranks if rank + first not in known]:
            raise ConfigError('no such actor', where=where, got=missing[0], expected=f'one of {known}')

    def add_collectors(
        self,
        create_env_fn: Any = None,
        num_envs: int | Sequence[int] | None = None,
        policy: Any = None,
        collector_kwargs: Any = None,
        remote_configs: Any = None,
        *,
        num_collectors: int | None = None,
    ) -> list[int]:
        """Starts additional actors, which collect from the next request on, and returns their ranks.

        Args:
            create_env_fn: Creates their envs; or a list with one for each actor; by default, as before.
            num_envs: Number of envs of each actor, or a list; by default, as before.
            policy: Must be the trained policy.
            collector_kwargs: Options of their collectors, in addition to those before; or a list.
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
        make = self._pool.make
        last = make.own[max(make.own)]
        makers = per_actor(last.env_fn if create_env_fn is None else create_env_fn, count, 'create_env_fn')
        env_nums = per_actor(last.env_num if num_envs is None else num_envs, count, 'num_envs')
        options = options_per_actor(collector_kwargs, count, 'collector_kwargs')
        if self._sync:
            units = sum(make.own[rank].env_num for rank in self._pool.ranks) + sum(env_nums)
            check_batch_size(self._frames, units)
        own = {
            self._pool.next_rank + i: ActorArguments(
                makers[i], last.env_kwargs, env_nums[i], {**last.collector, **options[i]}
            )
            for i in range(count)
        }
        resources = options_per_actor(remote_configs, count, 'remote_configs')
        ranks = self._pool.add(resources, make.joined(own))
        self._to_reset.update(ranks)  # they do not know how to act now
        return ranks

    def remove_collectors(self, ranks: Sequence[int]) -> None:
        """Ends actors, after waiting for their pending requests, whose data are kept.

        Raises:
            ConfigError: If there is no such actor, or none would remain.
        """
        self._pool.check_open()
        self._check_ranks(ranks, 'ranks')
        if len(set(ranks)) == len(self._pool.ranks):
            raise ConfigError('at least one actor must remain', where='ranks', got=list(ranks))
        while not self._pool.load.keys().isdisjoint(ranks):
            self._take(self._wait())
        for rank in set(ranks):
            self._pool.remove(rank)
            self._carried.pop(rank, None)
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
