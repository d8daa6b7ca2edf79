"""``rlframe explain``: finds the options and components that a word means, as plain data."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rlframe import config
from rlframe.config.compile import drop_replaced_device, overridden_keys
from rlframe.config.schema import find_schema
from rlframe.config.tree import user_tree
from rlframe.errors import ConfigError
from rlframe.registry import REGISTRIES
from rlframe.tools.options import (
    SECTIONS,
    Declared,
    all_declared,
    fields_of,
    flat_fields,
    names_of,
    plain,
    registry_of,
)
from rlframe.utils.field import REQUIRED, Field, to_plain
from rlframe.utils.synonyms import ROWS, SYNONYMS
from rlframe.utils.unknown_key import nearest_name

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
    rows = [names.split() for names, groups in ROWS if any(key in group for group in groups)]
    return [name for names in rows for name in names if name != own]


def _grouped(rows: Sequence[Declared]) -> list[dict[str, Any]]:
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        field = row.field
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
        default['components'].append(row.component)
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
