"""Learners that share each update do what one does with the whole batch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import fault_envs
import numpy as np
import pytest
import torch
from error_texts import raises
from forked_roles import forked_children as forked_children
from parallel_parts import PATIENCE, compiled
from runs import CASES, ROOT, assert_same_end, every, finish, killed_and_straight

from rlframe.errors import ConfigError, WorkerLostError
from rlframe.pipeline import SerialPipeline, build
from rlframe.pipeline.learner_aggregator import LearnerAggregator, make_learners
from rlframe.policy.dqn import DQNPolicy
from rlframe.registry import POLICY_REGISTRY
from rlframe.remote.places import ChildPlace
from rlframe.remote.supervisor import Supervisor
from rlframe.run.child_process import ChildProcess
from rlframe.worker.learner.learner_hook import LearnerHook

UPDATES = 20
RUNS = {
    'dqn': (
        *('cartpole_dqn', 'replay_buffer.type=advanced', 'policy.priority=true'),
        *('policy.priority_IS_weight=true', 'policy.learn.grad_clip_norm=0.5'),
    ),
    'ppo': ('cartpole_ppo', 'policy.collect.n_sample=51', 'policy.learn.value_norm=true'),
    'sac': ('pendulum_sac', 'policy.random_collect_size=30'),
}

DROQ = (*CASES['sac'], 'policy.type=droq', 'policy.learn.batch_size=15')


def trained(
    case: str, learners: int, *more: str, kill_at: int = -1
) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Returns the weights after some updates, the logged values and the last priorities.

    Args:
        case: One of ``RUNS``.
        learners: Number of learners.
        more: Further options.
        kill_at: The train iteration before which one of them is killed.
    """
    name, *words = RUNS[case]
    with SerialPipeline(compiled(name, f'policy.learn.num_learners={learners}', *words, *more)) as pipeline:
        if kill_at >= 0:
            pipeline.learner.register_hook(KillLearner(at=kill_at))
        while pipeline.progress.train_iter < UPDATES:
            pipeline.step()
        learner = pipeline.learner
        return dict(pipeline.policy.model.state_dict()), learner.log_buffer['scalar'], learner.priority_info


def others(group: LearnerAggregator) -> list[ChildProcess]:
    """Returns the processes of the other learners."""
    assert group._others is not None
    return [slot.link.child for slot in group._others.slots.values() if slot.link is not None]


def kill(child: ChildProcess) -> None:
    os.kill(child.pid, signal.SIGKILL)
    child.leave(PATIENCE)


class KillLearner(LearnerHook):
    """Kills the last of several learners before the update of the train iteration ``at``."""

    position = 'before_iter'

    def __call__(self, learner: Any) -> None:
        if learner.train_iter == self.at:
            kill(others(learner.group)[-1])


CASES_OF_RANKS = [
    ('dqn', 2),
    *(
        pytest.param(*each, marks=pytest.mark.slow)
        for each in (('ppo', 2), ('sac', 2), ('dqn', 3), ('ppo', 3))
    ),
]


