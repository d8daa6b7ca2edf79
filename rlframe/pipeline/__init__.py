"""The training loop, the assembly of its parts from a config, and the state of a run.

``serial_pipeline`` trains an experiment, ``parallel_pipeline`` one of parallel mode; ``SerialPipeline`` is the serial loop,
step by step. Files and their formats belong to ``run``.
"""

from rlframe.utils.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
