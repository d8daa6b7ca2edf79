"""rlframe: reinforcement learning from components that a config file puts together.

``import rlframe`` is light: torch, gymnasium and ray are imported by the parts that use them. Beside the rooms lie
only errors, the registries and scores; whatever else belongs to a room.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rlframe._version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from rlframe.app.run import Run as Run
    from rlframe.app.training import open_run as open_run
    from rlframe.app.training import start as start
    from rlframe.app.training import train as train
    from rlframe.export import LoadedPolicy

__all__ = ['Run', '__version__', 'load', 'open_run', 'start', 'train']

LAZY = {'Run': 'run', 'open_run': 'training', 'start': 'training', 'train': 'training'}
"""Names that are imported from ``rlframe.app`` when they are first used, as they need torch."""


def __getattr__(name: str) -> Any:
    if name not in LAZY:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(importlib.import_module(f'rlframe.app.{LAZY[name]}'), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *LAZY})


def load(
    path: str | Path,
    *,
    device: str | None = None,
    stack_frames: bool = True,
    trust: bool = False,
) -> LoadedPolicy:
    """Loads an exported policy: ``rlframe.load(path).act(obs)``.

    Neither the training config nor the env is needed.

    Args:
        path: A run folder with an export, or the exported folder.
        device: ``'cpu'``, ``'cuda'``, ``'cuda:i'`` or ``'auto'``; None: the CPU if the config of
            the run chose it, else CUDA if available.
        stack_frames: Whether to stack frames for a policy that needs several; False: the observations are stacked
            already, as by a wrapper.
        trust: Whether to import the custom modules of a policy that somebody else exported; only for folders that you
            trust. Otherwise only rlframe and Gymnasium are imported.

    Raises:
        CheckpointNotFoundError: If there is no exported policy.
        CheckpointCorruptError: If a file differs from the manifest; the error names it.
        CheckpointVersionError: If a newer rlframe wrote it.
        UnsafeCheckpointError: If it would run code.
    """
    from rlframe.export.loaded import load_policy

    return load_policy(path, device=device, stack_frames=stack_frames, trust=trust)
