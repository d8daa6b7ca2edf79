"""Checks the arguments of a RayCollector and converts them to what its actors need."""

from __future__ import annotations

import copy
import functools
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlframe.backend.options import lag_error, without_backend_options
from rlframe.backend.ray.options import RAY_OPTIONS
from rlframe.backend.worker import reseed
from rlframe.data.timestep import Array, Batch, EnvSpec, IntArray, TimeStep, to_tensor
from rlframe.errors import ConfigError, ConfigErrors
from rlframe.registry import ENV_MANAGER_REGISTRY, ENV_REGISTRY, SERIAL_COLLECTOR_REGISTRY
from rlframe.run.progress import Progress
from rlframe.utils.field import ResolvedConfig, check_values
from rlframe.utils.lazy import LazyModule
from rlframe.utils.seed import component_rng, incarnation_seed, set_seed
from rlframe.utils.serialize import checked_bits, on_cpu
from rlframe.worker.collector.base_serial_collector import SerialCollector
from rlframe.worker.collector.remote_collection import Parts

gymnasium = LazyModule('gymnasium')
torch = LazyModule('torch')

Postproc = Callable[[Any], Any]
"""Transforms a batch before it is returned."""
FORM = 'a policy of rlframe, a module, a function of observations, or None'
"""Forms of a policy."""
OF_TENSORDICTS = (
    'A module or function gets observations [n, ...] and returns actions [n, ...], without a tensordict: of a policy that'
    ' takes one, pass the network in it (policy.module of a TensorDictModule), or a function around it.'
)
"""Remedy for policies in the form of TorchRL."""


def per_actor(value: Any, count: int, name: str) -> list[Any]:
    """Returns a value for each actor: the same one, or those of a list.

    Raises:
        ConfigError: If a list has another length; with both lengths.
    """
    if not isinstance(value, list | tuple):
        return [value] * count
    if len(value) != count:
        raise ConfigError(
            f'{name} has {len(value)} entries for {count} collectors',
            where=name,
            remedy='Pass one for all collectors, or a list with one for each.',
        )
    return list(value)


def number_of_actors(create_env_fn: Any, num_collectors: int | None) -> int:
    """Returns the number of actors.

    Raises:
        ConfigError: If it is less than 1.
    """
    default = len(create_env_fn) if isinstance(create_env_fn, list | tuple) else 1
    count = default if num_collectors is None else num_collectors
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
    if frames_per_batch < 1:
        raise ConfigError('bad value', where='frames_per_batch', got=frames_per_batch, expected='at least 1')
    if frames_per_batch % units:
        below = frames_per_batch // units * units
        raise ConfigError(
            f'frames_per_batch has to be divisible by {units}, the envs of all collectors',
            where='frames_per_batch',
            got=frames_per_batch,
            expected=' or '.join(str(number) for number in (below, below + units) if number),
        )


def checked_total_frames(total: Any) -> int:
    """Returns the number of frames after which the iteration ends; -1: never.

    Raises:
        ConfigError: If it is not a valid number.
    """
    if total is None:
        return -1
    is_whole = isinstance(total, numbers.Real) and not isinstance(total, bool) and total == total // 1
    if not is_whole or (total < 1 and total != -1):
        raise ConfigError(
            'bad value',
            where='total_frames',
            got=total,
            expected='an int >= 1, or -1 or None for an endless iteration',
        )
    return int(total)


def check_policy(policy: Any, sync: bool) -> None:
    """Checks that a policy is one, not a class of policies, and can learn from the batches.

    Raises:
        ConfigError: If not.
    """
    is_ours = hasattr(policy, 'collect_mode') and not isinstance(policy, type)
    of_tensordicts = hasattr(policy, 'in_keys') and hasattr(policy, 'out_keys')
    is_other = isinstance(policy, type) or not callable(policy)
    if not (policy is None or is_ours) and (of_tensordicts or is_other):
        raise ConfigError(
            'this takes a tensordict' if of_tensordicts else 'this is not a policy',
            where='policy',
            got=policy,
            expected=FORM,
            remedy=OF_TENSORDICTS if of_tensordicts else 'If it creates a policy, pass what it returns.',
        )
    is_fresh = is_ours and policy is not None and policy.get_attribute('cfg').get('on_policy')
    if is_fresh and not sync and (error := lag_error(type(policy), 'sync')):
        raise error


