"""Translates DI-engine's configs, which have the same two parts but different keys, types and defaults.

``ding_table`` holds the correspondences, ``ding_convert`` the conversions that a table cannot express. Neither
DI-engine nor the modules that its configs name are imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rlframe.config import ding_convert, ding_table, ding_teams
from rlframe.config.components import MISSING, full_key, plain_type, section_at
from rlframe.config.ding_convert import SYSTEM, Change, Draft
from rlframe.config.ding_data import DEMONSTRATED, demonstrations, imitator, recorded_data
from rlframe.config.ding_reward import COUNTERPARTS, reward_model, type_of
from rlframe.config.rules import EXPERT
from rlframe.config.schema import ALL_COMPONENTS, REWARD_MODELS, Tree
from rlframe.errors import ConfigError
from rlframe.registry import ENV_REGISTRY, POLICY_REGISTRY
from rlframe.utils.field import raw_items, to_plain

PARALLEL_TYPES = ('zergling', 'marine')
"""Collectors of DI-engine's parallel mode, which it names in the section ``collector``."""


class Translation(NamedTuple):
    """A DI-engine config in rlframe's terms."""

    main_config: Tree
    create_config: Tree
    changes: tuple[Change, ...]
    """All changes, in order."""


def is_ding(create_config: Mapping[str, Any], main_sections: Iterable[Any] = ()) -> bool:
    """Whether a config is DI-engine's.

    It imports DI-engine's modules, has an env or collector type of DI-engine, or a ``system_config`` among the sections of its
    ``main_config``.
    """
    if SYSTEM in main_sections:
        return True
    if not isinstance(create_config, Mapping):
        return False
    sections = [value for _, value in raw_items(create_config) if isinstance(value, Mapping)]
    names = [name for section in [create_config, *sections] for name in _import_names(section)]
    if any(map(_is_dings, names)) or section_at(create_config, ['collector']).get('type') in PARALLEL_TYPES:
        return True
    kind = section_at(create_config, ['env']).get('type')
    is_dizoos = isinstance(kind, str) and kind in ding_table.ENVS and kind not in ENV_REGISTRY.names()
    return is_dizoos and not names


def from_ding(
    main_config: Mapping[str, Any],
    create_config: Mapping[str, Any],
    overrides: Sequence[str] | Mapping[str, Any] = (),
    parallel: bool = False,
) -> Translation:
    """Translates a DI-engine config; the pair itself is not changed.

    Values are kept unless the unit differs. Missing options get DI-engine's defaults. Unknown keys are passed on, so
    that ``compile_config`` reports misspelt ones.

    ``overrides``, in rlframe's keys, will be applied to the result; with an ``env.env_id`` among them, any env type is
    accepted. ``parallel``: whether a config of DI-engine's parallel mode is translated to rlframe's, or to Ray actors.

    Raises:
        ConfigError: If its policy, env or reward model is unknown to rlframe.
    """
    draft = Draft(to_plain(main_config), to_plain(create_config))
    _read_types(draft)
    ding_teams.team(draft)
    draft.is_parallel = parallel and any(isinstance(draft.create.get(name), dict) for name in ding_table.COMM)
    is_own = _drop_imports(draft)
    draft.policy = _policy(draft, is_own)
    for where, message, remedy in _other_learning(draft):
        raise ConfigError(message, where=where, remedy=f'{remedy} {ding_table.LISTED}')
    _translate_types(draft)
    overridden = {full_key(str(text).partition('=')[0].strip()) for text in overrides}
    _translate_env(draft, overridden, is_own)
    for convert in (ding_convert.run_name, recorded_data, reward_model, demonstrations, *ding_convert.FIRST):
        convert(draft)
    _apply_tables(draft)
    for convert in ding_convert.LAST:
        convert(draft)
    return Translation(draft.main, draft.create, tuple(draft.changes))


def summary(changes: Iterable[Change]) -> str:
    """Returns the changes of a translation as one text, a line for each kind."""
    lines = ['this DI-engine config was translated; docs/from_ding.md lists what behaves differently']
    unused: dict[str, list[str]] = {}
    defaults: dict[str, Any] = {}
    for change in changes:
        if not change.key:
            defaults |= change.became
        elif change.became:
            lines.append(str(change))
        else:
            unused.setdefault(change.reason, []).append(change.key)
    lines += [f'not used: {", ".join(keys)} ({reason})' for reason, keys in unused.items()]
    if defaults:
        lines.append(str(Change('', None, defaults, "DI-engine's defaults")))
    return '\n  '.join(lines)


