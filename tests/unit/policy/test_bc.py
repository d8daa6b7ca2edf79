"""Behaviour cloning: its loss, what it learns from data, and how it is scored on data and in episodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from error_texts import raises
from zoo import BoxEnv, IdentityEnv, MultiBinaryEnv, MultiDiscreteEnv

from rlframe import config
from rlframe.data import Batch, EnvSpec
from rlframe.errors import ConfigError
from rlframe.pipeline import SerialPipeline
from rlframe.policy import create_policy
from rlframe.worker import create_serial_evaluator
from rlframe.worker.collector import AccuracyMetric, SquaredErrorMetric

ENVS = {
    'Discrete': IdentityEnv,
    'Box': BoxEnv,
    'MultiDiscrete': MultiDiscreteEnv,
    'MultiBinary': MultiBinaryEnv,
}


def demonstrations(env: Any, rows: int = 400) -> dict[str, np.ndarray]:
    classes = np.random.default_rng(0).integers(4, size=rows)
    right = getattr(env, 'right', np.arange(4))
    return {
        'obs': np.eye(4, dtype=np.float32)[classes],
        'action': right[classes].astype(env.action_space.dtype),
    }


def config_of(name: str, path: Path, **policy: Any) -> Any:
    env = dict(
        env_id=f'{ENVS[name].__module__}:{ENVS[name].__name__}', evaluator_env_num=2, n_evaluator_episode=10
    )
    main = dict(
        exp_name='clone',
        env=env | dict(stop_value=7.9),
        max_train_iter=3000,
        policy=dict(
            cuda=False,
            learn=dict(batch_size=32, learning_rate=1e-2, learner=dict(hook=dict(save_ckpt_after_iter=50))),
            eval=dict(evaluator=dict(eval_freq=100)),
        )
        | policy,
    )
    create = dict(policy=dict(type='bc'), collector=dict(type='dataset', data=str(path)))
    return main, create


def test_it_learns_to_do_what_the_data_show(cwd: Path) -> None:
    data = demonstrations(BoxEnv)
    np.savez('data.npz', **data)
    cfg = config.compile_config(*config_of('Box', Path('data.npz'), normalize_obs=True))
    with SerialPipeline(cfg) as pipeline:
        pipeline.run()
    assert pipeline.stopped and pipeline.evaluator.best >= 7.9, 'the best possible return is 8'
    assert pipeline.progress.envstep > 0 and pipeline.progress.episodes == 0
    loader = [(data['obs'][i : i + 30], data['action'][i : i + 30]) for i in range(0, 400, 30)]
    evaluator = create_serial_evaluator(
        {'type': 'metric'}, env=(loader, SquaredErrorMetric()), policy=pipeline.policy.eval_mode
    )
    assert evaluator.eval()[1]['mse'] < 0.05


def test_loss_equals_its_formula() -> None:
    for name in ENVS:
        spec = EnvSpec(ENVS[name].observation_space, ENVS[name].action_space, name=name)
        policy = create_policy({'type': 'bc', 'cuda': False}, spec)
        data = demonstrations(ENVS[name], 20)
        with torch.no_grad():
            output = policy.model(torch.from_numpy(data['obs'])).numpy().astype(float)
        if name == 'Box':
            low, high = spec.action_space.low, spec.action_space.high
            unit = (2 * (data['action'] - low) / (high - low) - 1).reshape(20, 2)
            wanted = np.mean((output - unit) ** 2)
        else:
            parts, classes = (
                (np.split(output, [3], 1), data['action'] - [5, 0])
                if name == 'MultiDiscrete'
                else ([output], data['action'][:, None])
            )
            if name == 'MultiBinary':
                probability = 1 / (1 + np.exp(-output))
                wanted = -np.log(np.where(data['action'], probability, 1 - probability)).sum(1).mean()
            else:
                chosen = [
                    p[np.arange(20), classes[:, k]] - np.log(np.exp(p).sum(1)) for k, p in enumerate(parts)
                ]
                wanted = -np.sum(chosen, 0).mean()
        metrics = policy.learn_mode.forward(Batch(data))
        assert float(metrics['total_loss']) == pytest.approx(wanted, rel=1e-4), name


def test_playing_its_own_data_is_refused() -> None:
    main, create = config_of('Discrete', Path('data.npz'))
    with raises(ConfigError):
        config.compile_config(main, create | {'collector': {'type': 'sample'}})
    main['policy']['collect'] = {}
    assert config.compile_config(main, {'policy': {'type': 'bc'}}).policy.collect.collector.type == 'dataset'


def test_metrics_weigh_rows_equally_and_know_which_score_is_better() -> None:
    output = Batch(action=np.array([[0, 1], [1, 1], [1, 0]], np.int8))
    accuracy, error = AccuracyMetric(), SquaredErrorMetric()
    one = accuracy.eval(output, np.array([[0, 1], [1, 0], [1, 0]]))
    two = accuracy.eval(output[:1], np.array([[1, 1]]))
    assert one['accuracy'] == pytest.approx(2 / 3) and accuracy.reduce_mean([one, two]) == {'accuracy': 0.5}
    assert accuracy.gt({'accuracy': 0.9}, {'accuracy': 0.8}) and not accuracy.gt({'accuracy': 0.7}, 0.8)
    boxes = Batch(action=np.array([[0.0, 2.0]], np.float32))
    assert error.reduce_mean([error.eval(boxes, np.array([[1.0, 2.0]]))]) == {'mse': 0.5}
    assert error.gt({'mse': 0.1}, {'mse': 0.2}) and not error.gt({'mse': 0.3}, 0.2)
    assert accuracy.gt(one, None) and error.gt({'mse': 1.0}, None)
