"""``rlframe explain`` and ``rlframe list``: the options and components that a word means, as plain data and as text."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rlframe import config
from rlframe.config.components import find_schema, options_of
from rlframe.config.schema import (
    ALL_COMPONENTS,
    BACKENDS,
    HOOKS,
    PARALLEL,
    PARALLEL_FIELDS,
    REWARD_MODELS,
    ROLES,
    TOP,
)
from rlframe.display.text import program, row, wrapped
from rlframe.errors import ConfigError
from rlframe.option_names import SYNONYMS, by_last_part, hint_of
from rlframe.registry import (
    BACKEND_REGISTRY,
    PARALLEL_COMMANDER_REGISTRY,
    PLUGINS,
    REGISTRIES,
    Registry,
    nearest_name,
)
from rlframe.utils.field import REQUIRED, Field, to_plain

SECTIONS = {'model': 'policy.model'} | {part.name: part.key for part in ALL_COMPONENTS}
"""Kind of component to its section in a config; learner hooks have no section."""
NAMED = {'run_hook': HOOKS, 'reward_model': REWARD_MODELS}
"""Kinds of components that a config names, with the section that has a section for each."""
RUN = 'every run'
"""Owner of the options that belong to no component."""
Facts = Mapping[str, Any]

MOST_IN_FULL = 3
"""Options explained in full; of more, each gets one or two lines."""
MOST_NAMES = 8
"""Names of other frameworks that are shown."""


class Declared(NamedTuple):
    """An option as one component declares it."""

    key: str
    """Dotted key."""
    component: str
    """Kind and name of the component, such as ``policy dqn``."""
    field: Field
    """The declaration."""


def flat_fields(options: Mapping[str, Any], prefix: str = '') -> list[tuple[str, Field]]:
    """Returns the dotted key of every option, in the order of declaration, sections behind plain options."""
    rows = [(prefix + name, option) for name, option in options.items() if isinstance(option, Field)]
    for name, option in options.items():
        if not isinstance(option, Field):
            rows += flat_fields(option, f'{prefix}{name}.')
    return rows


def options_of_config(cfg: Any) -> dict[str, Field]:
    """Returns the options of a compiled config by dotted keys."""
    return dict(flat_fields(find_schema(to_plain(cfg), [])[1]))


def registry_of(kind: str, name: str) -> Registry[Any]:
    """Returns the registry of a component: one of the two for a commander, whose name decides."""
    is_parallel = kind == 'commander' and name in PARALLEL_COMMANDER_REGISTRY
    return PARALLEL_COMMANDER_REGISTRY if is_parallel else REGISTRIES[kind]


def names_of(kind: str) -> list[str]:
    """Returns the registered names of a kind, in serial and in parallel mode."""
    names = REGISTRIES[kind].names()
    return [*names, *PARALLEL_COMMANDER_REGISTRY.names()] if kind == 'commander' else names


def fields_of(kind: str, name: str) -> list[tuple[str, Field]]:
    """Returns the dotted keys and the declarations of a component's own options."""
    if kind == 'model' and REGISTRIES[kind].is_builtin(name):
        return []  # policies declare the options of their networks; a custom one declares its own
    cls: Any = registry_of(kind, name).get(name)
    fields = cls.config_fields() if hasattr(cls, 'config_fields') else {}
    section = f'{NAMED[kind]}.{name}' if kind in NAMED else SECTIONS.get(kind, '')
    return flat_fields(fields, f'{section}.' if section else '')


def all_declared() -> list[Declared]:
    """Returns every option of rlframe and of the registered components."""
    rows = [Declared(key, RUN, field) for key, field in flat_fields(TOP)]
    own = flat_fields(PARALLEL_FIELDS, f'{PARALLEL}.')
    rows += [Declared(key, 'parallel mode', field) for key, field in own]
    for kind in REGISTRIES:
        if kind in SECTIONS:
            rows.append(_type_of(kind, SECTIONS[kind]))
        for name in names_of(kind) if kind in (*SECTIONS, *NAMED) else ():
            rows += [Declared(key, f'{kind} {name}', field) for key, field in fields_of(kind, name)]
    for role, path in ROLES.items():
        start = '.'.join(path)
        rows.append(Declared(f'{start}.backend', RUN, BACKENDS[role]))
        for name in BACKEND_REGISTRY.names():
            own = flat_fields(options_of(name, role), f'{start}.')
            rows += [Declared(key, f'backend {name}', field) for key, field in own]
    return rows


def _type_of(kind: str, section: str) -> Declared:
    """Returns the option that chooses the class of a section."""
    default = next((part.default for part in ALL_COMPONENTS if part.name == kind), None)
    names = tuple(names_of(kind))
    doc = f'which {kind.replace("_", " ")}; also written as {kind}.type, or in create_config.{kind}'
    return Declared(f'{section}.type', RUN, Field(default, type=str, choices=names, doc=doc))


