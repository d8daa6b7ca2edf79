from rlframe.envs.tensor.interface import TensorVectorEnv as TensorVectorEnv
from rlframe.envs.tensor.simulation import TorchCartPole as TorchCartPole
from rlframe.envs.tensor.simulation import TorchPendulum as TorchPendulum
