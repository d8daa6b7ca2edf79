"""``rlframe check-config``: all mistakes of a config at once, or what it would train."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from error_texts import raises

from rlframe.app.check_config import check_config, text_of
from rlframe.entry.__main__ import main
from rlframe.errors import ConfigError, ConfigErrors


def test_a_good_config_is_described_and_nothing_is_created(cwd: Path) -> None:
    found = check_config('cartpole_dqn', ['max_env_step=5000'])
    assert (
        found['policy'] == 'dqn' and found['env'] == 'CartPole-v1' and found['action_space'] == 'Discrete(2)'
    )
    assert found['observation_space'] == 'Box (4,) float32 in [-inf, inf]'
    assert found['network']['class'] == 'QNet'
    assert found['network']['parameters'] == (4 + 1) * 128 + (128 + 1) * 128 + (128 + 1) * 2
    assert found['buffer'] == {'type': 'naive', 'size': 20000, 'bytes': 20000 * (2 * 4 * 4 + 1 + 4 + 2 + 4)}
    assert found['budget'] == {'max_env_step': 5000, 'max_train_iter': None, 'stop_value': 500.0}
    text = text_of(found, 80)
    assert 'ends       after 5,000 env steps, or at a mean return of 500' in text
    assert max(map(len, text.splitlines())) <= 80
    assert list(cwd.iterdir()) == []


def test_all_mistakes_are_reported_together(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        'check-config',
        'cartpole_dqn',
        'policy.learn.batch_sze=1',
        'policy.learn.learning_rate=-1',
        'lr=3',
    ]
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == '' and 'cartpole_dqn: 3 mistakes in the config' in err
    assert 'policy.learn.batch_size' in err and 'got -1' in err
    assert main([*words, '--json']) == 2
    found = json.loads(capsys.readouterr().out)
    assert not found['valid'] and [m['where'] for m in found['mistakes']] == [
        'policy.learn.learning_rate', 'policy.learn.batch_sze', 'lr',
    ]  # fmt: skip


def test_a_policy_that_cannot_act_and_a_buffer_that_does_not_fit_are_reported_together() -> None:
    size = 'policy.other.replay_buffer.replay_buffer_size=1e12'
    with pytest.raises(ConfigErrors) as caught:
        check_config('cartpole_dqn', ['env.env_id=Pendulum-v1', size])
    policy, buffer = caught.value.errors
    assert policy.where == 'policy.type' and 'Policies that fit: a2c' in str(policy)
    assert buffer.where == 'policy.other.replay_buffer.replay_buffer_size'


def test_warnings_are_part_of_the_description() -> None:
    found = check_config('cartpole_dqn', ['max_env_step=10'], with_env=False)
    assert 'there will be no update' in found['warnings'][0] and 'network' not in found


def test_a_pair_and_a_translated_config_are_checked_too() -> None:
    main_config: dict[str, Any] = {'env': {'env_id': 'CartPole-v1'}}
    assert check_config((main_config, {'policy': {'type': 'ppo'}}))['buffer'] is None
    with raises(ConfigError):
        check_config(({'env': {}}, {'policy': {'type': 'ppo'}}))
