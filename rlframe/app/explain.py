"""``rlframe explain``: finds the options and components that a word means, as plain data."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rlframe import config
from rlframe.config.backends import BACKENDS, ROLES, options_of
from rlframe.config.compile import drop_replaced_device, overridden_keys
from rlframe.config.schema import HOOKS, PARALLEL_FIELDS, TOP, find_schema
from rlframe.config.tree import ALL_COMPONENTS, PARALLEL, user_tree
from rlframe.errors import ConfigError
from rlframe.pipeline.saying import row, wrapped
from rlframe.registry import (
    BACKEND_REGISTRY,
    PARALLEL_COMMANDER_REGISTRY,
    REGISTRIES,
    Registry,
    nearest_name,
)
from rlframe.utils.field import REQUIRED, Field, to_plain
from rlframe.utils.synonyms import SYNONYMS

SECTIONS = {'model': 'policy.model'} | {part.name: part.key for part in ALL_COMPONENTS}
"""Kind of component to its section in a config; learner hooks have no section."""
RUN = 'every run'
"""Who declares the options that belong to no component."""


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


def told(field: Field) -> str:
    """Returns the description of an option and its reach."""
    return f'{field.doc} (reaches: {field.reaches})'.lstrip() if field.reaches else field.doc


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
    if kind == 'model':  # policies declare the options of their networks; a custom one declares its own
        registry = REGISTRIES[kind]
        if registry.is_builtin(name):
            return []
    cls: Any = registry_of(kind, name).get(name)
    fields = cls.config_fields() if hasattr(cls, 'config_fields') else {}
    section = f'{HOOKS}.{name}' if kind == 'hook' else SECTIONS.get(kind, '')
    return flat_fields(fields, f'{section}.' if section else '')


def all_declared() -> list[Declared]:
    """Returns every option of rlframe and of the registered components."""
    rows = [Declared(key, RUN, field) for key, field in flat_fields(TOP)]
    rows += [Declared(*row) for row in _in_parallel()]
    for kind in REGISTRIES:
        if kind in SECTIONS:
            rows += [_type_of(kind, SECTIONS[kind])]
            rows += [
                Declared(key, f'{kind} {name}', field)
                for name in names_of(kind)
                for key, field in fields_of(kind, name)
            ]
    for name in names_of('hook'):
        rows += [Declared(key, f'hook {name}', field) for key, field in fields_of('hook', name)]
    return [*rows, *_of_backends()]


def _in_parallel() -> Iterable[tuple[str, str, Field]]:
    for key, field in flat_fields(PARALLEL_FIELDS, f'{PARALLEL}.'):
        yield key, 'parallel mode', field


def _type_of(kind: str, section: str) -> Declared:
    """Returns the option that chooses the class of a section."""
    default = next((part.default for part in ALL_COMPONENTS if part.name == kind), None)
    names = tuple(names_of(kind))
    doc = f'which {kind.replace("_", " ")}; also written as {kind}.type, or in create_config.{kind}'
    return Declared(f'{section}.type', RUN, Field(default, type=str, choices=names, doc=doc))


def _of_backends() -> list[Declared]:
    rows = []
    for role, path in ROLES.items():
        start = '.'.join(path)
        rows.append(Declared(f'{start}.backend', RUN, BACKENDS[role]))
        for name in BACKEND_REGISTRY.names():
            own = flat_fields(options_of(name, role), f'{start}.')
            rows += [Declared(key, f'backend {name}', field) for key, field in own]
    return rows


def plain(value: Any) -> Any:
    """Returns a value that JSON can express: itself, or its text."""
    if value is REQUIRED:
        return None
    if isinstance(value, Mapping):
        return {str(name): plain(below) for name, below in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    is_finite = not isinstance(value, float) or abs(value) < float('inf')
    return (
        value if value is None or (isinstance(value, bool | int | float | str) and is_finite) else str(value)
    )


MOST_IN_FULL = 3
"""Options explained in full; of more, each gets one or two lines."""
MOST_NAMES = 8
"""Names of other frameworks that are shown."""
Facts = Mapping[str, Any]


def text_of(found: Facts, width: int) -> str:
    """Returns the result of ``explain`` as text of at most ``width`` columns, keys excepted."""
    if found['component'] is not None:
        return '\n'.join(_component_text(found['component'], width))
    options, lines = found['options'], []
    if found['how'] == 'synonym':
        lines += [f'{found["asked"]} is called {" or ".join(o["key"] for o in options)} here.', '']
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
    declared = option['declared']
    for group in declared:
        if len(declared) > 1:
            who = [name for default in group['defaults'] for name in default['components']]
            lines += ['', *wrapped(_names(who) + ':', 2, width)]
        lines += wrapped(group['doc'], 2, width)
        lines += row('values', group['expected'], width)
        lines += _defaults(group['defaults'], width)
        resume = 'may change' if group['may_change'] else 'must stay as it was'
        lines += row('on resume', resume, width)
        if group['reaches']:
            lines += row(
                'reaches', f'{group["reaches"]}: a foreign config may not set it unless it is trusted', width
            )
    if 'here' in option:
        lines += ['', *row('here', _here(option), width)]
    if names := option['also_called']:
        more = f' and {len(names) - MOST_NAMES} more' if len(names) > MOST_NAMES else ''
        lines += row('elsewhere', 'called ' + ', '.join(names[:MOST_NAMES]) + more, width)
    return [*lines, *row('set it', _example(option), width)]


def _here(option: Facts) -> str:
    here = option['here']
    if here is None:
        return 'this config has no such option; the components it names do not declare it'
    is_default = here['value'] == here['default']
    default = '' if is_default else f' (default: {here["default"]!r})'
    return f'{here["value"]!r}, {here["from"]}{default}'


def _example(option: Facts) -> str:
    value = option['here']['value'] if option.get('here') else option['declared'][0]['defaults'][0]['value']
    is_plain = isinstance(value, bool | int | float) or (isinstance(value, str) and value.isidentifier())
    config = option['here']['config'] if option.get('here') else 'CONFIG'
    return f'rlframe train -c {config} {option["key"]}={value if is_plain else "VALUE"}'


def _defaults(defaults: Sequence[Facts], width: int) -> list[str]:
    shown = ['required' if default['required'] else repr(default['value']) for default in defaults]
    if len(defaults) == 1:
        who = defaults[0]['components']
        return row('default', shown[0] if who == [HERE] else f'{shown[0]}  ({_names(who)})', width)
    column = min(max(map(len, shown)), 20) + 2
    lines = []
    for i, (text, default) in enumerate(zip(shown, defaults, strict=True)):
        lines += row('' if i else 'default', f'{text:{column}}{_names(default["components"])}', width, column)
    return lines


def _names(components: Sequence[str]) -> str:
    """Returns components, those of a kind together: ``policy dqn, ppo; learner base``."""
    kinds: dict[str, list[str]] = {}
    for component in components:
        kind, _, name = component.partition(' ')
        kinds.setdefault(kind, []).append(name)
    return '; '.join(f'{kind} {", ".join(names)}'.rstrip() for kind, names in kinds.items())


def _short(option: Facts, width: int) -> list[str]:
    if option.get('here'):
        value = f'= {option["here"]["value"]!r}, {option["here"]["from"]}'
    else:
        defaults = [default for group in option['declared'] for default in group['defaults']]
        texts = ['(required)' if default['required'] else f'= {default["value"]!r}' for default in defaults]
        distinct = list(dict.fromkeys(texts))
        value = distinct[0] if len(distinct) == 1 else f'{len(distinct)} defaults, by component'
    doc = next((group['doc'] for group in option['declared'] if group['doc']), '')
    return [f'{option["key"]} {value}', *wrapped(doc, 4, width)]


def _component_text(component: Facts, width: int) -> list[str]:
    kind, name = component['kind'], component['name']
    lines = [f'{kind} {name!r} ({component["class"]})', *wrapped(component['doc'], 2, width)]
    if component['section']:
        lines += row('section', component['section'], width)
        lines += row('set it', f'{component["section"]}.type={name}', width)
    if not component['options']:
        own = (
            ' Policies declare those of their networks: rlframe explain policy.model'
            if kind == 'model'
            else ''
        )
        return [*lines, '', *wrapped(f'It declares no options of its own.{own}', 0, width)]
    lines.append('')
    for option in component['options']:
        lines.append(f'{option["key"]} = {option["default"]!r}')
        lines += wrapped(f'{option["expected"]}: {option["doc"]}'.rstrip(': '), 4, width)
    return lines


HERE = 'this config'
"""Who declares the options of a config given by ``-c``."""


class Here(NamedTuple):
    """A config in whose context options are explained."""

    name: str
    """The config as the user named it."""
    cfg: Any
    """The compiled config."""
    options: Mapping[str, Field]
    """Its options, by dotted key."""
    said: frozenset[str]
    """Keys that the file sets, including those of sections."""
    overridden: frozenset[str]
    """Keys that the command line sets."""

    def value(self, key: str) -> Any:
        """Returns the value of an option."""
        *path, name = key.split('.')
        return dict(to_plain(config.section_at(self.cfg, path)))[name]

    def origin(self, key: str) -> str:
        """Returns the source of the value of an option, in words."""
        if key in self.overridden:
            return 'set on the command line'
        if key in self.said:
            return f'set in {self.name}'
        source = config.FORWARDED.get(key)
        if source is not None and source in self.options and self.value(key) == self.value(source):
            return f'taken from {source}, {self.origin(source)}'
        return 'the default'


def explain(word: str, given: Any = None, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Explains an option, a section or a component.

    Args:
        word: Dotted key of an option or section, an end of one, a name that another framework gives it, or
            ``KIND.NAME`` of a component.
        given: The path or name of a config, or a pair; None: explain the option of all components that declare it.
        overrides: ``key=value`` texts that change that config.

    Returns:
        ``asked``, ``how`` the word was understood, ``options`` and ``component``, as JSON-able data.

    Raises:
        ConfigError: If nothing is known by this word; with the nearest words. Or if the config has mistakes.
    """
    here = None if given is None else _read(given, overrides)
    rows = all_declared()
    known = list(dict.fromkeys([row.key for row in rows] + (list(here.options) if here else [])))
    kind, _, name = word.partition('.')
    if kind in REGISTRIES and name in names_of(kind):
        return {'asked': word, 'how': 'component', 'component': _component(kind, name), 'options': []}
    how, keys = meant_by(word, known)
    if here is not None and (own := [key for key in keys if key in here.options]):
        keys = own
    options = [_option(key, [row for row in rows if row.key == key], here) for key in keys]
    return {'asked': word, 'how': how, 'component': None, 'options': options}


