"""Checks the arguments of a RayCollector and converts them to what its actors need."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlframe.backend.ray.actor import on_cpu, reseed
from rlframe.backend.ray.options import without_ray_options
from rlframe.data.timestep import Array, Batch, EnvSpec, IntArray, TimeStep
from rlframe.errors import ConfigError
from rlframe.registry import ENV_MANAGER_REGISTRY, ENV_REGISTRY, SERIAL_COLLECTOR_REGISTRY
from rlframe.run.progress import Progress
from rlframe.utils.arithmetic import aligned
from rlframe.utils.lazy import LazyModule
from rlframe.utils.seed import component_rng, incarnation_seed, set_seed
from rlframe.utils.serialize import checked_bits
from rlframe.worker.collector.base_serial_collector import SerialCollector
from rlframe.worker.collector.rollout import Parts


def per_actor(value: Any, count: int, name: str) -> list[Any]:
    """Returns a value for each actor: copies of a single value, or those of a list.

    Raises:
        ConfigError: If a list has another length; with both lengths.
    """
    if not isinstance(value, list | tuple):
        return [copy.copy(value) if isinstance(value, dict) else value for _ in range(count)]
    if len(value) != count:
        raise ConfigError(
            f'{name} has {len(value)} entries for {count} collectors',
            where=name,
            remedy='Pass one for all collectors, or a list with one for each.',
        )
    return list(value)


def filled(storing: Sequence[Any], device: Any) -> list[Any]:
    """Returns the device of each actor's batches: ``device``, or its entry for the actor, where none is given.

    Args:
        storing: The ``storing_device`` of each actor, or None.
        device: One for all, or a list with one for each.
    """
    return [
        own if own is not None else other
        for own, other in zip(storing, per_actor(device, len(storing), 'device'), strict=True)
    ]


def check_one_device(storing: Sequence[Any]) -> None:
    """Checks that all batches are on a single device.

    Raises:
        ConfigError: If not.
    """
    if len({str(device) for device in storing}) > 1:
        raise ConfigError(
            'all collectors store their batches on one device',
            where='storing_device',
            got=list(storing),
            expected='one device',
            remedy='Pass it as storing_device; without one, it is that of the policies (device).',
        )


gymnasium = LazyModule('gymnasium')

FORM = 'a policy of rlframe, a module, a function of observations, or None'
"""Forms of a policy."""
OF_TENSORDICTS = (
    'A module or function gets observations [n, ...] and returns actions [n, ...], without a tensordict: of a policy that'
    ' takes one, pass the network in it (policy.module of a TensorDictModule), or a function around it.'
)
"""Remedy for policies in the form of TorchRL."""
DEVICES = ('device', 'storing_device', 'env_device', 'policy_device')
EXPLORATION = {
    'random': 'random',
    'deterministic': 'deterministic',
    'mode': 'deterministic',
    'mean': 'deterministic',
    'median': 'deterministic',
}
"""TorchRL's exploration types, and rlframe's names for them."""


def collector_of(given: Any) -> tuple[str, Any]:
    """Returns the name and the class of the collector in an actor.

    Args:
        given: A registered type, a class of collectors, or what TorchRL takes: ``'single'``, ``'sync'``, ``'async'`` and
            its classes, which say how one actor steps its envs and which all mean ``'sample'``.

    Raises:
        ConfigError: If it is another object.
    """
    if isinstance(given, str):
        is_torchrl = given in ('single', 'sync', 'async') and given not in SERIAL_COLLECTOR_REGISTRY
        name = 'sample' if is_torchrl else given
        return name, SERIAL_COLLECTOR_REGISTRY.get(name)
    if isinstance(given, type) and given.__module__.partition('.')[0] == 'torchrl':
        return collector_of('sync')
    if not isinstance(given, type) or not issubclass(given, SerialCollector):
        raise ConfigError(
            'this is no collector that steps envs',
            where='collector_class',
            got=given,
            expected=f"a subclass of SerialCollector, 'single', 'sync', 'async' or one of {SERIAL_COLLECTOR_REGISTRY.names()}",
        )
    return given.__name__, given


def exploration_of(given: Any) -> str | None:
    """Returns 'random', 'deterministic' or None for a name in any case, or a member of an enum of such names.

    Raises:
        ConfigError: If there is no such name.
    """
    name = getattr(given, 'name', given)
    known = EXPLORATION.get(name.lower()) if isinstance(name, str) else None
    if name is not None and known is None:
        raise ConfigError(
            'bad value', where='exploration_type', got=given, expected=f'None or one of {list(EXPLORATION)}'
        )
    return known


class EnvCopies:
    """Creates copies of an env.

    Args:
        env: The original env; it is never stepped.
    """

    def __init__(self, env: Any) -> None:
        self._env = env

    def __call__(self) -> Any:
        """Returns another copy."""
        return copy.deepcopy(self._env)


def env_makers(given: Any) -> Any:
    """Returns env factories, with a factory of copies in place of each env instance.

    Args:
        given: A Gymnasium id, a class, a function or an env; or a list of such.
    """
    if isinstance(given, list | tuple):
        return [env_makers(one) for one in given]
    return EnvCopies(given) if isinstance(given, gymnasium.Env) else given


def without_devices(
    collector_kwargs: Any, count: int, devices: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Moves devices from ``collector_kwargs`` to the arguments of the same names, which they override.

    Args:
        collector_kwargs: Options of the collectors in the actors: a dict for all, or a list.
        count: Number of actors.
        devices: What was given for each of ``DEVICES``.

    Returns:
        The options of each collector, and the devices.
    """
    options = [dict(each) for each in per_actor(collector_kwargs or {}, count, 'collector_kwargs')]
    taken = {}
    for name in DEVICES:
        own = [each.pop(name, None) for each in options]
        given = per_actor(devices[name], count, name)
        merged = [mine if mine is not None else other for mine, other in zip(own, given, strict=True)]
        if not any(own):
            taken[name] = devices[name]
        else:
            is_one = all(device == merged[0] for device in merged)
            taken[name] = merged[0] if is_one else merged
    return options, taken


