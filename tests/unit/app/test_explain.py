"""``rlframe explain``: what an option is, by any of its names, as text and as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from error_texts import raises

from rlframe.app.explain import all_declared, explain, meant_by, text_of
from rlframe.entry.__main__ import main
from rlframe.errors import ConfigError
from rlframe.option_names import SYNONYMS
from rlframe.registry import POLICY_REGISTRY


def keys(found: dict[str, Any]) -> list[str]:
    return [option['key'] for option in found['options']]


def test_an_option_has_the_defaults_of_each_policy() -> None:
    (option,) = explain('policy.learn.batch_size')['options']
    defaults = {name: each['default'] for each in option['declared'] for name in each['components']}
    assert set(defaults) == {f'policy {name}' for name in POLICY_REGISTRY.names()}
    assert defaults['policy dqn'] == 64 and defaults['policy a2c'] is None
    sequences = [each for each in option['declared'] if each['unit'] == 'sequences']
    assert sequences[0]['expected'] == 'int in [1, inf) (sequences)' and sequences[0]['may_change']
    assert 'minibatch_size' in option['also_called']


@pytest.mark.parametrize(
    ('word', 'expected'),
    [
        ('n_sample', ['policy.collect.n_sample']),
        ('gamma', ['policy.discount_factor', 'policy.collect.discount_factor']),
        ('num-envs', ['env.collector_env_num']),
        ('replay_buffer.type', ['policy.other.replay_buffer.type']),
        ('parallel.collector_num', ['parallel.collector_num']),
    ],
)  # fmt: skip
def test_an_option_is_found_by_any_of_its_names(word: str, expected: list[str]) -> None:
    assert keys(explain(word)) == expected


def test_a_component_has_its_own_options() -> None:
    component = explain('policy.dqn')['component']
    assert component['class'] == 'rlframe.policy.dqn.DQNPolicy'
    assert {'key': 'policy.double', 'default': True} in [
        {name: option[name] for name in ('key', 'default')} for option in component['options']
    ]


@pytest.mark.parametrize(
    'word',
    [
        'batch_sze',
        'dqn',
        'gama',
        'xyzzy'
    ]
)  # fmt: skip
def test_an_unknown_word_names_the_nearest(word: str) -> None:
    with raises(ConfigError):
        explain(word)


def test_every_synonym_means_an_option() -> None:
    known = list(dict.fromkeys(row.key for row in all_declared()))
    for name in SYNONYMS:
        assert meant_by(name, known)[1], name


@pytest.mark.parametrize('word', ['policy', 'gamma'])
def test_the_text_fits_80_columns(word: str) -> None:
    found = explain(word)
    for line in text_of(found, 80).splitlines():
        assert len(line) <= 80 or ' = ' in line or line.startswith('In full'), line


def test_the_verb_prints_text_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['explain', 'n_sample']) == 0
    assert 'set it     rlframe train -c CONFIG policy.collect.n_sample=' in capsys.readouterr().out
    assert main(['explain', 'gamma', '--json']) == 0
    assert json.loads(capsys.readouterr().out)['how'] == 'synonym'
    with pytest.raises(SystemExit, match='2'):
        main(['explain', 'gamma', 'seed=1'])
