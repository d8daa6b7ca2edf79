"""Lists the files and classes of rlframe that one round of training executes, in the order of their first call.

usage: hops.py [WARM_UP_ROUNDS]

A round of DQN on CartPole in this process: collect in 8 envs, push, sample, update. After the warm-up (500 rounds by
default, after which envs are no longer checked in full), the first round in which an episode ends is traced. A file counts
if one of its functions runs, a class if a method that it defines runs. Stars mark the files that handle data: one of
their functions gets an array, a tensor, or a container of those as an argument.
"""

from __future__ import annotations

import os
import runpy
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch

import rlframe
from rlframe.config import compile_config
from rlframe.data import Batch
from rlframe.pipeline import SerialPipeline

HOUSE = Path(rlframe.__file__).parent
CONFIG = HOUSE.parent / 'configs' / 'cartpole_dqn.py'


def is_data(value: Any) -> bool:
    """Whether a value is an array with an axis, a tensor, or a container of those."""
    if isinstance(value, tuple | list):
        return any(map(is_data, value))
    if isinstance(value, Batch | dict):
        return any(map(is_data, dict(value.items()).values()))
    return isinstance(value, np.ndarray | torch.Tensor) and bool(value.ndim)


class Trace:
    """Records the Python functions of rlframe that are called."""

    def __init__(self) -> None:
        self.files: dict[str, set[str]] = {}
        """Files to the names of their functions that ran, in the order of their first call."""
        self.with_data: set[str] = set()
        """Those files of which a function got data."""
        self.classes: dict[str, None] = {}
        """Classes whose methods ran, in the same order."""
        self.calls = 0
        """Number of calls."""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        path = frame.f_code.co_filename
        if event != 'call' or not path.startswith(str(HOUSE)):
            return
        self.calls += 1
        name, file = frame.f_code.co_qualname, str(Path(path).relative_to(HOUSE))
        self.files.setdefault(file, set()).add(name)
        code = frame.f_code
        count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
        if any(map(is_data, map(frame.f_locals.get, code.co_varnames[:count]))):
            self.with_data.add(file)
        owner = name.split('.<locals>', maxsplit=1)[0].rpartition('.')[0]
        if owner:
            self.classes.setdefault(owner)


def traced_round(warm_up: int) -> Trace:
    """Trains some rounds, and returns the trace of the first one after them in which an episode ends."""
    found = runpy.run_path(str(CONFIG))
    cfg = compile_config(found['main_config'], found['create_config'], seed=0)
    with SerialPipeline(cfg) as pipeline:
        for _ in range(warm_up):
            pipeline.step()
        while True:
            trace, before = Trace(), pipeline.progress.episodes
            sys.setprofile(trace)
            try:
                pipeline.step()
            finally:
                sys.setprofile(None)
            if pipeline.progress.episodes > before:
                return trace


def main() -> None:
    warm_up = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    start = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # the run folder is not to be left behind
        trace = traced_round(warm_up)
        os.chdir(start)
    for path, names in trace.files.items():
        print(f'{"*" if path in trace.with_data else " "} {path}: {", ".join(sorted(names))}')
    print(f'classes: {", ".join(trace.classes)}')
    print(
        f'{len(trace.files)} files, {len(trace.with_data)} of them with data, {len(trace.classes)} classes,'
        f' {trace.calls} calls'
    )


if __name__ == '__main__':
    main()
