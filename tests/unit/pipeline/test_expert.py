"""An expert that acts in some of the envs: its actions, the marks of its rows, and exact resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from error_texts import raises
from runs import assert_same_end

import rlframe
from rlframe import config
from rlframe.errors import CheckpointNotFoundError, ConfigError
from rlframe.export import export_policy
from rlframe.pipeline import SerialPipeline

BUFFER = 'policy.other.replay_buffer'
EXPERT = 'policy.collect.model_path'
SMALL: dict[str, Any] = {
    'env.collector_env_num': 4,
    'env.evaluator_env_num': 1,
    'env.n_evaluator_episode': 1,
    'env.stop_value': 'never',
    'policy.eval.evaluator.eval_freq': 40,
    'policy.model.encoder_hidden_size_list': [8],
    'policy.learn.batch_size': 16,
    'policy.learn.update_per_collect': 2,
    'policy.collect.n_sample': 8,
}
WITH = {EXPERT: 'expert', f'{BUFFER}.init_share': 0.5}


def train(name: str, folder: str, steps: int, **overrides: Any) -> rlframe.Run:
    given = {**SMALL, **overrides}
    return rlframe.train(name, folder=folder, progress=False, overrides=given, max_env_step=steps)


@pytest.fixture
def expert(cwd: Path) -> rlframe.LoadedPolicy:
    """Returns an exported policy of CartPole."""
    export_policy(train('cartpole_dqn', 'expert', 16).folder)
    return rlframe.load('expert')


@pytest.mark.parametrize('more', [{}, {'policy.random_collect_size': 12}], ids=['', 'random start'])
def test_an_expert_acts_in_its_envs_alone_and_its_rows_are_data(
    expert: rlframe.LoadedPolicy, more: dict[str, Any]
) -> None:
    given = {**SMALL, **WITH, **more, 'policy.collect.expert_share': 0.25, 'policy.other.eps': 1.0}
    cfg = config.compile_config(*config.read_config('cartpole_dqn'), overrides=given)
    with SerialPipeline(cfg) as pipeline:
        for _ in range(6):
            pipeline.step()
        state = pipeline.replay_buffer.state_dict()
    demos = state['data']['storage']['columns']
    own = state['storage']['columns']
    assert len(demos['obs']) == 12 and len(own['obs']) == 36 + more.get('policy.random_collect_size', 0)
    np.testing.assert_array_equal(demos['action'], expert.act(demos['obs']))
    assert set(np.unique(own['action'])) == {0, 1}, 'the policy itself acts at random'


@pytest.mark.slow
def test_a_run_with_an_expert_resumes_exactly(expert: rlframe.LoadedPolicy) -> None:
    given = {**WITH, 'policy.nstep': 3, 'policy.learn.learner.hook.save_ckpt_after_iter': 10}
    whole = train('cartpole_dqn', 'whole', 160, **given)
    stopped = rlframe.start(
        'cartpole_dqn', folder='half', progress=False, overrides={**SMALL, **given}, max_env_step=160
    )
    for iteration in stopped.iterations():
        if iteration.train_iter >= 20:
            break
    again = rlframe.open_run('half').resume(progress=False)
    assert_same_end(whole.folder, again.folder)


WRONG: list[dict[str, Any]] = [
    {EXPERT: 'nothing_there'},
    {EXPERT: 'expert', f'{BUFFER}.init_share': 0.0},
    {'env.collector_env_num': 1},
    {'env.env_id': 'Acrobot-v1'},
]


@pytest.mark.usefixtures('expert')
@pytest.mark.parametrize('number', range(len(WRONG)))
def test_what_no_expert_can_do_is_refused_before_there_is_a_run_folder(cwd: Path, number: int) -> None:
    with raises(ConfigError if number else CheckpointNotFoundError):
        train('cartpole_dqn', 'run', 60, **WITH | WRONG[number])
    assert not (cwd / 'run').exists()


def test_a_run_starts_from_the_weights_of_an_exported_policy(expert: rlframe.LoadedPolicy) -> None:
    given = {**SMALL, 'policy.init_from': 'expert/export/artifact'}
    run = rlframe.start('cartpole_dqn', folder='run', progress=False, overrides=given)
    obs = np.linspace(-0.5, 0.5, 80, dtype=np.float32).reshape(20, 4)
    np.testing.assert_array_equal(run.policy.policy.q_value(obs), expert.policy.q_value(obs))
