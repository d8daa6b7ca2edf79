"""Writes the description of a policy to ``policy.json``, and builds the policy from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlframe import config
from rlframe.checkpoint.tree import BAD_TREE
from rlframe.checkpoint.tree import describe as describe_error
from rlframe.data.observation import has_mask
from rlframe.data.space_json import space_from_json, space_to_json
from rlframe.data.timestep import EnvSpec
from rlframe.errors import CheckpointCorruptError
from rlframe.export.artifact import DESCRIPTION, Artifact
from rlframe.registry import MODEL_REGISTRY, POLICY_REGISTRY
from rlframe.safety.limits import remedy_of
from rlframe.utils.field import Field, Options
from rlframe.utils.lazy import LazyModule
from rlframe.utils.schema import NETWORK, loading, part, part_of

if TYPE_CHECKING:
    import torch

    from rlframe.policy import Policy
else:
    torch = LazyModule('torch')


def describe(
    policy: Policy, cfg: Mapping[str, Any], spec: EnvSpec, frame_stack: int, measured: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the content of ``policy.json``, with the policy's state as arrays and tensors.

    Args:
        policy: The policy, with its weights.
        cfg: The ``policy`` section of its config.
        spec: Spaces of the env, as the policy sees them.
        frame_stack: Observations that the policy sees at a time.
        measured: Measured returns and facts about training.
    """
    state = dict(policy.collect_mode.state_dict())
    statistics = {name: np.asarray(value).tolist() for name, value in state.pop('normalizer', {}).items()}
    return {
        'env': spec.name,
        'policy': {
            'type': cfg['type'],
            'import_names': _modules(policy),
            'options': _acting(policy, cfg),
        },
        'observation_space': space_to_json(spec.observation_space),
        'action_space': space_to_json(spec.action_space),
        'preprocessing': {
            'frame_stack': frame_stack,
            'action_mask': has_mask(spec.observation_space),
            'normalize': _normalization(cfg['normalize_obs']),
            'statistics': statistics,
        },
        'postprocessing': postprocessing(spec.action_space, has_mask(spec.observation_space)),
        'checkpoint': dict(measured),
        'state': state,
    }


CHOICES = {
    'Discrete': 'argmax of the values or logits',
    'MultiDiscrete': 'argmax of the logits of each dimension',
    'MultiBinary': 'logit > 0',
    'Box': 'mode of the distribution, or the action itself, in units of [-1, 1]',
}
"""Rule for the best action from a network's output, by the kind of the action space."""


def reaching(description: Mapping[str, Any]) -> list[config.Reaching]:
    """Returns the values in a description that reach beyond the folder, such as modules to import.

    Only modules of rlframe are imported for this.
    """
    said = description['policy']
    if not isinstance(said['type'], str):
        raise TypeError('the type of the policy is not a string')
    options, kind = said['options'], said['type']
    policy = {**options, 'type': kind, 'import_names': said['import_names']}
    model = options.get('model')
    found = list(config.named_modules({'policy': policy}))
    if config.foreign_type(kind, POLICY_REGISTRY):
        return [*found, config.Reaching('policy.type', kind, 'code')]
    if isinstance(model, Mapping) and config.foreign_type(model.get('type'), MODEL_REGISTRY):
        found.append(config.Reaching('policy.model.type', model['type'], 'code'))
    cls = POLICY_REGISTRY.get(kind)
    keys = {each.key for each in found}
    declared = config.declared_reaching(policy, cls.config_fields(), 'policy.')
    return [*found, *(each for each in declared if each.key not in keys)]


def postprocessing(space: Any, is_masked: bool = False) -> list[dict[str, Any]]:
    """Returns the steps, in order, that turn the network's output into an action for the env.

    A network counts classes from 0 and means real numbers in units of [-1, 1].

    Args:
        space: The action space.
        is_masked: Whether observations forbid actions.
    """
    written = space_to_json(space)
    steps: list[dict[str, Any]] = [{'step': 'mask', 'rule': 'never what is forbidden'}] if is_masked else []
    steps.append({'step': 'choose', 'rule': CHOICES[written['type']]})
    if space.shape:
        steps.append({'step': 'reshape', 'shape': list(space.shape)})
    if written['type'] == 'Box':
        steps.append({'step': 'clip', 'low': -1.0, 'high': 1.0})
        steps.append({'step': 'scale', 'from': [-1.0, 1.0], 'low': written['low'], 'high': written['high']})
        steps.append({'step': 'limit', 'high': written['high']})
        if space.dtype.kind != 'f':
            steps.append({'step': 'round'})
        steps.append({'step': 'cast', 'dtype': written['dtype']})
    elif 'start' in written:
        steps.append({'step': 'add', 'value': written['start']})
    return steps


