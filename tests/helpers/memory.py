"""A task that cannot be solved without a memory, and the config sections of a policy that has one."""

from __future__ import annotations

from typing import Any

from fakes import config_pair

from rlframe import config
from rlframe.pipeline import SerialPipeline

R2D2 = dict(
    policy='r2d2',
    buffer=dict(type='sequence', unroll_len=6, burn_in=2, priority=True),
    collector=dict(type='sample', mark_episodes=True),
    policy_=dict(priority=True, priority_IS_weight=True, nstep=2),
    model=dict(encoder_hidden_size_list=[16], lstm_hidden_size=16),
)
"""Sections for ``config_pair``."""

RECALLING = {
    'ppo': dict(learn=dict(learning_rate=1e-2, batch_size=96), collect=dict(n_sample=192)),
    'a2c': dict(
        learn=dict(learning_rate=1e-2, optimizer='adam', entropy_weight=0.01), collect=dict(n_sample=192)
    ),
    'impala': dict(learn=dict(learning_rate=3e-3), collect=dict(n_sample=192)),
    'sac_discrete': dict(
        buffer=dict(type='sequence', unroll_len=6, burn_in=2, priority=True),
        collector=dict(type='sample', mark_episodes=True),
        policy_=dict(priority=True, priority_IS_weight=True, random_collect_size=200),
        learn=dict(
            batch_size=32,
            update_per_collect=4,
            learning_rate_actor=3e-3,
            learning_rate_critic=3e-3,
            target_theta=0.05,
            alpha=0.05,
        ),
        collect=dict(n_sample=16),
        other=dict(replay_buffer=dict(replay_buffer_size=5000)),
    ),
}
"""Policy to the sections for ``config_pair`` with which a core recalls in seconds."""
CONTINUOUS = RECALLING['sac_discrete'] | dict(
    env_id='zoo:RecallNumberEnv',
    learn={key: value for key, value in RECALLING['sac_discrete']['learn'].items() if key != 'alpha'},
    env=dict(stop_value=0.85, n_evaluator_episode=40),
)
RECALLING |= {
    'sac': CONTINUOUS | dict(learn=CONTINUOUS['learn'] | dict(alpha=0.02)),
    'td3': CONTINUOUS,
}


def recall_run(policy: str, core: str | None, **sections: Any) -> SerialPipeline:
    """Trains a policy until it recalls what an episode began with, in the working directory."""
    options: dict[str, Any] = dict(
        env_id='zoo:RecallEnv',
        policy=policy,
        env=dict(stop_value=0.99, n_evaluator_episode=40),
        evaluator=dict(eval_freq=40),
        model=dict(encoder_hidden_size_list=[16], core=core, core_hidden_size=16),
        max_env_step=16_000,
    )
    options |= RECALLING[policy]
    main, create = config_pair(**options | sections)
    with SerialPipeline(config.compile_config(main, create, seed=0)) as pipeline:
        pipeline.run()
    return pipeline
