"""Envs whose observations, rewards and flags are torch tensors on one device, such as simulators on a GPU.

``TensorVectorEnv`` is their contract, and ``TensorEnvManager`` steps them. ``TorchCartPole`` and ``TorchPendulum`` are
Gymnasium's envs of these names in this form.
"""

from rlframe.utils.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
