"""Checks which policies can act in which envs, from the declarations of the policies' classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from easydict import EasyDict

from rlframe.data.observation import (
    ACTION_MASK,
    check_maskable,
    fields_of,
    has_mask,
    lacks_part,
    mask_parts,
    part_owner,
    zero_obs,
)
from rlframe.data.team import ACTING, LEARNING, REWARDS, is_team
from rlframe.data.timestep import EnvSpec
from rlframe.errors import ConfigError, IncompatibleError
from rlframe.registry import POLICY_REGISTRY, nearest
from rlframe.utils.lazy import torch

if TYPE_CHECKING:
    from rlframe.policy.base_policy import Policy


WITH_INFO = 'rlframe.envs.wrappers:InfoObservation'
"""The wrapper that makes a part of observations from what an env tells beside."""


def misfit(policy: type[Policy], spec: EnvSpec) -> str:
    """Names the property of an env that a policy does not support, or returns an empty string."""
    obs, action = spec.observation_space, spec.action_space
    if fields_of(action) or type(action).__name__ in ('Dict', 'Tuple'):
        from rlframe.data.composite import bad_part

        return f'a part of its actions has no distribution: {bad_part(action)}'
    if not names_of_space(action) & set(policy.supported_actions.split(', ')):
        return f'its action space is {action!r}'
    if has_mask(obs) and not (policy.supports_action_mask and mask_parts(action)):
        return 'it forbids actions by an action mask'
    if not has_mask(obs) and type(obs).__name__ not in policy.supported_observations.split(', '):
        return f'its observation space is {obs!r}'
    return ''


def names_of_space(action: Any) -> set[str]:
    """Returns the names under which a policy may support an action space; Hybrid is one Discrete and Boxes."""
    if type(action).__name__ != 'Composite':
        return {type(action).__name__}
    from rlframe.data.composite import hybrid_of

    return {'Dict', 'Tuple'} if hybrid_of(action) is None else {'Dict', 'Tuple', 'Hybrid'}


def fitting(spec: EnvSpec) -> list[str]:
    """Returns the names of the registered policies that can act in an env."""
    return [name for name in POLICY_REGISTRY.names() if not misfit(POLICY_REGISTRY.get(name), spec)]


def check_fit(policy: type[Policy], spec: EnvSpec, among: Sequence[str] | None = None) -> None:
    """Checks that a policy can act in an env; ``among`` are the policies that the error may propose, None: all.

    Raises:
        IncompatibleError: If it cannot; with the spaces of policy and env, and the policies that fit.
    """
    check_maskable(spec)
    if not (what := misfit(policy, spec)):
        return
    serves = f'{policy.supported_actions}. Observations: {policy.supported_observations}'
    masks = 'obeyed' if policy.supports_action_mask else 'not obeyed'
    names = [name for name in fitting(spec) if among is None or name in among]
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
        given = model.get(name)
        real = _shape_of(space)
        if given is not None and (tuple(given) if not isinstance(given, int) else (given,)) != real:
            raise ConfigError(
                f'the env {spec.name} has {name} {list(real) if real is not None else repr(space)}',
                where=f'policy.model.{name}',
                got=given,
                expected=f'{list(real)}' if real is not None else 'None',
                remedy='Leave it out to take it from the env.',
            )


def check_critic_obs(spec: EnvSpec, model: EasyDict) -> None:
    """Checks that the actor can do without the part of the observations that only critics read.

    Raises:
        IncompatibleError: If it cannot.
    """
    name = model.get('critic_obs')
    space = spec.observation_space
    if name is None or lacks_part(space, name):
        return
    owner: Any = space
    for step in part_owner(space, name) or ():
        owner = owner[step]
    if name != ACTION_MASK and fields_of(owner).keys() - {name, ACTION_MASK}:
        return
    reason = 'the actor obeys it' if name == ACTION_MASK else 'then the actor reads nothing'
    raise IncompatibleError(
        f'only critics are to read this part of the observations of {spec.name}, but {reason}',
        where='policy.model.critic_obs',
        got=name,
        expected='a part beside those that the actor needs',
    )


def learning_parts(policy: type[Policy], spec: EnvSpec, cfg: Any) -> tuple[str, ...]:
    """Returns the parts of observations that only learning reads: evaluations and exported policies do without them."""
    name = cfg.model.get('critic_obs')
    if not policy.is_for_teams:
        return () if name is None else (name,)
    if not is_team(spec):
        return ()
    return LEARNING if name is None or name in (*LEARNING, *ACTING) else (*LEARNING, name)


def demand_learning_parts(policy: Policy) -> None:
    """Checks that the observations that a policy learns from have the parts that only learning reads.

    Raises:
        IncompatibleError: If they have not; with the nearest part, and how an env gets one.
    """
    space = policy.spec.observation_space
    names = learning_parts(type(policy), policy.spec, policy._cfg)
    read = policy._cfg.model.get('critic_obs')
    if read is not None and is_team(policy.spec):
        names = (*names, read)
    # rewards of agents are asked for by an option of its own
    names = tuple(name for name in names if name != REWARDS)
    name = next((name for name in names if lacks_part(space, name)), None)
    if name is None:
        return
    is_own = name == read
    parts = fields_of(fields_of(space)['observation'] if _is_moved(policy.spec) else space)
    known = [part for part in parts if part != ACTION_MASK]
    raise IncompatibleError(
        f'the observations of {policy.spec.name} have no such part.{nearest(name, known)}'.rstrip('.'),
        where='policy.model.critic_obs' if is_own else 'env.env_id',
        got=name,
        expected=f'one of {known}' if known else 'the name of a part of a Dict',
        remedy=f"To add info[{name!r}]: env.wrappers=[dict(type='{WITH_INFO}', key={name!r})]; key='state()' adds what the env's"
        " own state() returns, as the part 'state'.",
    )


def demand_acting_parts(policy: Policy) -> None:
    """Checks that observations have parts in evaluation if those of training had one that only critics read.

    Raises:
        IncompatibleError: If they have none.
    """
    name = policy._cfg.model.get('critic_obs')
    space = policy.spec.observation_space
    if name is None or policy.is_for_teams or fields_of(space):
        return
    raise IncompatibleError(
        f'the observations of training were a Dict, of which only critics read the part {name!r}, and those of {policy.spec.name}'
        ' have no parts',
        where='env.wrappers',
        got=repr(space),
        expected='a Dict with the parts that the actor reads',
        remedy='Evaluate with the wrapper that made the parts in training.',
    )


def check_network(policy: Policy) -> None:
    """Lets a custom network read two observations of zeros.

    Raises:
        IncompatibleError: If it cannot read observations of the env, or its output does not fit the actions.
    """
    network, spec, name = policy.model, policy.spec, type(policy).__name__
    kind, was_training = type(network).__name__, network.training
    obs = policy.tensor(zero_obs(spec.observation_space, 2))
    network.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            output, size = policy._acting_output(obs)
    except (RuntimeError, TypeError, ValueError, AttributeError, LookupError) as error:
        raise IncompatibleError(
            f'the network {kind} cannot act on observations of {spec.observation_space}: {error}',
            where='policy.model',
        ) from error
    finally:
        network.train(was_training)
    if tuple(output.shape[:2]) == (2, size):
        return
    raise IncompatibleError(
        f'the output of the network {kind} does not fit {name} and {spec.action_space}',
        where='policy.model',
        got=list(output.shape),
        expected=f'[2, {size}] for two observations',
    )


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
