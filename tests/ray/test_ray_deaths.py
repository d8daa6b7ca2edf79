"""How actors die and what they leave: the cause is named, the children of envs go with them, CPUs come back."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from fakes import config_pair
from fault_envs import wait_until
from ray_runs import descendants, is_alive

from rlframe.backend.ray.collector import RayCollector
from rlframe.config import compile_config
from rlframe.errors import ActorFailedError, EnvCrashedError
from rlframe.pipeline import SerialPipeline

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures('ray_of_tests')]


class DyingEnv(gymnasium.Env):
    """Does something at its third step.

    Args:
        what: What: see ``_do``.
        folder: Where it notes that it has done it, and so does it once; every time where not given.
        spared: A process in which it does nothing.
        children: Processes that it starts, and ends when it is closed.
    """

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, what: str = '', folder: str = '', spared: int = 0, children: int = 0) -> None:
        self._what, self._steps = what if os.getpid() != spared else '', 0
        self._done = Path(folder, f'did {what}') if folder else None
        self._children = [subprocess.Popen(['sleep', '1000']) for _ in range(children)]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        if self._what and self._steps == 3 and not (self._done and self._done.exists()):
            if self._done:
                self._done.touch()
            self._do()
        return np.zeros(2, np.float32), 0.0, False, self._steps % 9 == 0, {}

    def close(self) -> None:
        for child in self._children:
            child.kill()
            child.wait()

    def _do(self) -> None:
        if self._what == 'exit':
            os._exit(7)
        if self._what == 'crash':
            ctypes.string_at(0)
        if self._what == 'kill':
            os.kill(os.getpid(), signal.SIGKILL)
        if self._what == 'terminate':
            os.kill(os.getpid(), signal.SIGTERM)
        if self._what == 'interrupt':
            raise KeyboardInterrupt
        if self._what == 'sys.exit':
            sys.exit(5)
        raise ZeroDivisionError('an env has enough')


@pytest.mark.slow
def test_actors_that_die_in_any_way_are_replaced_and_told_in_the_words_of_ray(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kwargs = [{'what': what, 'folder': str(tmp_path)} for what in ('exit', 'crash', 'kill', 'terminate')]
    with (
        caplog.at_level(logging.WARNING, 'rlframe.ray'),
        RayCollector(
            [DyingEnv] * 4, create_env_kwargs=kwargs, frames_per_batch=24, sync=True, max_actor_restarts=4
        ) as collector,
    ):
        assert len(collector.next()) == 24
        assert collector.requested == collector.delivered + collector.lost and collector.lost == 24
    told = sorted(record.getMessage() for record in caplog.records if 'was lost' in record.getMessage())
    assert len(told) == 4
    for rank, text in enumerate(told):
        assert text.startswith(f'Ray actor {rank} was lost (in collect: ActorDiedError: The actor died'), text


@pytest.mark.parametrize(
    ('what', 'kind', 'text'),
    [
        ('interrupt', ActorFailedError, 'KeyboardInterrupt was raised there, not in this process'),
        ('sys.exit', EnvCrashedError, r'step\(\) raised SystemExit: 5'),
    ],
)
def test_what_ends_a_program_is_named_with_the_rank(what: str, kind: Any, text: str, tmp_path: Path) -> None:
    kwargs = [{}, {'what': what, 'folder': str(tmp_path)}]
    with RayCollector([DyingEnv] * 2, create_env_kwargs=kwargs, frames_per_batch=12, sync=True) as collector:
        with pytest.raises(kind, match=text) as caught:
            collector.next()
        assert str(caught.value).splitlines()[0].startswith('Ray actor 1: ')
        assert all(actor.is_ready for actor in collector.actor_states())


def test_children_of_a_stopped_actors_envs_are_ended_with_it(ray_of_tests: Any) -> None:
    kwargs = {'children': 2}
    with RayCollector(
        DyingEnv, create_env_kwargs=kwargs, frames_per_batch=12, num_collectors=2, sync=True
    ) as c:
        c.next()
        pids = [actor.pid for actor in c.actor_states() if actor.pid is not None]
        family = {child for pid in pids for child in descendants(pid)} | set(pids)
        assert len(family) >= 6, 'two children of each'
        os.kill(pids[0], signal.SIGSTOP)
    assert wait_until(lambda: not any(map(is_alive, family)), 30)


@pytest.mark.parametrize('is_sync', [True, False])
def test_two_ranks_that_raise_in_one_round_leave_an_emergency_checkpoint(
    is_sync: bool, tmp_path: Path
) -> None:
    env = {
        'env_id': 'test_ray_deaths:DyingEnv',
        'kwargs': {'what': 'raise', 'spared': os.getpid()},  # where it is evaluated
        'collector_env_num': 1,
    }
    collector = {'backend': 'ray', 'num_collectors': 2, 'sync': is_sync}
    cfg = compile_config(*config_pair(env=env, collector=collector, exp_name='ray'), seed=3)
    folder = tmp_path / 'run'
    folder.mkdir()
    with (
        SerialPipeline(cfg, folder) as pipeline,
        pytest.raises(Exception, match='an env has enough') as caught,
    ):
        pipeline.run()
    assert 'Ray actor ' in str(caught.value).splitlines()[0]
    notes = caught.value.__notes__
    assert any('emergency checkpoint' in note for note in notes), notes
    assert not any('and then' in note for note in notes) and list(folder.glob('ckpt/emergency_*'))


def test_a_deleted_collector_gives_its_cpus_back(ray_of_tests: Any) -> None:
    given: dict[str, Any] = dict(
        frames_per_batch=16, num_collectors=2, sync=True, remote_configs={'num_cpus': 2}
    )
    collector = RayCollector('CartPole-v1', **given)
    collector.next()
    pids = [actor.pid for actor in collector.actor_states() if actor.pid is not None]
    del collector
    gc.collect()
    assert wait_until(lambda: not any(map(is_alive, pids)), 30)
    with RayCollector('CartPole-v1', **given) as other:
        assert len(other.next()) == 16