@pytest.mark.usefixtures('forked_children')
@pytest.mark.parametrize(('case', 'learners'), CASES_OF_RANKS)
def test_ranks_with_parts_of_a_batch_equal_one_with_all_of_it(case: str, learners: int, cwd: Path) -> None:
    alone, together = trained(case, 1), trained(case, learners)
    for name, weights in alone[0].items():
        torch.testing.assert_close(together[0][name], weights, rtol=0, atol=1e-6)
    assert alone[1].keys() == together[1].keys()
    for name, value in alone[1].items():
        assert float(together[1][name]) == pytest.approx(float(value), rel=1e-4, abs=1e-5), name
    if case == 'dqn':
        assert alone[2]['replay_buffer_idx'].tolist() == together[2]['replay_buffer_idx'].tolist()
        np.testing.assert_allclose(together[2]['priority'], alone[2]['priority'], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(('case', 'learners'), CASES_OF_RANKS)
def test_no_update_is_lost_with_a_learner_that_is_started_again(
    case: str, learners: int, cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, 'tempdir', str(cwd))
    alone = trained(case, 1)
    again = trained(case, learners, 'policy.learn.max_learner_restarts=1', kill_at=7)
    for name, weights in alone[0].items():
        torch.testing.assert_close(again[0][name], weights, rtol=0, atol=1e-6)
    assert again[1].pop('learner_restarts') == 1 and again[1].keys() == alone[1].keys()
    assert not list(cwd.glob('rlframe-*')), 'the first connection left a folder'


@pytest.mark.slow
def test_a_run_is_solved_though_its_learners_die_as_often_as_they_may(cwd: Path) -> None:
    words = (
        'policy.learn.num_learners=2',
        'policy.learn.max_learner_restarts=2',
        'policy.collect.n_sample=510',
    )
    goal = ('env.stop_value=60', 'policy.eval.evaluator.eval_freq=1000', 'max_env_step=40000')
    with SerialPipeline(compiled('cartpole_ppo', *words, *goal)) as pipeline:
        group = pipeline.learner.group
        for kill_at in (5, 350):
            pipeline.learner.register_hook(KillLearner(at=kill_at))
        pipeline.run()
        assert pipeline.stopped and pipeline.complete
        assert group.restarts == 2
        children = others(group)
    assert all(child.ended is not None for child in children)
    assert fault_envs.children() == set()


@pytest.mark.slow
@pytest.mark.parametrize(('kind', 'most'), [(ChildPlace, 3), (ChildPlace, 2), (Supervisor, 3)])
def test_a_learner_that_dies_while_it_starts_again_counts_and_is_started_again(
    kind: Any, most: int, cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One dies before an update, and twice after it was launched, or when the first one is about to connect."""
    original, left = kind.start, [2]

    def killed(self: Any, *given: Any) -> Any:
        link = original(self, *given)
        if left[0] and (given[1] if given else self.restarts):
            left[0] -= 1
            kill(link.child if given else self.slots[0].link.child)
        return link

    monkeypatch.setattr(kind, 'start', killed)
    monkeypatch.setattr('rlframe.policy.parts.ranks.CONNECTING', timedelta(seconds=25))
    words = (f'policy.learn.max_learner_restarts={most}', 'policy.learn.num_learners=2')
    with SerialPipeline(compiled('cartpole_dqn', *words)) as pipeline:
        pipeline.learner.register_hook(KillLearner(at=3))
        error = '3 workers were lost, 2 may be replaced'
        with nullcontext() if most == 3 else pytest.raises(WorkerLostError, match=error):
            while pipeline.progress.train_iter < 9:
                pipeline.step()
        assert pipeline.learner.group.restarts == most


@pytest.mark.slow
def test_one_more_loss_than_restarts_ends_the_run_with_the_reason(cwd: Path) -> None:
    words = ('policy.learn.max_learner_restarts=1', 'policy.learn.num_learners=2')
    with SerialPipeline(compiled('cartpole_dqn', *words)) as pipeline:
        for kill_at in (3, 6):
            pipeline.learner.register_hook(KillLearner(at=kill_at))
        with raises(WorkerLostError):
            pipeline.run()


@pytest.mark.usefixtures('forked_children')
def test_a_learner_that_dies_ends_the_run_with_the_reason(cwd: Path) -> None:
    cfg = compiled('cartpole_dqn', 'policy.learn.num_learners=2')
    policy = build.make_policy(cfg, build.make_factory(cfg).spec)
    group = make_learners(cfg, policy)
    assert group is not None
    try:
        children = others(group)
        kill(children[0])
        assert group._ranks is not None
        with pytest.raises(RuntimeError) as caught:
            group._ranks.average(torch.zeros(()), [torch.zeros(3)])
        with raises(WorkerLostError):
            group._goes_on(caught.value)
    finally:
        group.close()
    assert all(child.ended is not None for child in children)


@pytest.mark.parametrize(
    ('name', 'words'),
    [('pendulum_sac', ('policy.type=droq',)), ('cartpole_dqn', ('policy.model.noisy=true',))],
)
def test_what_an_update_draws_is_sent_with_its_data(name: str, words: tuple[str, ...]) -> None:
    cfg = compiled(name, *words)
    policy = build.make_policy(cfg, build.make_factory(cfg).spec)
    acting, generator = policy.get_attribute('acting'), policy.generator
    state, first = acting.state(), torch.rand(3, generator=generator)
    acting.load_state(state)
    assert torch.rand(3, generator=generator).tolist() == first.tolist()


def test_a_learner_that_does_not_start_ends_the_run_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    started = ChildPlace.start

    def killed(place: ChildPlace, *given: Any) -> Any:
        link = started(place, *given)
        kill(link.child)
        return link

    monkeypatch.setattr(ChildPlace, 'start', killed)
    cfg = compiled('cartpole_dqn', 'policy.learn.num_learners=2')
    with raises(WorkerLostError):
        make_learners(cfg, build.make_policy(cfg, build.make_factory(cfg).spec))


@pytest.mark.slow
def test_learners_know_what_only_the_main_program_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    own = type('Own', (DQNPolicy,), {'__module__': '__main__'})
    monkeypatch.setitem(POLICY_REGISTRY._classes, 'own', own)
    cfg = compiled('cartpole_dqn', 'policy.type=own', 'policy.learn.num_learners=2')
    group = make_learners(cfg, build.make_policy(cfg, build.make_factory(cfg).spec))
    assert group is not None
    group.close()


def test_reports_of_several_learners_are_merged_into_one() -> None:
    first, second = (
        {'learner_step': 4, 'loss': 1.0, 'done': False},
        {'learner_step': 9, 'loss': 3.0, 'done': True},
    )
    assert LearnerAggregator.merge_info([first, second]) == {'learner_step': 4, 'loss': 2.0, 'done': False}
    assert LearnerAggregator.merge_info([]) == {}


@pytest.mark.parametrize(
    ('name', 'words'),
    [
        ('cartpole_novel_r2d2', ()),
        ('mujoco_crossq', ('env.env_id=Pendulum-v1',)),
        ('cartpole_dqn', ('policy.learn.batch_size=1',)),
    ],
)
def test_updates_that_cannot_be_shared_are_refused(name: str, words: tuple[str, ...]) -> None:
    with raises(ConfigError):
        compiled(name, 'policy.learn.num_learners=2', *words)


@pytest.mark.usefixtures('copies')
@pytest.mark.slow
@pytest.mark.parametrize('words', [CASES['ppo'], CASES['dqn advanced'], DROQ], ids=['ppo', 'dqn', 'droq'])
def test_a_killed_run_continues_with_the_same_bits(words: tuple[str, ...], tmp_path: Path) -> None:
    words = (*words, '--train-iter', '120', every(31), '--learners', '2')
    assert_same_end(*killed_and_straight(tmp_path, *words))


@pytest.mark.slow
def test_torchrun_starts_the_learners(tmp_path: Path) -> None:
    words = [word if not word.startswith('configs/') else str(ROOT / word) for word in CASES['dqn naive']]
    command = [sys.executable, '-m', 'torch.distributed.run', '--standalone', '--nproc-per-node=2']
    program = ['-m', 'rlframe.entry', *words, '--train-iter', '40', '--exp-name', 'shared']
    env = {**os.environ, 'PYTHONPATH': str(ROOT), 'GLOO_SOCKET_IFNAME': 'lo'}
    pipes = {'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE}
    finish(subprocess.Popen([*command, *program], cwd=tmp_path, env=env, text=True, **pipes))
    assert [path.name for path in tmp_path.iterdir()] == ['shared']
