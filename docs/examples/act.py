"""Acting with an exported policy, which needs neither its config nor its checkpoint."""

import gymnasium

import rlframe

policy = rlframe.load(
    'cartpole_dqn_seed0'
)  # where `python -m rlframe.entry export cartpole_dqn_seed0` put it
env = gymnasium.make('CartPole-v1')

obs, _ = env.reset(seed=0)
return_, done = 0.0, False
while not done:
    obs, reward, terminated, truncated, _ = env.step(policy.act(obs))
    return_, done = return_ + float(reward), terminated or truncated