def within_bounds(action: Array, space: Any) -> Array:
    """Clips the actions of a network to the bounds of a ``Box``.

    Args:
        action: [n, ...].
        space: Space of one action.
    """
    if isinstance(space, gymnasium.spaces.Box):
        clipped = np.clip(action, space.low, space.high)
        return (np.rint(clipped) if space.dtype.kind != 'f' else clipped).astype(space.dtype, copy=False)
    return action


torch = LazyModule('torch')


def check_data_is_usable(policy: Any, sync: bool) -> None:
    """Checks that a policy can learn from the batches.

    Raises:
        ConfigError: If not.
    """
    if not sync and hasattr(policy, 'collect_mode') and policy.get_attribute('cfg').get('on_policy'):
        raise ConfigError(
            'an on-policy policy learns from fresh data only, and without sync actors collect while the weights change',
            where='sync',
            got=sync,
            expected='True',
        )


def number_of_actors(create_env_fn: Any, num_collectors: int | None) -> int:
    """Returns the number of actors.

    Raises:
        ConfigError: If the list of env factories has another length.
    """
    if isinstance(create_env_fn, list | tuple):
        count = len(per_actor(create_env_fn, num_collectors or len(create_env_fn), 'create_env_fn'))
    else:
        count = 1 if num_collectors is None else num_collectors
    if count < 1:
        raise ConfigError('bad value', where='num_collectors', got=count, expected='at least 1')
    return count


def check_batch_size(frames_per_batch: int, units: int) -> None:
    """Checks that every env has the same number of frames in a batch of all collectors.

    Args:
        frames_per_batch: The number.
        units: Number of envs of all collectors; 1 if a batch comes from one collector and may have any size.

    Raises:
        ConfigError: With the nearest numbers that work.
    """
    if frames_per_batch < 1 or frames_per_batch % units:
        below = frames_per_batch // units * units
        valid = [number for number in (below, below + units) if number > 0]
        raise ConfigError(
            f'frames_per_batch has to be divisible by {units}, the envs of all collectors'
            if units > 1
            else 'bad value',
            where='frames_per_batch',
            got=frames_per_batch,
            expected=' or '.join(str(number) for number in valid) if units > 1 else 'at least 1',
        )


def check_devices(devices: Sequence[Any], remote_configs: Sequence[Mapping[str, Any]], name: str) -> None:
    """Checks that no actor is to use a GPU that it does not have.

    Raises:
        ConfigError: If an actor is.
    """
    for rank, (device, resources) in enumerate(zip(devices, remote_configs, strict=True)):
        if device is not None and str(device) != 'cpu' and not resources.get('num_gpus'):
            raise ConfigError(
                f'actor {rank} should use {device}, but has no GPU',
                where=name,
                got=str(device),
                expected="'cpu', or remote_configs with num_gpus",
            )


