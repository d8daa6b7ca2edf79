"""Checks the arguments of a RayCollector and converts them to what its actors need."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlframe.backend.ray.actors.actor import reseed
from rlframe.backend.ray.actors.options import without_ray_options
from rlframe.backend.ray.actors.weights import on_cpu
from rlframe.backend.ray.constructor.compat import FORM, OF_TENSORDICTS, within_bounds
from rlframe.backend.ray.constructor.lists import per_actor
from rlframe.data.batch import Batch
from rlframe.data.timestep import Array, EnvSpec, IntArray, TimeStep
from rlframe.errors import ConfigError
from rlframe.registry import ENV_MANAGER_REGISTRY, ENV_REGISTRY, SERIAL_COLLECTOR_REGISTRY
from rlframe.run.progress import Progress
from rlframe.utils.arithmetic import aligned
from rlframe.utils.bit_state import checked_bits
from rlframe.utils.lazy import LazyModule
from rlframe.utils.seed import component_rng, incarnation_seed, set_seed
from rlframe.worker.collector.counted import Parts

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