def _read_types(draft: Draft) -> None:
    """Moves types under DI-engine's keys, such as ``comm_learner_type``, to ``create_config``."""
    for name in ding_table.TYPED:
        places = {place: section_at(draft.main, place.split('.')) for place in ding_table.TYPE_PLACES}
        places[f'create_config.{name}'] = section_at(draft.create, [name])
        for place, section in places.items():
            key = f'{name}_type'
            if key not in section or not isinstance(section, dict):
                continue
            kind = section.pop(key)
            draft.create[name] = {'type': kind, **section_at(draft.create, [name])}
            draft.say(f'{place}.{key}', kind, {f'create_config.{name}.type': kind}, '')


def _import_names(section: Mapping[str, Any]) -> list[Any]:
    names = section.get('import_names')
    return list(names) if isinstance(names, list | tuple) else []


def _is_dings(name: Any) -> bool:
    return isinstance(name, str) and name.partition('.')[0] in ('ding', 'dizoo')


def _drop_imports(draft: Draft) -> bool:
    """Removes DI-engine's modules from ``import_names``; returns whether the config imports other modules."""
    is_own = False
    sections = [(f'create_config.{name}.', below) for name, below in draft.create.items()]
    paths = [*(part.path for part in ALL_COMPONENTS), ('policy', 'model')]
    sections += [('.'.join(path) + '.', section_at(draft.main, path)) for path in paths]
    for where, section in [('create_config.', draft.create), *sections]:
        if not isinstance(section, dict) or not (names := _import_names(section)):
            continue
        kept = [name for name in names if not _is_dings(name)]
        is_own = is_own or bool(kept)
        if kept != names:
            section['import_names'] = kept
            reason = "DI-engine's modules are never imported"
            draft.say(f'{where}import_names', names, {}, reason)
    return is_own


def _policy(draft: Draft, is_own: bool) -> str:
    """Returns rlframe's name of the policy.

    Raises:
        ConfigError: If it is unknown to rlframe, and the config imports no module that could register it.
    """
    given = draft.kind('policy')
    name = plain_type(given)
    if isinstance(name, str):
        name = imitator(draft, ding_table.type_here('r2d2' if name == 'ngu' else name))
    if isinstance(name, str) and name not in POLICY_REGISTRY.names() and not is_own:
        instead = ding_table.INSTEAD.get(name, '')
        known = f'Policies here: {", ".join(POLICY_REGISTRY.names())}.'
        raise ConfigError(
            f"DI-engine's policy {given!r} does not exist in rlframe",
            where='policy.type',
            remedy=f'{instead} {known}'.strip(),
        )
    draft.set_kind('policy', name, '')
    return name if isinstance(name, str) else ''


def _other_learning(draft: Draft) -> Iterator[tuple[str, str, str]]:
    """Yields keys that would select another algorithm here: the key, the reason and the remedy."""
    for name, what in ding_table.OTHER_LEARNING.items():
        if name == REWARD_MODELS and type_of(draft) in COUNTERPARTS:
            continue
        if name in draft.create or name in draft.main:
            where = f'create_config.{name}' if name in draft.create else name
            message = f"DI-engine's {what} does not exist in rlframe, and training without it would be a different algorithm"
            yield where, message, 'Leave it out of both configs.'
    for key, (message, remedy) in ding_table.OTHER_RUNS.items():
        if draft.policy in DEMONSTRATED or (key == EXPERT and type_of(draft) in COUNTERPARTS):
            continue
        if draft.get(key) not in (MISSING, None):
            yield key, message, remedy
    spaces = draft.get('policy.action_space'), draft.get('policy.model.action_space')
    if 'hybrid' in spaces:
        fitting = ding_table.with_hybrid_actions()
        if draft.policy not in fitting:
            remedy = f'These have them: {", ".join(fitting)}.'
            yield 'policy.action_space', f'{draft.policy} has no hybrid actions', remedy
    if draft.get('policy.multi_agent') is True:
        message = 'a critic that sees what all agents see needs a team'
        remedy = '--env team:GAME makes one of a game of PettingZoo, and mappo, qmix, vdn and wqmix train it.'
        yield 'policy.multi_agent', message, remedy