class RandomActions:
    """Draws actions from a space; acting changes nothing but its generator.

    Args:
        space: Space of one action.
        rng: Generator that seeds each draw.
    """

    def __init__(self, space: Any, rng: np.random.Generator) -> None:
        self._space, self._rng = space, rng

    def __call__(self, count: int) -> Array:
        """Returns actions, [count, ...]."""
        self._space.seed(int(self._rng.integers(2**31)))
        return np.stack([self._space.sample() for _ in range(count)])

    def state(self) -> dict[str, Any]:
        """Returns the state of the generator."""
        return {'rng': self._rng.bit_generator.state}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state()``."""
        self._rng.bit_generator.state = checked_bits(state['rng'])

    def statistics(self) -> dict[str, Any]:
        """Has none."""
        return {}


def form_error(problem: str, obs: Array) -> ConfigError:
    """Returns the error about a policy that cannot act on observations."""
    return ConfigError(
        f'the policy cannot act on {obs.dtype} observations {list(obs.shape)}: {problem}',
        where='policy',
        expected=FORM,
        remedy=OF_TENSORDICTS,
    )


class PlainFace:
    """Collect interface for a module or function from observations to actions, or for random actions.

    Actions for a ``Box`` are clipped to its bounds, and recorded as they were taken.

    Args:
        act: Maps observations [n, ...], as tensors if it is a module, to actions [n, ...]; None: random actions.
        spec: Spaces of the env.
        rng: Generator of random actions.
    """

    def __init__(self, act: Any, spec: EnvSpec, rng: np.random.Generator) -> None:
        self._act, self._random = act, RandomActions(spec.action_space, rng)
        self._space = spec.action_space
        first = next(iter(act.parameters()), None) if hasattr(act, 'parameters') else None
        self._device = None if first is None else first.device
        self._has_acted = False

    def forward(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        """Returns the actions.

        Raises:
            ConfigError: If the policy cannot act on its first observations.
        """
        if self._act is None:
            return Batch.unchecked({'action': self._random(len(env_id))}, len(env_id))
        try:
            action = self._actions(obs)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            if self._has_acted:
                raise
            raise form_error(f'it fails with {type(error).__name__}: {error}', obs) from error
        if not self._has_acted and action.shape[:1] != (len(env_id),):
            raise form_error(f'it returns an array of shape {list(action.shape)}', obs)
        self._has_acted = True
        return Batch.unchecked({'action': action}, len(env_id))

    def _actions(self, obs: Array) -> Array:
        if not hasattr(self._act, 'state_dict'):
            return within_bounds(np.asarray(self._act(obs)), self._space)
        with torch.inference_mode():
            action = self._act(aligned(torch.as_tensor(obs, device=self._device))).cpu().numpy()
        return within_bounds(action, self._space)

    def process_transition(self, obs: Array, output: Batch, timestep: TimeStep) -> dict[str, Array]:
        """Returns the columns of the step's transitions, [n, ...]."""
        return {
            'obs': obs,
            'next_obs': timestep.obs,
            'action': output['action'],
            'reward': timestep.reward.astype(np.float32, copy=False),
            'terminated': timestep.terminated,
            'truncated': timestep.truncated,
        }

    def get_attribute(self, name: str) -> Any:
        """Returns ``acting`` if actions are random, as acting then changes only its generator."""
        if name != 'acting' or self._act is not None:
            raise AttributeError(name)
        return self._random

    def reset(self, env_id: IntArray | None) -> None:
        """Has nothing to forget."""

    def state_dict(self) -> dict[str, Any]:
        """Returns the weights of a module."""
        return {'model': self._act.state_dict()} if hasattr(self._act, 'state_dict') else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes the weights of a module."""
        if state:
            self._act.load_state_dict(state['model'])


class RandomFace(PlainFace):
    """Acts at random in place of a module or function.

    Args:
        spec: Spaces of the env.
        rng: Generator of the actions.
    """

    acts_at_random = True

    def __init__(self, spec: EnvSpec, rng: np.random.Generator) -> None:
        super().__init__(None, spec, rng)


class MakeFromPython:
    """Creates the collector in an actor from the constructor's arguments.

    Args:
        env_fns: Factories of the envs of each actor: Gymnasium ids, classes or functions.
        env_kwargs: Arguments of each of them.
        policy: A policy of rlframe, of which actors get a copy that can collect; a module; a function; or None: random
            actions.
        collector: Options of each actor's collector, with its ``type``.
        env_num: Number of envs of each actor.
        time_limit: Env steps after which an episode is truncated; None: only the env's own limit.
        explores: Whether the policy explores, instead of acting greedily.
        devices: Device of the policy of each actor.
        seed: Seed of the experiment.
        collector_class: Class of the collectors; by default, the registered one of the ``type``.
    """

    def __init__(  # noqa: PLR0913  # the arguments of RayCollector
        self,
        env_fns: list[Any],
        env_kwargs: list[Any],
        policy: Any,
        collector: list[dict[str, Any]],
        env_num: list[int],
        time_limit: int | None,
        explores: bool,
        devices: list[Any],
        seed: int,
        collector_class: Any = None,
    ) -> None:
        self._collector_class = collector_class
        self.env_fns, self.env_kwargs, self.devices = env_fns, env_kwargs, devices
        self._collector, self._env_num, self._time_limit = collector, env_num, time_limit
        self._explores, self._seed = explores, seed
        self.spec = self.factory(0).spec
        """What a policy must know about the envs; to find out, one env is created and closed again."""
        self._kind: Any = type(policy) if hasattr(policy, 'collect_mode') else None
        self._cfg = copy.deepcopy(policy.get_attribute('cfg')) if self._kind else None
        self._model = on_cpu(policy.get_attribute('given_model') if self._kind else policy)

    def factory(self, rank: int) -> Any:
        """Returns a factory of the envs of an actor."""
        limit = {'type': 'gymnasium.wrappers:TimeLimit', 'max_episode_steps': self._time_limit}
        section = {
            'env_id': _own(self.env_fns, rank),
            'kwargs': _own(self.env_kwargs, rank) or {},
            'collector_env_num': _own(self._env_num, rank),
            'wrappers': [limit] if self._time_limit else [],
        }
        return ENV_REGISTRY.build({'type': 'gym'}, section)

    def joined(
        self, first: int, env_fns: Sequence[Any], env_num: int | None, collector_kwargs: Sequence[Any]
    ) -> MakeFromPython:
        """Returns a copy with other arguments for additional actors, one of each for each actor.

        Args:
            first: Rank of the first additional actor.
            env_fns: Env factory of each; None: as before.
            env_num: Number of envs of each; None: as before.
            collector_kwargs: Options of the collector of each, in addition to those before; or None.
        """
        other = copy.copy(self)
        kwargs = [{**self._collector[-1], **(own or {})} for own in collector_kwargs]
        makers = [self.env_fns[-1] if own is None else own for own in env_fns]
        other.env_fns = [_own(self.env_fns, rank) for rank in range(first)] + makers
        other._collector = [_own(self._collector, rank) for rank in range(first)] + kwargs
        other._env_num = [_own(self._env_num, rank) for rank in range(first)] + [env_num or self._env_num[-1]]
        return other

    def face(self, policy: Any) -> Any:
        """Returns the collect face of the constructor's policy."""
        if not hasattr(policy, 'collect_mode'):
            return PlainFace(policy, self.spec, component_rng(self._seed, 'policy'))
        return policy.collect_mode if self._explores else policy.greedy_collect_mode

    def random_face(self, policy: Any, seed: int, rank: int) -> Any:
        """Returns a face that acts at random and records what ``face(policy)`` does."""
        rng = component_rng(seed, 'random_collect', rank)
        if not hasattr(policy, 'collect_mode'):
            return RandomFace(self.spec, rng)
        return policy.random_collect_mode(rng)

    def __call__(self, rank: int, incarnation: int) -> Parts:
        """Creates envs, policy and collector."""
        seed = incarnation_seed(self._seed, rank, incarnation)
        set_seed(seed)
        torch.set_num_threads(1)
        given = _own(self._collector, rank)
        section = {**without_ray_options(given), 'collect_print_freq': None}
        own = rank if given.get('sync', True) else rank + 1
        policy = self._policy(seed, own, rank)
        face, progress = self.face(policy), Progress()
        if isinstance(face, PlainFace):
            reseed(face, seed, own)
        manager = ENV_MANAGER_REGISTRY.get('base')
        env = manager.from_factory(self.factory(rank), _own(self._env_num, rank))
        build = self._collector_class or functools.partial(SERIAL_COLLECTOR_REGISTRY.build, section)
        collector = build(cfg=section, env=env, policy=face, seed=seed, rank=rank, progress=progress)
        return Parts(collector, env, progress, face, self.random_face(policy, seed, rank))

    def _policy(self, seed: int, own: int, rank: int) -> Any:
        if self._kind is None:
            acting, device = copy.deepcopy(self._model), _own(self.devices, rank)
            return acting.to(device) if device is not None and hasattr(acting, 'parameters') else acting
        cfg = copy.deepcopy(self._cfg)
        assert cfg is not None  # there is one of each policy of rlframe
        cfg.device, cfg.cuda = str(_own(self.devices, rank) or 'cpu'), None
        fields = ('collect',) if self._explores else ('collect', 'eval')
        return self._kind(cfg, self.spec, copy.deepcopy(self._model), fields, seed=seed, rank=own)


def _own(values: list[Any], rank: int) -> Any:
    """Returns the entry of an actor; actors beyond the end of the list are like the last one."""
    return values[min(rank, len(values) - 1)]


def trajectories(batch: Batch) -> list[Batch]:
    """Splits rows into parts of episodes, each in the order of its steps.

    Args:
        batch: With the columns ``env_id`` and ``episode_step``, in time order for each env.
    """
    order = np.argsort(batch['env_id'], kind='stable')
    env_id, step = np.asarray(batch['env_id'])[order], np.asarray(batch['episode_step'])[order]
    begins = (np.diff(env_id) != 0) | (np.diff(step) != 1)
    return [batch[rows] for rows in np.split(order, np.flatnonzero(begins) + 1)]


Postproc = Callable[[Any], Any]
"""Transforms a batch before it is returned."""
