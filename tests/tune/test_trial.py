"""A trial can be held, handed on and taken over between two evaluations, and nobody can tell afterwards."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from easydict import EasyDict
from error_texts import raises
from forked_roles import forked_children as forked_children
from runs import CASES, ROOT, differences
from tune_runs import (
    RATE,
    assert_same_state,
    case_options,
    comparable,
    generators,
    learning_rates,
    saved_state,
    trial_config,
)

from rlframe.config import read_config
from rlframe.errors import ConfigError, NonFiniteError
from rlframe.tune.trial import Trial, TrialBase, compile_trial, trial_options

CASE = pytest.mark.parametrize('case', ['dqn naive', pytest.param('sac', marks=pytest.mark.slow)])


Begin = Callable[..., Trial]


@pytest.fixture
def trial() -> Iterator[Begin]:
    """Makes trials, which are closed when the test is over."""
    made = []

    def begin(folder: Path, config: dict[str, Any], trial_id: str = 'one') -> Trial:
        folder.mkdir(parents=True, exist_ok=True)
        made.append(Trial(config, folder, trial_id))
        return made[-1]

    yield begin
    for running in made:
        running.close()


# results


def test_new_best_score_asks_for_a_checkpoint(trial: Begin, tmp_path: Path) -> None:
    running = trial(tmp_path, trial_config(options={RATE: 0.05}))
    best, asked = -math.inf, []
    for _ in range(4):
        result = running.step()
        asked.append(result['should_checkpoint'])
        assert asked[-1] == (result['eval/mean_reward'] > best)
        best = max(best, result['eval/mean_reward'])
        assert result['eval/best_mean_reward'] == best
    assert True in asked[1:]


@pytest.mark.parametrize(
    ('options', 'end'),
    [
        ({'max_env_step': 500}, lambda r: r['envstep'] >= 500),
        ({'env.stop_value': 1.0}, lambda r: r['stopped']),  # the untrained policy does not count
    ],
)
def test_trial_says_when_it_is_done(options: dict[str, Any], end: Any, trial: Begin, tmp_path: Path) -> None:
    running = trial(tmp_path, trial_config(options=options))
    results = [running.step()]
    while not results[-1]['done']:
        results.append(running.step())
    assert end(results[-1]) and not any(end(result) for result in results[:-1])
    assert results[-1]['eval_is_fresh'] is True, 'the last score is of the policy as it is in the end'
    again = running.step()
    assert again['done'] is True and again['timesteps_this_iter'] == 0 and again['eval_is_fresh'] is False
    assert again.keys() == results[0].keys()
    running.save(tmp_path / 'saved')
    taken = trial(tmp_path / 'b', trial_config(options=options))
    taken.load(tmp_path / 'saved')
    assert comparable(taken.step()) == comparable(again), 'a finished trial that is restored is finished'


@pytest.mark.usefixtures('forked_children')
def test_trial_goes_on_with_the_collectors_of_its_own_config(trial: Begin, tmp_path: Path) -> None:
    one = trial(tmp_path / 'a', trial_config())
    saved_at = one.step()['envstep']
    one.save(tmp_path / 'saved')
    other = trial(tmp_path / 'b', trial_config(options={'policy.collect.collector.overlap': 1}))
    other.load(tmp_path / 'saved')
    assert other.pipeline.progress.envstep == saved_at
    assert 'from one collector to one collector a round ahead' in other.pipeline.checkpoints.inexact[0]
    assert other.step()['envstep'] > saved_at


@pytest.mark.filterwarnings('ignore:max_env_step')
def test_trial_compared_by_its_rollouts_waits_for_the_first_one(trial: Begin, tmp_path: Path) -> None:
    options = {'metric': 'rollout/ep_rew_mean'}
    running = trial(tmp_path / 'a', trial_config(options=options))
    results = [running.step() for _ in range(2)]
    assert all(math.isfinite(result['rollout/ep_rew_mean']) for result in results)
    short = trial(tmp_path / 'b', trial_config(options={**options, 'max_env_step': 6}))
    with raises(NonFiniteError):
        short.step()


def test_metric_that_no_result_has_is_an_error(trial: Begin, tmp_path: Path) -> None:
    running = trial(tmp_path, trial_config(options={'metric': 'eval/mean_rewrad'}))
    with raises(ConfigError):
        running.step()


# held and taken over


@CASE
def test_taken_over_trial_goes_on_with_the_same_bits_from_a_checkpoint_that_was_moved(
    case: str, trial: Begin, tmp_path: Path
) -> None:
    config = trial_config(case, {'policy.random_collect_size': 30})
    first, second = trial(tmp_path / 'a', config), trial(tmp_path / 'b', config)
    before = [first.step()]
    first.save(tmp_path / 'saved')
    after = [first.step()]
    first.save(tmp_path / 'straight')
    first.close()
    moved = tmp_path / 'elsewhere' / 'moved'
    shutil.copytree(tmp_path / 'saved', moved)
    shutil.rmtree(tmp_path / 'saved'), shutil.rmtree(tmp_path / 'a')
    content = {path: path.read_bytes() for path in moved.rglob('*') if path.is_file()}
    assert not [path for path in moved.rglob('*') if path.is_symlink()]
    second.load(moved)
    second.save(tmp_path / 'loaded')
    assert_same_state(moved, tmp_path / 'loaded')
    assert comparable(second.step()) == comparable(after[0])
    second.save(tmp_path / 'taken over')
    second.close()
    assert_same_state(tmp_path / 'straight', tmp_path / 'taken over')
    assert content == {path: path.read_bytes() for path in moved.rglob('*') if path.is_file()}
    assert str(tmp_path) not in (moved / 'trial.json').read_text()
    state = saved_state(tmp_path / 'straight')
    assert {'progress', 'policy', 'collector', 'rng'} <= state.keys() and state['policy']['optimizers']
    assert len(state['replay_buffer']['storage']['columns']['obs']) > 100
    assert differences(state, saved_state(moved)), 'the steps in between change something'

    results, steps, episodes = before + after, 0, 0
    assert len({tuple(sorted(result)) for result in results}) == 1, 'every result has the same keys'
    for result in results:
        assert json.loads(json.dumps(result)).keys() == result.keys()
        assert {type(value) for value in result.values()} <= {int, float, bool}
        assert result['eval_is_fresh'] is True and result['done'] is False
        steps, episodes = steps + result['timesteps_this_iter'], episodes + result['episodes_this_iter']
        assert (steps, episodes) == (result['envstep'], result['episodes'])


@CASE
def test_clone_has_its_own_learning_rate_and_numbers_and_the_weights_and_moments_of_the_donor(
    case: str, trial: Begin, tmp_path: Path
) -> None:
    rates = ('learning_rate_actor', 'learning_rate_critic') if case == 'sac' else ('learning_rate',)
    config = trial_config(case)
    donor = trial(tmp_path / 'a', config, 'donor')
    donor.step()
    donor.save(tmp_path / 'saved')
    assert 0.0123 not in learning_rates(donor.pipeline.policy)
    states = [saved_state(tmp_path / 'saved')]
    for name in ('left', 'right'):
        clone = trial(tmp_path / name, config | {f'policy.learn.{rate}': 0.0123 for rate in rates}, name)
        clone.load(tmp_path / 'saved')
        clone.save(tmp_path / name / 'saved')
        states.append(saved_state(tmp_path / name / 'saved'))
        for part in ('model', 'optimizers'):
            assert differences(states[0]['policy'][part], states[-1]['policy'][part]) == []
        assert differences(states[0]['progress'], states[-1]['progress']) == []
    clone.step()
    assert learning_rates(clone.pipeline.policy).count(0.0123) == len(rates)
    drawn = [generators(state) | {'torch': state['rng']['torch'].tolist()} for state in states]
    assert len(drawn[0]) > 2
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert [key for key in drawn[one] if drawn[one][key] == drawn[other][key]] == []


# forms of a config


def test_forms_of_a_config_mean_the_same(tmp_path: Path) -> None:
    main, create = read_config(str(ROOT / CASES['dqn naive'][1]))
    options = case_options('dqn naive')
    sections: dict[str, Any] = {}
    for key, value in options.items():
        *above, name = key.split('.')
        below = sections
        for part in above:
            below = below.setdefault(part, {})
        below[name] = value
    plain = json.loads(json.dumps([main, create]))
    forms = [
        trial_config(),
        {'config': ROOT / CASES['dqn naive'][1], **sections},
        {'config': TrialBase(main, create, options)},
        {'main_config': EasyDict(plain[0]), 'create_config': EasyDict(plain[1]), **options},
        {'main_config': plain[0], 'create_config': plain[1], **EasyDict(sections)},
    ]
    compiled = [json.dumps(compile_trial(form), sort_keys=True, default=str) for form in forms]
    assert len(set(compiled)) == 1
    assert compile_trial(forms[0]).policy.learn.batch_size == 16


@pytest.mark.parametrize(
    'config',
    [{'config': 'configs/cartpole_dqn.py'}, {}, {'main_config': {}}],
)
def test_trial_without_an_absolute_config_is_refused(
    config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    with raises(ConfigError):
        compile_trial(config)


def test_unknown_option_of_a_trial_is_refused_with_the_right_one(tmp_path: Path) -> None:
    with raises(ConfigError):
        Trial(trial_config(options={'policy.learn.lr': 0.1}), tmp_path, 'one')
    assert list(tmp_path.iterdir()) == []


def test_sampled_numpy_numbers_are_plain_in_the_options() -> None:
    import numpy as np

    found = trial_options(
        {'policy': {'learn': {'batch_size': np.int64(32)}}, RATE: np.float64(0.5), 'metric': 'x'}
    )
    assert found == {'policy.learn.batch_size': 32, RATE: 0.5}
    assert [type(value) for value in found.values()] == [int, float]
    cfg = compile_trial(
        trial_config(options={'policy.learn.batch_size': np.int64(32), RATE: np.float64(0.5)})
    )
    assert type(cfg.policy.learn.batch_size) is int and type(cfg.policy.learn.learning_rate) is float
