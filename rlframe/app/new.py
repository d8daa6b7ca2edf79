"""``rlframe new``: begins a file of your own, from a template that runs as it is, or as a config for an env."""

from __future__ import annotations

import importlib.util
import keyword
import re
from contextlib import closing
from pathlib import Path
from typing import Any

from rlframe.app.check_config import config_text, write_new
from rlframe.app.env_play import play
from rlframe.app.training import starting_config
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.errors import ConfigError
from rlframe.pipeline.saying import space_text
from rlframe.run.machine import usable_cores
from rlframe.utils.field import to_plain

TEMPLATES = Path(__file__).with_name('templates')
SLOW_STEPS = 2000.0
"""Env steps per second below which envs are stepped in processes: a message to one takes about 0.1 ms."""
MOST_STEPS, SPEED_SECONDS = 3000, 0.5
"""Env steps, and seconds, of the measurement of speed, whichever end first."""
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
    """Writes a config for an env: with a policy that suits its spaces and a manager that suits its speed.

    Args:
        name: Name of the file without suffix.
        folder: Where to write.
        env: Gymnasium id, ``module:Id`` or ``module:Class``.
        policy: Name of the policy; None: chosen by the spaces.

    Returns:
        The file, and the commands that use it.

    Raises:
        ConfigError: If the name cannot be one, the file exists, there is no such env or policy, or they do not fit.
    """
    file = _free(name, folder)
    main, create = (to_plain(part) for part in starting_config(env, policy))
    main['exp_name'] = name
    factory = GymEnvFactory(
        {key: value for key, value in main['env'].items() if key in ('env_id', 'wrappers')}
    )
    facts = [
        f'{factory.spec.name}: {space_text(factory.spec.observation_space)}; {space_text(factory.spec.action_space)}'
    ]
    if not factory.only_vector:
        with closing(factory.create()) as made:
            played = play(made, factory.spec, MOST_STEPS, 0, lambda call: None, seconds=SPEED_SECONDS)
        facts.append(_choose_manager(create, played.speed()['steps_per_second']))
    head = f'{create["policy"]["type"]} on {env}, written by rlframe new config.'
    command = f'rlframe train -c {file.name}'
    write_new(file, config_text(head, [*facts, '', f'    {command}'], main, create))
    return file, [command, f'rlframe check-config {file.name}']


def _choose_manager(create: dict[str, Any], rate: float) -> str:
    """Chooses the env manager, and returns the reason."""
    cores = usable_cores()
    speed = f'One env takes about {float(f"{rate:.1g}"):,.0f} steps/s here'
    if rate < SLOW_STEPS and cores > 1:
        create['env_manager']['type'] = 'subprocess'
        return f'{speed}, which is slow: the envs run in {cores} processes.'
    return f'{speed}, so processes for the envs would not pay.'


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