def options_per_actor(value: Any, count: int, name: str) -> list[dict[str, Any]]:
    """Returns options for each actor, none in place of None; raises like ``per_actor``."""
    return [dict(own or {}) for own in per_actor(value, count, name)]


def one_device(given: Any, count: int, name: str) -> Any:
    """Returns the device of all collectors; a list, as TorchRL takes it, has to name the same one for each.

    Raises:
        ConfigError: If it names several, or has another length.
    """
    each = per_actor(given, count, name)
    if len(set(map(str, each))) != 1:
        raise ConfigError('one device for all collectors', where=name, got=given, expected='a single device')
    return each[0]


def check_devices(devices: Mapping[str, Any], remote_configs: Sequence[Mapping[str, Any]]) -> None:
    """Checks that no actor is to use a GPU that it does not have.

    Args:
        devices: Those of envs and policy, by the names of the arguments.
        remote_configs: Resources of each actor.

    Raises:
        ConfigError: If an actor has no GPU.
    """
    for name, device in devices.items():
        for rank, resources in enumerate(remote_configs):
            has_gpu = name == 'policy_device' and resources.get('num_gpus')
            if device is not None and str(device) != 'cpu' and not has_gpu:
                raise ConfigError(
                    f'actor {rank} should use {device}, but has no GPU',
                    where=name,
                    got=str(device),
                    expected="'cpu', or remote_configs with num_gpus for the policy",
                )


def checked_options(kind: Any, options: Mapping[str, Any]) -> ResolvedConfig:
    """Returns the options of a collector of this class and those of the backend, with all defaults.

    Raises:
        ConfigError: If an option is unknown or invalid. All mistakes among the options of the backend are reported together.
    """
    of_backend = {name: options[name] for name in options if name in RAY_OPTIONS}
    values, errors = check_values(of_backend, RAY_OPTIONS)
    if errors:
        raise errors[0] if len(errors) == 1 else ConfigErrors(errors, where=kind.__name__)
    return ResolvedConfig({**kind.resolve_config(without_backend_options(options, RAY_OPTIONS)), **values})


def collector_of(given: Any) -> tuple[str, Any]:
    """Returns the name and the class of the collector in an actor.

    Args:
        given: A registered type, or a class of collectors. TorchRL's ``'single'``, ``'sync'`` and ``'async'`` say how a
            collector steps its envs, which an env manager does here: each is ``'sample'``.

    Raises:
        ConfigError: If it is another object.
    """
    name = 'sample' if given in ('single', 'sync', 'async') else given
    kind = SERIAL_COLLECTOR_REGISTRY.get(name) if isinstance(name, str) else given
    if not isinstance(kind, type) or not issubclass(kind, SerialCollector):
        raise ConfigError(
            'this is no collector that steps envs',
            where='collector_class',
            got=given,
            expected=f'a subclass of SerialCollector, or one of {SERIAL_COLLECTOR_REGISTRY.names()}',
            remedy="For TorchRL's classes, leave it out: sync says how batches are joined.",
        )
    return name if isinstance(name, str) else kind.__name__, kind


def explores(exploration_type: Any) -> bool:
    """Returns whether the policy explores.

    Raises:
        ConfigError: If there is no such type.
    """
    if exploration_type not in (None, 'random', 'deterministic'):
        raise ConfigError(
            'bad value',
            where='exploration_type',
            got=exploration_type,
            expected="None, 'random' or 'deterministic'",
        )
    return bool(exploration_type != 'deterministic')


