"""Selects the device of tensors: ``device`` and DI-engine's ``cuda`` become one ``torch.device``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from rlframe.errors import ConfigError, DeviceError
from rlframe.utils.lazy import LazyModule

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule('torch')


def check_device(name: str) -> str:
    """Returns a description of valid devices if a value is malformed, else an empty string."""
    return (
        ''
        if re.fullmatch(r'auto|cpu|cuda(:\d+)?', name)
        else "'auto', 'cpu', 'cuda' or 'cuda:0', 'cuda:1', ..."
    )


def resolve_device(cfg: Any) -> torch.device:
    """Returns the device that ``cfg.device`` and ``cfg.cuda`` ask for.

    Raises:
        DeviceError: If CUDA is requested but not available; only ``auto`` falls back to the CPU.
        ConfigError: If the two contradict each other.
    """
    name, cuda = cfg.device, cfg.cuda
    if cuda is not None:
        if name != 'auto' and cuda == (name == 'cpu'):
            raise ConfigError(
                f'policy.cuda={cuda} contradicts policy.device={name!r}', remedy='Leave out policy.cuda.'
            )
        name = name if name != 'auto' else 'cuda' if cuda else 'cpu'
    if name == 'auto':
        name = 'cuda' if torch.cuda.is_available() else 'cpu'
    if name.startswith('cuda'):
        there = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(name.partition(':')[2] or 0) >= there:
            raise DeviceError(
                f'no device {name!r}: torch {torch.__version__}, cuda.is_available()={torch.cuda.is_available()},'
                f' {there} CUDA devices',
                where='policy.device' if cuda is None else 'policy.cuda',
                remedy="policy.device='auto', without policy.cuda, takes the CPU where there is no GPU.",
            )
    return torch.device(name)
