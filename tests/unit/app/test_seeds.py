"""Several seeds of one config at a time: which runs start, what is told of them, and what a failure does to the others."""

from __future__ import annotations

import io
import json
import math
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from error_texts import raises
from fakes import config_pair
from parallel_parts import compiled
from rich.console import Console

from rlframe.app import seeds
from rlframe.app.seeds import MESSAGE, SeedRun, parse_seeds, train_seeds
from rlframe.config import compile_config
from rlframe.display.workers import SeedDisplay, picture
from rlframe.entry.__main__ import main
from rlframe.errors import (
    ConfigError,
    ConfigWarning,
    ExperimentDirError,
    ExperimentExistsError,
    WorkerLostError,
)


class FakeChild:
    """Ends the second time that it is asked; the seed 3 fails, the others score ten times their seed."""

    running = most = 0
    terminated: list[str] = []

    def __init__(
        self, name: str, module: str, arguments: Any, data: bytes, on_line: Callable[[str], Any]
    ) -> None:
        self.seed, self._asked = int(name.rpartition(' ')[2]), 0
        self._on_line, self._is_open = on_line, True
        FakeChild.running += 1
        FakeChild.most = max(FakeChild.most, FakeChild.running)
        self._tell('running', math.nan)

    def _tell(self, state: str, score: float) -> None:
        facts = {
            'seed': self.seed,
            'state': state,
            'folder': f'run{self.seed}',
            'envstep': 50,
            'train_iter': 5,
        }
        line = MESSAGE + json.dumps({**facts, 'mean_return': math.nan, 'score': score})
        assert self._on_line(line)
        assert not self._on_line('noise of an env')

    @property
    def ended(self) -> str | None:
        self._asked += 1
        if self._asked < 2:
            return None
        if self.seed == 3:
            return 'EnvCrashedError: it broke'
        if self._asked == 2:
            self._tell('done', 10.0 * self.seed)
        return ''

    def terminate(self) -> None:
        self.terminated.append(f'seed {self.seed}')
        self._asked = 2
        self._tell('interrupted', math.nan)

    def end(self, seconds: float) -> None:
        FakeChild.running -= self._is_open
        self._is_open = False


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> type[FakeChild]:
    monkeypatch.setattr(seeds, 'ChildProcess', FakeChild)
    monkeypatch.setattr(seeds, 'POLL_SECONDS', 0)
    FakeChild.running = FakeChild.most = 0
    FakeChild.terminated = []
    return FakeChild


def test_at_most_as_many_seeds_as_jobs_run_at_a_time_and_a_failure_stops_no_other(
    children: type[FakeChild],
) -> None:
    runs = train_seeds('cartpole_dqn', [2, 3, 4, 5], jobs=2)
    assert [run.state for run in runs] == ['done', 'failed', 'done', 'done']
    assert [run.score for run in runs if run.is_complete] == [20, 40, 50]
    assert runs[1].error == 'EnvCrashedError: it broke'
    assert children.most == 2 and children.running == 0


def test_a_seed_whose_process_cannot_be_started_stops_no_other(
    children: type[FakeChild], monkeypatch: pytest.MonkeyPatch
) -> None:
    def child(name: str, *given: Any) -> FakeChild:
        if name == 'seed 3':
            raise WorkerLostError('no process is free')
        return children(name, *given)

    monkeypatch.setattr(seeds, 'ChildProcess', child)
    runs = train_seeds('cartpole_dqn', [2, 3, 4], jobs=1)
    assert [run.state for run in runs] == ['done', 'failed', 'done'] and runs[1].error == 'no process is free'