class PlainFace:
    """Collect interface for a module or function from observations to actions, or for random actions.

    Actions for a ``Box`` are clipped to its bounds, and recorded as they were taken.

    Args:
        act: Maps observations [n, ...], as tensors if it is a module, to actions [n, ...]; None: random actions.
        spec: Spaces of the env.
        rng: Generator that seeds each draw of random actions.
        acts_at_random: Whether it acts at random in place of a module or function.
    """

    def __init__(
        self, act: Any, spec: EnvSpec, rng: np.random.Generator, acts_at_random: bool = False
    ) -> None:
        self._act = act
        self._space = spec.action_space
        self._rng = rng
        self.acts_at_random = acts_at_random
        first = next(iter(act.parameters()), None) if hasattr(act, 'parameters') else None
        self._device = None if first is None else first.device

    def forward(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        """Returns the actions.

        Raises:
            ConfigError: If the policy does not return an action for each observation.
        """
        if self._act is None:
            self._space.seed(int(self._rng.integers(2**31)))
            action = np.stack([self._space.sample() for _ in env_id])
        else:
            action = self._within_bounds(self._actions(obs))
        if action.shape[:1] != (len(env_id),):
            raise ConfigError(
                f'the policy returns an array of shape {list(action.shape)} for {obs.dtype} observations {list(obs.shape)}',
                where='policy',
                expected=FORM,
                remedy=OF_TENSORDICTS,
            )
        return Batch.unchecked({'action': action}, len(env_id))

    def _actions(self, obs: Array) -> Array:
        if not hasattr(self._act, 'state_dict'):
            return np.asarray(self._act(obs))
        with torch.inference_mode():
            action: Array = self._act(to_tensor(torch.as_tensor(obs, device=self._device))).cpu().numpy()
        return action

    def _within_bounds(self, action: Array) -> Array:
        """Clips actions, [n, ...], to the bounds of a ``Box``."""
        space = self._space
        if not isinstance(space, gymnasium.spaces.Box):
            return action
        clipped = np.clip(action, space.low, space.high)
        return (np.rint(clipped) if space.dtype.kind != 'f' else clipped).astype(space.dtype, copy=False)

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

    def reset(self, env_id: IntArray | None) -> None:
        """Has nothing to forget."""

    def state_dict(self) -> dict[str, Any]:
        """Returns the weights of a module."""
        return {'model': self._act.state_dict()} if hasattr(self._act, 'state_dict') else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes the weights of a module."""
        if state:
            self._act.load_state_dict(state['model'])

    # the acting state of random actions, which change nothing but their generator

    def get_attribute(self, name: str) -> Any:
        """Returns ``acting`` if actions are random."""
        if name != 'acting' or self._act is not None:
            raise AttributeError(name)
        return self

    def state(self) -> dict[str, Any]:
        """Returns the state of the generator."""
        return {'rng': self._rng.bit_generator.state}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state()``."""
        self._rng.bit_generator.state = checked_bits(state['rng'])

    def statistics(self) -> dict[str, Any]:
        """Has none."""
        return {}


class ActorArguments(NamedTuple):
    """What may differ between actors."""

    env_fn: Any
    """Creates an env: a Gymnasium id, a class or a function."""
    env_kwargs: Mapping[str, Any]
    env_num: int
    collector: Mapping[str, Any]
    """Options of its collector, with the ``type``."""


class MakeFromPython:
    """Creates the collector in an actor from the constructor's arguments.

    Args:
        own: What each actor has of its own, by rank.
        policy: A policy of rlframe, of which actors get a copy that can collect; a module; a function; or None: random
            actions.
        seed: Seed of the experiment.
        time_limit: Env steps after which an episode is truncated; None: only the env's own limit.
        explores: Whether the policy explores, instead of acting greedily.
        device: Device of the policies.
        collector_class: Class of the collectors; by default, the registered one of the ``type``.
    """

    def __init__(
        self,
        own: Mapping[int, ActorArguments],
        policy: Any,
        seed: int = 0,
        *,
        time_limit: int | None = None,
        explores: bool = True,
        device: Any = None,
        collector_class: Any = None,
    ) -> None:
        self.own = dict(own)
        self._seed = seed
        self._time_limit = time_limit
        self._explores, self._device, self._collector_class = explores, device, collector_class
        self.spec = self.factory(min(own)).spec
        """What a policy must know about the envs; to find out, one env is created and closed again."""
        self._kind: Any = type(policy) if hasattr(policy, 'collect_mode') else None
        self._cfg = copy.deepcopy(policy.get_attribute('cfg')) if self._kind else None
        self._model = on_cpu(policy.get_attribute('given_model') if self._kind else policy)

    def factory(self, rank: int) -> Any:
        """Returns a factory of the envs of an actor."""
        own = self.own[rank]
        limit = {'type': 'gymnasium.wrappers:TimeLimit', 'max_episode_steps': self._time_limit}
        section = {
            'env_id': own.env_fn,
            'kwargs': dict(own.env_kwargs),
            'collector_env_num': own.env_num,
            'wrappers': [limit] if self._time_limit else [],
        }
        return ENV_REGISTRY.build({'type': 'gym'}, section)

    def joined(self, more: Mapping[int, ActorArguments]) -> MakeFromPython:
        """Returns a copy that can create additional actors."""
        other = copy.copy(self)
        other.own = {**self.own, **more}
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
            return PlainFace(None, self.spec, rng, acts_at_random=True)
        return policy.random_collect_mode(rng)

    def __call__(self, rank: int, incarnation: int) -> Parts:
        """Creates envs, policy and collector."""
        seed = incarnation_seed(self._seed, rank, incarnation)
        given = self.own[rank]
        set_seed(seed)
        torch.set_num_threads(1)
        section = {**without_backend_options(given.collector, RAY_OPTIONS), 'collect_print_freq': None}
        own = rank if given.collector.get('sync', True) else rank + 1
        policy = self._policy(seed, own)
        face = self.face(policy)
        progress = Progress()
        if isinstance(face, PlainFace):
            reseed(face, seed, own)
        env = ENV_MANAGER_REGISTRY.get('base').from_factory(self.factory(rank), given.env_num)
        build = self._collector_class or functools.partial(SERIAL_COLLECTOR_REGISTRY.build, section)
        collector = build(cfg=section, env=env, policy=face, seed=seed, rank=rank, progress=progress)
        return Parts(collector, env, progress, face, self.random_face(policy, seed, rank))

    def _policy(self, seed: int, rank: int) -> Any:
        acting = copy.deepcopy(self._model)
        if self._kind is None:
            has_device = self._device is not None and hasattr(acting, 'parameters')
            return acting.to(self._device) if has_device else acting
        cfg = copy.deepcopy(self._cfg)
        assert cfg is not None  # there is one of each policy of rlframe
        cfg.device = str(self._device or 'cpu')
        cfg.cuda = None
        fields = ('collect',) if self._explores else ('collect', 'eval')
        return self._kind(cfg, self.spec, acting, fields, seed=seed, rank=rank)


def trajectories(batch: Batch) -> list[Batch]:
    """Splits rows into parts of episodes, each in the order of its steps.

    Args:
        batch: With the columns ``env_id`` and ``episode_step``, in time order for each env.
    """
    order = np.argsort(batch['env_id'], kind='stable')
    env_id, step = np.asarray(batch['env_id'])[order], np.asarray(batch['episode_step'])[order]
    begins = (np.diff(env_id) != 0) | (np.diff(step) != 1)
    return [batch[rows] for rows in np.split(order, np.flatnonzero(begins) + 1)]
