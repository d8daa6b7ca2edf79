"""A run that is saved and loaded goes on as if it had not been interrupted, and runs repeat with their seed."""

from __future__ import annotations

import logging
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest
import runs
import torch
from error_texts import raises
from fakes import config_pair
from memory import R2D2, RECALLING
from moved_memory import arrays_at
from runs import assert_same_end, differences

from rlframe import config
from rlframe.app.check_config import check_config, text_of
from rlframe.errors import (
    CheckpointNotFoundError,
    ConfigError,
    ConfigWarning,
    ResourceError,
)
from rlframe.parallel.coordinator.assembly import make_commander
from rlframe.pipeline import SerialPipeline, serial_pipeline
from rlframe.pipeline.resume import resume

pytestmark = pytest.mark.usefixtures('cwd')


CASES = {
    'ppo normalised': dict(
        policy='ppo',
        model=dict(share_encoder=True),
        collect=dict(n_sample=None, n_episode=4),
        collector=dict(type='episode', get_train_sample=True),
        learn=dict(value_norm=True, value_clip=0.2, target_kl=1e-5),
        policy_=dict(normalize_obs=True, normalize_reward=True),
    ),
    'bc': dict(
        policy='bc',
        collect=dict(n_sample=None, collector={}),
        collector=dict(type='dataset', data='test_pipeline:demonstrations'),
        evaluator=dict(type='metric', data='test_pipeline:demonstrations', eval_freq=2),
        policy_=dict(normalize_obs=True),
    ),
    'rainbow': dict(
        policy='c51',
        model=dict(noisy=True),
        buffer=dict(type='advanced'),
        policy_=dict(priority=True, priority_IS_weight=True, nstep=3),
    ),
    'sac': dict(
        policy='sac',
        env_id='Pendulum-v1',
        collect=dict(n_sample=12, noise_correlation=0.9),
        policy_=dict(random_collect_size=40),
    ),
    'ppo lstm': dict(
        policy='ppo',
        model=dict(core='lstm'),
        learn=dict(epoch_per_collect=2),
        policy_=dict(normalize_obs=True),
    ),
    'impala lstm': dict(
        policy='impala',
        model=dict(core='lstm', share_encoder=True),
        learn=dict(batch_size=None, value_norm=True, value_clip=0.5),
        policy_=dict(normalize_obs=True, normalize_reward=True),
    ),
    'td3 lstm': RECALLING['td3']
    | dict(
        policy='td3',
        env={},
        model=dict(core='lstm'),
        learn=dict(batch_size=8, update_per_collect=3),
        collect=dict(n_sample=16, noise_correlation=0.9),
        policy_=dict(priority=True, priority_IS_weight=True, random_collect_size=40),
    ),
    'dqn r2d2': R2D2 | dict(manager='gym_vector', policy_=R2D2['policy_'] | dict(random_collect_size=30)),
}
"""Cases that differ in the parts of a run; ``tests/contract`` has those of each policy, manager and buffer."""


def demonstrations() -> dict[str, Any]:
    """Returns what a policy on CartPole-v1 might have seen and done."""
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(100, 4)).astype(np.float32)
    return {'obs': obs, 'action': (obs[:, 2] > 0).astype(np.int64)}


def start(seed: int = 3, overrides: Any = (), **sections: Any) -> SerialPipeline:
    main, create = config_pair(**sections)
    return SerialPipeline(config.compile_config(main, create, seed=seed, overrides=list(overrides)))


def records(pipeline: SerialPipeline) -> list[dict[str, Any]]:
    """Returns the metrics but for those of time."""
    pipeline.writer.flush()
    return runs.records(pipeline.folder)


def full_state(pipeline: SerialPipeline) -> dict[str, Any]:
    """Returns all that the next rounds depend on."""
    progress = pipeline.progress.state_dict() | {'wall_time': 0}
    buffer = {} if pipeline.replay_buffer is None else pipeline.replay_buffer.state_dict()
    return {
        'progress': progress,
        'policy': pipeline.policy.learn_mode.state_dict(),
        'collector': pipeline.collector.state_dict(),
        'buffer': buffer,
        'monitor': pipeline.learner.monitor.state_dict(),
        'evaluator': pipeline.evaluator.state_dict(),
        'torch': torch.get_rng_state(),
        'numpy': np.random.get_state()[1],  # noqa: NPY002
    }


