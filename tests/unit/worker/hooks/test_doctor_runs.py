"""The training doctor in real short runs: it finds a disease where there is one, and nothing where there is none."""

from __future__ import annotations

import json
import logging
from typing import Any

import numpy as np
import pytest
from runs import ROOT

from rlframe import config
from rlframe.parallel.pipeline import ParallelPipeline
from rlframe.pipeline import SerialPipeline

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures('cwd')]

FEW = (
    'env.evaluator_env_num=2',
    'env.n_evaluator_episode=2',
    'policy.learn.learner.hook.log_show_after_iter=20',
)
DQN = ('cartpole_dqn', 'max_train_iter=600', 'policy.eval.evaluator.eval_freq=100', *FEW)
PPO = ('cartpole_ppo', 'max_train_iter=160', 'policy.eval.evaluator.eval_freq=20', *FEW)
SAC = (
    'pendulum_sac',
    'max_train_iter=120',
    'policy.eval.evaluator.eval_freq=40',
    'policy.random_collect_size=100',
    *FEW,
)


def trained(name: str, *overrides: str) -> tuple[set[str], str]:
    """Trains a shipped config for a while, and returns the findings and the log."""
    cfg = config.compile_config(
        *config.read_config(ROOT / 'configs' / f'{name}.py'), overrides=overrides, seed=0
    )
    with SerialPipeline(cfg) as pipeline:
        pipeline.run()
    records = [json.loads(line) for line in (pipeline.folder / 'metrics.jsonl').read_text().splitlines()]
    found = {tag.removeprefix('doctor/') for record in records for tag in record if tag.startswith('doctor/')}
    return found, (pipeline.folder / 'log.txt').read_text()


@pytest.mark.parametrize('run', [PPO, SAC], ids=['ppo', 'sac'])
def test_nothing_is_found_in_a_healthy_run(run: tuple[str, ...]) -> None:
    found, log = trained(*run)
    assert found == set() and 'doctor' not in log


def test_a_disease_of_a_run_is_found() -> None:
    found, log = trained(*DQN, 'policy.learn.learning_rate=0.5', 'policy.learn.target_update_freq=1')
    assert 'q_value' in found
    assert log.count('WARNING') <= len(found) + log.count('cannot be repeated') + 1


def test_hooks_of_a_parallel_run_get_its_evaluations_and_may_end_it(caplog: pytest.LogCaptureFixture) -> None:
    env = dict(env_id='CartPole-v1', collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2)
    main = dict(
        env=env,
        policy=dict(
            cuda=False,
            learn=dict(batch_size=16),
            collect=dict(n_sample=8),
            eval=dict(evaluator=dict(eval_freq=20)),
        ),
        hooks=dict(early_stop=dict(patience=2, min_delta=1e6), doctor=dict(kl=None)),
        parallel=dict(coordinator=dict(wait=0.005)),
    )
    create: dict[str, Any] = {name: dict(type='in_process') for name in ('comm_collector', 'comm_learner')}
    cfg = config.compile_config(main, {**create, 'policy': dict(type='dqn')}, parallel=True)
    with caplog.at_level(logging.INFO), ParallelPipeline(cfg) as pipeline:
        pipeline.run()
        state = pipeline.checkpoints._parts['hooks?'].state_dict()
    assert pipeline.hooks.stop_reason.startswith('no better evaluation in 2 (hooks.early_stop.patience)')
    assert pipeline.hooks.run.outcome == 'stopped' and pipeline.hooks.run.checkpoint is not None
    assert state['hooks']['early_stop']['worse'] >= 2 and np.isfinite(pipeline.hooks.run.evaluation.score)
