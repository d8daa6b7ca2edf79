"""Trains from Python instead of from the command line."""

import numpy as np

from rlframe.pipeline import serial_pipeline

main_config = dict(exp_name='from_python', env=dict(env_id='CartPole-v1'), policy=dict(cuda=False))
create_config = dict(policy=dict(type='dqn'))

policy = serial_pipeline((main_config, create_config), seed=0, max_env_step=2000)

obs = np.zeros((1, 4), np.float32)  # [n, 4]: one observation
action = policy.eval_mode.forward(obs, env_id=np.zeros(1, int))['action']  # [n]
