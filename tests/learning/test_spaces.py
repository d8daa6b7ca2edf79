"""What a policy must know can lie in any part of an observation, and be under a mask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fakes import config_pair
from memory import RECALLING
from space_envs import STEPS
from toys import DQN, PPO

from rlframe import config
from rlframe.pipeline import SerialPipeline

CORE = dict(encoder_hidden_size_list=[16], core='gru', core_hidden_size=16)
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    'dqn dict mask': (DQN | dict(policy_=dict(discount_factor=0.5, nstep=2)), dict(obs='Dict', mask='info')),
    'dqn image': (DQN, dict(obs='Box (image)', mask='obs')),
    'ppo lstm dict mask': (
        PPO | dict(model=CORE | dict(core='lstm')),
        dict(obs='Dict', mask='info', action='Dict'),
    ),
    'ppo tuple actions': (PPO, dict(action='Tuple')),
    'sac_discrete gru tuple mask': (
        dict(policy='sac_discrete', model=CORE, **RECALLING['sac_discrete']),
        dict(obs='Tuple', mask='info'),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize('name', CASES)
def test_policy_learns_the_class_whatever_shows_it(name: str, cwd: Path) -> None:
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
