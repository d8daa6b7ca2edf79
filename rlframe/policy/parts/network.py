"""The network of a policy: its options, and the arguments of its constructor."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from rlframe.data.observation import NamedEncoder
from rlframe.errors import ConfigError
from rlframe.registry import MODEL_REGISTRY
from rlframe.utils.field import Options, ResolvedConfig, merge_fields
from rlframe.utils.harmless import is_same

SWITCHES = (
    *('core', 'norm', 'dropout', 'weight_norm', 'residual_blocks', 'n_atom'),
    *('critic_hidden_size_list', 'critic_obs'),
)
"""Options of a section ``model`` that are arguments of a network only if they are set: networks of users may know none."""


def own_fields(declared: Options, kind: Any) -> Options:
    """Returns the options of the section ``model`` for a network of the user, whose own defaults have precedence."""
    if hasattr(kind, 'config_fields'):
        return {**declared, **kind.config_fields()}
    arguments = inspect.signature(kind).parameters.values()
    own = {each.name: each.default for each in arguments if each.default is not each.empty}
    return merge_fields(declared, {name: own[name] for name in own.keys() & declared})


def without_own_model(cfg: Any) -> tuple[Any, Mapping[str, Any] | None]:
    """Splits options of a policy that were not compiled: into the rest, and the section ``model`` of a network of the user."""
    is_plain = isinstance(cfg, Mapping) and not isinstance(cfg, ResolvedConfig)
    model = cfg.get('model') if is_plain else None
    name = model.get('type') if isinstance(model, Mapping) else None
    if name is None or MODEL_REGISTRY.is_builtin(name):
        return cfg, None
    return {key: value for key, value in cfg.items() if key != 'model'}, model


def network_options(
    model: Mapping[str, Any], fields: Options, kind: Any, names: Mapping[str, str | None]
) -> dict[str, Any]:
    """Returns the arguments of a network's constructor in a ``model`` section.

    An option that has its default, and that the constructor of the network, ``kind``, does not know, is not passed.
    ``names`` are options that the network has under another name; None: it is not given them.
    """
    used = ('type', 'import_names', 'obs_shape', 'action_shape', 'encoder', 'encoder_width')
    options = {name: value for name, value in model.items() if name not in used}
    if options.get('core', '') is None:
        del options['core_hidden_size']
    options = {
        name: value for name, value in options.items() if value not in (None, 0) or name not in SWITCHES
    }
    if (name := model.get('encoder', 'auto')) != 'auto':
        options['conv_layers'] = NamedEncoder(name, model['encoder_width'])
    arguments = inspect.signature(kind).parameters
    takes_all = any(each.kind is each.VAR_KEYWORD for each in arguments.values())
    found = {}
    for key, value in options.items():
        argument = names.get(key, key)
        is_default = key in fields and is_same(value, fields[key].default)
        if argument is not None and (takes_all or argument in arguments or not is_default):
            found[argument] = value
    return found


def create_network(policy: Any, **other: Any) -> Any:
    """Returns the network of a policy, or one with other arguments.

    Raises:
        ConfigError: If its constructor does not take the arguments; with the policy, and the name of the network.
    """
    section = chosen_network(policy)
    kind = MODEL_REGISTRY.get_cls(section)
    kwargs = policy.model_kwargs() | other
    try:
        inspect.signature(kind).bind(**kwargs)
    except TypeError as error:
        message = f'{type(policy).__name__} cannot use the network {section["type"]!r}: {error}'
        raise ConfigError(message, where='policy.model.type') from error
    return kind(**kwargs)


def chosen_network(policy: Any) -> dict[str, Any]:
    """Returns the section ``model`` of a policy with the name of its network as ``type``."""
    section = policy._cfg.model
    return {**section, 'type': section.type or policy.default_model()}