def test_stacked_seeds_share_as_many_processes_as_jobs(
    children: type[FakeChild], monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    monkeypatch.setattr(
        seeds, 'ChildProcess', lambda name, *rest: names.append(name) or children(name, *rest)
    )
    with pytest.warns(ConfigWarning, match='envs in Python'):
        train_seeds('cartpole_dqn', [2, 4, 5, 6, 7], jobs=2, stacked=True)
    assert names == ['seed 2, 5, 7', 'seed 4, 6']
    with raises(ConfigError):
        train_seeds('cartpole_dqn', [2, 4], stacked=True, overrides=['policy.compile=true'])


def test_a_stacked_seed_that_fails_tells_why_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, cwd: Path
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(seeds, '_tell', told.append)
    small = 'max_train_iter=4', 'policy.eval.evaluator.eval_freq=2'
    sizes = {1: 16, 2: 8, 3: 16}
    cfgs = [
        compiled('cartpole_dqn', f'seed={seed}', f'policy.learn.batch_size={size}', *small)
        for seed, size in sizes.items()
    ]
    seeds._train_stacked(cfgs, False, None, [])
    ends = {facts['seed']: facts for facts in told}
    assert [ends[seed]['state'] for seed in sizes] == ['not solved', 'failed', 'not solved']
    assert ends[1]['train_iter'] >= 4 and 'policy.learn.batch_size' in ends[2]['error']


def test_runs_of_several_seeds_go_to_the_folder_that_is_named(children: type[FakeChild], cwd: Path) -> None:
    train_seeds('cartpole_dqn', [2], home='runs/dqn')
    assert (cwd / 'runs' / 'dqn').is_dir()
    cfg = compile_config(*config_pair(), seed=3)
    for name in ('toy_seed3', 'toy_seed3_1'):
        with seeds._pipeline(cfg, False, 'runs/dqn') as pipeline:
            assert pipeline.folder == cwd / 'runs' / 'dqn' / name
            pipeline.checkpoints.save_latest()
    with seeds._pipeline(cfg, True, 'runs/dqn') as pipeline:
        assert pipeline.folder.name in ('toy_seed3', 'toy_seed3_1')
    (cwd / 'file').touch()
    with raises(ExperimentDirError):
        train_seeds('cartpole_dqn', [2], home='file')
    with raises(ExperimentExistsError):
        train_seeds('cartpole_dqn', [2], home='runs/dqn/toy_seed3')


def test_stopping_ends_running_seeds_and_starts_no_more(children: type[FakeChild]) -> None:
    answers = iter((False, True))
    runs = train_seeds('cartpole_dqn', [1, 2, 3], jobs=2, should_stop=lambda: next(answers, True))
    assert [run.state for run in runs] == ['interrupted', 'interrupted', 'waiting']
    assert children.terminated == ['seed 1', 'seed 2']
    assert children.running == 0


def test_an_exception_of_the_caller_ends_all_seeds(children: type[FakeChild]) -> None:
    def fail(runs: Any) -> None:
        raise ValueError

    with pytest.raises(ValueError):
        train_seeds('cartpole_dqn', [1, 2], jobs=2, on_change=fail)
    assert children.running == 0 and len(children.terminated) == 2


def test_no_seed_and_no_job_are_refused() -> None:
    with raises(ConfigError):
        train_seeds('cartpole_dqn', [])
    with raises(ConfigError):
        train_seeds('cartpole_dqn', [0], jobs=0)


def test_command_line_prints_every_seed_the_mean_and_the_failures(
    children: type[FakeChild], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(['train', '-c', 'cartpole_dqn', '--seeds', '1-4', '--jobs', '2']) == 1
    out, err = capsys.readouterr()
    assert 'seed 2: done, last evaluation 20, 50 env steps. Results: run2' in out
    assert 'mean of the last evaluations: 23.3 over 3 seeds, 10 to 40, ' in out
    assert ' plot run1 run2 run4\n' in out and ' compare run1 run2 run4\n' in out
    assert 'rlframe: seed 3 failed: EnvCrashedError: it broke\n' in err


def test_warnings_of_a_config_come_once_and_before_training(
    children: type[FakeChild], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    monkeypatch.setattr(SeedDisplay, 'show', lambda self, runs: said.append(capsys.readouterr().err))
    main(['train', '-c', 'cartpole_dqn', '--seeds', '1-2', '--stacked', '--env-step', '16'])
    assert said[0].count('there will be no update') == 1 and said[0].count('save no time') == 1


def test_seeds_without_a_run_to_resume_are_told_once_each(
    monkeypatch: pytest.MonkeyPatch, cwd: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(seeds, '_tell', told.append)
    for seed, resumes in ((3, False), (3, True), (4, True)):  # the first leaves a folder without a checkpoint
        with seeds._pipeline(compile_config(*config_pair(), seed=seed), resumes, None):
            pass
    runs = [SeedRun(**facts) for facts in told]
    display = SeedDisplay()
    display.show(runs)
    display.show(runs)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith('rlframe: ')]
    assert lines == [
        'rlframe: seed 3: toy_seed3 ended before its first checkpoint; starting again in the same folder',
        'rlframe: seed 4: found no run of this config to resume; starting a new one',
    ]


def test_runs_are_a_table_on_a_terminal_and_a_line_elsewhere() -> None:
    runs = [SeedRun(0, 'running', envstep=2000, seconds=2.0, score=0.5), SeedRun(1)]
    console = Console(width=80, file=io.StringIO())
    console.print(picture(runs, 80), picture(runs, None))
    *table, line = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [row.split() for row in table] == [
        ['seed', 'state', 'env', 'steps', 'steps/s', 'return', 'eval', 'time'],
        ['0', 'running', '2,000', '1,000', '0.5', '0:02'],
        ['1', 'waiting'],
    ]
    assert line == 'seed 0: 2,000 env steps, eval 0.5 | seed 1: waiting'


@pytest.mark.parametrize(
    ('text', 'found'), [('0-4', [0, 1, 2, 3, 4]), ('7', [7]), ('0,3,7', [0, 3, 7]), ('0-1, 9', [0, 1, 9])]
)
def test_seeds_are_ranges_and_numbers(text: str, found: list[int]) -> None:
    assert parse_seeds(text) == found


@pytest.mark.parametrize('text', ['', 'a', '4-0', '0,0', '0-2,1', '-1', '1.5', '0-9999999999', '1-', '²'])
def test_bad_seeds_are_refused_with_examples(text: str) -> None:
    with raises(ConfigError):
        parse_seeds(text)


@pytest.mark.parametrize(
    'words',
    [
        ('--seeds', '0,0'),
        ('--seeds', '0-1', '--seed', '1'),
        ('--seeds', '0-1', '-m', 'parallel'),
        ('--seeds', '0-1', '--resume', 'x'),
        ('--seeds', '0-1', '--jobs', '0'),
        ('--jobs', '2'),
        ('--seeds', '0-1', '-c', 'pendulum_sac', 'env.env_id=CartPole-v1'),
        ('--seeds', '0-1', 'policy.learn.lr=1'),
    ],
)
def test_bad_input_starts_no_process(
    words: tuple[str, ...],
    cwd: Path,
    refused: Callable[..., str],
    children: type[FakeChild],
) -> None:
    refused('train', '-c', 'cartpole_dqn', *words)
    assert children.most == 0


SMALL = (
    *('--env', 'mine:Env', '--policy', 'dqn'),
    'policy.eval.evaluator.eval_freq=100000',
    'env.evaluator_env_num=1',
    'env.n_evaluator_episode=1',
)
ENV = """
import gymnasium

class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, bad_seed=-1):
        self._bad, self._steps = bad_seed, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.low, {}

    def step(self, action):
        self._steps += 1
        print('noise', end='')
        return self.observation_space.low, 1.0, self._steps % 5 == 0, False, {}
"""


def started(folder: Path, *words: str) -> subprocess.Popen[str]:
    (folder / 'mine.py').write_text(ENV, encoding='utf-8')
    command = [sys.executable, '-m', 'rlframe', 'train', *SMALL, *words]
    pipes: dict[str, Any] = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return subprocess.Popen(command, cwd=folder, **pipes)


def wait_for(condition: Callable[[], Any]) -> None:
    while not condition():
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGKILL])
def test_seeds_end_with_their_parent_and_are_saved_if_it_can_wait(tmp_path: Path, number: int) -> None:
    process = started(tmp_path, '--seeds', '0-2', '--jobs', '1')
    metrics = tmp_path / 'env_dqn_seed0' / 'metrics.jsonl'
    wait_for(lambda: metrics.exists() and metrics.stat().st_size)
    lock = json.loads((tmp_path / 'env_dqn_seed0' / '.lock').read_text())
    process.send_signal(number)
    out, _ = process.communicate()
    wait_for(lambda: not Path(f'/proc/{lock["pid"]}').exists())
    assert not (tmp_path / 'env_dqn_seed1').exists()
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert 'resume: the same command with --resume auto' in out
        more = ('--seeds', '0-1', '--jobs', '2', '--resume', 'auto', '--env-step', '300')
        out, err = started(tmp_path, *more).communicate()
        assert 'over 2 seeds' in out, err
        assert {path.name for path in tmp_path.glob('env_*')} == {'env_dqn_seed0', 'env_dqn_seed1'}
        (tmp_path / 'alone').mkdir()
        started(tmp_path / 'alone', '--seed', '1', '--env-step', '300').communicate()
        folders = [path / 'env_dqn_seed1' / 'ckpt' / 'latest' for path in (tmp_path, tmp_path / 'alone')]
        one, other = ([file.read_bytes() for file in path.glob('*.safetensors')] for path in folders)
        assert one and sorted(one) == sorted(other)
