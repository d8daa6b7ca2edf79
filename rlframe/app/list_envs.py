"""``rlframe list env``: the envs of all packages that are installed, with their spaces."""

from __future__ import annotations

import io
import warnings
from contextlib import redirect_stderr, redirect_stdout

from rlframe.display.text import program, row, space_text, wrapped
from rlframe.envs.worlds import Family, find_world, installed
from rlframe.errors import ConfigError, RLFrameError, nearest
from rlframe.registry import ENV_REGISTRY
from rlframe.scores import number_text

MOST_SPACES = 40
"""Most envs whose spaces are shown, as each has to be created; of more there are only ids."""


def envs_text(pattern: str | None, width: int) -> str:
    """Returns the installed envs as text: their number by family, or the ids that contain a text.

    Args:
        pattern: Part of the ids or the name of a family, in any case; None: all.
        width: Columns of the text.

    Raises:
        ConfigError: If no id contains it; with the nearest one.
    """
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter('ignore')  # packages greet, and warn of one another
        families = installed()
        if pattern is None:
            return _counts(families, width)
        found = [family._replace(ids=_matching(family, pattern.lower())) for family in families]
        if not any(family.ids for family in found):
            near = nearest(pattern, [each for family in families for each in family.ids])
            raise ConfigError(
                f'no installed env has an id with {pattern!r}.{near}',
                remedy=f'{program()} list env shows the families; extras of rlframe install more of them.',
            )
        has_spaces = sum(len(family.ids) for family in found) <= MOST_SPACES
        return '\n'.join(line for family in found for line in _lines(family, has_spaces, width))


def _counts(families: list[Family], width: int) -> str:
    lines = [*row(f'{"factories (env.type)":26}', ', '.join(ENV_REGISTRY.names()), width, 16), '']
    for family in families:
        count = f'{len(family.ids)} {"id" if len(family.ids) == 1 else "ids"}'
        lines += row(f'{family.name:26}', f'{count}, such as {family.prefix}{family.ids[0]}', width, 16)
    more = f'Ids with their spaces: {program()} list env PATTERN; train in one: {program()} train --env ID'
    return '\n'.join([*lines, '', *wrapped(more, 0, width)])


def _matching(family: Family, pattern: str) -> list[str]:
    whole = pattern in family.name.lower() or pattern == family.prefix
    return [each for each in family.ids if whole or pattern in f'{family.prefix}{each}'.lower()]


def _lines(family: Family, has_spaces: bool, width: int) -> list[str]:
    if not family.ids:
        return []
    ids = [f'{family.prefix}{each}' for each in family.ids]
    if not has_spaces:
        return [family.name, *wrapped(', '.join(ids), 4, width)]
    return [family.name, *(line for each in ids for line in [f'  {each}', *wrapped(_facts(each), 6, width)])]


def _facts(env_id: str) -> str:
    """Returns the spaces, the time limit and the threshold of an env, or why it cannot be created."""
    try:
        spec = find_world(env_id).factory({}).spec
    except RLFrameError as error:
        return str(error)
    facts = [f'observes {space_text(spec.observation_space)}', f'acts by {space_text(spec.action_space)}']
    if spec.player_num > 1:
        facts.append(f'{spec.player_num} players')
    if spec.max_episode_steps is not None:
        facts.append(f'at most {number_text(spec.max_episode_steps)} env steps an episode')
    if spec.reward_threshold is not None:
        facts.append(f'solved at {number_text(spec.reward_threshold)}')
    return '; '.join(facts)
