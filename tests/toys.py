"""Toys: what each policy learns in seconds, as sections for ``fakes.config_pair``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from fakes import IdentityEnv
from memory import R2D2

DQN = dict(
    learn=dict(batch_size=32, learning_rate=3e-3, target_update_freq=50),
    other=dict(eps=dict(type='linear', start=1.0, end=0.05, decay=1500)),
    policy_=dict(discount_factor=0.5),
)
RECURRENT = R2D2 | dict(
    learn=dict(batch_size=32, learning_rate=3e-3, target_update_freq=50),
    collect=dict(n_sample=16),
    other=dict(
        eps=dict(type='linear', start=1.0, end=0.05, decay=1500),
        replay_buffer=dict(replay_buffer_size=5000),
    ),
)
FRESH = dict(
    policy='pqn',
    learn=dict(batch_size=64, learning_rate=3e-3),
    collect=dict(n_sample=128),
    other=dict(eps=dict(type='linear', start=1.0, end=0.05, decay=1500)),
    policy_=dict(discount_factor=0.5),
)
PPO = dict(policy='ppo', learn=dict(batch_size=64, learning_rate=3e-3), collect=dict(n_sample=128))
QAC = dict(
    env_id='fakes:TargetEnv',
    env=dict(stop_value=7.2, n_evaluator_episode=10),  # random actions bring 2.1
    learn=dict(batch_size=64, learning_rate_actor=3e-3, learning_rate_critic=3e-3, update_per_collect=8),
    collect=dict(n_sample=8),
    policy_=dict(discount_factor=0.5, random_collect_size=64),
)
SOFT = QAC | dict(learn=QAC['learn'] | dict(learning_rate_alpha=1e-2))
DISCRETE = {key: value for key, value in SOFT.items() if key not in ('env_id', 'env')}
TOYS = {
    'dqn': DQN,
    'dqn advanced': DQN
    | dict(
        buffer=dict(type='advanced'),
        policy_=dict(discount_factor=0.5, priority=True, priority_IS_weight=True, nstep=2),
    ),
    'qrdqn': DQN | dict(policy='qrdqn', model=dict(num_quantiles=8)),
    'c51': DQN | dict(policy='c51', model=dict(v_min=0.0, v_max=4.0, n_atom=21)),
    'iqn': DQN | dict(policy='iqn', model=dict(num_quantiles=8, quantile_embedding_size=16)),
    'fqf': DQN
    | dict(
        policy='fqf',
        model=dict(num_quantiles=8, quantile_embedding_size=16),
        learn=DQN['learn'] | dict(learning_rate_fractions=1e-3),
    ),
    'sql': DQN | dict(policy='sql'),
    'sqn': DQN
    | dict(
        policy='sqn',
        learn=dict(
            batch_size=32,
            learning_rate=3e-3,
            learning_rate_alpha=1e-2,
            target_theta=0.05,
            update_per_collect=8,
        ),
    ),
    'mdqn': DQN | dict(policy='mdqn'),
    'rainbow': DQN
    | dict(
        policy='rainbow',
        model=dict(v_min=0.0, v_max=4.0, n_atom=21),
        buffer=dict(type='advanced'),
        other={},
        policy_=dict(discount_factor=0.5),
    ),
    'ddpg': QAC | dict(policy='ddpg'),
    'td3 advanced': QAC
    | dict(
        policy='td3',
        buffer=dict(type='advanced'),
        policy_=QAC['policy_'] | dict(priority=True, priority_IS_weight=True, nstep=2),
    ),
    'sac': SOFT | dict(policy='sac'),
    'crossq': QAC
    | dict(
        policy='crossq',
        model=dict(encoder_hidden_size_list=[64, 64]),
        learn=dict(batch_size=64, learning_rate_alpha=1e-2),
    ),
    'xqc': QAC
    | dict(
        policy='xqc',
        model=dict(encoder_hidden_size_list=[64, 64]),
        learn=QAC['learn'] | dict(learning_rate_alpha=1e-2, update_per_collect=8),
    ),
    'tqc': SOFT | dict(policy='tqc', model=dict(num_quantiles=9)),
    'redq': SOFT
    | dict(policy='redq', model=dict(n_critic=4), learn=SOFT['learn'] | dict(actor_update_freq=2)),
    'droq': SOFT | dict(policy='droq', learn=SOFT['learn'] | dict(actor_update_freq=2)),
    'sac_discrete': DISCRETE | dict(policy='sac_discrete'),
    'r2d2': RECURRENT | dict(model=dict(encoder_hidden_size_list=[32], lstm_hidden_size=16)),
    'pqn': FRESH,
    'ppo': PPO,
    'ppo options': PPO
    | dict(
        model=dict(share_encoder=True, activation='relu'),
        learn=dict(
            batch_size=64,
            learning_rate=3e-3,
            value_norm=True,
            value_clip=0.5,
            target_kl=0.05,
            advantage_norm='round',
            epoch_per_collect=8,
            entropy_weight=dict(type='linear', start=0.01, end=0.0, decay=5000),
        ),
        policy_=dict(normalize_obs=True, normalize_reward=True),
    ),
    'a2c': dict(policy='a2c', learn=dict(batch_size=None, learning_rate=3e-3), collect=dict(n_sample=40)),
    'pg': dict(policy='pg', learn=dict(batch_size=None, learning_rate=1e-2), collect=dict(n_sample=128)),
    'appo': PPO | dict(policy='appo'),
    'impala': dict(
        policy='impala', learn=dict(batch_size=None, learning_rate=3e-3), collect=dict(n_sample=40)
    ),
}
"""A name that begins with the policy to its sections; the env is ``fakes:IdentityEnv`` if they name no other."""
SOLVED = dict(env_id='fakes:IdentityEnv', env=dict(stop_value=7.9, n_evaluator_episode=10))
"""The env of most toys, in which 8 is the best possible return."""
CLONING = SOLVED | dict(
    policy='bc', learn=dict(batch_size=32, learning_rate=1e-2), collect=dict(collector={})
)
"""The toy of behaviour cloning, without what it learns from."""


def toy(name: str) -> dict[str, Any]:
    """Returns the sections of a toy, with its env and the mean return that solves it."""
    return SOLVED | TOYS[name]


def toy_of_policy(policy: str) -> dict[str, Any]:
    """Returns the first toy of a policy; that of behaviour cloning learns from a file in the working directory.

    Raises:
        KeyError: If there is none.
    """
    if policy == 'bc':
        return CLONING | dict(
            collector=dict(type='dataset', data=str(recorded_identity(Path('identity.npz'))))
        )
    first = next((name for name in TOYS if toy(name).get('policy', 'dqn') == policy), None)
    if first is None:
        raise KeyError(f'no toy of {policy!r}: add one to TOYS in tests/toys.py')
    return toy(first)


def recorded_identity(file: Path, rows: int = 400) -> Path:
    """Writes the right actions in ``IdentityEnv``."""
    classes = np.random.default_rng(0).integers(4, size=rows)
    obs, action = np.eye(4, dtype=np.float32)[classes], classes.astype(IdentityEnv.action_space.dtype)
    np.savez(file, obs=obs, action=action)
    return file
