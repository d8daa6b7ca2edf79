"""A parallel run in one process: run folder, checkpoints, resume, eval, replacement of workers."""

from __future__ import annotations

import json
import pickle
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from error_texts import raises
from marks import slow_with

from rlframe import config
from rlframe.config.schema import ExperimentConfig
from rlframe.errors import CheckpointMismatchError, ConfigError, RunWarning, WorkerLostError
from rlframe.parallel.comm_worker import CommWorker
from rlframe.parallel.parallel_collectors import ZerglingParallelCollector
from rlframe.parallel.pipeline import ParallelPipeline
from rlframe.parallel.roles import Crew, Launcher, ProcessLauncher
from rlframe.pipeline import parallel_pipeline
from rlframe.pipeline.resume import resume
from rlframe.pipeline.serial import SerialPipeline
from rlframe.registry import PARALLEL_COLLECTOR_REGISTRY
from rlframe.remote.places import LostError
from rlframe.remote.supervisor import PAUSE, Call
from rlframe.run.read_checkpoint import load_checkpoint
from rlframe.utils.serialize import from_bytes

ENV = dict(env_id='CartPole-v1', collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2)
CREATE = dict(
    policy=dict(type='dqn'),
    commander=dict(type='solo'),
    comm_collector=dict(type='in_process'),
    comm_learner=dict(type='in_process'),
)


def compiled(*overrides: str, **given: Any) -> ExperimentConfig:
    """A small parallel DQN run in one process that ends after some env steps."""
    main = dict(exp_name='toy', env=ENV, policy=dict(cuda=False), max_env_step=120)
    few = ('policy.learn.batch_size=16', 'policy.collect.n_sample=8', 'parallel.coordinator.wait=0.005')
    return config.compile_config(main, CREATE, overrides=[*few, *overrides], parallel=True, **given)


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / 'metrics.jsonl').read_text(encoding='utf-8').splitlines()]


def test_a_run_leaves_the_folder_of_a_serial_run(cwd: Path) -> None:
    with ParallelPipeline(compiled('policy.eval.evaluator.eval_freq=50', 'max_env_step=400')) as pipeline:
        pipeline.run()
        folder, coordinator = pipeline.folder, pipeline.coordinator
        assert pipeline.finished and pipeline.complete and not pipeline.stopped
        assert coordinator.received == coordinator.pushed + coordinator.dropped
        assert pipeline.progress.envstep >= 400 and not coordinator.workers.by_id
    names = {path.name for path in folder.iterdir()}
    assert {'ckpt', 'config.json', 'log.txt', 'metrics.jsonl', 'total_config.py'} <= names
    assert 'data' not in names and '.lock' not in names
    tags = {tag for record in records(folder) for tag in record}
    assert {'eval/mean_reward', 'rollout/ep_rew_mean', 'train/total_loss', 'time/fps', 'buffer/count'} <= tags
    state, manifest = load_checkpoint(folder / 'ckpt' / 'latest', buffer=False)
    assert manifest['progress']['train_iter'] == pipeline.progress.train_iter
    assert not manifest['exact'] and state['coordinator']['rows']['pushed'] == coordinator.pushed


def test_an_interrupted_run_resumes_with_learner_buffer_and_counters(cwd: Path) -> None:
    with ParallelPipeline(compiled('max_env_step=100000')) as pipeline:
        pipeline.run(lambda run: run.progress.train_iter >= 5)
        coordinator = pipeline.coordinator  # which gets some more rows after the learner has left
        coordinator.received, coordinator.dropped = coordinator.received + 8, coordinator.dropped + 8
        pipeline.save_latest()
        folder, before = pipeline.folder, pipeline.progress.state_dict()
        held, rows = pipeline.replay_buffer.count(), pipeline.coordinator.pushed
        weights = pipeline.policy_state['model']
    found = resume(folder, max_env_step=before['envstep'] + 100)
    assert found.folder == folder and found.cfg.parallel.collector_num == 2
    with ParallelPipeline(found.cfg, found.folder, found.saved) as again:
        assert again.progress.state_dict() == before
        assert again.replay_buffer.count() == held and again.coordinator.pushed == rows
        assert again.coordinator.received == coordinator.received
        restored = again.policy_state['model']
        assert all((restored[name] == weights[name]).all() for name in weights)
        again.run()
        seats = again.coordinator.workers.state_dict()['seats']
        assert {(seat['name'], seat['incarnation']) for seat in seats if seat['role'] == 'collector'} == {
            ('collector-0', 1),
            ('collector-1', 1),
        }, 'their seeds are not those of the first start'
        assert again.progress.train_iter > before['train_iter']
        assert again.coordinator.received == again.coordinator.pushed + again.coordinator.dropped
    steps = [record['envstep'] for record in records(folder)]
    assert steps == sorted(steps)


