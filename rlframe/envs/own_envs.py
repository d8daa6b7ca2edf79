"""Ids of the envs of rlframe, which are registered when this module is imported."""

from __future__ import annotations

import gymnasium

gymnasium.register(
    'rlframe/CartPoleNoVelocity-v1',
    entry_point='rlframe.envs.masked_velocity:CartPoleNoVelocity',
    max_episode_steps=500,
    reward_threshold=475.0,
)
gymnasium.register(
    'rlframe/PendulumNoVelocity-v1',
    entry_point='rlframe.envs.masked_velocity:PendulumNoVelocity',
    max_episode_steps=200,
)
gymnasium.register('rlframe/BitFlip-v0', entry_point='rlframe.envs.bit_flip:BitFlip')
gymnasium.register('rlframe/Moving-v0', entry_point='rlframe.envs.moving:Moving')
