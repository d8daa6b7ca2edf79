"""Parts of runs whose processes are killed, frozen and cut off: every step has a number, and every part of data is noted."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from rlframe.parallel.parallel_collectors import ZerglingParallelCollector
from rlframe.parallel.transport.messages import Collected, Taken
from rlframe.registry import PARALLEL_COLLECTOR_REGISTRY

LEDGER = 'RLFRAME_TESTS_LEDGER'
"""Variable with the file in which collectors note their data; it marks all processes of a run, too."""
SCALE = np.array([2**22, 2**6, 2**14], np.float32)
"""What process id, number of the env and number of the step are divided by; powers of two lose nothing."""
_instances = itertools.count()


class NumberedEnv(gymnasium.Env):
    """Its obs is (process, env, step), so that a row that is there twice can be seen.

    Args:
        seconds: How long a step takes.
        gate: File that holds up every step while it is there.
        hang: File that the first env makes that is to hang, in its tenth step; empty: none is to.
    """

    observation_space = gymnasium.spaces.Box(0, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, seconds: float = 0.0, gate: str = '', hang: str = '') -> None:
        self.seconds, self.gate, self.hang = seconds, gate, hang
        self.number, self.steps = next(_instances), 0

    def _obs(self) -> np.ndarray:
        return np.array([os.getpid(), self.number, self.steps], np.float32) / SCALE

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return self._obs(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        time.sleep(self.seconds)
        while self.gate and Path(self.gate).exists():
            time.sleep(0.002)
        if self.hang and self.steps == 10 and not Path(self.hang).exists():
            Path(self.hang).touch()
            time.sleep(3600)
        return self._obs(), 1.0, self.steps % 10 == 0, False, {}


def note(*words: object) -> None:
    """Adds a line to the ledger; it is there even if this process is killed at once."""
    descriptor = os.open(os.environ[LEDGER], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, f'{os.getpid()} {" ".join(map(str, words))}\n'.encode())
    os.close(descriptor)


@PARALLEL_COLLECTOR_REGISTRY.register('noted')
class NotedCollector(ZerglingParallelCollector):
    """Notes what it produced before it sends it, and what became of it."""

    def _send(self, data: Any, metadata: Collected) -> Taken:
        note('produced', metadata.rows)
        taken = super()._send(data, metadata)
        note('confirmed', metadata.rows)
        return taken