def test_in_one_call_from_python(cwd: Path) -> None:
    main = dict(exp_name='toy', env=ENV, policy=dict(cuda=False, learn=dict(batch_size=16)))
    policy = parallel_pipeline((main, CREATE), max_env_step=40, overrides=['parallel.collector_num=1'])
    saved = load_checkpoint(cwd / 'toy_seed0' / 'ckpt' / 'latest', buffer=False)[0]['policy']['model']
    mine = policy.learn_mode.state_dict()['model']
    assert all((mine[name] == saved[name]).all() for name in saved)
    with pytest.warns(RunWarning, match='the budget of 40 env steps is spent'):
        parallel_pipeline(None, resume_from='toy_seed0')


@pytest.mark.slow
def test_several_learners_look_like_one(cwd: Path) -> None:
    with ParallelPipeline(compiled('policy.learn.num_learners=2', 'max_env_step=60')) as pipeline:
        pipeline.run()
        assert pipeline.complete
        assert [name for _, name in pipeline.crew._seats] == ['learner', 'collector-0', 'collector-1']
        coordinator = pipeline.coordinator
        assert coordinator.received == coordinator.pushed + coordinator.dropped
        assert coordinator.data.due == 0 and pipeline.progress.train_iter > 0
    state, _ = load_checkpoint(pipeline.folder / 'ckpt' / 'latest', buffer=False)
    assert state['progress']['train_iter'] == pipeline.progress.train_iter


def test_a_checkpoint_of_the_other_mode_is_refused(cwd: Path) -> None:
    cfg = compiled()
    main = dict(exp_name='toy', env=ENV, policy=dict(cuda=False), max_env_step=100)
    with SerialPipeline(config.compile_config(main, dict(policy=dict(type='dqn')))) as pipeline:
        pipeline.run()
        path = pipeline.save_checkpoint(pipeline.folder / 'ckpt' / 'here')
    with pytest.raises(CheckpointMismatchError, match='of a serial run'):
        ParallelPipeline(cfg, resume=path)
    with pytest.raises(ConfigError, match='this run is of serial mode'):
        parallel_pipeline(None, resume_from=pipeline.folder)


def test_a_config_that_is_received_has_its_modules_imported(
    cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, 'parts_of_a_user', None)
    del sys.modules['parts_of_a_user']
    monkeypatch.syspath_prepend(cwd)
    (cwd / 'parts_of_a_user.py').touch()
    cfg = compiled()
    cfg.import_names = ['parts_of_a_user']
    pickle.loads(pickle.dumps(cfg))
    assert 'parts_of_a_user' in sys.modules


