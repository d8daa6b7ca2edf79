"""Restricts untrusted configs to settings that do not reach beyond the run."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rlframe.config.compile import declared_values, user_tree
from rlframe.config.components import (
    chosen_names,
    components_of,
    find_schema,
    named_parts,
    plain_type,
    section_at,
    value_at,
)
from rlframe.config.ding import from_ding, is_ding
from rlframe.config.schema import Tree
from rlframe.errors import CheckpointMismatchError, ConfigError, ConfigErrors, UnsafeCheckpointError
from rlframe.registry import Registry, is_list_of_names
from rlframe.utils.field import Options, copied, raw_items, to_plain

logger = logging.getLogger('rlframe.trust')

Data = Mapping[str, Mapping[str, Any]]
"""A config pair as plain data, as ``config_data`` returns it and checkpoints hold it."""
Overrides = Sequence[str] | Mapping[str, Any]
IMPORTS = 'import_names'
REMEDY = (
    'To trust all of these, add --trust (also needed for your own runs from another machine or an older rlframe);'
    ' to set one yourself, add key=value.'
)
SHOWN = 200
"""Characters of a value that are shown."""


class Reaching(NamedTuple):
    """A value of a config that can reach beyond the run."""

    key: str
    """Its dotted key."""
    value: Any
    reaches: str
    """One of ``rlframe.utils.field.REACHES``."""

    def __str__(self) -> str:
        text = repr(self.value)
        return f'{self.key}={text if len(text) <= SHOWN else text[:SHOWN] + "..."} ({self.reaches})'


def config_of(manifest: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Returns the config in a manifest, as ``main_config`` and ``create_config``.

    Raises:
        CheckpointMismatchError: If there is none.
    """
    data = manifest.get('config')
    pair = (
        {name: data.get(name) for name in ('main_config', 'create_config')} if isinstance(data, dict) else {}
    )
    if not pair or not all(isinstance(part, dict) for part in pair.values()):
        raise CheckpointMismatchError('this checkpoint has no config', where=where)
    return pair


def check_trust(data: Data, where: str, trust: bool, overrides: Overrides = (), env: Any = None) -> None:
    """Refuses a foreign config that could reach beyond the run.

    Every option declares what it reaches. An option that reaches something may have its default, a value on its
    allow-list, or the value of an override; anything else needs ``trust`` and is then logged. The check imports only
    modules that the overrides name.

    Args:
        data: A config that was loaded as data, for example from a checkpoint.
        where: Source, for the error.
        trust: Whether the user trusts it.
        overrides: Options that the user sets in addition.
        env: The user's ``env.env_id``, which is already part of the config.

    Raises:
        UnsafeCheckpointError: With every value that reaches something.
        ConfigError: If it has keys that no config can have.
    """
    found = [each for each in reaching_values(data, overrides) if env is None or each.key != 'env.env_id']
    refuse_or_warn(found, where, trust, REMEDY)


def refuse_or_warn(found: Sequence[Reaching], where: str, trust: bool, remedy: str) -> None:
    """Refuses values found in a config or, if the user trusts it, logs each of them.

    Raises:
        UnsafeCheckpointError: If it is not trusted, or names modules in an invalid form.
    """
    odd = [each for each in found if each.key.endswith(IMPORTS) and not is_list_of_names(each.value)]
    if odd or (found and not trust):
        listed = '\n  '.join(map(str, odd or found))
        why = (
            'this is not a list of module names'
            if odd
            else 'you did not write this, and it could reach beyond the run'
        )
        raise UnsafeCheckpointError(f'{why}:\n  {listed}', where=where, remedy='' if odd else remedy)
    for each in found:
        logger.warning('trusting %s', each)


def reaching_values(data: Data, overrides: Overrides = ()) -> list[Reaching]:
    """Returns the values of a config that reach beyond the run, except those that the overrides set as well.

    Raises:
        ConfigError: If it has keys that no config can have.
    """
    main, create = data['main_config'], data['create_config']
    if not is_ding(create, main):
        return _reaching(main, create, overrides)
    found: dict[str, Reaching] = {}
    for parallel in (False, True):  # compiling does either
        translated = from_ding(main, create, overrides, parallel)
        reaching = _reaching(translated.main_config, translated.create_config, overrides)
        found |= {each.key: each for each in reaching}
    return list(found.values())


