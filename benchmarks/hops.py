"""Counts what a reader of rlframe goes through: one round of training, one option, and the classes of each policy.

usage: hops.py [WARM_UP_ROUNDS]

**A round.** Files and classes that one round of training executes, in the order of their first call.

A round of DQN on CartPole in this process: collect in 8 envs, push, sample, update. After the warm-up (500 rounds by
default, after which envs are no longer checked in full), the first round in which an episode ends is traced. A file counts
if one of its functions runs, a class if a method that it defines runs. Stars mark the files that handle data: one of
their functions gets an array, a tensor, or a container of those as an argument.

**An option.** ``policy.learn.learning_rate`` of that config is read from its file, compiled, and read by the policy, in a
traced ``read_config``, ``compile_config`` and start of a pipeline. The value is a number that occurs nowhere else. A file
counts if one of its functions that runs has, as an argument or as its result, the value, or a mapping that contains it: at any
depth until the config is compiled; afterwards only the section ``learn`` itself, as everything else is handed a whole config for
other options. Its forms are the different types of mappings that hold it under ``learning_rate``, or under the dotted key.
The stays are the functions that have the config, or a part of it with the value, while a pipeline starts.

**A policy.** Its own class and its bases in rlframe, interfaces and mix-ins included, and the longest chain from it to a base
without further bases in rlframe.
"""

from __future__ import annotations

import argparse
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
from rlframe.config import compile_config, read_config
from rlframe.data import Batch
from rlframe.entry.arguments import count
from rlframe.pipeline import SerialPipeline
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import Field

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


MARK = 0.000123456789
"""A learning rate that no other option has."""
KEYS = ('learning_rate', 'policy.learn.learning_rate')


class OptionTrace:
    """Records which files of rlframe have a marked value in their hands, and in which mappings it is."""

    def __init__(self) -> None:
        self.files: dict[str, set[str]] = {}
        """Files to the names of their functions that had the value, in the order of their first call."""
        self.forms: dict[str, None] = {}
        """Types of mappings that held it, in the order of their first appearance."""
        self.depth = 8
        """How deeply the value may lie in what a function gets."""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event not in ('call', 'return') or not code.co_filename.startswith(str(HOUSE)):
            return
        count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
        names = code.co_varnames[:count]
        values = [argument] if event == 'return' else [frame.f_locals.get(name) for name in names]
        sys.setprofile(None)
        if any([self._has(value) for value in values]):
            file = str(Path(code.co_filename).relative_to(HOUSE))
            self.files.setdefault(file, set()).add(code.co_qualname)
        sys.setprofile(self)

    def _has(self, value: Any, depth: int = 0) -> bool:
        if isinstance(value, dict) and depth < self.depth:
            if any(is_mark(dict.get(value, key)) for key in KEYS):
                self.forms.setdefault(type(value).__name__ + (' of dotted keys' if KEYS[1] in value else ''))
            return any([self._has(below, depth + 1) for below in dict.values(value)])
        if isinstance(value, tuple | list) and depth < self.depth:
            return any([self._has(below, depth + 1) for below in value])
        return is_mark(value)


def is_mark(value: Any) -> bool:
    """Whether a value, or the default of a field, is the marked one."""
    return (type(value) is float and value == MARK) or (isinstance(value, Field) and value.default == MARK)


def traced_option(folder: str) -> tuple[OptionTrace, OptionTrace]:
    """Reads, compiles and uses a config with the marked learning rate; then starts a pipeline with it once more."""
    text = CONFIG.read_text(encoding='utf-8')
    file = Path(folder) / 'marked.py'
    file.write_text(f'{text}\nmain_config["policy"]["learn"]["learning_rate"] = {MARK}\n', encoding='utf-8')
    trace = OptionTrace()
    start = OptionTrace()
    sys.setprofile(trace)
    try:
        cfg = compile_config(*read_config(file), seed=0)
        trace.depth = 1
        with SerialPipeline(cfg):
            pass
        sys.setprofile(start)
        with SerialPipeline(cfg):
            pass
    finally:
        sys.setprofile(None)
    return trace, start


def lineage(cls: type) -> tuple[int, int]:
    """Returns the number of classes of rlframe that a class consists of, and the depth of its inheritance."""

    def depth(kind: type) -> int:
        bases = [base for base in kind.__bases__ if base.__module__.startswith('rlframe.')]
        return 1 + max(map(depth, bases), default=0)

    return sum(base.__module__.startswith('rlframe.') for base in cls.__mro__), depth(cls)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('warm_up', nargs='?', type=count, default=500, metavar='WARM_UP_ROUNDS')
    warm_up = parser.parse_args().warm_up
    start = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # the run folder is not to be left behind
        option, begun = traced_option(folder)
        trace = traced_round(warm_up)
        os.chdir(start)
    for path, names in trace.files.items():
        print(f'{"*" if path in trace.with_data else " "} {path}: {", ".join(sorted(names))}')
    print(f'classes: {", ".join(trace.classes)}')
    print(
        f'{len(trace.files)} files, {len(trace.with_data)} of them with data, {len(trace.classes)} classes,'
        f' {trace.calls} calls'
    )
    print('\npolicy.learn.learning_rate, from its file to the optimizer:')
    for path, names in option.files.items():
        print(f'  {path}: {", ".join(sorted(names))}')
    print(f'{len(option.files)} files, {len(option.forms)} forms: {", ".join(option.forms)}')
    stays = sum(map(len, begun.files.values()))
    print(f'start of a pipeline: the config stays in {stays} functions of {len(begun.files)} files')
    print('\nclasses and depth of each policy:')
    for name in POLICY_REGISTRY.names():
        print('  {}: {}, {}'.format(name, *lineage(POLICY_REGISTRY.get(name))))


if __name__ == '__main__':
    main()
