"""A round that is collected while the policy learns has weights of exactly one version before, and all runs are equal."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from error_texts import raises
from fakes import config_pair
from forked_roles import forked_children as forked_children
from parallel_parts import compiled
from runs import CASES, assert_same_end, differences, every, killed_and_straight
from toys import toy_of_policy

from rlframe import config
from rlframe.errors import ConfigError, WorkerLostError
from rlframe.pipeline import SerialPipeline

OVERLAP = 'policy.collect.collector.overlap=1'
LENGTH = ('--train-iter', '200')


@pytest.mark.usefixtures('forked_children')
def test_weights_are_of_the_version_before(cwd: Path) -> None:
    options = toy_of_policy('ppo')
    options['collector'] = {**options.get('collector', {}), 'overlap': 1}
    main, create = config_pair(**options)
    with SerialPipeline(config.compile_config(main, create, seed=0)) as pipeline:
        collector, newest = pipeline.collector, []
        for round_ in range(3):
            pipeline.step()
            newest.append(collector._publisher.version)
            assert collector.versions == [max(1, newest[-1] - 1)], round_
            assert collector.envstep == pipeline.cfg.policy.collect.n_sample * (round_ + 1)
    assert newest == [1, 2, 3]


@pytest.mark.slow
def test_a_child_that_dies_ends_the_run_with_the_reason(cwd: Path) -> None:
    cfg = compiled('cartpole_dqn', OVERLAP, 'policy.learn.batch_size=8')
    with SerialPipeline(cfg) as pipeline:
        pipeline.step()
        os.kill(pipeline.collector._pool.facts.pid, signal.SIGKILL)
        with raises(WorkerLostError):
            pipeline.step()
            pipeline.step()


@pytest.mark.parametrize(('name', 'words'), [('cartpole_bc', ()), ('cartpole_torch_ppo', ())])
def test_what_cannot_run_ahead_is_refused(name: str, words: tuple[str, ...]) -> None:
    with raises(ConfigError):
        compiled(name, OVERLAP, *words)


@pytest.mark.slow
def test_a_run_that_begins_a_round_ahead_keeps_all_but_its_episodes(
    cwd: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def begun(*words: str, resume: Path | None = None) -> SerialPipeline:
        cfg = compiled('cartpole_dqn', 'policy.learn.batch_size=8', 'policy.random_collect_size=200', *words)
        return SerialPipeline(cfg, resume=resume)

    with begun() as pipeline:
        first_obs = pipeline.collection.env.obs.copy()
        while not len(episodes := pipeline.collector.last_episodes()):
            pipeline.step()
        saved = pipeline.save_checkpoint(cwd / 'saved')
        assert pipeline.exact
    ends = []
    for _ in range(2):
        caplog.clear()
        with begun(OVERLAP, resume=saved) as pipeline:
            (line,) = [line for line in caplog.messages if 'begin anew' in line]
            assert 'the run changed from one collector to one collector a round ahead: ' in line
            assert 'optimizers, replay buffer, counters and schedules are kept' in line
            envstep, held = pipeline.progress.envstep, pipeline.replay_buffer.count()
            assert held >= 200 and differences(pipeline.collector.last_episodes(), episodes) == []
            pipeline.step()
            assert pipeline.progress.envstep > envstep and pipeline.replay_buffer.count() == held + 8
            back = pipeline.save_checkpoint(cwd / 'back')
        with begun(resume=back) as pipeline:
            assert len(pipeline.checkpoints.inexact) == 2
            assert not np.isin(first_obs, pipeline.collection.env.obs).any(), 'other seeds'
            pipeline.step()
            ends.append(pipeline.policy.learn_mode.state_dict())
    assert differences(*ends) == []


@pytest.mark.usefixtures('copies')
@pytest.mark.slow
@pytest.mark.parametrize('case', ['ppo', 'dqn advanced', 'sac', 'r2d2', 'ppo parts'])
def test_runs_are_equal_also_after_a_kill(case: str, tmp_path: Path) -> None:
    words = (*CASES[case], *LENGTH, every(51), OVERLAP)
    straight, resumed = killed_and_straight(tmp_path, *words)
    assert_same_end(straight, resumed)
