"""``rlframe new``: begins a file of your own, from a template that runs as it is, or as a config for an env."""

from __future__ import annotations

import importlib.util
import keyword
import re
from pathlib import Path

from rlframe.app.check_config import config_text, write_new
from rlframe.app.training import starting_config
from rlframe.envs.worlds import World
from rlframe.errors import ConfigError
from rlframe.pipeline.saying import space_text
from rlframe.utils.field import to_plain

TEMPLATES = Path(__file__).with_name('templates')
COMMAND = re.compile(r'^    (rlframe .*)$', re.MULTILINE)
"""A line of a template's docstring with a command to run."""


def new_file(kind: str, name: str, folder: Path) -> tuple[Path, list[str]]:
    """Writes the template of a kind under another name.

    Args:
        kind: The template, such as ``policy``.
        name: Name of the module, and of the component in configs.
        folder: Where to write.

    Returns:
        The file, and the commands that use it.

    Raises:
        ConfigError: If the name cannot be one, or the file exists.
    """
    file = _free(name, folder)
    text = (TEMPLATES / f'{kind}.py').read_text(encoding='utf-8')
    title = _title(name)
    if keyword.iskeyword(title) or re.search(rf'\b{title}\b', text):
        remedy = f'Choose another name: the file uses {title} for something else.'
        raise ConfigError(f'this cannot be the name of a {kind}', where='NAME', got=name, remedy=remedy)
    own = f'new_{kind}'
    text = text.replace(own, name).replace(_title(own), title)
    write_new(file, text)
    return file, COMMAND.findall(text)


def _title(name: str) -> str:
    """Returns the name of the class of a component: my_policy, MyPolicy."""
    return ''.join(part[:1].upper() + part[1:] for part in name.split('_'))


def new_config(name: str, folder: Path, env: str, policy: str | None = None) -> tuple[Path, list[str]]:
    """Writes a config for an env: with a policy that suits its spaces.

    Args:
        name: Name of the file without suffix.
        folder: Where to write.
        env: An id, as ``rlframe train --env`` takes it, ``module:Id`` or ``module:Class``.
        policy: Name of the policy; None: chosen by the spaces.

    Returns:
        The file, and the commands that use it.

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
