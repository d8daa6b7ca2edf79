"""Trains from Python instead of from the command line."""

import rlframe

run = rlframe.train('cartpole_dqn', seed=0, max_env_step=2000)

score = run.evaluate(episodes=20)  # on episodes that training never saw
action = run.policy.act([0.0, 0.0, 0.0, 0.0])  # one observation, or a batch
