"""Exports a trained policy as one folder that acts without the training config and without the env.

``export_policy`` writes it, and other formats next to it; ``rlframe.load`` loads it to act.
"""

from rlframe.export.exporter import FORMATS, export_policy
from rlframe.export.loaded import LoadedAgent, LoadedPolicy, load_policy

__all__ = ['FORMATS', 'LoadedAgent', 'LoadedPolicy', 'export_policy', 'load_policy']
