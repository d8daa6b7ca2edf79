"""``rlframe new`` and ``rlframe import-ding``: files of your own to begin with.

A file is a template that runs as it is, a config for an env, or the translation of a config of DI-engine, as ``rlframe train``
translates it. DI-engine is never imported.
"""

from __future__ import annotations

import importlib.util
import keyword
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlframe import config
from rlframe.app.explain import options_of_config
from rlframe.app.starting import starting_config
from rlframe.config.ding import summary
from rlframe.config.writer import as_code, import_block
from rlframe.display.text import space_text, wrapped
from rlframe.envs.worlds import World
from rlframe.errors import ConfigError
from rlframe.export.artifact import compiled_again
from rlframe.utils.field import Field, to_plain

TEMPLATES = Path(__file__).with_name('templates')
COMMAND = re.compile(r'^    (rlframe .*)$', re.MULTILINE)
"""A line of a template's docstring with a command to run."""
Code = Mapping[str, Any]
"""Values whose ``repr`` is source code."""


def new_file(kind: str, name: str, folder: Path) -> tuple[Path, list[str]]:
    """Writes the template of a kind under another name; returns the file, and the commands that use it.

    Raises:
        ConfigError: If the name cannot be one, or the file exists.
    """
    file = _free(name, folder)
    text = (TEMPLATES / f'{kind}.py').read_text(encoding='utf-8')
    own = f'new_{kind}'
    text = text.replace(own, name).replace(_title(own), _title(name))
    write_new(file, text)
    return file, COMMAND.findall(text)


def _title(name: str) -> str:
    """Returns the name of the class of a component: my_policy, MyPolicy."""
    return ''.join(part[:1].upper() + part[1:] for part in name.split('_'))


def new_config(name: str, folder: Path, env: str, policy: str | None = None) -> tuple[Path, list[str]]:
    """Writes a config for an env, with a policy that suits its spaces; returns the file, and the commands that use it.

    Raises:
        ConfigError: If the name cannot be one, the file exists, there is no such env or policy, or they do not fit.
    """
    file = _free(name, folder)
    main, create = (to_plain(part) for part in starting_config(env, policy))
    main['exp_name'] = name
    world = World(main['env']['env_id'], create['env']['type'], create['env_manager']['type'])
    spec = world.factory({key: main['env'][key] for key in ('wrappers',) if key in main['env']}).spec
    spaces = f'{spec.name}: {space_text(spec.observation_space)}; {space_text(spec.action_space)}'
    head = f'{create["policy"]["type"]} on {env}, written by rlframe new config.'
    command = f'rlframe train -c {file.name}'
    write_new(file, config_text(head, [spaces, '', f'    {command}'], main, create))
    return file, [command, f'rlframe check-config {file.name}']


def _free(name: str, folder: Path) -> Path:
    """Returns the path of a module that does not exist yet.

    Raises:
        ConfigError: If the name cannot be that of a module, is taken, or the file exists.
    """
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith('_') or not name.isascii():
        expected = 'a Python identifier such as my_policy'
        raise ConfigError('this cannot be the name of a module', where='NAME', got=name, expected=expected)
    file = folder / f'{name}.py'
    if not file.exists() and importlib.util.find_spec(name) is not None:
        remedy = f'Choose another name: {file.name} would hide it.'
        raise ConfigError(f'there is a module {name!r} already', where='NAME', remedy=remedy)
    return file


def config_text(head: str, facts: Sequence[str], main: Mapping[str, Any], create: Mapping[str, Any]) -> str:
    """Returns the source of a config file, whose docstring consists of ``head`` and ``facts``.

    Raises:
        ConfigError: If the config has mistakes, or a value that cannot be written as source.
    """
    cfg = compiled_again({'main_config': main, 'create_config': create})
    modules: set[str] = set()
    inexpressible: list[str] = []
    options = as_code(to_plain(main), 'main_config', modules, inexpressible)
    components = as_code({'import_names': [], **to_plain(create)}, 'create_config', modules, inexpressible)
    if inexpressible:
        raise ConfigError('this value cannot be written as source', where=inexpressible[0])
    parts = {
        'main_config': _section(options, options_of_config(cfg), '', 1),
        'create_config': _section(components, {}, '', 1),
    }
    sources = ['\n'.join([f'{name} = dict(', *lines, ')\n']) for name, lines in parts.items()]
    doc = '\n'.join([f'"""{head}', '', *facts, '"""', ''])
    return '\n'.join([doc, *import_block(modules), *sources])


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
    lines = []
    indent = '    ' * depth
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


def _meaning(field: Field | None) -> str:
    """Returns the meaning of an option as a comment."""
    if field is None:
        return ''
    unit = f' ({field.unit})' if field.unit and field.unit.split()[0] not in field.doc else ''
    return f'  # {field.doc}{unit}'.rstrip(' #')


def import_ding(path: str, out: str | None = None, parallel: bool = False) -> dict[str, Any]:
    """Translates a config of DI-engine and writes it.

    Args:
        path: The config, a Python file of the user, which is executed as configs are.
        out: The file to write; by default ``NAME_rlframe.py`` in the current folder.
        parallel: Whether a config of DI-engine's parallel mode becomes one of rlframe's, or one with Ray actors.

    Returns:
        The path of the ``file``, the ``changes`` as the text that a run warns of, and what to run ``next``.

    Raises:
        ConfigError: If it is no config of DI-engine, cannot be translated, or the file exists.
    """
    main, create = config.read_config(path)
    if not config.is_ding(create, main):
        remedy = 'rlframe train -c takes it as it is.'
        raise ConfigError('this is no config of DI-engine', where=path, remedy=remedy)
    file = Path(f'{Path(path).stem}_rlframe.py' if out is None else out)
    if file.suffix != '.py':
        raise ConfigError('bad value', where='--out', got=str(file), expected='a path that ends with .py')
    translated = config.from_ding(main, create, parallel=parallel)
    mode = ' -m parallel' if parallel else ''
    command = f'rlframe train -c {file}{mode}'
    facts = ["Options that the original left out have DI-engine's defaults.", '', f'    {command}']
    name = re.sub(r'[^\w.-]', '_', Path(path).name)  # it becomes part of a docstring
    head = f'Translated from {name}, a config of DI-engine, by rlframe import-ding.'
    write_new(file, config_text(head, facts, translated.main_config, translated.create_config))
    return {'file': str(file), 'changes': summary(translated.changes), 'next': command}


def ding_text(found: Mapping[str, Any], width: int) -> str:
    """Returns the result of ``import_ding`` as text of at most ``width`` columns."""
    lines = [line for text in found['changes'].split('\n') for line in wrapped(text.strip(), 2, width)]
    return '\n'.join([f'wrote {found["file"]}', '', *lines, '', f'next: {found["next"]}'])
