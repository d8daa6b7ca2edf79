"""rlframe: reinforcement learning from components that a config file puts together.

``import rlframe`` is light: torch, gymnasium and ray are imported by the parts that use them.
"""

__version__ = '0.1.0'

__all__ = ['__version__']
