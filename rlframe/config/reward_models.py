"""The section of reward models: the forms that it may have, and what they need of the other parts of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from rlframe.config.schema import REWARD_MODELS, Component, Tree
from rlframe.errors import ConfigError
from rlframe.registry import POLICY_REGISTRY, REWARD_MODEL_REGISTRY
from rlframe.utils.component_list import chosen
from rlframe.utils.field import Field, Options, raw_items

FORM = 'dict(type=NAME, ...), a list of such, or a section for each, such as reward_model=dict(counts=dict(weight=0.1))'
NEEDED: dict[str, tuple[Any, str]] = {
    'policy.collect.collector.type': ('sample', 'steps that this run collects in envs of one player'),
    'policy.collect.collector.mark_episodes': (True, 'to tell episodes apart'),
    'policy.collect.keep_rows': (True, 'the rows that training samples are made of'),
    'policy.agent_rewards': (False, 'one reward of each step, that of the team'),
    'policy.other.replay_buffer.device': ('cpu', 'rows in main memory'),
}
"""Options that reward models need: the value, and why."""
HINDSIGHT = 'policy.other.replay_buffer.hindsight.strategy'


def reward_parts(tree: Mapping[str, Any]) -> tuple[Component, ...]:
    """Returns the reward models of a merged tree or of a compiled config; one without a type is of the type of its name."""
    section = dict(raw_items(tree)).get(REWARD_MODELS)
    return tuple(
        Component(f'{REWARD_MODELS}.{name}', (REWARD_MODELS, name), name, own_registry=REWARD_MODEL_REGISTRY)
        for name, value in (raw_items(section) if isinstance(section, Mapping) else ())
        if isinstance(value, Mapping)
    )


def open_reward_models(tree: Tree, errors: list[ConfigError]) -> None:
    """Turns the section of reward models, which may be one of them or a list, into a dict by their names."""
    given = tree.pop(REWARD_MODELS, None)
    remedy = ''
    if isinstance(given, Mapping) and not isinstance(given.get('type'), str):
        pairs = [(name, {} if value is True else value) for name, value in raw_items(given)]
    else:
        given = _with_own_section(given)
        try:
            pairs = [(name, {'type': name, **options}) for name, options in chosen(given)]
        except ConfigError as error:
            pairs = [('', None)]
            remedy = error.message if isinstance(given, str) else ''
    found: Tree = {}
    for name, options in pairs:
        if not isinstance(options, Mapping):
            where = f'{REWARD_MODELS}.{name}' if name else REWARD_MODELS
            got = options if name else given
            errors.append(ConfigError('bad value', where=where, got=got, expected=FORM, remedy=remedy))
        elif name in found:
            remedy = (
                f'Give them names: {REWARD_MODELS}=dict(one=dict(type={name!r}), other=dict(type={name!r})).'
            )
            message = f'two reward models are called {name!r}'
            errors.append(ConfigError(message, where=REWARD_MODELS, remedy=remedy))
        else:
            found[name] = dict(options)
    if found:
        tree[REWARD_MODELS] = found


def _with_own_section(given: Any) -> Any:
    """Returns one reward model with the options of its own section, as overrides of ``reward_model.NAME.OPTION`` set them."""
    if not isinstance(given, Mapping):
        return given
    name = given['type']
    own = given.get(name)
    if not isinstance(own, Mapping):
        return given
    return {key: value for key, value in raw_items(given) if key != name} | dict(raw_items(own))


def keep_rows(collect: Options, tree: Tree) -> None:
    """Lets training samples carry what the reward models of a tree read."""
    collector = collect.get('collector', {})
    infos = [name for _, options in raw_items(tree[REWARD_MODELS]) for name in options.get('infos') or ()]
    defaults = (
        (collect, 'keep_rows', True),
        (collector, 'mark_episodes', True),
        (collector, 'info_columns', list(dict.fromkeys(infos))),
    )
    for section, name, default in defaults:
        field = section.get(name)
        if isinstance(field, Field) and not field.choices:
            section[name] = dataclasses.replace(field, default=default)


def pays_rows(known: Mapping[str, Any], is_recurrent: bool) -> Iterator[ConfigError]:
    """Returns errors for what reward models need: single steps in the order of time, where the policy learns.

    Args:
        known: Dotted keys to values of the options that are valid by themselves.
        is_recurrent: Whether the policy sums rewards of several steps itself.
    """
    keys = [key for key in known if key.startswith(f'{REWARD_MODELS}.') and key.endswith('.type')]
    if not keys:
        return
    needed = dict(NEEDED)
    if not is_recurrent and not known.get(HINDSIGHT):
        needed['policy.nstep'] = (1, 'rewards of single steps')
    kinds = [REWARD_MODEL_REGISTRY.get(known[key]) for key in keys if known[key] in REWARD_MODEL_REGISTRY]
    if any(kind.replaces_reward for kind in kinds):
        needed['policy.normalize_reward'] = (False, "no statistics of the env's rewards, which it replaces")
    for key, (valid, what) in needed.items():
        got = known.get(key, valid)
        if got != valid:
            message = f'a reward model ({keys[0].removesuffix(".type")}) needs {what}'
            yield ConfigError(message, where=key, got=got, expected=repr(valid))
    name = known.get('policy.type', '')
    policy: Any = POLICY_REGISTRY.get(name) if name in POLICY_REGISTRY else None
    if policy is not None and policy.samples_rounds and policy.replays_sequences:
        message = f'{name} learns from sequences of whole rounds, which no reward model can pay'
        yield ConfigError(message, where='policy.type', got=name, remedy='Leave reward_model out.')
