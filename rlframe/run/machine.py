"""The machine and the versions that a run uses, for reports about it."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from rlframe.errors import ResourceError
from rlframe.utils.lazy import LazyModule

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule('torch')


CONTROL_GROUPS = Path('/sys/fs/cgroup')
PACKAGES = ('torch', 'numpy', 'gymnasium')
WAITING = ('OMP_WAIT_POLICY', 'GOMP_SPINCOUNT')
"""Settings of idle threads of OpenMP."""
SPINS = '1000'
"""Number of times that an idle thread looks for work before it sleeps: about a microsecond, instead of milliseconds."""


def usable_cores() -> int:
    """Returns the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1


def available_memory() -> float:
    """Returns the number of bytes that can be allocated without swapping; infinity if the system does not report it.

    Limits of containers and of jobs, as of Docker, Kubernetes and Slurm, count (control groups, version 2).
    """
    try:
        with open('/proc/meminfo') as file:
            fields = dict(line.split(':') for line in file)
    except OSError:
        return math.inf
    free = int(fields['MemAvailable'].split()[0]) * 1024 if 'MemAvailable' in fields else math.inf
    return min([free, *map(_left_in_group, _control_groups())])


def free_memory(device: torch.device | None) -> float:
    """Returns the number of bytes that can be allocated on a device; None: in main memory."""
    if device is None or device.type != 'cuda':
        return available_memory()
    return float(torch.cuda.mem_get_info(device)[0])


def _control_groups() -> Iterator[Path]:
    """Yields the folder of the control group of this process, and of the groups that contain it."""
    try:
        lines = Path('/proc/self/cgroup').read_text(encoding='utf-8').splitlines()
    except OSError:
        return
    for line in lines:
        if line.startswith('0::'):
            own = Path(line.removeprefix('0::').lstrip('/'))
            yield from (CONTROL_GROUPS / part for part in (own, *own.parents))


def _left_in_group(folder: Path) -> float:
    """Returns the bytes that a control group has left; infinity if it has no limit."""
    try:
        most, used = (int((folder / name).read_text()) for name in ('memory.max', 'memory.current'))
        stat = dict(line.split() for line in (folder / 'memory.stat').read_text().splitlines())
    except (OSError, ValueError):  # there is no such group here, or its limit is 'max'
        return math.inf
    return max(most - used + int(stat.get('inactive_file', 0)), 0)


def demand_memory(
    nbytes: float, what: str, where: str, remedy: str = '', device: torch.device | None = None
) -> None:
    """Refuses an allocation that does not fit into the free memory.

    Args:
        nbytes: Bytes that it takes.
        what: What needs them.
        where: Config key that sets the size.
        remedy: A sentence about what to do.
        device: Where it is allocated; None: in main memory.

    Raises:
        ResourceError: With the needed and the free memory.
    """
    free = free_memory(device)
    if nbytes > free:
        there = f' on {device}' if device is not None else ''
        raise ResourceError(
            f'{what} needs {nbytes / 2**30:,.1f} GiB, {free / 2**30:,.1f} GiB are free{there}',
            where=where,
            remedy=remedy,
        )


def let_threads_sleep() -> None:
    """Lets idle threads of torch sleep, unless the environment sets that already; without effect once torch is loaded.

    By default they spin until the next operation (GNU OpenMP). Envs with threads of their own then lack a core, and where
    other programs need the cores, torch waits for threads that spin in vain.
    """
    if not any(name in os.environ for name in WAITING):
        os.environ['GOMP_SPINCOUNT'] = SPINS


@cache
def machine() -> dict[str, str]:
    """Returns the processor, the cores that this process may use, the system, and versions, without names of host or user."""
    name = _of_cpu('model name') or platform.processor() or platform.machine()
    facts = {
        'processor': f'{name}, {usable_cores()} cores',
        'system': f'{platform.system()} {platform.release()} {platform.machine()}',
        'Python': platform.python_version(),
    }
    for name in PACKAGES:
        try:
            facts[name] = version(name)
        except PackageNotFoundError:
            continue
    return facts


def _of_cpu(name: str) -> str:
    """Returns a fact of the processor, as Linux reports it; an empty string if the system does not."""
    try:
        lines = Path('/proc/cpuinfo').read_text(encoding='utf-8').splitlines()
    except OSError:
        return ''
    return next((line.partition(':')[2].strip() for line in lines if line.startswith(name)), '')


def arithmetic() -> dict[str, str]:
    """Names what determines rounding on this machine: the processor type and the modes that the user set.

    Two machines with the same answer round the same way; on a different one, a resumed run is exact up to rounding.
    """
    modes = {name: os.environ[name] for name in ('MKL_CBWR', 'ATEN_CPU_CAPABILITY') if name in os.environ}
    vendor = _of_cpu('vendor_id') or platform.processor() or platform.system()
    kind = f'{platform.machine()} {vendor} {torch.backends.cpu.get_cpu_capability()}'
    return {'processor': kind, **modes}