def _read(given: Any, overrides: Sequence[str]) -> Here:
    main, create = config.config_pair(given)
    cfg = config.compile_config(main, create, overrides=overrides)
    if config.is_ding(create, main):
        main, create, _ = config.from_ding(main, create, overrides)
    said, tree = user_tree(main, create)[0], user_tree(main, create, overrides)[0]
    drop_replaced_device(tree, overrides)
    return Here(
        name=str(given) if isinstance(given, str) else 'the config',
        cfg=cfg,
        options=dict(flat_fields(find_schema(to_plain(cfg), [])[1])),
        said=frozenset(_all_keys(said)) & frozenset(_all_keys(tree)),
        overridden=overridden_keys(overrides),
    )


def _all_keys(tree: Mapping[str, Any], prefix: str = '') -> Iterable[str]:
    for name, value in tree.items():
        yield prefix + name
        if isinstance(value, Mapping):
            yield from _all_keys(value, f'{prefix}{name}.')


def meant_by(word: str, known: Sequence[str]) -> tuple[str, list[str]]:
    """Returns the meaning of a word: its kind, and the options.

    Raises:
        ConfigError: If it means none.
    """
    key = config.full_key(word)
    if key in known:
        return 'option', [key]
    if below := [own for own in known if own.startswith(f'{key}.')]:
        return 'section', below
    if ends := [own for own in known if own.endswith(f'.{word}')]:
        return 'option', ends
    if below := [own for own in known if f'.{word}.' in own]:
        return 'section', below
    name = word.rpartition('.')[2].lower().replace('-', '_')
    meant = [own for keys in SYNONYMS.get(name, ()) for own in keys if own in known]
    if meant:
        return 'synonym', list(dict.fromkeys(meant))
    raise _unknown(word, known)


