"""What a user of ``rlframe tune`` meets: a signal, and a folder that was moved."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from runs import DQN, HELPERS, finish, train
from tune_runs import ENVIRONMENT, assert_same_state, command, trial_config
from zoo import SlowEnv

from rlframe.run.read_checkpoint import find_checkpoint
from rlframe.tune.trial import Trial

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures('copies')]

BUDGET = 2400
SEARCH = ('tune', *DQN, '--search', 'policy.learn.learning_rate=grid(0.001,0.002,0.003)')
SLOW = ('env.env_id=zoo:SlowEnv',)
"""An env whose trials last for some seconds."""
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The user's home folder, empty."""
    made = tmp_path / 'home'
    made.mkdir()
    return made


@pytest.fixture
def start(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts the command line; when the test is over nothing of it runs, and nothing lies in the user's home."""
    monkeypatch.setenv('HOME', str(home))
    monkeypatch.setenv('PYTHONPATH', str(HELPERS))
    monkeypatch.setenv('TUNE_GLOBAL_CHECKPOINT_S', '1')
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    started: list[subprocess.Popen[str]] = []

    def begin(cwd: Path, *words: str) -> subprocess.Popen[str]:
        started.append(train(cwd, *words))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()
    until_all_end(home, 60)
    made = {path.relative_to(home).parts[:2] for path in home.rglob('*') if path.is_file()}
    assert made <= {('.ray', 'auth_token'), ('.cache', 'matplotlib'), ('.config', 'matplotlib')}


AGENTS = 'ray::DashboardAgent', 'ray::RuntimeEnvAgent'
"""Processes of Ray itself, which try for a minute to report to servers that were killed."""


def until_all_end(home: Path, seconds: float) -> None:
    """Waits until all processes with this home folder have ended but Ray's own agents, which it kills."""
    began = time.monotonic()
    while left := {pid: command(pid) for pid in processes_of(home)}:
        if all(name.startswith(AGENTS) for name in left.values()):
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        assert time.monotonic() - began < seconds, left
        time.sleep(0.1)


def processes_of(home: Path) -> set[int]:
    """Returns the ids of all processes that were started with this home folder, whoever their parents are now."""
    found = set()
    for entry in Path('/proc').iterdir():
        try:
            if entry.name.isdigit() and f'HOME={home}\0'.encode() in (entry / 'environ').read_bytes():
                found.add(int(entry.name))
        except OSError:
            continue
    return found


def trials(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob('trial_*') if path.is_dir())


def rows(trial: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (trial / 'result.json').read_text().splitlines()]


def until_it_runs(process: subprocess.Popen[str], folder: Path) -> None:
    """Waits until two trials have checkpoints that a whole snapshot of the search knows of."""
    limit = time.monotonic() + 400

    def is_known() -> bool:
        snapshots = [path.stat().st_mtime for path in folder.glob('experiment_state-*.json')]
        checkpoints = [path.stat().st_mtime for path in folder.glob('trial_*/checkpoint_000001')]
        if len(checkpoints) < 2 or not snapshots or max(snapshots) < max(checkpoints) + 0.5:
            return False
        return (
            time.time() > max(snapshots) + 0.5
        )  # it is no longer being written; the next one comes after 10 s

    while not is_known():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit, 'the search does not get going'
        time.sleep(0.05)


def assert_whole(folder: Path, options: dict[str, Any], tmp_path: Path) -> None:
    """Makes sure that every trial has the right totals and ended with the bits of one that was never interrupted."""
    assert len(trials(folder)) == 3
    for trial in trials(folder):
        last = rows(trial)[-1]
        assert last['done'] and last['timesteps_total'] == last['envstep'] >= options['max_env_step']
        assert last['episodes_total'] == last['episodes']
        rate = json.loads((trial / 'params.json').read_text())['policy.learn.learning_rate']
        straight = Trial(
            trial_config(options={**options, 'policy.learn.learning_rate': rate}), tmp_path / trial.name, 'x'
        )
        (tmp_path / trial.name).mkdir(parents=True)
        results = [straight.step()]
        while not results[-1]['done']:
            results.append(straight.step())
        straight.save(tmp_path / trial.name / 'end')
        straight.close()
        assert last['training_iteration'] == len(results)
        checkpoint = max(trial.glob('checkpoint_*'), key=lambda path: path.name)
        assert_same_state(checkpoint, tmp_path / trial.name / 'end')


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGKILL])
def test_search_is_ended_by_a_signal_and_ends_elsewhere_with_the_same_bits(
    number: int, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cwd, elsewhere = tmp_path / 'cwd', tmp_path / 'elsewhere'
    cwd.mkdir(), elsewhere.mkdir()
    words = ('--max-concurrent', '2', '--env-step', str(BUDGET), '--out', 'mine')
    process = start(cwd, *SEARCH, *words, *SLOW)
    until_it_runs(process, cwd / 'mine')
    process.send_signal(number)
    if number == signal.SIGKILL:
        finish(process, -number)
    else:
        out, err = finish(process, 143)
        assert 'interrupted and saved' in out and 'Traceback' not in err
        resume = next(line for line in out.splitlines() if line.startswith('resume: '))
        assert resume == 'resume: python -m rlframe.entry tune --resume mine'
        assert (cwd / 'mine' / 'trials.csv').is_file()
    assert [path.name for path in cwd.iterdir()] == ['mine']
    moved = tmp_path / 'moved'
    shutil.move(cwd / 'mine', moved)
    os.rmdir(cwd)

    begun = trials(moved)
    assert len(begun) == 2 and any(rows(trial)[-1]['envstep'] < BUDGET for trial in begun)
    out, _ = finish(start(elsewhere, 'tune', '--resume', str(moved)))
    assert 'best of 3 trials' in out and 'done: eval/mean_reward' in out and list(elsewhere.iterdir()) == []
    (command,) = [line for line in out.splitlines() if line.startswith('continue the best trial: ')]
    words = tuple(command.split())
    assert find_checkpoint(words[words.index('--resume') + 1]).is_relative_to(moved)
    assert words[-2:] == ('--env-step', str(2 * BUDGET))
    for trial in begun:
        assert rows(trial)[-1]['iterations_since_restore'] < rows(trial)[-1]['training_iteration']
    options = {'env.env_id': 'zoo:SlowEnv', 'max_env_step': BUDGET}
    monkeypatch.setattr(SlowEnv, 'seconds', 0.0)
    assert_whole(moved, options, tmp_path / 'straight')
