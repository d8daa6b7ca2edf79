"""Checks which policies can act in which envs, from the declarations of the policies' classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from easydict import EasyDict

from rlframe.data.observation import ACTION_MASK, check_maskable, fields_of, has_mask, mask_parts
from rlframe.data.timestep import EnvSpec, FloatArray, IntArray
from rlframe.errors import ConfigError, IncompatibleError
from rlframe.policy.parts.normalize import Normalizer
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.lazy import LazyModule
from rlframe.utils.schema import GENERATOR, array, check_state

if TYPE_CHECKING:
    from rlframe.policy.base_policy import Policy

torch = LazyModule('torch')


class Acting(NamedTuple):
    """State that acting changes, excluding the weights: sent to a copy that acts, and back."""

    state: Callable[[], dict[str, Any]]
    load_state: Callable[[Mapping[str, Any]], None]
    statistics: Callable[[], dict[str, Any]]
    """Running statistics, which copies gather apart."""
    absorb: Callable[[Mapping[str, Any], Mapping[str, Any]], None]
    """Adds the statistics that a copy gathered between two calls of ``statistics``."""


class ActingState:
    """The part of a policy that acting changes: its generator, recurrent states, running statistics."""

    _cfg: Any
    _rng: np.random.Generator
    _normalizer: Normalizer

    def _acting_state(self) -> dict[str, Any]:
        """Returns the acting state, as part of the policy's state."""
        return {**self._normalizer.state_dict(running=True), 'rng': self._rng.bit_generator.state}

    def _load_acting_state(self, state: Mapping[str, Any]) -> None:
        """Continues from ``_acting_state()``."""
        check_state(state, {'rng': GENERATOR})
        self._normalizer.load_state_dict(state)
        self._rng.bit_generator.state = state['rng']

    def _get_acting(self) -> Acting:
        normalizer = self._normalizer
        return Acting(self._shared_state, self._load_shared_state, normalizer.state_dict, normalizer.absorb)

    def _shared_state(self) -> dict[str, Any]:
        state = self._acting_state()
        if self._cfg.model.get('noisy'):  # noise in the weights comes from torch's global generator
            state['torch'] = torch.get_rng_state()
        return state

    def _load_shared_state(self, state: Mapping[str, Any]) -> None:
        self._load_acting_state(state)
        if 'torch' in state:
            torch.set_rng_state(state['torch'])


class EpisodeStates:
    """Keeps one recurrent state for each env's running episode; an episode begins with zeros.

    Args:
        shape: Shape of a state.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._states: FloatArray = np.zeros((0, *shape), np.float32)

    def get(self, env_id: IntArray) -> FloatArray:
        """Returns a copy of the states of these envs, float32 [n, ...]."""
        missing = int(env_id.max(initial=-1)) + 1 - len(self._states)
        if missing > 0:
            new = np.zeros((missing, *self._states.shape[1:]), np.float32)
            self._states = np.concatenate([self._states, new])
        return self._states[env_id]

    def set(self, env_id: IntArray, states: FloatArray) -> None:
        """Replaces the states of these envs, of all of which ``get`` was asked before."""
        self._states[env_id] = states

    def reset(self, env_id: IntArray | None = None) -> None:
        """Lets these envs, or all, begin an episode."""
        known: Any = slice(None)
        if env_id is not None:
            env_id = np.asarray(env_id)
            known = env_id[env_id < len(self._states)]
        self._states[known] = 0.0

    def state_dict(self) -> dict[str, Any]:
        """Returns a copy of all states."""
        return {'states': self._states.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        check_state(state, {'states': array('f', (None, *self._states.shape[1:]))})
        self._states = np.array(state['states'], np.float32)


def misfit(policy: type[Policy], spec: EnvSpec) -> str:
    """Names the property of an env that a policy does not support, or returns an empty string."""
    obs, action = spec.observation_space, spec.action_space
    if type(action).__name__ not in policy.supported_actions.split(', '):
        return f'its action space is {action!r}'
    if has_mask(obs) and not (policy.supports_action_mask and mask_parts(action)):
        return 'it forbids actions by an action mask'
    if not has_mask(obs) and type(obs).__name__ not in policy.supported_observations.split(', '):
        return f'its observation space is {obs!r}'
    return ''


def fitting(spec: EnvSpec) -> list[str]:
    """Returns the names of the registered policies that can act in an env."""
    return [name for name in POLICY_REGISTRY.names() if not misfit(_class(name), spec)]


def check_fit(policy: type[Policy], spec: EnvSpec) -> None:
    """Checks that a policy can act in an env.

    Raises:
        IncompatibleError: If it cannot; with the spaces of policy and env, and the policies that fit.
    """
    check_maskable(spec)
    if not (what := misfit(policy, spec)):
        return
    serves = f'{policy.supported_actions}. Observations: {policy.supported_observations}'
    masks = 'obeyed' if policy.supports_action_mask else 'not obeyed'
    names = fitting(spec)
    fits = f'Policies that fit: {", ".join(names)}' if names else 'No registered policy fits'
    raise IncompatibleError(
        f'{policy.__name__} cannot act in {spec.name}: {what}',
        where='policy.type',
        remedy=f'Supported: {serves}. Action masks: {masks}. {fits}.{_wrapper_for(policy, spec)}',
    )


def check_sizes(spec: EnvSpec, model: EasyDict) -> None:
    """Checks that sizes given in the ``model`` section are the env's.

    Raises:
        ConfigError: If one differs.
    """
    obs = fields_of(spec.observation_space)['observation'] if _is_moved(spec) else spec.observation_space
    for name, space in (('obs_shape', obs), ('action_shape', spec.action_space)):
        given, real = model.get(name), _shape_of(space)
        if given is not None and (tuple(given) if not isinstance(given, int) else (given,)) != real:
            raise ConfigError(
                f'the env {spec.name} has {name} {list(real) if real is not None else repr(space)}',
                where=f'policy.model.{name}',
                got=given,
                expected=f'{list(real)}' if real is not None else 'None',
                remedy='Leave it out to take it from the env.',
            )


def _class(name: str) -> type[Policy]:
    found = POLICY_REGISTRY.get(name)
    return found


def _is_moved(spec: EnvSpec) -> bool:
    """Whether the observations consist of the env's own and an action mask."""
    return set(fields_of(spec.observation_space)) == {'observation', ACTION_MASK}


def _shape_of(space: Any) -> tuple[int, ...] | None:
    """Returns the shape of a space, None if it has parts; for a Discrete one the number of classes."""
    if hasattr(space, 'start') and hasattr(space, 'n'):
        return (int(space.n),)
    return None if space.shape is None else tuple(space.shape)


def _wrapper_for(policy: type[Policy], spec: EnvSpec) -> str:
    kind = type(spec.observation_space).__name__
    supported = policy.supported_observations.split(', ')
    if kind in supported or 'Box' not in supported or has_mask(spec.observation_space):
        return ''
    return " gymnasium.wrappers.FlattenObservation (env.wrappers=['FlattenObservation']) makes a Box of it."
