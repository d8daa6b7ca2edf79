"""Declared options: types, ranges, merging along the bases, and which keys were read."""

from __future__ import annotations

import copy
import math
import pickle
from types import NoneType
from typing import Any, Literal

import numpy as np
import pytest
from easydict import EasyDict
from error_texts import raises
from hypothesis import given, settings
from hypothesis import strategies as st

from rlframe.errors import ConfigError, ConfigErrors
from rlframe.utils.field import (
    ABSENT,
    REQUIRED,
    Configurable,
    Field,
    ResolvedConfig,
    Section,
    check_values,
    fields_of,
    option,
    to_plain,
)


class Base(Configurable):
    config = dict(
        size=Field(4, range='[1, inf)', unit='units', doc='how wide'),
        rate=Field(1e-3, type=(float, dict), range='(0, inf)'),
        n_sample=Field(None, type=int, range='[1, inf)'),
        shape=Field((84, 84)),
        kwargs=Field({}),
        eps=Field({'type': 'exp', 'start': 1.0, 'end': 0.1}),
        learn=dict(batch_size=64, name='adam', flag=False),
    )


class Derived(Base):
    config = dict(size=8, n_sample=16, kwargs=dict(a=1), learn=dict(batch_size=32, extra=1.5))


def test_defaults_are_merged_along_the_bases() -> None:
    cfg = Derived.default_config()
    assert isinstance(cfg, EasyDict)
    assert (cfg.size, cfg.n_sample, cfg.kwargs, cfg.cfg_type) == (8, 16, {'a': 1}, 'DerivedDict')
    assert cfg.learn == {'batch_size': 32, 'name': 'adam', 'flag': False, 'extra': 1.5}
    assert Base.default_config().learn == {'batch_size': 64, 'name': 'adam', 'flag': False}


def test_a_class_may_leave_out_options_of_its_base() -> None:
    class Without(Derived):
        config = dict(size=ABSENT, learn=dict(name=ABSENT))

    assert Without.default_config().learn == {'batch_size': 32, 'flag': False, 'extra': 1.5}
    with raises(ConfigError):
        Without.resolve_config({'size': 8})
    assert Derived.resolve_config({'size': 9}).size == 9


def test_another_default_leaves_type_and_range() -> None:
    assert Derived.resolve_config({'n_sample': None}).n_sample is None
    for bad in (0, 'x', 2.5):
        with raises(ConfigError):
            Derived.resolve_config({'n_sample': bad})


@pytest.mark.parametrize(
    ('values', 'key', 'expected'),
    [
        ({'rate': 1}, 'rate', 1.0),
        ({'size': 1e6}, 'size', 1_000_000),
        ({'size': np.int64(3)}, 'size', 3),
        ({'rate': np.float32(0.5)}, 'rate', 0.5),
        ({'shape': [4, 4]}, 'shape', (4, 4)),
        ({'eps': {'end': 0.2}}, 'eps', {'type': 'exp', 'start': 1.0, 'end': 0.2}),
        ({'eps': {'type': 'constant', 'value': 0.2}}, 'eps', {'type': 'constant', 'value': 0.2}),
        ({'kwargs': {'b': 2}}, 'kwargs', {'b': 2}),
    ],
)
def test_accepted_values_get_their_declared_type(values: dict[str, Any], key: str, expected: Any) -> None:
    found = Base.resolve_config(values)[key]
    assert found == expected and isinstance(found, type(expected))


@pytest.mark.parametrize('value', [True, '4', 2.5, 0, None, [4], math.nan, math.inf])
def test_impossible_values_are_refused(value: Any) -> None:
    with raises(ConfigError):
        Base.resolve_config({'size': value})


@pytest.mark.parametrize(
    ('interval', 'inside', 'outside'),
    [
        ('[0, 1]', [0, 0.5, 1], [-0.1, 1.1]),
        ('(0, 1)', [0.5], [0, 1]),
        ('[1, inf)', [1, 1e300], [0.5, math.inf]),
        ('', [-1e9], []),
    ],
)
def test_ranges(interval: str, inside: list[float], outside: list[float]) -> None:
    field = Field(0.5, range=interval)
    assert not any(field.problem(value) for value in inside)
    assert all(field.problem(value) for value in [*outside, math.nan])


def test_choices_are_of_the_same_type() -> None:
    field = Field(1, choices=(1, 2))
    assert not field.problem(2) and field.problem(True) and field.problem(2.0) == 'one of 1, 2'


def test_a_check_says_what_was_expected() -> None:
    field = Field(2, check=lambda value: '' if value % 2 == 0 else 'an even number')
    assert field.problem(3) == 'an even number' and field.problem('x') == 'int' and not field.problem(4)


def test_the_items_of_a_list_have_the_type_that_its_annotation_says() -> None:
    class Lists(Section):
        weights: list[float] | None = option(None)
        names: str | list[str] = option('x')
        anything: list[Any] = option([])

    fields = fields_of(Lists)
    assert (
        fields['weights'].problem([1, 'nan']) == 'a list of floats' == fields['weights'].problem([math.nan])
    )
    assert fields['names'].problem([1]) == 'a list of strs' and not fields['names'].problem('y')
    assert not fields['weights'].problem([1, 2.5]) and not fields['anything'].problem([1, 'x'])