def _unknown(word: str, known: Sequence[str]) -> ConfigError:
    last = word.rpartition('.')[2]
    components = [f'{kind}.{name}' for kind in REGISTRIES for name in names_of(kind)]
    if own := [name for name in components if name.rpartition('.')[2] == last]:
        hint = f' Did you mean {" or ".join(own)}?'
    else:
        words = dict.fromkeys(
            [
                *(key.rpartition('.')[2] for key in known),
                *SYNONYMS,
                *(c.rpartition('.')[2] for c in components),
            ]
        )
        near = nearest_name(last.lower(), words)
        full = [key for key in (*known, *components) if key.rpartition('.')[2] == near] or [near]
        hint = f' Did you mean {" or ".join(full[:3])}?' if near else ''
    remedy = '' if hint else 'rlframe list shows all components; docs/config.md has every option.'
    return ConfigError(f'no option and no component is called {word!r}.{hint}', where='KEY', remedy=remedy)


def _option(key: str, rows: Sequence[Declared], here: Here | None) -> dict[str, Any]:
    """Returns all facts about an option; equal declarations are one."""
    found: dict[str, Any] = {'key': key, 'also_called': _synonyms(key), 'declared': _grouped(rows)}
    if here is None:
        return found
    if key not in here.options:
        return {**found, 'here': None}
    field, value = here.options[key], here.value(key)
    found['declared'] = _grouped([Declared(key, HERE, field)])
    own = {'value': plain(value), 'from': here.origin(key), 'default': plain(field.default)}
    return {**found, 'here': {**own, 'config': here.name}}


