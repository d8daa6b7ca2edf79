"""Writes ``docs/config.md`` from the options that rlframe's components declare.

usage: python docs/make_config_reference.py
"""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any

from rlframe.config import FORWARDED
from rlframe.config.backends import BACKENDS, ROLES
from rlframe.config.schema import TOP
from rlframe.config.tree import ALIASES, COMPONENTS
from rlframe.entry.listing import flat_fields, told
from rlframe.registry import REGISTRIES
from rlframe.utils.field import REQUIRED, Field
from rlframe.worker.learner.learner_hook import SHORTHANDS

FILE = Path(__file__).with_name('config.md')
HEAD = """# Every option

Made by `python docs/make_config_reference.py` from what the components declare; do not edit it by hand.

Keys are those of the merged config, as error messages name them and as an override on the command line sets them
(`policy.learn.batch_size=128`). `main_config` holds them under the same path. A component's `type` and `import_names`
are set in `create_config`, under the name in the heading. These short starts of a key mean the long ones: {aliases}.

An int is accepted where a float is, and `1e6` where an int is; a bool is not a number. In a range, a round bracket
excludes the end.

An option that reaches something beyond the run says so: code, files, the network or other programs. In a run of somebody
else it has its default, unless you set it or add `--trust`; see [security.md](security.md).
"""


def main() -> None:
    """Writes the file."""
    FILE.write_text(reference(), encoding='utf-8')


def reference() -> str:
    """Returns the text of ``docs/config.md``."""
    aliases = ', '.join(f'`{short}.` for `{key}.`' for short, key in ALIASES.items())
    parts = [HEAD.format(aliases=aliases), '## The run itself\n', _table(flat_fields(TOP))]
    for part in COMPONENTS:
        parts.append(f'## {part.name}: `{part.key}`\n')
        for name, cls in _builtin(part.name):
            parts += [_title(name, cls), _table(flat_fields(cls.config_fields(), f'{part.key}.'))]
    parts += ['## backend: `backend` of a collector or an evaluator\n', _table(_chosen())]
    for name, cls in _builtin('backend'):
        parts += [_title(name, cls), *(_table(rows) for role in ROLES if (rows := _backend_rows(cls, role)))]
    parts.append(
        '## model: `policy.model`\n\nThe options of the built-in networks are declared by the policies above.\n'
    )
    parts += [_title(name, cls) for name, cls in _builtin('model')]
    parts += [
        f'## learner_hook: `policy.learn.learner.hook`\n\n{_hooks()}',
        f'## Copied options\n\n{_forwarded()}',
    ]
    return '\n'.join(parts)


def _chosen() -> list[tuple[str, Field]]:
    return [(f'{".".join(path)}.backend', BACKENDS[role]) for role, path in ROLES.items()]


def _backend_rows(cls: Any, role: str) -> list[tuple[str, Field]]:
    return flat_fields(cls.options_of(role), f'{".".join(ROLES[role])}.')


def _builtin(kind: str) -> list[tuple[str, type]]:
    registry = REGISTRIES[kind]
    return [(name, registry.get(name)) for name in registry.names() if registry.is_builtin(name)]


def _title(name: str, cls: type) -> str:
    first_line = (inspect.getdoc(cls) or '').partition('\n')[0].replace('``', '`')
    return f'### `{name}`\n\n{first_line}\n'


def _table(rows: list[tuple[str, Field]]) -> str:
    if not rows:
        return 'No options.\n'
    lines = ['| key | default | accepted | unit | on resume | meaning |', '|---|---|---|---|---|---|']
    for key, field in rows:
        default = 'required' if field.default is REQUIRED else f'`{field.default!r}`'
        accepted = dataclasses.replace(field, unit='').expected()
        resumed = 'may change' if field.may_change else ''
        cells = (f'`{key}`', default, accepted, field.unit, resumed, told(field))
        lines.append(f'| {" | ".join(cell.replace("|", chr(92) + "|") for cell in cells)} |')
    return '\n'.join(lines) + '\n'


def _hooks() -> str:
    lines = [
        'A key is one of these, or any name with `dict(type=..., position=..., priority=100, **options)`. `None`, `False`'
        " or `''` means no such hook.\n",
        '| key | hook | position | priority | its value is |',
        '|---|---|---|---|---|',
    ]
    for key, (kind, position, priority, option) in SHORTHANDS.items():
        value = f'`{option}`' if option else '`True`'
        lines.append(f'| `{key}` | `{kind}` | {position} | {priority} | {value} |')
    lines += ['', '| hook | meaning |', '|---|---|']
    for name, cls in _builtin('learner_hook'):
        lines.append(f'| `{name}` | {(inspect.getdoc(cls) or "").partition(chr(10))[0].replace("``", "`")} |')
    return '\n'.join(lines) + '\n'


def _forwarded() -> str:
    rows = '\n'.join(f'| `{source}` | `{target}` |' for target, source in FORWARDED.items())
    return f'Set the first; the second, which its reader looks at, is a copy.\n\n| set | copy |\n|---|---|\n{rows}\n'


if __name__ == '__main__':
    main()