def _translate_types(draft: Draft) -> None:
    if draft.is_parallel:
        _translate_collector(draft)
    unused = {} if draft.is_parallel else dict.fromkeys(ding_table.PARALLEL, ding_table.NO_COORDINATOR)
    is_on_policy = 'on-policy' in ding_table.kinds_of(draft.policy)
    if is_on_policy:
        unused['replay_buffer'] = ding_table.NO_BUFFER
    for name, reason in unused.items():
        if draft.create.pop(name, None) is not None:
            draft.say(f'create_config.{name}', None, {}, reason)
    for name, types in ding_table.TYPES.items():
        given = draft.kind(name)
        if isinstance(given, str) and given in types:
            draft.set_kind(name, types[given], '' if given == 'zergling' else 'the same, renamed')
            if given == 'zergling':
                is_sync = is_on_policy and not POLICY_REGISTRY.get(draft.policy).corrects_lag
                put: dict[str, Any] = {'backend': 'ray'} | ({} if is_sync else {'sync': False})
                new = {f'policy.collect.collector.{key}': value for key, value in put.items()}
                reason = 'Ray actors collect while the learner learns'
                draft.replace('create_config.collector.type', given, new, reason)


def _translate_collector(draft: Draft) -> None:
    """Splits DI-engine's parallel collector into the parallel collector and the serial one that it drives."""
    given = draft.kind('collector')
    if given not in PARALLEL_TYPES:
        return
    serial = 'sample' if given == 'zergling' else 'sample_1v1'
    draft.create['parallel_collector'] = {'type': given}
    draft.set_kind('collector', serial, '')
    became = {'create_config.parallel_collector.type': given, 'create_config.collector.type': serial}
    if given == 'marine' and 'evaluator' not in draft.create:
        draft.create['evaluator'] = {'type': 'battle_interaction'}
        became['create_config.evaluator.type'] = 'battle_interaction'
    draft.say('create_config.collector.type', given, became, 'it drives a serial collector and an evaluator')


def _translate_id(draft: Draft) -> None:
    """Replaces the id of an env by the one that Gymnasium has today, and that of data by their env."""
    named = draft.get('env.env_id')
    if not isinstance(named, str):
        return
    of_data = ding_table.OF_DATA.get(named.partition('-')[0]) if draft.kind('env') == 'd4rl' else None
    if of_data is not None:
        reason = 'the env of these data; policy.collect.collector.data names the data'
        draft.replace('env.env_id', named, {'env.env_id': of_data}, reason)
    elif named in ding_table.OLD_IDS:
        new = ding_table.OLD_IDS[named]
        reason = (
            "rlframe's env with the same rules" if '/' in new else 'Gymnasium no longer has the old version'
        )
        draft.replace('env.env_id', named, {'env.env_id': new}, reason)


def _translate_env(draft: Draft, overridden: set[str], is_own: bool) -> None:
    """Replaces dizoo's env type by the Gymnasium env that it wraps.

    Raises:
        ConfigError: If no Gymnasium env is known for it.
    """
    # old ids
    kind = draft.kind('env')
    named = draft.get('env.env_id')
    _translate_id(draft)
    # types of envs of dizoo
    if not isinstance(kind, str) or kind in ENV_REGISTRY.names() or (is_own and kind not in ding_table.ENVS):
        return
    draft.set_kind('env', 'gym', '')
    for name in ding_table.ARGUMENTS.get(kind, ()):
        if (value := draft.take(f'env.{name}')) is not MISSING:
            draft.replace(f'env.{name}', value, {f'env.kwargs.{name}': value}, '')
    if kind == 'pendulum':
        ding_convert.torque_levels(draft)
    # the id
    if 'env.env_id' in overridden:
        return
    if env_id := ding_table.ENVS.get(kind) if named is MISSING else None:
        reason = 'the env that dizoo wraps'
        draft.replace('create_config.env.type', kind, {'env.env_id': env_id}, reason)
    elif named is MISSING:
        raise ConfigError(
            f"no Gymnasium env is known for DI-engine's env type {kind!r}",
            where='env.type',
            remedy="Name one: env.env_id='...', and add dizoo's wrappers by env.wrappers.",
        )
    elif kind not in ding_table.ENVS:
        reason = "the Gymnasium env without dizoo's wrappers, which env.wrappers can add"
        draft.say('create_config.env.type', kind, {'env.env_id': draft.get('env.env_id')}, reason)


def _apply_tables(draft: Draft) -> None:
    for old, new in ding_table.renamed(draft.policy):
        value = draft.take(old)
        if value is not MISSING:
            draft.replace(old, value, {new: value}, '')
    for key, reason in ding_table.unused(draft.policy):
        if draft.is_parallel and key in ding_table.KEPT:
            continue
        value = draft.take(key)
        if value is not MISSING:
            draft.say(key, value, {}, reason)
    defaults = ding_table.defaults(draft.policy)
    if draft.get('policy.eval.evaluator.n_episode') is not MISSING:
        defaults.pop('env.n_evaluator_episode')
    draft.fill(defaults)
