"""Envs whose observations, rewards and flags are torch tensors on one device, such as simulators on a GPU.

``TensorVectorEnv`` is their contract, and ``TensorEnvManager`` steps them. ``TorchCartPole`` and ``TorchPendulum`` are
Gymnasium's envs of these names in this form.
"""

from rlframe.envs.tensor.interface import TensorVectorEnv
from rlframe.envs.tensor.simulation import TorchCartPole, TorchPendulum

__all__ = ['TensorVectorEnv', 'TorchCartPole', 'TorchPendulum']