@pytest.mark.parametrize(
    'name',
    [
        pytest.param(name, marks=[pytest.mark.slow] if name.startswith(('ppo', 'sac')) else [])
        for name in CASES
    ],
)
def test_2n_steps_equal_n_steps_saved_loaded_and_n_steps(name: str, cwd: Path) -> None:
    """Also if every array lies elsewhere in memory than in the run that was not interrupted."""
    rounds = 3 if name.startswith(('dqn', 'bc')) else 2
    with arrays_at(0), start(**dict(CASES[name])) as whole:
        for _ in range(2 * rounds):
            whole.step()
        expected, lines = full_state(whole), records(whole)
    assert whole.progress.train_iter > rounds
    with arrays_at(8), start(**dict(CASES[name])) as first:
        for _ in range(rounds):
            first.step()
        first.save_checkpoint(cwd / 'saved')
        first_lines = records(first)
    with arrays_at(40), start(seed=3, **dict(CASES[name])) as second:
        second.load_checkpoint(cwd / 'saved')
        for _ in range(rounds):
            second.step()
        assert differences(expected, full_state(second)) == []
        assert first_lines + records(second) == lines


def test_resuming_on_another_kind_of_processor_is_not_called_exact(cwd: Path, monkeypatch: Any) -> None:
    with start() as first:
        first.step()
        first.save_checkpoint(cwd / 'saved')
        assert first.exact
    monkeypatch.setattr('rlframe.pipeline.checkpoints.arithmetic', lambda: {'processor': 'm68k'})
    with start() as second:
        second.load_checkpoint(cwd / 'saved')
        assert not second.exact and 'm68k' in second.checkpoints.inexact[0]
        second.save_checkpoint(cwd / 'again')
    monkeypatch.undo()
    with start() as third:
        third.load_checkpoint(cwd / 'again')
        assert len(third.checkpoints.inexact) == 2, 'what was rounded differently once stays so'


def test_same_seed_same_numbers_and_another_seed_others() -> None:
    runs = []
    for seed, offset in ((1, 0), (1, 8), (2, 0)):
        small = dict(encoder_hidden_size_list=[8])
        with arrays_at(offset), start(seed, evaluator=dict(eval_freq=4), model=small) as pipeline:
            for _ in range(10):
                pipeline.step()
            runs.append((records(pipeline), full_state(pipeline)))
    assert runs[0][0] == runs[1][0] and len(runs[0][0]) > 5
    assert differences(runs[0][1], runs[1][1]) == []
    assert runs[0][0] != runs[2][0]


@pytest.mark.parametrize('name', ['rainbow', 'ppo normalised'])
def test_evaluating_or_not_does_not_change_training(name: str) -> None:
    states = []
    for evaluates in (True, False):
        with start(**dict(CASES[name]), evaluator=dict(eval_freq=2)) as pipeline:
            if not evaluates:
                pipeline.evaluator.should_eval = lambda *_: False
            for _ in range(3):
                pipeline.step()
            assert np.isnan(pipeline.evaluator.latest) != evaluates
            states.append({k: v for k, v in full_state(pipeline).items() if k != 'evaluator'})
    assert differences(*states) == []


def test_run_ends_at_its_budgets_and_at_the_stop_value() -> None:
    with start(max_env_step=100) as pipeline:
        pipeline.run()
        assert 100 <= pipeline.progress.envstep < 120 and not pipeline.stopped
    with start(max_train_iter=9, evaluator=dict(eval_freq=5)) as pipeline:
        pipeline.run()
        assert pipeline.progress.train_iter >= 9
    with start(env=dict(stop_value=1.0)) as pipeline:
        pipeline.run()
        assert pipeline.stopped and pipeline.result()['stopped'] and pipeline.progress.train_iter >= 20
    with start() as pipeline:
        pipeline.run(after_step=lambda p: p.progress.envstep >= 48)
        assert 48 <= pipeline.progress.envstep <= 60
        assert (pipeline.folder / 'ckpt' / 'latest' / 'manifest.json').is_file()


@pytest.mark.parametrize(('value', 'goal'), [(None, 475.0), (3.0, 3.0), ('never', None)])
def test_the_goal_is_that_of_the_config_or_of_the_env_or_none(value: Any, goal: float | None) -> None:
    words = {'env.stop_value': value}
    serial = config.compile_config(*config.config_pair('cartpole_dqn'), overrides=words)
    with SerialPipeline(serial) as pipeline:
        assert pipeline.evaluator.stop_value == goal and pipeline.evaluator.reached(1e9) == bool(goal)
        assert (goal is None) == (pipeline.evaluator.goal == '')
    parallel = config.compile_config(
        *config.config_pair('cartpole_dqn_parallel'), overrides=words, parallel=True
    )
    assert make_commander(parallel).stop_value == goal
    said = text_of(check_config('cartpole_dqn', [f'env.stop_value={value}']), 100)
    assert ('mean return' in said) == (goal is not None)
    with raises(ConfigError):
        config.compile_config(*config.config_pair('cartpole_dqn'), overrides={'env.stop_value': 'nie'})