def plain(value: Any) -> Any:
    """Returns a value that JSON can express: itself, or its text."""
    if value is REQUIRED:
        return None
    if isinstance(value, Mapping):
        return {str(name): plain(below) for name, below in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    is_plain = value is None or isinstance(value, bool | int | float | str)
    return value if is_plain and (not isinstance(value, float) or math.isfinite(value)) else str(value)


def _facts(field: Field) -> dict[str, Any]:
    """Returns a declaration as JSON-able data."""
    return {
        'default': plain(field.default),
        'required': field.default is REQUIRED,
        'expected': field.expected(),
        'doc': field.doc,
        'unit': field.unit,
        'may_change': field.may_change,
        'reaches': field.reaches,
    }


def explain(word: str) -> dict[str, Any]:
    """Explains an option, a section or a component.

    Args:
        word: Dotted key of an option or section, an end of one, a name that another framework gives it, or
            ``KIND.NAME`` of a component.

    Returns:
        ``asked``, ``how`` the word was understood, ``options`` and ``component``, as JSON-able data.

    Raises:
        ConfigError: If nothing is known by this word; with the nearest words.
    """
    rows = all_declared()
    kind, _, name = word.partition('.')
    if kind in REGISTRIES and name in names_of(kind):
        return {'asked': word, 'how': 'component', 'component': component(kind, name), 'options': []}
    how, keys = meant_by(word, list(dict.fromkeys(row.key for row in rows)))
    options = [_option(key, [row for row in rows if row.key == key]) for key in keys]
    return {'asked': word, 'how': how, 'component': None, 'options': options}


def meant_by(word: str, known: Sequence[str]) -> tuple[str, list[str]]:
    """Returns the meaning of a word: its kind, and the options.

    Raises:
        ConfigError: If it means none; with the nearest options, components and names of other frameworks.
    """
    key = config.full_key(word)
    last = word.rpartition('.')[2]
    if key in known:
        return 'option', [key]
    if below := [own for own in known if own.startswith(f'{key}.')]:
        return 'section', below
    if ends := [own for own in known if own.endswith(f'.{word}')]:
        return 'option', ends
    if below := [own for own in known if f'.{word}.' in own]:
        return 'section', below
    groups = SYNONYMS.get(last.lower().replace('-', '_'), ())
    if meant := [own for keys in groups for own in keys if own in known]:
        return 'synonym', list(dict.fromkeys(meant))
    components = [f'{kind}.{name}' for kind in REGISTRIES for name in names_of(kind)]
    words = by_last_part([*known, *components, *SYNONYMS])
    near = last if last in words else nearest_name(last.lower(), words)
    hint = f' Did you mean {" or ".join(words[near][:3])}?' if near else ''
    remedy = '' if hint else 'rlframe list shows all components; docs/config.md has every option.'
    raise ConfigError(f'no option and no component is called {word!r}.{hint}', where='KEY', remedy=remedy)


def _option(key: str, rows: Sequence[Declared]) -> dict[str, Any]:
    """Returns all facts about an option; components that declare it in the same way are together."""
    last = key.rpartition('.')[2]
    called = [
        name for name, groups in SYNONYMS.items() if name != last and any(key in each for each in groups)
    ]
    declared: dict[str, dict[str, Any]] = {}
    for each in rows:
        facts = _facts(each.field)
        same = declared.setdefault(repr(facts), {'components': [], **facts})
        same['components'].append(each.component)
    return {'key': key, 'also_called': called, 'declared': list(declared.values())}


def component(kind: str, name: str) -> dict[str, Any]:
    """Returns the facts about a component and its own options, as JSON-able data.

    Raises:
        RegistryError: If there is no component of that name.
    """
    cls: Any = registry_of(kind, name).get(name)
    return {
        'kind': kind,
        'name': name,
        'class': f'{cls.__module__}.{cls.__qualname__}',
        'doc': (inspect.getdoc(cls) or '').partition('\n')[0],
        'section': SECTIONS.get(kind, ''),
        'options': [{'key': key, **_facts(field)} for key, field in fields_of(kind, name)],
    }


# as text


def text_of(found: Facts, width: int) -> str:
    """Returns the result of ``explain`` as text of at most ``width`` columns, keys excepted."""
    if found['component'] is not None:
        return component_text(found['component'], width)
    options = found['options']
    lines = []
    if found['how'] == 'synonym':
        hints = {option['key']: hint_of(found['asked'], [option['key']]) for option in options}
        alike = [key for key, hint in hints.items() if not hint.startswith('Instead')]
        hint_lines = [f'{found["asked"]} is called {" or ".join(alike)} here.'] if alike else []
        hint_lines += [hint for key, hint in hints.items() if key not in alike]
        lines += [*wrapped(' '.join(hint_lines), 0, width), '']
    if found['how'] == 'section':
        lines += [f'{found["asked"]} is a section of {len(options)} options:', '']
    if len(options) > MOST_IN_FULL:
        for option in options:
            lines += _short(option, width)
        lines += ['', f'In full: rlframe explain {options[0]["key"]}']
    else:
        for i, option in enumerate(options):
            lines += [*([''] if i else []), *_full(option, width)]
    return '\n'.join(lines)


def _full(option: Facts, width: int) -> list[str]:
    lines = [option['key']]
    groups = dict[tuple[Any, ...], list[Facts]]()
    for declared in option['declared']:
        same = tuple(declared[name] for name in ('doc', 'expected', 'may_change', 'reaches'))
        groups.setdefault(same, []).append(declared)
    for (doc, expected, may_change, reaches), group in groups.items():
        if len(groups) > 1:
            who = _names([name for declared in group for name in declared['components']])
            lines += ['', *wrapped(f'{who}:', 2, width)]
        lines += [*wrapped(doc, 2, width), *row('values', expected, width)]
        for i, declared in enumerate(group):
            who = declared['components']
            label = '' if i else 'default'
            lines += row(label, f'{_default(declared)}  ({_names(who)})', width)
        lines += row('on resume', 'may change' if may_change else 'must stay as it was', width)
        if reaches:
            lines += row('reaches', f'{reaches}: a foreign config may not set it unless it is trusted', width)
    if names := option['also_called']:
        more = f' and {len(names) - MOST_NAMES} more' if len(names) > MOST_NAMES else ''
        lines += row('elsewhere', 'called ' + ', '.join(names[:MOST_NAMES]) + more, width)
    value = option['declared'][0]['default']
    is_plain = isinstance(value, bool | int | float) or (isinstance(value, str) and value.isidentifier())
    setting = f'{option["key"]}={value if is_plain else "VALUE"}'
    return [*lines, *row('set it', f'rlframe train -c CONFIG {setting}', width)]


def _default(facts: Facts) -> str:
    return 'required' if facts['required'] else repr(facts['default'])


def _names(components: Sequence[str]) -> str:
    """Returns components by kind: ``policy dqn, ppo; learner base``."""
    kinds: dict[str, list[str]] = {}
    for each in components:
        kind, _, name = each.partition(' ')
        kinds.setdefault(kind, []).append(name)
    return '; '.join(f'{kind} {", ".join(names)}'.rstrip() for kind, names in kinds.items())


def _short(option: Facts, width: int) -> list[str]:
    values = list(dict.fromkeys(map(_default, option['declared'])))
    value = f'= {values[0]}' if len(values) == 1 else f'{len(values)} defaults, by component'
    doc = next((declared['doc'] for declared in option['declared'] if declared['doc']), '')
    return [f'{option["key"]} {value}', *wrapped(doc, 4, width)]


def component_text(found: Facts, width: int) -> str:
    """Returns a component and its options as text of at most ``width`` columns, keys excepted."""
    kind, name = found['kind'], found['name']
    lines = [f'{kind} {name!r} ({found["class"]})', *wrapped(found['doc'], 2, width)]
    if found['section']:
        lines += row('section', found['section'], width)
        lines += row('set it', f'{found["section"]}.type={name}', width)
    lines.append('')
    for option in found['options']:
        reach = f' (reaches: {option["reaches"]})' if option['reaches'] else ''
        lines.append(f'{option["key"]} = {_default(option)}')
        lines += wrapped(f'{option["expected"]}: {option["doc"]}{reach}'.rstrip(': '), 4, width)
    if not found['options']:
        text = 'It declares no options of its own.'
        if kind == 'model':
            text += ' Policies declare those of their networks: rlframe explain policy.model'
        lines += wrapped(text, 0, width)
    return '\n'.join(lines)


def kinds_text(kind: str | None, width: int) -> str:
    """Returns the names of all components, or of one kind, as text."""
    PLUGINS.load()
    lines = []
    for each, registry in REGISTRIES.items():
        if kind in (None, each):
            lines += row(f'{each:19}', ', '.join(registry.names()), width, 8)
        if kind in (None, each) and each == 'commander':
            names = ', '.join(PARALLEL_COMMANDER_REGISTRY.names())
            lines += row(f'{"  in parallel mode":19}', names, width, 8)
    return '\n'.join([*lines, '', f'Options of one: {program()} list KIND NAME'])


def plugins_text(_: None, width: int) -> str:
    """Returns the plug-ins of installed packages as text."""
    lines = []
    for each in PLUGINS.load():
        state = f'skipped: {each.problem}' if each.problem else 'loaded'
        lines += row(each.name, f'{each.package} {state}', width)
    none = 'No installed package has an entry point of the group rlframe.registry. See docs/hooks.md.'
    return '\n'.join(lines or wrapped(none, 0, width))