def test_required_options_are_found_in_sections_that_are_not_there() -> None:
    options = {'a': {'b': {'c': Field(REQUIRED, type=str, doc='a name')}}, 'd': Field(REQUIRED, type=int)}
    _, errors = check_values({}, options)
    assert [error.where for error in errors] == ['a.b.c', 'd']
    _, errors = check_values({'a': {'b': {'c': 'x'}}, 'd': 'x'}, options)
    assert [error.where for error in errors] == ['d']


def test_direct_construction_reports_all_mistakes_with_their_keys() -> None:
    with pytest.raises(ConfigErrors) as caught:
        Base.resolve_config({'siez': 3, 'batch_size': 3, 'learn': {'nam': 'x'}, 'rate': 0, 'eps': 3})
    text = str(caught.value)
    for word in (
        'Base',
        'Did you mean size?',
        'belongs to learn.batch_size',
        'Did you mean learn.name?',
        'rate: bad',
        'eps: bad',
    ):
        assert word in text


def test_type_and_import_names_are_left_out_and_a_compiled_config_passes() -> None:
    cfg = Base.resolve_config({'type': 'x', 'import_names': [], 'cfg_type': 'BaseDict'})
    assert 'type' not in cfg and Base.resolve_config(cfg) is cfg
    assert Base.resolve_config(None) == cfg


def unread(cfg: ResolvedConfig) -> list[str]:
    return [name for name in dict.keys(cfg) if not cfg.was_read(name)]


def test_reading_is_remembered_and_copying_to_plain_is_no_reading() -> None:
    cfg = Base.resolve_config(None)
    to_plain(cfg)
    assert unread(cfg) == list(Base.config)
    assert cfg.size and cfg['rate'] and cfg.get('n_sample') is None and cfg.learn.name
    assert unread(cfg) == ['shape', 'kwargs', 'eps'] and unread(cfg.learn) == ['batch_size', 'flag']
    dict(**cfg.learn)
    list(cfg.eps.values())
    list(cfg.kwargs.items())
    assert unread(cfg) == ['shape'] and unread(cfg.learn) == [] == unread(cfg.eps)
    assert copy.deepcopy(cfg).shape == (84, 84) and cfg.was_read('shape')


def test_resolved_config_is_a_dict_like_any_other() -> None:
    cfg = Base.resolve_config(None)
    twin = pickle.loads(pickle.dumps(cfg))
    assert twin == cfg and isinstance(twin.learn, ResolvedConfig)
    twin.learn.batch_size = 1
    twin.update(size=9)
    assert (twin.pop('rate'), twin.pop('rate', 5), twin.size) == (1e-3, 5, 9) and 'rate' not in twin
    assert cfg.learn.batch_size == 64
    with pytest.raises(AttributeError, match=r"no key 'siez'\. Did you mean 'size'"):
        _ = cfg.siez


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    st.dictionaries(
        st.sampled_from(['size', 'rate', 'shape', 'eps', 'learn', 'zzz']),
        st.none() | st.integers() | st.text() | st.lists(st.integers()),
    )
)
def test_every_value_is_accepted_or_reported_once(values: dict[str, Any]) -> None:
    merged, errors = check_values(values, Base.config_fields())
    wrong = [error.where for error in errors]
    assert sorted(set(wrong)) == sorted(wrong) and set(wrong) <= set(values)
    _, again = check_values(merged, Base.config_fields())
    assert again == []


class Inner(Section):
    rate: float = option(1e-3, range='(0, inf)', unit='per update', doc='step size')
    mode: Literal['mean', 'max'] = option('mean', doc='reduction')


class Outer(Section):
    type: str
    size: int = option(4, range='[1, inf)', doc='width')
    limit: int | None = option(None, doc='largest width')
    names: list[str] = option([])
    anything: Any = option(0, reaches='code')
    learn: Inner


class InnerOfChild(Inner):
    decay: float = option(0.5)


class OuterOfChild(Outer):
    learn: InnerOfChild


class Parent(Configurable):
    _cfg: Outer


class Tuned(Parent):
    config = dict(size=8, limit=16, learn=dict(rate=0.1, mode='max'))


class Child(Tuned):
    _cfg: OuterOfChild
    config = dict(learn=dict(decay=0.9))


def test_a_section_declares_the_options_that_its_annotations_say() -> None:
    assert (
        Parent.config_fields()
        == fields_of(Outer)
        == {
            'size': Field(4, type=(int,), range='[1, inf)', doc='width'),
            'limit': Field(None, type=(int, NoneType), doc='largest width'),
            'names': Field([], type=(list,), check=fields_of(Outer)['names'].check),
            'anything': Field(0, type=(object,), reaches='code'),
            'learn': {
                'rate': Field(1e-3, type=(float,), range='(0, inf)', unit='per update', doc='step size'),
                'mode': Field('mean', choices=('mean', 'max'), doc='reduction'),
            },
        }
    )


def test_a_subclass_adds_options_and_keeps_the_defaults_that_its_bases_replaced() -> None:
    cfg = Child.resolve_config({})
    assert (cfg.size, cfg.limit) == (8, 16)
    assert cfg.learn == {'rate': 0.1, 'mode': 'max', 'decay': 0.9}
    assert Parent.resolve_config({}).learn == {'rate': 1e-3, 'mode': 'mean'}
    with raises(ConfigErrors):
        Child.resolve_config({'size': 1.5, 'limit': 'x', 'learn': {'mode': 'min'}})


def test_a_section_has_annotated_options_only() -> None:
    for body in ({'size': option(1)}, {'__annotations__': {'size': int}, 'size': 1}):
        with pytest.raises(TypeError, match=r'Bad\.size has to be an annotated option'):
            type('Bad', (Outer,), body)
