"""Envs and their managers.

Any Gymnasium env runs from config through a factory; a manager steps N of them, in this process, in others or on a
device, and returns columns in which an env's last row holds its true last observation. Nothing here knows about policies.
"""

from rlframe.envs.base_env import EnvFactory
from rlframe.envs.env_manager import BaseEnvManager
from rlframe.envs.interface import IEnvManager, create_env_manager, get_vec_env_setting

__all__ = ['BaseEnvManager', 'EnvFactory', 'IEnvManager', 'create_env_manager', 'get_vec_env_setting']
