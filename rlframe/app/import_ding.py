"""``rlframe import-ding``: converts a config of DI-engine to one of rlframe, and lists the changes.

DI-engine is never imported. The translation is the one that ``rlframe train`` applies to such a config.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rlframe import config
from rlframe.app.check_config import config_text, write_new
from rlframe.app.explain import plain
from rlframe.config.ding_convert import Change
from rlframe.config.ding_table import ADVANTAGE, ON_POLICY
from rlframe.errors import ConfigError
from rlframe.pipeline.saying import wrapped

DIFFERENCES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ('policy.learn.ignore_done', (), 'values are bootstrapped at time limits only, and never where an episode terminated'),
    ('policy.nstep', (), 'n-step windows continue across rounds of collection'),
    ('policy.collect.n_sample', ON_POLICY, 'each env takes the same number of steps: n_sample is rounded up to a multiple of them'),
    ('policy.collect.n_sample', ('r2d2',), 'n_sample counts env steps, not sequences'),
    ('', ('dqn', 'c51', 'qrdqn', 'ppo', 'a2c'), 'heads are one linear layer: add a layer to encoder_hidden_size_list for the same depth'),
    ('', ADVANTAGE, 'the value loss is the squared error, not half of it'),
    ('', ('ppo',), 'advantages are computed once per round'),
    ('', ('ddpg', 'td3', 'sac'), 'actions are always scaled to the bounds of the env'),
    ('', (), 'each evaluation episode has a seed of its own'),
    ('', (), 'checkpoints of DI-engine (.pth.tar) cannot be loaded, as a pickle can run code'),
)  # fmt: skip
"""An option that the config sets, if any, policies, if not all, and what behaves differently; docs/from_ding.md has all."""


def import_ding(path: str, out: str | None = None, parallel: bool = False) -> dict[str, Any]:
    """Translates a config of DI-engine and writes it.

    Args:
        path: The config, a Python file of the user, which is executed as configs are.
        out: The file to write; by default ``NAME_rlframe.py`` in the current folder.
        parallel: Whether a config of DI-engine's parallel mode becomes one of rlframe's, or one with Ray actors.

    Returns:
        The ``file``, what was ``renamed``, ``converted`` and ``dropped``, the ``defaults`` that were filled in, and what
        ``differs``, as JSON-able data.

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
    policy = str(config.section_at(translated.create_config, ['policy']).get('type'))
    return {
        'file': str(file),
        **_told(translated.changes),
        'differs': _differing(main, policy),
        'next': command,
    }


def _told(changes: Iterable[Change]) -> dict[str, Any]:
    """Returns the changes of a translation by kind."""
    found: dict[str, Any] = {'renamed': [], 'converted': [], 'dropped': [], 'defaults': {}}
    for change in changes:
        became = plain(change.became)
        if not change.key:
            found['defaults'] |= became
        elif not change.became:
            found['dropped'].append({'key': change.key, 'why': change.reason})
        elif list(change.became.values()) == [change.value] and not change.reason:
            found['renamed'].append({'key': change.key, 'new': next(iter(became))})
        else:
            found['converted'].append(
                {'key': change.key, 'value': plain(change.value), 'new': became, 'why': change.reason}
            )
    return found


def _differing(main: Mapping[str, Any], policy: str) -> list[str]:
    def is_set(key: str) -> bool:
        *path, name = key.split('.')
        return not key or name in config.section_at(main, path)

    rows = [
        text for key, policies, text in DIFFERENCES if is_set(key) and (not policies or policy in policies)
    ]
    return list(dict.fromkeys(rows))


def text_of(found: Mapping[str, Any], width: int) -> str:
    """Returns the result of ``import_ding`` as text of at most ``width`` columns."""
    lines = [f'wrote {found["file"]}']
    lines += _block('renamed', [f'{row["key"]} -> {row["new"]}' for row in found['renamed']], width)
    lines += _block('converted', [_converted(row) for row in found['converted']], width)
    lines += _block('dropped', _dropped(found['dropped']), width)
    filled = ', '.join(f'{key}={value!r}' for key, value in found['defaults'].items())
    lines += _block("filled in, DI-engine's defaults", [filled] if filled else [], width)
    lines += _block('behaves differently (all in docs/from_ding.md)', found['differs'], width)
    return '\n'.join([*lines, '', f'next: {found["next"]}'])


def _block(heading: str, texts: list[str], width: int) -> list[str]:
    if not texts:
        return []
    lines = [line for text in texts for line in wrapped(text, 2, width)]
    return ['', f'{heading}:', *lines]


def _converted(row: Mapping[str, Any]) -> str:
    new = ', '.join(f'{key}={value!r}' for key, value in row['new'].items())
    why = f' ({row["why"]})' if row['why'] else ''
    return f'{row["key"]}={row["value"]!r} -> {new}{why}'


def _dropped(rows: list[Mapping[str, Any]]) -> list[str]:
    """Returns a text for each reason."""
    by_reason: dict[str, list[str]] = {}
    for row in rows:
        by_reason.setdefault(row['why'], []).append(row['key'])
    return [f'{", ".join(keys)}: {why}' for why, keys in by_reason.items()]
