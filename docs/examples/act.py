"""Acts with an exported policy, without its config and checkpoint."""

import gymnasium

import rlframe

# a run folder after `rlframe export cartpole_dqn_seed0`
policy = rlframe.load('cartpole_dqn_seed0')
env = gymnasium.make('CartPole-v1')

obs, _ = env.reset(seed=0)
return_, done = 0.0, False
while not done:
    obs, reward, terminated, truncated, _ = env.step(policy.act(obs))
    return_, done = return_ + float(reward), terminated or truncated
