"""The machine and the versions that a run uses, for reports about it."""

from __future__ import annotations

import math
import os
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ('torch', 'numpy', 'gymnasium')
WAITING = ('OMP_WAIT_POLICY', 'GOMP_SPINCOUNT')
"""Settings of what idle threads of OpenMP do."""
SPINS = '1000'
"""How often such a thread looks for work before it sleeps; about a microsecond, instead of milliseconds."""


def usable_cores() -> int:
    """Returns the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1


def available_memory() -> float:
    """Returns the number of bytes that can be allocated without swapping; infinity if the system does not report it."""
    try:
        with open('/proc/meminfo') as file:
            fields = dict(line.split(':') for line in file)
    except OSError:
        return math.inf
    return int(fields['MemAvailable'].split()[0]) * 1024 if 'MemAvailable' in fields else math.inf


def let_threads_sleep() -> None:
    """Lets idle threads of torch sleep, unless the environment says what they do; without effect once torch is loaded.

    By default they spin until the next operation (GNU OpenMP). Envs with threads of their own then lack a core, and where
    other programs need the cores, torch waits for threads that spin in vain.
    """
    if not any(name in os.environ for name in WAITING):
        os.environ['GOMP_SPINCOUNT'] = SPINS


@cache
def machine() -> dict[str, str]:
    """Returns the processor, the cores that this process may use, the system, and versions, without names of host or user."""
    facts = {
        'processor': f'{_processor()}, {usable_cores()} cores',
        'system': f'{platform.system()} {platform.release()} {platform.machine()}',
        'Python': platform.python_version(),
    }
    for name in PACKAGES:
        try:
            facts[name] = version(name)
        except PackageNotFoundError:
            continue
    return facts


def _processor() -> str:
    try:
        lines = Path('/proc/cpuinfo').read_text(encoding='utf-8').splitlines()
    except OSError:
        lines = []
    names = (line.partition(':')[2].strip() for line in lines if line.startswith('model name'))
    return next(names, platform.processor() or platform.machine())
