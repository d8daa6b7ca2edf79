"""A config as a file to read and change: the options that the user set, each with its meaning behind it."""

from __future__ import annotations

import keyword
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlframe.config.compile import compile_config
from rlframe.config.schema import find_schema
from rlframe.config.writer import as_code
from rlframe.errors import ConfigError
from rlframe.tools.options import flat_fields
from rlframe.utils.field import Field, to_plain

Code = Mapping[str, Any]
"""Values whose ``repr`` is source code."""


def config_text(head: str, facts: Sequence[str], main: Mapping[str, Any], create: Mapping[str, Any]) -> str:
    """Returns the source of a config file.

    Args:
        head: First line of its docstring.
        facts: Further lines of its docstring.
        main: The options that are set.
        create: The components.

    Raises:
        ConfigError: If the config has mistakes, or a value that cannot be written as source.
    """
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # they are shown when the config is used
        cfg = compile_config(main, create)
    fields = dict(flat_fields(find_schema(to_plain(cfg), [])[1]))
    modules: set[str] = set()
    inexpressible: list[str] = []
    options = as_code(to_plain(main), 'main_config', modules, inexpressible)
    components = as_code(to_plain(create), 'create_config', modules, inexpressible)
    if inexpressible:
        raise ConfigError('this value cannot be written as source', where=inexpressible[0])
    lines = [f'"""{head}', '', *facts, '"""', '', *(f'import {module}' for module in sorted(modules))]
    lines += [*([''] if modules else []), 'from easydict import EasyDict', '']
    lines += ['main_config = EasyDict(', '    dict(', *_section(options, fields, '', 2), '    )', ')', '']
    components = {'import_names': [], **components}
    lines += [
        'create_config = EasyDict(',
        '    dict(',
        *map(_component, components.items()),
        '    )',
        ')',
        '',
    ]
    return '\n'.join(lines)


def write_new(file: Path, text: str) -> None:
    """Writes a file that does not exist yet.

    Raises:
        ConfigError: If it exists, or cannot be written.
    """
    try:
        with open(file, 'x', encoding='utf-8') as opened:
            opened.write(text)
    except FileExistsError as error:
        remedy = 'Choose another name; nothing is overwritten.'
        raise ConfigError(f'{file} exists already', where=str(file), remedy=remedy) from error
    except OSError as error:
        raise ConfigError(f'cannot be written: {error.strerror}', where=str(file)) from error


def _section(section: Code, fields: Mapping[str, Field], prefix: str, depth: int) -> list[str]:
    lines, indent = [], '    ' * depth
    for name, value in section.items():
        key = f'{prefix}{name}'
        if isinstance(value, Mapping) and key not in fields and all(map(_is_argument, value)):
            lines += [f'{indent}{name}=dict(', *_section(value, fields, f'{key}.', depth + 1), f'{indent}),']
        else:
            lines.append(f'{indent}{name}={value!r},{_meaning(fields.get(key))}')
    return lines


def _is_argument(name: str) -> bool:
    """Whether a key can be written as an argument of ``dict()``."""
    return name.isidentifier() and not keyword.iskeyword(name)


def _component(item: tuple[str, Any]) -> str:
    name, value = item
    if not isinstance(value, Mapping):
        meaning = '  # modules of your own that register components' if name == 'import_names' else ''
        return f'        {name}={value!r},{meaning}'
    own = {key: below for key, below in value.items() if key != 'import_names' or below}
    if not all(map(_is_argument, own)):
        return f'        {name}={own!r},'
    return f'        {name}=dict({", ".join(f"{key}={below!r}" for key, below in own.items())}),'


def _meaning(field: Field | None) -> str:
    """Returns the meaning of an option as a comment."""
    if field is None:
        return ''
    names_unit = not field.unit or field.unit.split()[0] in field.doc
    text = field.doc if names_unit else f'{field.doc} ({field.unit})'.lstrip()
    return f'  # {text}' if text else ''
