"""The data types that all layers share: columns with one leading axis, steps of envs, trajectories, returns.

Nothing here knows a policy or an env. Letters used for axes throughout rlframe: ``T`` time, ``N`` envs, ``P`` players,
``M`` training samples, ``B`` batch, ``A`` actions.
"""

from rlframe.data.timestep import Array, Batch, BoolArray, EnvSpec, FloatArray, IntArray, Row, TimeStep

__all__ = ['Array', 'Batch', 'BoolArray', 'EnvSpec', 'FloatArray', 'IntArray', 'Row', 'TimeStep']
