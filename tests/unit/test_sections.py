"""Views: what they tell type checkers about a config is what the options' declarations say."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

import rlframe
from rlframe.config import compile_config, read_config
from rlframe.config.schema import PARALLEL_FIELDS, ExperimentConfig, Only, find_schema
from rlframe.config.tree import ALL_COMPONENTS, IN_PARALLEL, Component
from rlframe.registry import PARALLEL_COMMANDER_REGISTRY, REGISTRIES
from rlframe.utils.field import Configurable, Field, Options, ResolvedConfig, to_plain

CONFIGS = sorted((Path(__file__).parents[2] / 'configs').glob('*.py'))
SOMEWHERE_ELSE = ['policy.collect.collector.backend=ray', 'policy.eval.evaluator.backend=ray']

TRANSLATES = (
    'import_ding.py',
    'ding_table.py',
    'ding_convert.py',
    'ding_draft.py',
    'ding.py',
    'synonyms.py',
    'registry.py',
)
"""Files with keys of other frameworks, and with names of modules."""

OTHER_NAMES = {'policy.json', 'policy.onnx'}
"""Names of files that look like keys."""


def parts_of(hint: Any) -> tuple[set[Any], tuple[Any, ...]]:
    """Returns the types that an annotation allows, ``Any`` as ``object``, and its marks."""
    if get_origin(hint) is Annotated:
        inner, *marks = get_args(hint)
        types, more = parts_of(inner)
        return types, (*marks, *more)
    if get_origin(hint) in (Union, UnionType):
        return set().union(*(parts_of(each)[0] for each in get_args(hint))), ()
    return {object if hint is Any else get_origin(hint) or hint}, ()


def declared(view: type, root: Any) -> Iterator[tuple[str, Any, set[Any], tuple[Any, ...]]]:
    """Returns the names, annotations, types and marks that a view declares for the sections of a config."""
    for name, hint in get_type_hints(view, include_extras=True).items():
        types, marks = parts_of(hint)
        only = [mark for mark in marks if isinstance(mark, Only)]
        if 'parallel' in marks and root.get('parallel') is None:
            continue
        if not name.startswith('_') and all(value_at(root, mark.key) == mark.value for mark in only):
            yield name, hint, types, marks


def lies(view: type, options: Options, root: Any, prefix: str = '') -> Iterator[str]:
    """Returns the annotations of a view that differ from the options of its section; missing options are no lies."""
    for name, hint, types, marks in declared(view, root):
        option = options.get(name)
        if option is None:
            continue
        below = [each for each in types if isinstance(each, type) and issubclass(each, ResolvedConfig)]
        if isinstance(option, dict):
            if not below:
                yield f'{prefix}{name} is a section, not {types}'
            for inner in below:
                yield from lies(inner, option, root, f'{prefix}{name}.')
        elif object in types:
            continue
        elif Literal in types:
            if set(get_args(hint)) != set(option.choices):
                yield f'{prefix}{name}: {hint}, but the choices are {option.choices}'
        elif types - set(below) != set(option.types) - ({NoneType} if 'drawn' in marks else set()):
            yield f'{prefix}{name}: {types}, but it accepts {option.types}'


def absent(view: type, section: Mapping[str, Any], root: Any, prefix: str = '') -> Iterator[str]:
    """Returns the keys of a view that a section lacks though it should have them."""
    for name, _, types, _ in declared(view, root):
        if name not in section:
            yield prefix + name
        for inner in types:
            if (
                isinstance(inner, type)
                and issubclass(inner, ResolvedConfig)
                and section.get(name) is not None
            ):
                yield from absent(inner, section[name], root, f'{prefix}{name}.')


def value_at(section: Any, key: str) -> Any:
    for name in key.split('.'):
        section = section[name]
    return section


@pytest.mark.parametrize('file', CONFIGS, ids=lambda file: file.stem)
@pytest.mark.filterwarnings('ignore::rlframe.errors.ConfigWarning')
def test_types_of_a_whole_config_are_those_of_its_options(file: Path) -> None:
    cfg = compile_config(*read_config(file))
    assert list(lies(ExperimentConfig, find_schema(to_plain(cfg), [])[1], cfg)) == []
    assert list(absent(ExperimentConfig, cfg, cfg)) == []


def test_types_of_a_whole_config_hold_in_parallel_mode() -> None:
    main, create = read_config(CONFIGS[0].with_name('cartpole_dqn.py'))
    create |= {name: {'type': 'flask_fs'} for name in ('comm_collector', 'comm_learner')}
    cfg = compile_config(main, create, overrides=['parallel.collector_num=1'])
    assert list(lies(ExperimentConfig, find_schema(to_plain(cfg), [])[1], cfg)) == []
    assert list(absent(ExperimentConfig, cfg, cfg)) == []


def test_types_of_a_whole_config_hold_in_other_backends() -> None:
    cfg = compile_config(
        *read_config(CONFIGS[0].with_name('cartpole_dqn.py')), overrides=SOMEWHERE_ELSE, seed=None
    )
    assert list(lies(ExperimentConfig, find_schema(to_plain(cfg), [])[1], cfg)) == []
    assert list(absent(ExperimentConfig, cfg, cfg)) == []
    assert isinstance(cfg.seed, int)


def views_of(cls: type) -> Iterator[type]:
    """Returns the views that a class and its bases declare for their own options."""
    for base in cls.__mro__:
        scope = vars(sys.modules[base.__module__])
        own = vars(base).get('__annotations__', {})
        yield from (eval(own[name], scope) for name in ('_cfg', 'cfg') if name in own)


KINDS = {**REGISTRIES, 'parallel commander': PARALLEL_COMMANDER_REGISTRY}
COMPONENTS = [(kind, name) for kind, registry in KINDS.items() for name in registry.names()]


@pytest.mark.parametrize(('kind', 'name'), COMPONENTS, ids=lambda part: str(part))
def test_types_of_a_component_are_those_of_its_options(kind: str, name: str) -> None:
    cls = KINDS[kind].get(name)
    if issubclass(cls, Configurable):
        options = cls.config_fields()
        for view in views_of(cls):
            assert list(lies(view, options, None)) == []
            assert list(absent(view, options, None)) == []


def test_a_view_that_lies_is_found() -> None:
    class Inner(ResolvedConfig):
        low: int

    class View(ResolvedConfig):
        size: int
        rate: float | None
        mode: Literal['a', 'b']
        inner: Inner

    scope = {'Inner': Inner}
    View.__annotations__ = {
        name: eval(text, {**globals(), **scope}) for name, text in View.__annotations__.items()
    }
    options = {
        'size': Field(1),
        'rate': Field(None, type=float),
        'mode': Field('a', choices=('a', 'b')),
        'inner': {'low': Field(1)},
    }
    assert list(lies(View, options, None)) == [] and list(absent(View, options, None)) == []
    wrong = {
        'size': Field('1'),
        'rate': Field(1.0),
        'mode': Field('a', choices=('a', 'c')),
        'inner': {'low': Field(1.0)},
    }
    assert [text.split(':')[0] for text in lies(View, wrong, None)] == ['size', 'rate', 'mode', 'inner.low']
    assert list(absent(View, {'inner': {}}, None)) == ['size', 'rate', 'mode', 'inner.low']
    assert list(lies(View, {'inner': Field(1), 'size': {}}, None)) != []


def test_types_of_a_collector_or_evaluator_in_actors_are_those_of_its_options() -> None:
    from rlframe.backend.ray.options import EVALUATOR_OPTIONS, RAY_OPTIONS, ActorsConfig

    collector = REGISTRIES['collector'].get('sample').config_fields() | RAY_OPTIONS
    evaluator = REGISTRIES['evaluator'].get('interaction').config_fields() | EVALUATOR_OPTIONS
    views = [(ActorsConfig, collector)]
    if importlib.util.find_spec('ray') is not None:
        from rlframe.backend.ray.evaluator import RayEvaluatorConfig

        views.append((RayEvaluatorConfig, evaluator))
    for view, options in views:
        assert list(lies(view, options, None)) == []
        assert list(absent(view, options, None)) == []


def all_keys() -> set[str]:
    """Returns the dotted keys of all options and sections that any config can have."""
    found = {'parallel', *keys_below(PARALLEL_FIELDS, 'parallel.')}
    for file in CONFIGS:
        found |= set(keys_below(find_schema(to_plain(compile_config(*read_config(file))), [])[1]))
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
                if re.fullmatch(r'(policy|env|parallel)(\.[a-zA-Z_]+)+', node.value):
                    assert node.value in known, f'{path}:{node.lineno}: no option is called {node.value}'
            elif (
                isinstance(node, ast.Call)
                and re.match(r'(self\._?)?cfg\..+\.get$', chain(node.func))
                and isinstance(node.args[0], ast.Constant)
            ):
                key = f'{chain(node.func).partition("cfg.")[2].removesuffix("get")}{node.args[0].value}'
                assert any(f'.{one}'.endswith(f'.{key}') for one in known), f'{path}:{node.lineno}: {key}'
