"""A curriculum sets attributes and methods of the training envs by rules, alike in every manager and after a resume."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from error_texts import raises
from fakes import config_pair
from marks import slow_with
from quick_workers import forked_workers as forked_workers
from toys import PPO
from zoo import Ladder

from rlframe import config
from rlframe.envs.async_manager import SubprocessEnvManager
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.errors import ConfigError, ConfigErrors
from rlframe.pipeline import SerialPipeline
from rlframe.registry import ENV_SCHEDULE_REGISTRY
from rlframe.run.read_checkpoint import find_checkpoint
from rlframe.worker import ScheduleRule
from rlframe.worker.curriculum import Curriculum, Seen

LEVELS = dict(type='success', stages=[1, 2, 5], goal=4.0, episodes=6)
SPEED = dict(type='linear', start=0.0, end=8.0, decay=64)
SCHEDULE = dict(level=LEVELS, set_speed=SPEED)


def start(
    folder: Path, manager: str = 'base', schedule: Any = SCHEDULE, resume: Path | None = None
) -> SerialPipeline:
    main, create = config_pair(
        env_id='zoo:Ladder',
        env=dict(schedule=schedule, collector_env_num=4),
        evaluator=dict(eval_freq=8),
        max_env_step=160,
        **PPO | dict(collect=dict(n_sample=16)),
    )
    create['env_manager'] = dict(type=manager)
    folder.mkdir(exist_ok=True)
    return SerialPipeline(config.compile_config(main, create, seed=0), folder, resume=resume)


def seen_by(pipeline: SerialPipeline, rounds: int) -> list[Any]:
    """Trains, and returns what the collector's envs showed in each round, [rounds, M, 2]."""
    found, collect = [], pipeline.collector.collect

    def spied(*given: Any, **options: Any) -> Any:
        data = collect(*given, **options)
        found.append(data['obs'].tolist())
        return data

    pipeline.collector.collect = spied  # type: ignore[method-assign]
    for _ in range(rounds):
        pipeline.step()
    return found


def test_values_reach_the_next_episodes_of_training_and_evaluations_play_the_env_as_it_is(
    tmp_path: Path,
) -> None:
    with start(tmp_path) as pipeline:
        shown = np.array(seen_by(pipeline, 8))
        assert pipeline.evaluator.best == 4.0, 'level 1 in each of 4 steps'
        assert pipeline.curriculum.status() == 'level 5 | set_speed 8'
        assert pipeline.curriculum.metrics() == {'env/level': 5.0, 'env/set_speed': 8.0}
    # a round is an episode of each env, the next of which begins at its end; level 2 is due after 6 episodes, so in round 3
    levels, speeds = ([sorted(set(column)) for column in shown[:, :, i].tolist()] for i in (0, 1))
    assert levels == [[1], [1], [1], [2], [2], [2], [5], [5]]
    assert speeds == [[0], [0], [2], [4], [6], [8], [8], [8]]


@pytest.mark.usefixtures('forked_workers')
@pytest.mark.parametrize('manager', slow_with('async_subprocess', ['subprocess', 'async_subprocess']))
def test_envs_in_worker_processes_get_the_same_values(manager: str, tmp_path: Path) -> None:
    with start(tmp_path / 'here') as here, start(tmp_path / 'there', manager) as there:
        assert seen_by(here, 6) == seen_by(there, 6)


def test_a_resumed_run_goes_on_with_the_same_values(tmp_path: Path) -> None:
    with start(tmp_path / 'straight') as straight:
        wanted = seen_by(straight, 8)
    with start(tmp_path / 'first') as first:
        before = seen_by(first, 3)
        first.checkpoints.save_latest()
    with start(tmp_path / 'second', resume=find_checkpoint(tmp_path / 'first' / 'ckpt' / 'latest')) as second:
        assert before + seen_by(second, 5) == wanted


class Doubling(ScheduleRule):
    """Doubles with each 10 episodes."""

    config = dict(first=1)

    def value(self, seen: Seen) -> Any:
        return self._cfg.first * 2 ** (seen.episodes // 10)


def test_rules_give_the_values_of_their_progress_and_a_rule_of_your_own_is_a_class() -> None:
    ENV_SCHEDULE_REGISTRY.register('doubling')(Doubling)
    try:
        rules = dict(
            a=dict(type='steps', stages=['easy', 'hard'], at=[100]),
            b=dict(type='linear', start=1, end=4, decay=100, whole=True),
            c=dict(type='doubling', first=3),
            d=dict(type='success', stages=[0, 1, 2], goal=0.5, of='success', episodes=4),
        )
        curriculum, recent = Curriculum(rules), np.array([[0.0, 1.0, s] for s in (1, 0, 0, 1, 1)])
        assert curriculum.follow(Seen()) == dict(a='easy', b=1, c=3, d=0)
        assert curriculum.follow(Seen(50, 3, 8, recent)) == dict(a='easy', b=2, c=3, d=0), 'too few episodes'
        assert curriculum.follow(Seen(50, 9, 8, recent[:3]))['d'] == 0, (
            'those of random collection are forgotten'
        )
        assert curriculum.follow(Seen(100, 20, 8, recent)) == dict(a='hard', b=4, c=12, d=1)
        other = Curriculum(rules)
        other.load_state_dict(curriculum.state_dict())
        assert other.follow(Seen(0, 20)) == dict(a='easy', b=1, c=12, d=1)
        assert [curriculum.follow(Seen(0, n, 8, recent))['d'] for n in (31, 32)] == [1, 2], (
            'after 8 of the stage before'
        )
        recent[-1, 2] = np.nan
        with raises(ConfigError):
            curriculum.follow(Seen(0, 60, 8, recent))
    finally:
        ENV_SCHEDULE_REGISTRY._classes.pop('doubling', None)


BAD = [
    (dict(levle=LEVELS), {}),
    (dict(level=3), {}),
    (dict(level=dict(type='lienar')), {}),
    (dict(level=dict(type='linear', start=0, end=1)), {}),
    (dict(level=dict(type='steps', stages=[1, 2], at=[5, 3])), {}),
    (dict(level={**LEVELS, 'of': 'success'}), {}),
    (SCHEDULE, dict(env_manager=dict(type='gym_vector'))),
    (dict(reset=dict(type='linear', start=1, end=2, decay=9)), {}),
    (dict(spec=dict(type='linear', start=float('inf'), end=2, decay=9)), {}),
]


@pytest.mark.parametrize(('schedule', 'create'), BAD)
def test_what_cannot_be_scheduled_is_an_error_before_training(
    schedule: Any, create: Any, tmp_path: Path
) -> None:
    main, own = config_pair(env_id='zoo:Ladder', env=dict(schedule=schedule), **PPO)
    with raises(ConfigError, ConfigErrors):
        cfg = config.compile_config(main, {**own, **create}, seed=0)
        GymEnvFactory(cfg.env).spec  # noqa: B018  the first look at the env


@pytest.mark.usefixtures('forked_workers')
def test_a_new_worker_process_follows_the_schedule_too() -> None:
    manager = SubprocessEnvManager([Ladder, Ladder], {'on_error': 'restart', 'worker_num': 2})  # type: ignore[arg-type]
    try:
        manager.schedule = {'level': 3}
        manager.reset(seed=[1, 2])
        state = manager.state_dict()
        os.kill(manager._pool.running[0].pid, signal.SIGKILL)
        manager.state_dict()  # which notices it
        manager.load_state_dict(state)
        manager.reset()
        assert manager.obs[:, 0].tolist() == [3.0, 3.0]
    finally:
        manager.close()
