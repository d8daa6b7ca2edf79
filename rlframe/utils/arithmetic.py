"""Floating point numbers: are they finite, do they depend on memory addresses, and what else do they depend on."""

from __future__ import annotations

import math
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np

from rlframe.utils.lazy import torch

ALIGNMENT = 64
"""Bytes that torch aligns its own CPU tensors to; numpy's arrays begin at any multiple of 16."""


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """Copies a CPU tensor of floats if its memory is not aligned like torch's own.

    Matrix products of BLAS libraries depend on the alignment of their operands in the last bit, so a network that reads
    numpy's memory in place would depend on the address that the allocator happened to return.

    Args:
        tensor: Any tensor. Integers and booleans are returned as they are, as their arithmetic is exact.

    Source:
        Intel oneMKL Developer Guide, "Conditional Numerical Reproducibility": results are reproducible between runs
        only for aligned arrays, unless a strict mode is set.
    """
    if tensor.data_ptr() % ALIGNMENT and tensor.is_floating_point():
        return tensor.clone()
    return tensor


def aligned_zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Returns zeros in memory that begins with a cache line, so ``aligned`` does not copy it."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.zeros(size + ALIGNMENT, np.uint8)
    start = -memory.__array_interface__['data'][0] % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def is_finite(values: np.ndarray[Any, Any]) -> bool:
    """Whether values of any shape contain no NaN and no infinity; True for values that are not real numbers.

    The dot product of an array with itself is finite only if every element is. The reverse fails for numbers whose
    squares overflow: only then each element is checked.
    """
    return (
        values.dtype.kind != 'f' or math.isfinite(np.vdot(values, values)) or bool(np.isfinite(values).all())
    )


def arithmetic() -> dict[str, str]:
    """Names what determines rounding on this machine: the processor type and the modes that the user set.

    Two machines with the same answer round the same way; on a different one, a resumed run is exact up to rounding.
    """
    modes = {name: os.environ[name] for name in ('MKL_CBWR', 'ATEN_CPU_CAPABILITY') if name in os.environ}
    kind = f'{platform.machine()} {_vendor()} {torch.backends.cpu.get_cpu_capability()}'
    return {'processor': kind, **modes}


def _vendor() -> str:
    try:
        facts = Path('/proc/cpuinfo').read_text(encoding='utf-8')
    except OSError:
        return platform.processor() or platform.system()
    names = [line.partition(':')[2].strip() for line in facts.splitlines() if line.startswith('vendor_id')]
    return names[0] if names else platform.system()