class Puppets(Launcher):
    """Workers without processes; a test says which one ends, and how."""

    name = 'puppet'

    def __init__(self) -> None:
        names = ('learner', 'collector-0', 'collector-1')
        self.now = 0.0
        self.ends: dict[str, Any] = {}
        super().__init__(None, None, [(name.partition('-')[0], name) for name in names])  # type: ignore[arg-type]

    def maker(self) -> Any:
        return Any

    def clock(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None: ...

    def start(self, rank: int, incarnation: int) -> str:
        return self.seats[rank][1]

    def send(self, link: str, call: Call) -> None: ...

    def wait(self, calls: Sequence[Call], seconds: float) -> list[Call]:
        return [call for call in calls if call.method == 'launch' or self.seats[call.rank][1] in self.ends]

    def answer(self, call: Call) -> Any:
        how = 1 if call.method == 'launch' else self.ends.pop(self.seats[call.rank][1])
        if isinstance(how, LostError):
            raise how
        return how

    def end(self, links: Sequence[str], seconds: float) -> None: ...


class Books:
    """What a crew tells and asks its coordinator."""

    def __init__(self) -> None:
        self.lost: list[tuple[str, str, str]] = []
        self.silent = ''
        self.workers = self

    def lose(self, role: str, name: str, cause: str) -> None:
        self.lost.append((role, name, cause))
        self.silent = ''

    def lost_for(self, role: str, name: str) -> float:
        return 16.0 if name == self.silent else 0.0

    def expect(self, role: str, name: str) -> None: ...


def crew_of(max_restarts: int = 2) -> tuple[Crew, Puppets, Books]:
    puppets, books = Puppets(), Books()
    crew = Crew(puppets, books, max_restarts, 60.0, 15.0)  # type: ignore[arg-type]  # has what is asked
    crew.start()
    crew.look()
    return crew, puppets, books


def test_a_worker_that_died_is_replaced_after_a_pause_and_the_run_ends_with_the_cause() -> None:
    crew, puppets, books = crew_of()
    for death, how in enumerate((LostError('killed by SIGKILL'), 'EnvError: broken')):
        puppets.ends['collector-0'] = how
        crew.look()
        said = 'in run: killed by SIGKILL' if death == 0 else how
        assert books.lost[-1] == ('collector', 'collector-0', said)
        puppets.now += PAUSE - 0.01
        crew.look()
        assert crew._supervisor.ready == [0, 2]
        puppets.now += 0.02
        crew.look()
        assert crew.restarts == death + 1 and crew._supervisor.ready == [0, 1, 2]
    puppets.ends['learner'] = LostError('exit code 1')
    crew.look()
    puppets.ends['collector-0'] = ''
    with raises(WorkerLostError):
        crew.look()
    crew.end()
    assert len(books.lost) == 4


def test_a_worker_that_stays_away_is_replaced() -> None:
    crew, _, books = crew_of()
    books.silent = 'learner'
    crew.look()
    crew.look()
    assert books.lost == [('learner', 'learner', 'it did not come back within 15 s')] and crew.restarts == 1


def test_workers_know_what_only_the_main_program_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    own = type('Own', (ZerglingParallelCollector,), {'__module__': '__main__'})
    monkeypatch.setitem(PARALLEL_COLLECTOR_REGISTRY._classes, 'own', own)
    _, components, _ = from_bytes(ProcessLauncher(None, None, []).pack(print))  # type: ignore[arg-type]  # not used
    assert [name for _, name in from_bytes(components)] == ['own']


def test_workers_of_the_run_have_no_deadline_to_join(cwd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_join, work = threading.Event(), CommWorker.run
    monkeypatch.setattr(CommWorker, 'run', lambda self: may_join.wait() and work(self))
    with ParallelPipeline(compiled('parallel.coordinator.role_deadline=1e-9', 'max_env_step=60')) as pipeline:
        pipeline.run(lambda _: may_join.set())  # type: ignore[arg-type]  # None: it goes on
        assert pipeline.complete


@pytest.mark.parametrize('policy', slow_with('r2d2', ['ppo', 'r2d2']))
def test_policies_with_a_memory_run_in_parallel_and_go_on(policy: str, cwd: Path) -> None:
    create: dict[str, Any] = {**CREATE, 'policy': dict(type=policy)}
    own = ['policy.model.core=gru', 'policy.collect.n_sample=16', 'policy.learn.epoch_per_collect=1']
    if policy != 'ppo':
        create |= dict(replay_buffer=dict(type='sequence'), collector=dict(mark_episodes=True))
        own = ['replay_buffer.unroll_len=4', 'policy.collect.n_sample=8', 'policy.model.core=gru']
    main = dict(exp_name='toy', env=ENV, policy=dict(cuda=False), max_env_step=80)
    words = [*own, 'policy.learn.batch_size=8', 'parallel.coordinator.wait=0.005']
    cfg = config.compile_config(main, create, overrides=words, parallel=True)
    with ParallelPipeline(cfg) as pipeline:
        pipeline.run()
        folder, updates = pipeline.folder, pipeline.progress.train_iter
        assert pipeline.complete and updates > 0
    found = resume(folder, max_env_step=160)
    with ParallelPipeline(found.cfg, found.folder, found.saved) as again:
        again.run()
        assert again.complete and again.progress.train_iter > updates
