"""Inference in one place: the bits of a run without Ray, batches that a lost collector does not hold up, a server that is replaced."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import ray
from fakes import config_pair
from fault_envs import wait_until
from ray_runs import RAY, config_of, is_alive, is_conserved, train_to
from runs import differences
from toys import toy

from rlframe.backend.ray.inference import SERVER
from rlframe.config import compile_config
from rlframe.errors import WorkerLostError
from rlframe.pipeline import SerialPipeline
from rlframe.remote.weights import flatten

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures('ray_of_tests')]
CENTRAL = (*RAY, 'policy.collect.inference=central')
PARTS = {
    'dqn naive': ('policy.random_collect_size=30', 'policy.nstep=3', 'policy.normalize_obs=true'),
    'dqn advanced': ('policy.first_priority=error', 'policy.other.eps=0.0'),
    'dqn c51': ('policy.type=c51', 'collector.type=episode', 'collector.get_train_sample=true', 'policy.collect.n_sample=None', 'policy.collect.n_episode=2'),
    'r2d2': ('policy.first_priority=error',),
    'ppo parts': ('policy.model.core=lstm', 'policy.normalize_obs=true', 'policy.normalize_reward=true'),
    'sac': ('policy.model.core=gru', 'replay_buffer.type=sequence', 'collector.mark_episodes=true'),
    'ppo': ('collector.overlap=1',),
}  # fmt: skip


@pytest.mark.parametrize('case', PARTS)
def test_a_run_that_is_resumed_with_or_without_a_server_ends_with_the_bits_of_one_without(
    case: str, tmp_path: Path
) -> None:
    name = 'dqn naive' if case == 'dqn c51' else case
    words = (*PARTS[case], 'evaluator.eval_freq=42')
    straight = train_to(tmp_path / 'straight', 126, name, *words)
    assert len(straight['records']) > 3
    train_to(tmp_path / 'first', 42, name, *words, *CENTRAL)
    train_to(tmp_path / 'second', 84, name, *words, *CENTRAL, resume=tmp_path / 'first')
    resumed = train_to(tmp_path / 'third', 126, name, *words, resume=tmp_path / 'second')
    assert differences(straight, resumed) == []


# faults


def run(folder: Path, name: str, after_step: Any, **collector: Any) -> SerialPipeline:
    """Trains a toy with two collectors and a server until it is solved."""
    own = dict(backend='ray', num_collectors=2, **collector)
    given = toy(name) | dict(collector=own, evaluator=dict(eval_freq=20), max_env_step=100_000)
    given['collect'] = given.get('collect', {}) | dict(inference='central')
    cfg = compile_config(*config_pair(**given), seed=0)
    with SerialPipeline(cfg, folder) as pipeline:
        pipeline.run(after_step=after_step)
    return pipeline


def server_of(pipeline: SerialPipeline) -> Any:
    collector: Any = pipeline.collector
    return collector._pool.server


def pids_of(pipeline: SerialPipeline) -> list[int]:
    """Returns the processes of the server and of the collectors that are there."""
    collector: Any = pipeline.collector
    slots = collector._pool.slots.values()
    server = ray.get(server_of(pipeline).slots[0].link.pid.remote())
    return [server, *(slot.facts.pid for slot in slots if slot.facts is not None)]


@pytest.mark.parametrize('name', ['dqn', 'impala', pytest.param('ppo', marks=pytest.mark.slow)])
def test_a_run_is_solved_though_server_and_collectors_are_killed_and_leaves_nothing_behind(
    name: str, tmp_path: Path
) -> None:
    pids: set[int] = set()
    sync = name != 'impala'
    victims = [0, 1, 0, 1]  # the server, a collector
    seen: list[int] = []
    killed: list[int] = []
    goal = toy(name)['env']['stop_value']

    def kill(pipeline: SerialPipeline) -> bool:
        collector: Any = pipeline.collector
        assert is_conserved(collector)
        assert not sync or set(collector.versions) == {collector._publisher.version}
        seen.append(pipeline.progress.envstep)
        # a process is killed only after the run has seen that the one before was
        is_seen = collector._pool.restarts >= len(killed)
        pipeline.evaluator.stop_value = goal if is_seen and len(killed) == len(victims) else 1e9
        if is_seen and len(killed) < len(victims) and len(seen) > 5 * len(killed):
            own = pids_of(pipeline)
            pids.update(own)
            killed.append(own[victims[len(killed)]])
            os.kill(killed[-1], signal.SIGKILL)
        return False

    collector: Any = (pipeline := run(tmp_path, name, kill, sync=sync)).collector
    assert pipeline.stopped and is_conserved(collector)
    assert seen == sorted(seen)
    assert collector._pool.restarts >= len(victims) and collector.lost > 0
    assert wait_until(lambda: not any(map(is_alive, pids)), 30)


@pytest.mark.parametrize('case', ['ppo parts', 'dqn advanced'])
def test_a_server_that_is_killed_in_the_middle_of_a_round_changes_no_bit_of_a_run(
    case: str, tmp_path: Path
) -> None:
    killed: list[int] = []

    def during_the_next_round(pipeline: SerialPipeline) -> bool:
        def kill() -> None:
            if not killed:
                killed.append(pids_of(pipeline)[0])
                os.kill(killed[0], signal.SIGKILL)

        pipeline.collector.on_step = kill  # called while the actor collects
        return False

    words = (*PARTS[case], *CENTRAL)
    straight = train_to(tmp_path / 'straight', 60, case, *words)
    lossy = train_to(tmp_path / 'lossy', 60, case, *words, after_step=during_the_next_round)
    assert killed and differences(straight, lossy) == []


def test_rows_say_which_weights_made_them(tmp_path: Path) -> None:
    with SerialPipeline(config_of('dqn naive', *CENTRAL), tmp_path) as pipeline:
        collector: Any = pipeline.collector
        collector.collect(6)
        assert collector.versions == [1]
        weights, _ = collector._pool.put(flatten(pipeline.policy.collect_mode.state_dict()))
        ray.get(server_of(pipeline).slots[0].link.begin.remote(0, 5, weights))  # as for another collector
        collector.collect(6)
        assert collector.versions == [5]


@pytest.mark.slow
def test_a_server_that_does_not_answer_is_replaced(tmp_path: Path) -> None:
    pids: list[int] = []

    def stop(pipeline: SerialPipeline) -> bool:
        if not pids:
            pids.extend(pids_of(pipeline))
            os.kill(pids[0], signal.SIGSTOP)
            return False
        return pids_of(pipeline)[0] != pids[0]

    pipeline = run(tmp_path, 'dqn', stop, start_timeout=20.0)
    assert is_conserved(pipeline.collector) and pipeline.collector.lost == 0  # type: ignore[attr-defined]
    assert wait_until(lambda: not any(map(is_alive, pids)), 30)


def test_too_many_lost_servers_end_the_run(tmp_path: Path) -> None:
    with pytest.raises(
        WorkerLostError, match=rf'{SERVER} \(Ray actor\) was lost: its process ended'
    ) as caught:
        run(tmp_path, 'dqn', lambda run: os.kill(pids_of(run)[0], signal.SIGKILL), max_actor_restarts=1)
    assert 'policy.collect.collector.max_actor_restarts' in str(caught.value)


def test_a_run_whose_collectors_share_passes_says_why_it_cannot_be_repeated(tmp_path: Path) -> None:
    for words, why in (((), 'inference_batch=1'), (('collector.inference_batch=1',), '')):
        cfg = config_of('dqn naive', *CENTRAL, 'collector.num_collectors=2', *words)
        with SerialPipeline(cfg, tmp_path) as pipeline:
            said = pipeline.collector.why_inexact
        assert why in said and bool(why) == bool(said)
