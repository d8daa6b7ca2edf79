"""Intervals are a number of train iterations, or a text with a unit."""

from __future__ import annotations

from typing import Any

import pytest
from error_texts import raises

from rlframe.config import compile_config, config_pair
from rlframe.errors import ConfigError, ConfigWarning
from rlframe.utils.every import Every, interval_problem

BAD = (
    0,
    -1,
    True,
    1.5,
    None,
    [],
    '',
    '5000',
    'env steps',
    '0 env steps',
    '5.5 env steps',
    '-5 env steps',
    '5 steps',
    '5 env steps, later',
    '5 env steps, later 10',
)


@pytest.mark.parametrize(
    ('value', 'expected'),
    [
        (100, Every(100)),
        ('100 train iterations', Every(100)),
        ('5000 env steps', Every(5000, True)),
        (' 5_000  Env steps ', Every(5000, True)),
        ('5,000 env steps', Every(5000, True)),
        ('1e4 env steps', Every(10_000, True)),
        ('1.5e4 env steps', Every(15_000, True)),
        ('1 env step', Every(1, True)),
        ('1000 env steps, later 10 %', Every(1000, True, 0.1)),
        ('7 train iterations,later 2.5%', Every(7, False, 0.025)),
    ],
)
def test_an_interval_has_a_length_and_a_unit(value: Any, expected: Every) -> None:
    assert Every.of(value) == expected and interval_problem(value) == ''
    assert expected.now(7, 70) == (70 if expected.in_env_steps else 7)


@pytest.mark.parametrize('value', BAD)
def test_anything_else_is_refused_with_an_example(value: Any) -> None:
    with raises(ValueError):
        Every.of(value)


def test_it_has_passed_once_the_counter_grew_by_its_length_or_is_another_one() -> None:
    every = Every(10)
    assert [every.has_passed(5, now) for now in (5, 14, 15, 4)] == [False, False, True, True]


def test_intervals_that_grow_are_equal_at_first_and_then_a_share_of_the_counter() -> None:
    every = Every.of('10 train iterations, later 20 %')
    assert [every.after(last) for last in (0, 50, 100)] == [10, 10, 20]
    assert [every.has_passed(100, now) for now in (119, 120)] == [False, True]
    ends = [now for now in range(1, 200) if every.ends(now) > every.ends(now - 1)]
    assert ends == [10, 20, 30, 40, 50, 60, 72, 87, 104, 125, 150, 180]
    assert [now for now in range(30) if Every(10).ends(now) > Every(10).ends(now - 1)] == [0, 10, 20]


def test_recorded_data_count_no_env_steps_and_a_long_interval_is_warned_of() -> None:
    words = ['policy.eval.evaluator.eval_freq=500 env steps']
    with raises(ConfigError):
        compile_config(*config_pair('cartpole_bc'), overrides=words)
    words = ['max_env_step=400', 'max_train_iter=5', 'policy.eval.evaluator.eval_freq=500 env steps']
    with pytest.warns(ConfigWarning, match=r'eval_freq \(500 env steps\) > max_env_step \(400\)'):
        compile_config(*config_pair('cartpole_dqn'), overrides=words)


KEYS = ('evaluator.eval_freq', 'collector.collect_print_freq', 'learner.hook.log_show_after_iter')


@pytest.mark.parametrize('key', KEYS)
def test_a_bad_interval_in_a_config_names_its_key_and_the_form(key: str) -> None:
    pair = config_pair('cartpole_dqn')
    compile_config(*pair, overrides=[f'{key}=5000 env steps'])
    with raises(ConfigError) as caught:
        compile_config(*pair, overrides=[f'{key}=5000 steps'])
    assert caught.value.where.endswith(key.split('.')[1])