FAILING = [
    (dict(policy_=dict(init_from='nowhere')), CheckpointNotFoundError),
    (dict(model=dict(encoder_hidden_size_list=[10**6, 10**6])), ResourceError),
    (dict(model=dict(encoder_hidden_size_list=[10**12])), ResourceError),
    (dict(env=dict(frame_stack=10**12)), ResourceError),
    (dict(env=dict(collector_env_num=10**12)), ResourceError),
    (dict(env=dict(evaluator_env_num=10**12)), ResourceError),
]
"""Sections of a config that cannot be run; those of a size would take all memory if they were not refused first."""


@pytest.mark.parametrize(('sections', 'error'), FAILING)
def test_a_failing_config_leaves_no_run_folder(
    sections: dict[str, Any], error: type[Exception], cwd: Path
) -> None:
    handlers = list(logging.getLogger('rlframe').handlers)
    with pytest.raises(error):
        start(**sections)
    assert list(cwd.iterdir()) == [] and logging.getLogger('rlframe').handlers == handlers


def test_keys_that_nothing_read_are_reported(caplog: Any) -> None:
    with start(max_env_step=64, learn=dict(batch_size=16, update_per_collect=2)) as pipeline:
        pipeline.run()
    assert 'nothing read it' not in caplog.text
    with start(max_env_step=64, overrides=['policy.learn.learner.train_iterations=5']) as pipeline:
        pipeline.run()
    assert 'policy.learn.learner.train_iterations was set but nothing read it' in caplog.text


def test_cleanup_closes_envs_logs_and_files_and_may_be_called_twice() -> None:
    before = list(logging.getLogger('rlframe').handlers)
    pipeline = start()
    envs = pipeline.collector._env, pipeline.evaluator._env
    assert set(pipeline.step()) == set(pipeline.step()), 'every result has the same keys'
    pipeline.cleanup()
    pipeline.cleanup()
    assert all(env.closed for env in envs) and logging.getLogger('rlframe').handlers == before
    with raises(ValueError):
        pipeline.writer.write({'a': 1}, 0)


@pytest.mark.slow
def test_a_long_round_of_short_updates_is_no_stall(monkeypatch: Any) -> None:
    with start(learn=dict(update_per_collect=15), stall_timeout=2.5) as pipeline:
        train = pipeline.learner.train
        monkeypatch.setattr(pipeline.learner, 'train', lambda *args: (sleep(0.2), train(*args)))
        pipeline.run(lambda pipeline: pipeline.progress.train_iter > 0, supervised=True)
        assert pipeline.progress.train_iter == 15


def test_the_run_folder_tells_its_story_and_the_resolved_config_runs_again() -> None:
    with start(max_env_step=64) as pipeline:
        pipeline.run()
        names = {path.name for path in pipeline.folder.iterdir()}
        lines = records(pipeline)
    assert {'total_config.py', 'metrics.jsonl', 'log.txt', 'ckpt'} <= names
    policy = serial_pipeline(str(pipeline.folder / 'total_config.py'), seed=3, max_env_step=64)
    assert differences(policy.collect_mode.state_dict(), pipeline.policy.collect_mode.state_dict()) == []
    again = sorted(path for path in Path().iterdir() if path.name.startswith('toy_seed3'))
    assert len(again) == 2 and len(lines) == len((again[1] / 'metrics.jsonl').read_text().splitlines())


def test_a_run_without_an_update_says_the_reason(caplog: Any) -> None:
    with (
        pytest.warns(ConfigWarning, match='there will be no update'),
        start(max_env_step=8, learn=dict(batch_size=16)) as pipeline,
    ):
        pipeline.run()
    assert 'no update was made: the replay buffer has 8 items, and an update needs 16' in caplog.text


def test_evaluation_that_is_given_up_is_repeated_by_the_resumed_run(cwd: Path) -> None:
    straight, stopped = cwd / 'straight', cwd / 'stopped'
    straight.mkdir(), stopped.mkdir()
    cfg = config.compile_config(*config_pair(evaluator=dict(eval_freq=10), max_train_iter=40), seed=1)
    with SerialPipeline(cfg, straight) as pipeline:
        pipeline.run()
    asked = []

    def interrupted() -> bool:
        asked.append(pipeline.progress.train_iter)
        return len(asked) > 30

    with SerialPipeline(cfg, stopped) as pipeline:
        pipeline.run(lambda p: len(asked) > 30, interrupted)
        at = asked[-1]
        assert at == pipeline.progress.train_iter and pipeline.evaluator.should_eval(at)
        pipeline.checkpoints.save_latest()
    again = resume(stopped, config.split_config(cfg)).cfg
    with SerialPipeline(again, stopped, resume=stopped / 'ckpt' / 'latest') as pipeline:
        pipeline.run()
    assert_same_end(straight, stopped)
