"""How actors end and what they leave: the cause is named, and the children of envs go with them."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from typing import Any

import gymnasium
import numpy as np
import pytest
from fault_envs import wait_until
from ray_runs import descendants, is_alive

from rlframe.backend.ray.collector import RayCollector
from rlframe.errors import ActorFailedError, WorkerLostError

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures('ray_of_tests')]


class DyingEnv(gymnasium.Env):
    """Does something at its third step.

    Args:
        what: What: see ``_do``.
        spared: A process in which it does nothing.
        children: Processes that it starts, and ends when it is closed.
    """

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, what: str = '', spared: int = 0, children: int = 0) -> None:
        self._what, self._steps = what if os.getpid() != spared else '', 0
        self._children = [subprocess.Popen(['sleep', '1000']) for _ in range(children)]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        if self._what and self._steps == 3:
            self._do()
        return np.zeros(2, np.float32), 0.0, False, self._steps % 9 == 0, {}

    def close(self) -> None:
        for child in self._children:
            child.kill()
            child.wait()

    def _do(self) -> None:
        if self._what == 'segfault':
            ctypes.string_at(0)
        if self._what == 'abort':
            os.abort()
        if self._what == 'exit':
            os._exit(9)
        raise KeyboardInterrupt


def test_what_ends_a_program_is_named_with_the_rank() -> None:
    kwargs: list[Any] = [{}, {'what': 'interrupt'}]
    with RayCollector([DyingEnv] * 2, create_env_kwargs=kwargs, frames_per_batch=12, sync=True) as collector:
        with pytest.raises(ActorFailedError, match='KeyboardInterrupt was raised there, not in') as caught:
            collector.next()
        assert str(caught.value).splitlines()[0].startswith('collector 1 (Ray actor): ')
        assert all(slot.facts is not None for slot in collector._pool.slots.values())


@pytest.mark.parametrize(
    ('what', 'says'),
    [
        ('segfault', 'killed by SIGSEGV'),
        ('abort', 'killed by SIGABRT'),
        ('exit', 'exited, or was killed; out of memory'),
    ],
)
def test_signal_that_ended_an_actor_is_named(what: str, says: str) -> None:
    kwargs = {'what': what}
    with (
        RayCollector(
            DyingEnv, create_env_kwargs=kwargs, frames_per_batch=12, max_actor_restarts=0
        ) as collector,
        pytest.raises(
            WorkerLostError,
            match=rf'collector 0 \(Ray actor\) was lost: in collect: ActorDiedError: .*{says}',
        ),
    ):
        collector.next()


def test_children_of_a_stopped_actors_envs_are_ended_with_it() -> None:
    options: dict[str, Any] = {'create_env_kwargs': {'children': 2}, 'num_collectors': 2, 'sync': True}
    with RayCollector(DyingEnv, frames_per_batch=12, **options) as c:
        c.next()
        pids = [slot.facts.pid for slot in c._pool.slots.values() if slot.facts is not None]
        family = {child for pid in pids for child in descendants(pid)} | set(pids)
        assert len(family) >= 6, 'two children of each'
        os.kill(pids[0], signal.SIGSTOP)
    assert wait_until(lambda: not any(map(is_alive, family)), 30)