class Restored(NamedTuple):
    """Parts that an artifact is loaded into."""

    policy: Policy
    spec: EnvSpec
    """Spaces of the env, as the policy sees them."""
    frame_stack: int
    """Observations that the policy sees at a time."""


def restore(artifact: Artifact, device: str | None = None, trust: bool = False) -> Restored:
    """Creates the policy of an artifact, with its weights.

    Args:
        artifact: The artifact.
        device: Its device; None: the CPU if its config says so, else CUDA if available.
        trust: Whether a foreign policy may import the modules that it names.

    Raises:
        UnsafeCheckpointError: If it names modules that may not be imported.
        CheckpointCorruptError: If the description was not written by rlframe.
        CheckpointMismatchError: If the weights belong to another network.
    """
    try:
        spec, options, state, frame_stack = _read(artifact.description)
        found = [] if artifact.manifest.is_own else reaching(artifact.description)
    except BAD_TREE as error:
        raise CheckpointCorruptError(
            f'this is not what rlframe wrote: {describe_error(error)}',
            where=str(artifact.path / DESCRIPTION),
            remedy=remedy_of(error),
        ) from error
    remedy = 'If you trust it: rlframe.load(path, trust=True).'
    config.refuse_or_tell(found, str(artifact.path), trust, remedy)
    with loading(artifact.path / DESCRIPTION), part('state'):
        policy = _created(options if device is None else {**options, 'device': device}, spec, state)
        policy.collect_mode.load_state_dict(state)
    return Restored(policy, spec, frame_stack)


def _read(said: Mapping[str, Any]) -> tuple[EnvSpec, dict[str, Any], dict[str, Any], int]:
    """Returns the spec, the policy's options and state, and the size of a stack of frames."""
    obs, action = (space_from_json(said[name]) for name in ('observation_space', 'action_space'))
    policy, before, state = said['policy'], said['preprocessing'], dict(said['state'])
    options = {**policy['options'], 'type': policy['type'], 'import_names': policy['import_names']}
    statistics = {name: np.asarray(value) for name, value in before['statistics'].items()}
    if statistics:
        state['normalizer'] = statistics
    return EnvSpec(obs, action, name=str(said['env'])), options, state, int(before['frame_stack'])


def _created(options: dict[str, Any], spec: EnvSpec, state: Mapping[str, Any]) -> Policy:
    """Creates a policy; drawing its initial weights, which are unused, leaves global generators unchanged."""
    from rlframe.pipeline.network_check import check_network
    from rlframe.policy import create_policy

    check_network(options, spec, part_of(state, 'model', NETWORK))

    with torch.random.fork_rng(devices=[]):
        return create_policy(options, spec, enable_field=('eval',))  # type: ignore[arg-type]  # any mapping serves


def _acting(policy: Policy, cfg: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those of a policy's options that its class declares, as plain values without secrets."""
    is_on_cpu = cfg['device'] == 'cpu' or cfg['cuda'] is False
    options = _declared(cfg, policy.config_fields())
    data: dict[str, Any] = config.config_data(options, {})['main_config']
    return data | {'device': 'cpu' if is_on_cpu else 'auto', 'cuda': None, 'init_from': None}


def _modules(policy: Policy) -> list[str]:
    """Returns the modules, other than rlframe's, that have the classes of a policy and its network."""
    found = {type(part).__module__ for part in (policy, policy._model)}
    return sorted(name for name in found if name.partition('.')[0] not in ('rlframe', '__main__'))


def _declared(values: Mapping[str, Any], options: Options) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, option in options.items():
        if isinstance(option, Field):
            found[name] = values[name]
        else:
            found[name] = _declared(values[name], option)
    return found


def _normalization(is_on: bool) -> dict[str, Any] | None:
    from rlframe.policy.learning.normalize import OBS_CLIP

    if not is_on:
        return None
    rule = (
        'clip((obs - mean) / (max(sqrt(var), resolution * abs(mean)) if var else 1), -clip, clip) in float64, then as'
        " float32, for each part with statistics; resolution is the machine epsilon of the part's dtype, or of float64 for integers"
    )
    return {'rule': rule, 'clip': OBS_CLIP}