def _reaching(main: Mapping[str, Any], create: Mapping[str, Any], overrides: Overrides) -> list[Reaching]:
    tree, errors = user_tree(main, create, overrides)
    if errors:
        raise errors[0] if len(errors) == 1 else ConfigErrors(errors)
    given = user_tree({}, {}, overrides)[0]
    found = [each for each in _named_code(tree) if not _is_given(each.key, given, tree)]
    known = _without(tree, found) if found else to_plain(tree)
    problems: list[ConfigError] = []
    # imports built-in components and those that the overrides name only
    classes, options = find_schema(known, problems)
    seen = {each.key for each in found}
    chosen = [
        Reaching(f'{part.key}.type', section_at(known, part.path).get('type', part.default), reaches)
        for part in (*components_of(tree), *named_parts(tree))
        if (reaches := getattr(classes.get(part.name), 'reaches', ''))
    ]
    found += [
        each
        for each in (*chosen, *declared_reaching(known, options))
        if each.key not in seen and not _is_given(each.key, given, tree)
    ]
    return found


def declared_reaching(tree: Mapping[str, Any], options: Options, prefix: str = '') -> Iterator[Reaching]:
    """Yields the values whose options declare a reach beyond the run."""
    for key, value in declared_values(tree, options):
        if reaches := value_at(options, key).reach_of(value):
            yield Reaching(f'{prefix}{key}', value, reaches)


def known_options(main: Mapping[str, Any], create: Mapping[str, Any]) -> Options:
    """Returns the options that a config can have, as far as they come with rlframe: nothing that it names is imported."""
    tree, _ = user_tree(main, create, ())
    return find_schema(_without(tree, _named_code(tree)), [])[1]


def named_modules(value: Any, key: str = '') -> Iterator[Reaching]:
    """Yields every non-empty ``import_names`` in a tree, in any form and at any depth."""
    if isinstance(value, Mapping):
        for name, below in raw_items(value):
            where = f'{key}.{name}' if key else str(name)
            if name == IMPORTS:
                if not (below is None or (isinstance(below, list | tuple) and not below)):
                    yield Reaching(where, below, 'code')
            else:
                yield from named_modules(below, where)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from named_modules(item, key)


def foreign_type(name: Any, registry: Registry[Any]) -> bool:
    """Whether a config's ``type`` is a component that does not come with rlframe, so that a module must bring it."""
    return not (name is None or (isinstance(name, str) and registry.is_builtin(plain_type(name))))


def _named_code(tree: Tree) -> list[Reaching]:
    """Returns the modules to import, and the components that they register, before any class is looked up."""
    found = list(named_modules(tree))
    return found + [
        Reaching(key, name, 'code')
        for registry, key, name in chosen_names(tree)
        if foreign_type(name, registry)
    ]


def _is_given(key: str, given: Tree, tree: Tree) -> bool:
    """Whether the user set exactly this value, at the key or at a section above it."""
    path = key.split('.')
    for depth in range(1, len(path) + 1):
        *above, name = path[:depth]
        ours, theirs = section_at(given, above), section_at(tree, above)
        if name in ours:
            if _equal(ours[name], theirs.get(name)):
                return True
            if not isinstance(ours[name], Mapping):
                return False
    return False


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except ValueError:  # arrays
        return one is other


def _without(tree: Tree, found: Sequence[Reaching]) -> Tree:
    """Copies a tree without modules to import and without components that they bring."""
    keys = {each.key for each in found}
    keys |= {part.key for part in named_parts(tree) if f'{part.key}.type' in keys}

    def kept(value: Any, key: str) -> Any:
        if isinstance(value, Mapping):
            pairs = [(name, inner, f'{key}.{name}' if key else str(name)) for name, inner in raw_items(value)]
            return {
                name: kept(inner, where)
                for name, inner, where in pairs
                if where not in keys and name != IMPORTS
            }
        return copied(value)

    rest: Tree = kept(tree, '')
    return rest
