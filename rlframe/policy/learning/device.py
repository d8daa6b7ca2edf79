"""Device and number format of tensors: ``device`` and DI-engine's ``cuda`` become one ``torch.device``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlframe.data.device import existing_device
from rlframe.errors import ConfigError, DeviceError
from rlframe.utils.field import Field
from rlframe.utils.lazy import LazyModule

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule('torch')


PRECISION = Field(
    'fp32',
    choices=('fp32', 'tf32', 'bf16'),
    doc="number format of matrix products and convolutions: 'fp32'; on a GPU 'tf32', which rounds their inputs to 10 bits;"
    " 'bf16', in which losses are computed with 8 bits, while parameters and moments stay float32",
    may_change=True,
)
"""The option ``precision`` of every policy."""
TENSOR_CORES = 8, 0
"""First CUDA capability that computes in TF32 and bfloat16. Source: NVIDIA, Ampere architecture white paper (2020)."""


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
    return existing_device(
        name,
        'policy.device' if cuda is None else 'policy.cuda',
        "policy.device='auto', without policy.cuda, takes the CPU where there is no GPU.",
    )


def check_modes(cfg: Any, device: torch.device) -> None:
    """Checks that a device can learn as ``cuda_graph`` and ``precision`` say.

    Raises:
        DeviceError: If not; the nearest mode that works is named.
    """
    if device.type != 'cuda':
        if cfg.cuda_graph:
            raise DeviceError(
                f'a CUDA graph needs a CUDA device, and the policy is on {device}',
                where='policy.cuda_graph',
                got=True,
                expected='False',
                remedy='On a CPU policy.compile=True is the nearest mode that works.',
            )
        if cfg.precision == 'tf32':
            raise DeviceError(
                f'only CUDA devices compute in TF32, and the policy is on {device}',
                where='policy.precision',
                got='tf32',
                expected="'fp32'",
            )
    elif cfg.precision != 'fp32' and (found := torch.cuda.get_device_capability(device)) < TENSOR_CORES:
        name, needed = torch.cuda.get_device_name(device), '.'.join(map(str, TENSOR_CORES))
        raise DeviceError(
            f'{name} has CUDA capability {found[0]}.{found[1]}, and this needs {needed}',
            where='policy.precision',
            got=cfg.precision,
            expected="'fp32'",
        )


def set_precision(precision: str, device: torch.device) -> None:
    """Sets the format of this process's matrix products in float32 on GPUs; that of the last policy counts."""
    if device.type != 'cuda':
        return
    is_allowed = precision == 'tf32'
    # these two setters: what users may read stays readable, which it does not after the newer fp32_precision
    torch.backends.cuda.matmul.allow_tf32 = is_allowed
    torch.backends.cudnn.allow_tf32 = is_allowed


def autocast(losses: Callable[..., Any], device: torch.device, *, has_cache: bool) -> Callable[..., Any]:
    """Returns a function that computes its matrix products in bfloat16.

    Args:
        losses: Function of tensors.
        device: Where they are.
        has_cache: Whether converted weights are kept during a call; a graph must convert them anew.
    """

    def lowered(*args: Any) -> Any:
        with torch.autocast(device.type, torch.bfloat16, cache_enabled=has_cache):
            return losses(*args)

    return lowered
