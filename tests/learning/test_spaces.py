"""What a policy must know can lie in any part of an observation, and be under a mask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fakes import config_pair
from space_envs import STEPS
from test_toys import DQN, PPO

from rlframe import config
from rlframe.pipeline import SerialPipeline

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    'dqn dict mask': (DQN | dict(policy_=dict(discount_factor=0.5, nstep=2)), dict(obs='Dict', mask='info')),
    'dqn image': (DQN, dict(obs='Box (image)', mask='obs')),
    'qrdqn tuple': (
        DQN | dict(policy='qrdqn', model=dict(num_quantiles=8), manager='subprocess'),
        dict(obs='Tuple', mask='info'),
    ),
    'c51 discrete': (
        DQN | dict(policy='c51', model=dict(v_min=0.0, v_max=4.0, n_atom=21)),
        dict(obs='MultiBinary', mask='info'),
    ),
    'ppo tuple': (PPO | dict(manager='gym_vector', manager_=dict(mode='sync')), dict(obs='Tuple')),
}


@pytest.mark.slow
@pytest.mark.parametrize('name', CASES)
def test_policy_learns_the_class_whatever_shows_it(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    sections, kwargs = CASES[name]
    main, create = config_pair(
        env_id='space_envs:SpaceEnv',
        env=dict(stop_value=STEPS - 0.1, n_evaluator_episode=10, kwargs=kwargs),
        evaluator=dict(eval_freq=100),
        max_env_step=12_000,
        **sections,
    )
    with SerialPipeline(config.compile_config(main, create, seed=0)) as pipeline:
        pipeline.run()
    assert pipeline.stopped and pipeline.evaluator.best >= STEPS - 0.1
