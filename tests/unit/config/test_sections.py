"""Sections: annotated types of options that other classes declare, and keys in strings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from runs import ROOT

import rlframe
from rlframe.config import compile_config, read_config
from rlframe.config.components import backend_defaults, find_schema
from rlframe.config.schema import ALL_COMPONENTS, IN_PARALLEL, PARALLEL_FIELDS, Component, ExperimentConfig
from rlframe.utils.field import REQUIRED, Configurable, Options, ResolvedConfig, to_plain

CONFIGS = sorted((ROOT / 'configs').glob('*.py'))
SOMEWHERE_ELSE = ['policy.collect.collector.backend=ray', 'policy.eval.evaluator.backend=ray']

TRANSLATES = (
    'import_ding.py',
    'ding_table.py',
    'ding_convert.py',
    'ding_data.py',
    'ding_reward.py',
    'ding_teams.py',
    'ding_draft.py',
    'ding.py',
    'option_names.py',
    'registry.py',
)
"""Files with keys of other frameworks, and with names of modules."""

OTHER_NAMES = {'policy.json', 'policy.onnx'}
"""Names of files that look like keys."""


@cache
def shipped() -> list[ExperimentConfig]:
    return [compile_config(*read_config(file)) for file in CONFIGS]


def misfits(view: type, section: Any, seen: set[str], prefix: str = '') -> Iterator[str]:
    """Returns the keys of a section whose values are not of the annotated types; adds all its keys to ``seen``."""
    for name, hint in get_type_hints(view).items():
        if name.startswith('_') or name not in section:  # only some configs have it
            continue
        key, value = f'{prefix}{name}', dict.get(section, name)
        seen.add(key)
        kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        inner = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, ResolvedConfig)]
        if inner and value is not None:
            yield from misfits(inner[0], value, seen, f'{key}.')
        elif value is not REQUIRED and not any(map(partial(is_of, value), kinds)):
            yield f'{key}={value!r} is no {hint}'


def is_of(value: Any, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    return kind is Any or isinstance(value, get_origin(kind) or kind)


def keys_of(view: type, prefix: str = '') -> Iterator[str]:
    for name, hint in get_type_hints(view).items():
        if not name.startswith('_'):
            yield prefix + name
            if isinstance(hint, type) and issubclass(hint, ResolvedConfig):
                yield from keys_of(hint, f'{prefix}{name}.')


@pytest.mark.filterwarnings('ignore::rlframe.errors.ConfigWarning')
def test_types_of_a_whole_config_are_those_of_its_values() -> None:
    seen: set[str] = set()
    for cfg in shipped():
        found = misfits(ExperimentConfig, cfg, seen)
        known = (
            'policy.learn.batch_size=None' if cfg.policy.on_policy else '-'
        )  # read for off-policy ones only
        assert [text for text in found if not text.startswith(known)] == []
    main, create = read_config(CONFIGS[0].with_name('cartpole_dqn.py'))
    parallel = create | {name: {'type': 'flask_fs'} for name in ('comm_collector', 'comm_learner')}
    for cfg in (
        compile_config(main, parallel),
        compile_config(main, create, overrides=SOMEWHERE_ELSE),
        compile_config(main, create, overrides=['seed=None']),
    ):
        assert list(misfits(ExperimentConfig, cfg, seen)) == []
    assert seen == set(keys_of(ExperimentConfig))


def all_keys() -> set[str]:
    """Returns the dotted keys of all options and sections that any config can have."""
    found = {'parallel', *keys_below(PARALLEL_FIELDS, 'parallel.'), *backend_defaults()}
    for cfg in shipped():
        found |= set(keys_below(find_schema(to_plain(cfg), [])[1]))
    for part in (*ALL_COMPONENTS, *IN_PARALLEL, Component('model', ('policy', 'model'), None)):
        for cls in map(part.registry.get, part.registry.names()):
            found.add(f'{part.key}.type')
            if issubclass(cls, Configurable):
                found |= set(keys_below(cls.config_fields(), f'{part.key}.'))
    return found


def keys_below(options: Options, prefix: str = '') -> Iterator[str]:
    for name, option in options.items():
        yield prefix + name
        if isinstance(option, dict):
            yield from keys_below(option, f'{prefix}{name}.')


def chain(node: ast.AST) -> str:
    return f'{chain(node.value)}.{node.attr}' if isinstance(node, ast.Attribute) else getattr(node, 'id', '')


@pytest.mark.filterwarnings('ignore::rlframe.errors.ConfigWarning')
def test_every_key_named_in_a_string_is_an_option() -> None:
    known = all_keys() | OTHER_NAMES
    for path in sorted(Path(rlframe.__file__).parent.rglob('*.py')):
        if path.name in TRANSLATES:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if re.fullmatch(r'(policy|env|parallel)(?!\.kwargs)(\.[a-zA-Z_]+)+', node.value):
                    assert node.value in known, f'{path}:{node.lineno}: no option is called {node.value}'
            elif (
                isinstance(node, ast.Call)
                and re.match(r'(self\._?)?cfg\..+\.get$', chain(node.func))
                and isinstance(node.args[0], ast.Constant)
            ):
                key = f'{chain(node.func).partition("cfg.")[2].removesuffix("get")}{node.args[0].value}'
                assert any(f'.{one}'.endswith(f'.{key}') for one in known), f'{path}:{node.lineno}: {key}'
