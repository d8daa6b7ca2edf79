"""Envs that fail in every way that there is, when and where they are told to; and ways to see what is left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fork_server
import gymnasium
import numpy as np
from zoo import Toy


class OwnError(Exception):
    """An env's own kind of error."""


def raise_own() -> None:
    raise OwnError('the simulator lost its mind')


def exit_python() -> None:
    sys.exit(3)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave() -> None:
    os._exit(7)


def sleep() -> None:
    time.sleep(600)


def spin() -> None:
    while True:
        pass


def hold_the_lock() -> None:
    """Waits in C without giving Python's lock away."""
    import ctypes

    ctypes.PyDLL(None).sleep(600)


def fork() -> None:
    """Leaves processes behind: one forked, one started."""
    if os.fork() == 0:
        time.sleep(600)
    subprocess.Popen(['sleep', '600'])


class Steady(Toy):
    """Its obs is (env number, resets so far, step, a random number); it needs no torch, so that workers start quickly."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)

    def __init__(self, number: int = 0, length: int = 5) -> None:
        self.number, self.length, self.resets, self.all_steps = number, length, 0, 0

    def begin(self, seed: int | None) -> None:
        self.resets += 1
        self.ending = 'truncated' if self.resets % 2 else 'terminated'

    def obs(self) -> Any:
        return np.array([self.number, self.resets, self.steps, self.np_random.random()], np.float32)

    def act(self, action: Any) -> Any:
        self.all_steps += 1
        return 0.1 * self.steps

    def info(self) -> dict[str, Any]:
        return {'is_success': self.number % 2 == 0, 'place': {'step': self.steps}} if self.is_over() else {}

    def render(self) -> np.ndarray:
        return np.full((4, 6, 3), 10 * self.number + self.steps, np.uint8)


class Uneven(Steady):
    """Takes its time, now more, now less; its reward tells what it was asked to do.

    Args:
        number: Which env it is.
        length: Steps of an episode.
        delay: Most seconds of a step or a reset.
        gate: Files that hold up: a step waits while ``gate + '.step'`` is there, a reset while ``gate + '.reset'`` is.
    """

    def __init__(self, number: int = 0, length: int = 5, delay: float = 0.0, gate: str = '') -> None:
        super().__init__(number, length)
        self.delay, self.gate = delay, gate
        self.clock = np.random.default_rng(number)

    def _wait(self, what: str) -> None:
        time.sleep(self.delay * self.clock.random())
        while self.gate and Path(f'{self.gate}.{what}').exists():
            time.sleep(0.002)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self._wait('reset')
        return super().reset(seed=seed)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._wait('step')
        obs, _, *rest = super().step(action)
        return obs, uneven_reward(obs, action), *rest


def uneven_reward(obs: Any, action: Any) -> Any:
    """The reward of the step by ``action`` that led to ``obs``, [..., 4], of an ``Uneven`` env; exact in float32."""
    return 100_000 * obs[..., 0] + 100 * obs[..., 1] + 2 * obs[..., 2] + action


class Handle(Steady):
    """Its state cannot be had; an episode depends on nothing but its seed."""

    def __init__(self, number: int = 0, length: int = 5) -> None:
        super().__init__(number, length)
        self._handle = iter(())

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self.resets = 0
        return super().reset(seed=seed)


class FaultEnv(Steady):
    """Does harm at one place.

    Args:
        number: Which env it is.
        fault: Name of the function here that it calls there; none where it is empty.
        place: ``'init'``, ``'reset'`` or ``'step'``.
        at: Number of the reset, or of the step of all its steps, counted from 1.
        once: A file that is made when it happens, so that it happens once and not in the env that takes its place.
    """

    def __init__(
        self,
        number: int = 0,
        fault: str = '',
        place: str = 'step',
        at: int = 1,
        once: str = '',
        length: int = 5,
    ) -> None:
        super().__init__(number, length)
        self.fault, self.place, self.at, self.once = fault, place, at, once
        if place == 'init':
            self._do()

    def _do(self) -> None:
        if self.fault and not (self.once and Path(self.once).exists()):
            if self.once:
                Path(self.once).touch()
            globals()[self.fault]()

    def reset(self, **options: Any) -> Any:
        if self.place == 'reset' and self.resets + 1 == self.at:
            self._do()
        return super().reset(**options)

    def step(self, action: Any) -> Any:
        if self.place == 'step' and self.all_steps + 1 == self.at:
            self._do()
        return super().step(action)


class RandomlyFailing(Steady):
    """Raises with a probability that its seed decides about."""

    def __init__(self, number: int = 0, probability: float = 0.01) -> None:
        super().__init__(number, 20)
        self.probability = probability

    def step(self, action: Any) -> Any:
        if self.np_random.random() < self.probability:
            raise_own()
        return super().step(action)


def processes() -> dict[int, tuple[str, int, int]]:
    """Returns state, parent and process group of every process."""
    found = {}
    for folder in Path('/proc').iterdir():
        if folder.name.isdigit():
            try:
                state, parent, group = (folder / 'stat').read_text().rpartition(')')[2].split()[:3]
            except OSError:
                continue
            found[int(folder.name)] = (state, int(parent), int(group))
    return found


def children(parent: int | None = None) -> set[int]:
    """Returns the children of a process, zombies too; of this one where none is given, without the tests' fork server."""
    parent = os.getpid() if parent is None else parent
    found = {pid for pid, (_, its_parent, _) in processes().items() if its_parent == parent}
    return found - fork_server.server_ids()


def members(groups: set[int]) -> set[int]:
    """Returns the living processes of some process groups."""
    return {pid for pid, (state, _, group) in processes().items() if group in groups and state != 'Z'}


def wait_until(holds: Callable[[], bool], seconds: float) -> bool:
    """Returns whether something came to hold within so many seconds."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def leftovers() -> dict[str, Any]:
    """Returns what must be the same before and after: children, threads, open files, shared memory."""
    return {
        'children': children(),
        'threads': {thread.ident for thread in threading.enumerate()},
        'fds': len(os.listdir('/proc/self/fd')),
        'shm': shared_memory(),
    }


def shared_memory() -> set[str]:
    """Returns the names of shared memory, without what processes hold that are no descendants of this one."""
    places = {entry: str(Path('/dev/shm') / entry) for entry in os.listdir('/dev/shm')}
    if not places:
        return set()
    known = processes()
    ours, new = set(), {os.getpid()}
    while new := {pid for pid, (_, parent, _) in known.items() if parent in new or pid in new} - ours:
        ours |= new
    held = ''
    for pid in known.keys() - ours:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            held += Path(f'/proc/{pid}/maps').read_text()
    return {entry for entry, place in places.items() if place not in held}
