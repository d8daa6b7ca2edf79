"""``rlframe check-env``: each fault of an env is found, with the line to change; envs without faults pass."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any

import checked_envs
import numpy as np
import pytest
from broken_envs import BrokenEnv
from checked_envs import RELEASE
from error_texts import raises

from rlframe.app.check_env import check_env, section_of, text_of
from rlframe.entry.__main__ import main
from rlframe.errors import EnvError


@pytest.fixture(autouse=True)
def released() -> Iterator[None]:
    """Lets envs that hang go on afterwards."""
    RELEASE.clear()
    yield
    RELEASE.set()


def checked(env: Any, steps: int = 40, **options: Any) -> dict[str, Any]:
    return check_env({'env_id': env, **options}, steps, call_seconds=20.0)


def errors(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [finding for finding in report['findings'] if finding['severity'] == 'error']


def line_of(method: Any, text: str) -> str:
    lines, start = inspect.getsourcelines(method)
    (number,) = [number for number, line in enumerate(lines, start) if text in line]
    return f'{inspect.getsourcefile(method)}:{number}'


def test_an_env_without_faults_passes_every_check() -> None:
    report = checked('CartPole-v1', steps=60)
    assert report['good'] and not errors(report) and report['findings'] == []
    assert set(report['checks'].values()) == {'passed'} and len(report['checks']) == 6
    facts = report['facts']
    assert facts['max_episode_steps'] == 500 and facts['reward_threshold'] == 475
    assert facts['saving'] == 'exact'
    assert facts['random']['episodes'] > 0 and facts['speed']['steps_per_second'] > 0
    assert (
        'ddpg' not in facts['policies'] and report['next'] == 'rlframe train --env CartPole-v1 --policy ppo'
    )


def test_each_id_that_a_run_takes_is_checked_and_a_game_of_several_players_names_the_run() -> None:
    assert section_of('agents:agent_games', {})['kwargs'] == {'game': 'agent_games'}
    assert section_of('CartPole-v1', {'kwargs': {'a': 1}}) == {'env_id': 'CartPole-v1', 'kwargs': {'a': 1}}
    with raises(EnvError):
        section_of('pettingzoo:games:Nim', {})


def test_a_curriculum_is_tried_too() -> None:
    rule = dict(type='linear', start=1, end=3, decay=9)
    assert checked('zoo:Ladder', schedule={'level': rule})['good']
    for name, seen in (
        ('levle', "no attribute or method 'levle'"),
        ('reset', 'Ladder.reset does not take the value'),
    ):
        (error,) = errors(checked('zoo:Ladder', schedule={name: rule}))
        assert seen in error['seen']


@pytest.mark.parametrize(
    ('fault', 'seen', 'fix'),
    [
        ('obs of 5', 'of shape (5,), declared is (4,)', 'declared shape'),
        ('obs nan', 'nan', 'Guard the division'),
        ('reward nan', 'reward', 'Guard the division'),
        ('flag int', 'terminated=1 (int), expected a bool', 'bool(...)'),
    ],
)  # fmt: skip
def test_a_broken_answer_is_named_with_its_method(fault: str, seen: str, fix: str) -> None:
    report = checked(BrokenEnv, kwargs={'fault': fault})
    (error,) = errors(report)
    assert seen in error['seen'] and fix in error['fix'] and not report['good']
    assert error['where'] == line_of(BrokenEnv.step, 'return (')
    assert report['checks']['steps'] == 'failed' and report['checks']['saving'] == 'skipped'


@pytest.mark.parametrize(
    ('env', 'kwargs', 'seen', 'fix'),
    [
        ('Masked', {'first': [0.0, -np.inf], 'later': [0.0, 0.0]}, 'action mask is [0.0, -inf]', 'mask == 0'),
        ('Masked', {'first': [1, 1], 'later': [0, 0]}, 'allows no action', '1 means allowed'),
        ('Masked', {'first': [1, 1]}, "step() gave no info['action_mask']", 'must give it always'),
        ('Masked', {'later': [1, 1]}, 'is ignored: the first reset() gave none', 'from reset(), too'),
        ('MaskedPush', {'first': [1, 1]}, 'is ignored: no mask fits Box', 'Discrete and MultiDiscrete'),
        ('MaskedPart', {}, "obs['action_mask'] cannot mask the actions of Box", "filter_keys=['at']"),
    ],
)
def test_what_is_wrong_with_masks_is_found(env: str, kwargs: dict[str, Any], seen: str, fix: str) -> None:
    (found,) = checked(getattr(checked_envs, env), kwargs=kwargs)['findings']
    assert seen in found['seen'] and fix in found['fix'] + found['seen']
    assert found['severity'] == ('warning' if 'ignored' in seen else 'error')


def test_a_mask_of_real_numbers_is_no_mistake_and_one_may_be_ignored() -> None:
    assert checked(checked_envs.Masked, kwargs={'first': [1.0, 0.0], 'later': [0.0, 1.0]})['findings'] == []
    assert checked(checked_envs.MaskedPush, kwargs={'first': [1, 1]}, action_mask=False)['findings'] == []


def test_an_env_that_raises_is_named_with_the_line() -> None:
    (error,) = errors(checked(checked_envs.Raising))
    assert "step() raised KeyError: 'position'" in error['seen']
    assert error['where'] == line_of(checked_envs.Raising.step, "{}['position']")
    (error,) = errors(checked(checked_envs.NeverMade))
    assert error['where'] == line_of(checked_envs.NeverMade.__init__, 'raise OSError')


def test_an_env_that_hangs_is_abandoned_and_named_with_the_line() -> None:
    report = check_env({'env_id': checked_envs.Hanging}, 40, call_seconds=0.5)
    (error,) = errors(report)
    assert error['seen'].startswith('reset()') and 'did not return within 0.5 s' in error['seen']
    assert error['where'] == line_of(checked_envs.Hanging.reset, 'RELEASE.wait')


def test_an_env_that_prints_is_named_and_stdout_stays_clean(capsys: pytest.CaptureFixture[str]) -> None:
    report = checked(checked_envs.Printing)
    assert capsys.readouterr().out == '' and report['good']
    (finding,) = [finding for finding in report['findings'] if finding['check'] == 'output']
    assert "'a new episode begins'" in finding['seen']
    assert finding['where'] == line_of(checked_envs.Printing.reset, 'print(')


@pytest.mark.parametrize('has_parts', [False, True])
def test_an_env_that_changes_what_it_returned_is_told_of(has_parts: bool) -> None:
    report = checked(checked_envs.Reusing, kwargs={'has_parts': has_parts})
    (finding,) = report['findings']
    assert finding['check'] == 'gymnasium' and 'share an object' in finding['seen'] and report['good']


def test_randomness_that_no_seed_controls_is_an_error() -> None:
    report = checked(checked_envs.Unseeded)
    assert max(len(line) for line in text_of(report, 80).splitlines() if not line.startswith('  at ')) <= 80
    (error,) = errors(report)
    assert error['check'] == 'determinism' and 'self.np_random' in error['fix']


@pytest.mark.parametrize(
    ('env', 'wrappers'),
    [
        ('GoodEnv', [{'type': checked_envs.Learning, 'of': 'obs'}, 'RecordEpisodeStatistics']),
        ('GoodEnv', [{'type': checked_envs.Learning, 'of': 'reward'}]),
        ('Harder', []),
    ],
)
def test_what_an_env_or_a_wrapper_remembers_of_earlier_episodes_is_an_error(env: str, wrappers: Any) -> None:
    (error,) = errors(checked(getattr(checked_envs, env), wrappers=wrappers))
    assert error['check'] == 'determinism' and 'used before' in error['seen']
    assert 'policy.normalize_obs=True' in error['fix']


def test_what_cannot_be_saved_has_no_time_limit_or_gives_no_reward_is_told() -> None:
    report = checked(checked_envs.Handle)
    assert report['facts']['saving'] == 'not possible' and report['good']
    assert any('Handle.plan' in finding['seen'] for finding in report['findings'])
    seen = ' '.join(finding['seen'] for finding in checked(checked_envs.Endless)['findings'])
    assert 'no time limit' in seen and 'every reward' in seen


def test_spaces_that_fit_no_policy_are_an_error_and_unreadable_parts_are_left_out() -> None:
    (error,) = errors(checked(checked_envs.Texts))
    assert error['check'] == 'spaces'
    report = checked(checked_envs.WithText)
    assert report['good'] and 'FilterObservation' in report['findings'][0]['fix']


def test_the_verb_ends_with_1_for_errors_and_2_for_unknown_envs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['check-env', 'checked_envs:Raising', '--steps', '5']) == 1
    text = capsys.readouterr().out
    where = line_of(checked_envs.Raising.step, "{}['position']")
    assert text.startswith('checked_envs:Raising: 1 error\n') and where.rpartition('/')[2] in text
    assert (
        main(['check-env', 'CartPole-v1', '--steps', '5', '--json', '--wrappers', 'FlattenObservation']) == 0
    )
    assert json.loads(capsys.readouterr().out)['good']
    assert main(['check-env', 'CartPol-v1']) == 2
    out, err = capsys.readouterr()
    assert out == '' and 'CartPole-v1' in err and len(err.splitlines()) == 1
