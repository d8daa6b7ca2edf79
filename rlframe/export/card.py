"""The model card of an exported policy: description, scores and instructions for use."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

from rlframe._version import __version__
from rlframe.data.observation import ACTION_MASK, has_mask
from rlframe.export.source import Source
from rlframe.safety.secrets import redacted
from rlframe.scores import exact_text
from rlframe.utils.lazy import LazyModule

torch = LazyModule('torch')
numpy = LazyModule('numpy')
gymnasium = LazyModule('gymnasium')

Row = tuple[str, Any]
ABSENT = object()


def card(source: Source, imports_code: bool) -> str:
    """Returns the text of the model card, Markdown.

    Args:
        source: The policy to export, with its source.
        imports_code: Whether loading it imports custom modules.
    """
    kind, env = source.cfg.policy.type, source.spec.name
    return '\n'.join(
        [
            f'# {kind} on {env}',
            '',
            'A policy trained by rlframe. This folder is all you need to act with it.',
            '',
            _table(('', ''), _facts(source)),
            '',
            '## Use',
            '',
            '```python',
            *_usage(source, imports_code),
            '```',
            '',
            'An observation is what the env returns, of one env or, with a leading axis, of several. Nothing in this folder is code, and',
            'every file is compared with `manifest.json` when it is loaded. `policy.json` says what is done to observations and',
            'actions, `weights.safetensors` has the network.',
            '',
            '## Config',
            '',
            'Options that differ from the defaults:',
            '',
            _table(('option', 'value'), _options(source)),
            '',
        ]
    )


def _facts(source: Source) -> list[Row]:
    measured = source.measured
    score = measured['return']
    versions = {
        'rlframe': __version__,
        'torch': torch.__version__,
        'numpy': numpy.__version__,
        'gymnasium': gymnasium.__version__,
        'Python': platform.python_version(),
    }
    return [
        ('env', source.spec.name),
        ('policy', f'{source.cfg.policy.type} ({type(source.policy).__name__})'),
        ('mean return when it was saved', 'not measured' if score is None else f'{exact_text(score)}'),
        ('trained for', f'{measured["env_steps"]} env steps, {measured["updates"]} updates'),
        ('seed', measured['seed']),
        ('checkpoint', measured['name']),
        ('observations', f'`{source.spec.observation_space}`'),
        ('actions', f'`{source.spec.action_space}`'),
        ('versions', ', '.join(f'{name} {version}' for name, version in versions.items())),
    ]


def _usage(source: Source, imports_code: bool) -> list[str]:
    lines = ['import rlframe', '', "policy = rlframe.load('path/of/this/folder')"]
    if imports_code:
        lines[-1] = "policy = rlframe.load('path/of/this/folder', trust=True)  # it imports custom code"
    if source.policy.is_recurrent or source.frame_stack > 1:
        lines.append('policy.reset()  # whenever an episode begins')
    given = ', action_mask' if has_mask(source.spec.observation_space) else ''
    lines.append(f'action = policy.act(obs{given})')
    if given:
        lines.append(f"# without the second argument where obs has the part '{ACTION_MASK}'")
    return lines


def _options(source: Source) -> list[Row]:
    """Returns the non-default options of the run, without paths of its machine."""
    keys = sorted(source.cfg._user_keys - {'exp_name', 'seed', 'policy.init_from'})
    said = redacted(source.manifest['config']['main_config'])
    return [(f'`{key}`', f'`{value!r}`') for key in keys if (value := _at(said, key)) is not ABSENT]


def _at(tree: Mapping[str, Any], key: str) -> Any:
    value: Any = tree
    for name in key.split('.'):
        value = value.get(name, ABSENT) if isinstance(value, Mapping) else ABSENT
    return value


def _table(head: tuple[str, str], rows: list[Row]) -> str:
    lines = [head, ('---', '---'), *rows]
    return '\n'.join(f'| {left} | {str(right).replace("|", chr(92) + "|")} |' for left, right in lines)