def _synonyms(key: str) -> list[str]:
    """Returns the names that other frameworks give an option."""
    own = key.rpartition('.')[2]
    return [
        name for name, groups in SYNONYMS.items() if name != own and any(key in group for group in groups)
    ]


def _grouped(rows: Sequence[Declared]) -> list[dict[str, Any]]:
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for declared in rows:
        field = declared.field
        same = (field.doc, field.expected(), field.may_change, field.reaches, field.ignored)
        facts = {
            'doc': field.doc,
            'expected': field.expected(),
            'type': [t.__name__ for t in field.types if t is not type(REQUIRED)],
            'range': field.range,
            'unit': field.unit,
            'choices': [plain(choice) for choice in field.choices],
            'may_change': field.may_change,
            'reaches': field.reaches,
            'ignored': field.ignored,
            'defaults': [],
        }
        defaults = groups.setdefault(same, facts)['defaults']
        value = plain(field.default)
        default = next(
            (one for one in defaults if one['value'] == value and type(one['value']) is type(value)), None
        )
        if default is None:
            defaults.append(
                default := {'value': value, 'required': field.default is REQUIRED, 'components': []}
            )
        default['components'].append(declared.component)
    return list(groups.values())


def _component(kind: str, name: str) -> dict[str, Any]:
    cls: Any = registry_of(kind, name).get(name)
    options = [
        {'key': key, 'default': plain(field.default), 'expected': field.expected(), 'doc': field.doc}
        for key, field in fields_of(kind, name)
    ]
    return {
        'kind': kind,
        'name': name,
        'class': f'{cls.__module__}.{cls.__qualname__}',
        'doc': (inspect.getdoc(cls) or '').partition('\n')[0],
        'section': SECTIONS.get(kind, ''),
        'options': options,
    }
