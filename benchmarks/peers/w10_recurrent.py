"""W10 of the peers: PPO with an LSTM on CartPole-v1 without velocities, with rl-zoo3's hyper-parameters.

8 envs x 32 steps a round, 20 epochs of minibatches of 256; actor and critic with an LSTM of 64 units and a hidden layer of
64 each, observations and rewards normalised. Seconds of the training loop alone.

usage: w10_recurrent.py sb3_contrib [ENV_STEPS]
"""

from time import perf_counter

import gymnasium
from harness import run

HIDDEN = [1, 3]
"""Numbers of the observation that are velocities."""


class NoVelocity(gymnasium.ObservationWrapper):
    """Sets velocities to 0, as rl-zoo3's MaskVelocityWrapper does."""

    def observation(self, observation):
        observation = observation.copy()
        observation[HIDDEN] = 0
        return observation


def sb3_contrib(env_steps: int = 10_240) -> dict:
    from sb3_contrib import RecurrentPPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize
    from torch import nn

    envs = make_vec_env('CartPole-v1', 8, wrapper_class=NoVelocity)
    model = RecurrentPPO(
        'MlpLstmPolicy',
        VecNormalize(envs, gamma=0.98),
        n_steps=32,
        batch_size=256,
        n_epochs=20,
        learning_rate=lambda left: left * 1e-3,
        gamma=0.98,
        gae_lambda=0.8,
        clip_range=lambda left: left * 0.2,
        ent_coef=0.0,
        policy_kwargs={
            'ortho_init': False,
            'activation_fn': nn.ReLU,
            'lstm_hidden_size': 64,
            'enable_critic_lstm': True,
            'net_arch': {'pi': [64], 'vf': [64]},
        },
        device='cpu',
    )
    start = perf_counter()
    model.learn(env_steps)
    return {'seconds': perf_counter() - start, 'env_steps': env_steps, 'updates': model._n_updates}


if __name__ == '__main__':
    run({'sb3_contrib': sb3_contrib})
