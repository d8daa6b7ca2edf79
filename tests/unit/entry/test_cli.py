"""The command line: every bad input is told what is wrong and leaves nothing behind; signals, terminals and a light start."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import fork_server
import pytest
from fakes import Terminal
from runs import ROOT

from rlframe.entry.__main__ import main
from rlframe.entry.verbs import VERBS
from rlframe.registry import REGISTRIES
from rlframe.run.read_checkpoint import load_checkpoint

DQN, PPO = 'configs/cartpole_dqn.py', 'configs/cartpole_ppo.py'
Refused = Callable[..., str]


@pytest.fixture(autouse=True)
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    folder = tmp_path / 'cwd'
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def assert_says(text: str, words: tuple[str, ...]) -> None:
    for word in words:
        assert word in text, text


@pytest.mark.parametrize(
    'words',
    [
        ['-c', DQN, '--seedd=1'],
        ['tune', '-c', DQN, '--env-steps', '9'],
        ['tune', '-c', DQN, '--sch', '1'],
        ['-c', DQN, '--env-step', 'many'],
        ['-c', DQN, '--train-iter', '0'],
        ['-c', DQN, 'policy.collect.unroll_len=4'],
        ['-c', DQN, "policy.learn.learner.hook.x={'type': 'nope'}"],
        ['-c', DQN, '--seed', 'x'],
        ['-c', DQN, '--seed', '0', 'seed=3'],
        ['-c', DQN, '--seeds', '0-1', 'seed=3'],
        ['-c', DQN, '--env-step', '200', 'max_env_step=300'],
        ['-c', DQN, '--learners', '2', 'learn.num_learners=3'],
        ['tune', '-c', DQN, '-n', '2', '--train-iter', '9', 'max_train_iter=8'],
        ['trian', '-c', DQN],
        [DQN],
        ['list', 'polcy'],
        ['list', 'policy', 'dqnn'],
        ['eval', 'nowhere'],
        ['eval', '.'],
        ['eval', '.', '--episodes', '0'],
        ['eval', '.', '--seed', '-1'],
        ['eval', '.', '--video', __file__],
    ],
)
def test_bad_command_line_is_refused(refused: Refused, words: list[str]) -> None:
    refused(*words)


def test_a_command_line_without_words_lists_the_verbs(cwd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match='2'):
        main([])
    out, err = capsys.readouterr()
    assert_says(out, VERBS)
    assert err == '' and list(cwd.iterdir()) == []


def test_no_option_of_a_verb_can_be_shortened() -> None:
    assert [verb for verb in VERBS if VERBS[verb].parser(verb).allow_abbrev] == []


def test_a_closed_pipe_that_is_not_the_output_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = mock.Mock(side_effect=BrokenPipeError)
    monkeypatch.setitem(VERBS, 'list', VERBS['list']._replace(run=broken))
    with pytest.raises(BrokenPipeError):
        main(['list'])


def test_a_process_whose_output_is_closed_leaves_no_traceback(cwd: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = start('-m', 'rlframe.entry', '--help', stdout=writer, env={'PYTHONUNBUFFERED': ''})
    os.close(writer)
    _, err = process.communicate()
    assert (process.returncode, err) == (0, '')


def test_overrides_may_stand_between_flags(refused: Refused) -> None:
    error = refused('-c', DQN, 'policy.discount_factor=2', '--seed', '1', 'policy.nstep=0')
    assert_says(error, ('2 mistakes', 'policy.discount_factor', 'policy.nstep'))


def test_debug_shows_where_an_error_came_from() -> None:
    with pytest.raises(KeyError, match='dqnn'):
        main(['-c', DQN, '--debug', 'policy.type=dqnn'])


def test_list_shows_names_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['list']) == 0
    assert_says(
        capsys.readouterr().out,
        ('mdqn,', 'gym_vector', 'advanced, elastic, episode, naive'),
    )
    assert main(['list', 'policy', 'dqn']) == 0
    shown = capsys.readouterr().out
    assert_says(shown, ('policy.learn.batch_size = 64', 'int in [1, inf) (transitions)', 'Deep Q-network'))
    assert max(map(len, shown.splitlines())) <= 80
    for kind, registry in REGISTRIES.items():
        for name in registry.names():
            if registry.is_builtin(name):
                assert main(['list', kind, name]) == 0


# as processes


def start(*words: str, **options: Any) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get('PYTHONPATH')])])
    environment = {**os.environ, 'PYTHONPATH': path, 'COLUMNS': '100', **options.pop('env', {})}
    pipes = {'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, **options}
    return fork_server.popen([*words], text=True, env=environment, **pipes)


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, out, err


LIGHT = """
import sys
import rlframe
assert rlframe.load
from rlframe.entry.__main__ import main
heavy = ['torch', 'ray', 'gymnasium', 'tensorboardX', 'safetensors', 'matplotlib']
for words, more in (
    (['--help'], ['numpy', 'rich', 'easydict', 'rlframe.parallel']),
    (['list', 'policy', 'ppo'], ['numba', 'rlframe.parallel']),
    (['-c', 'configs/cartpole_dqn.py', 'policy.learn.lr=1'], ['rlframe.parallel']),
    (['explain', 'gamma'], []),
):
    try:
        main(words)
    except SystemExit:
        pass
    assert not {*heavy, *more} & set(sys.modules), words
"""


def test_help_lists_explanations_and_config_errors_import_nothing_heavy() -> None:
    code, _, err = finish(start('-c', LIGHT))
    assert code == 0 and 'learning_rate' in err, err


LONG = (
    *('-m', 'rlframe.entry', '-c', DQN, 'env.stop_value=1e9', 'env.n_evaluator_episode=1'),
    *('policy.nstep=1', 'policy.collect.n_sample=8'),
)
"""A training that does not end by itself."""


def wait_until_training(folder: Path, process: subprocess.Popen[str]) -> None:
    """Returns once a record of a train iteration is there."""
    file, limit = folder / 'metrics.jsonl', time.monotonic() + 60
    while time.monotonic() < limit and process.poll() is None:
        lines = file.read_text(encoding='utf-8').splitlines()[:-1] if file.exists() else []
        if any(json.loads(line).get('train_iter', 0) > 0 for line in lines):
            return
        time.sleep(0.02)
    pytest.fail(f'no training: {process.communicate()}')


@pytest.mark.usefixtures('copies')
def test_signal_saves_a_checkpoint_and_names_the_folder(cwd: Path) -> None:
    process = start(*LONG, 'exp_name=stopped')
    wait_until_training(cwd / 'stopped_seed0', process)
    process.send_signal(signal.SIGTERM)
    got, out, err = finish(process)
    assert got == 143, err
    assert 'interrupted and saved' in out and 'eval stopped_seed0\n' in out
    assert 'a second signal' in err and 'Traceback' not in err
    state, manifest = load_checkpoint(cwd / 'stopped_seed0' / 'ckpt' / 'latest')
    assert state['progress']['envstep'] > 0 and state['progress'] == manifest['progress']
    assert {'policy', 'collector', 'replay_buffer', 'evaluator', 'rng'} <= set(state)


@pytest.mark.usefixtures('copies')
def test_second_signal_ends_the_process_at_once(cwd: Path) -> None:
    process = start(*LONG, 'policy.collect.n_sample=20000000')  # a round of minutes
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline().startswith('dqn on 8 envs')
    process.send_signal(signal.SIGINT)
    while 'a second signal' not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert finish(process)[0] == 130


SHORT = (*LONG, '--env-step', '100')


def test_without_a_terminal_there_are_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SHORT[2:]]) == 0
    out, err = capsys.readouterr()
    assert '\x1b' not in out + err and '\r' not in out + err and 6 <= out.count('\n') <= 10
    assert re.search(r'^\d:\d\d \| env steps 104 \| .*/s \| updates \d+', err, re.MULTILINE)


def test_on_a_terminal_a_live_line_is_drawn_and_the_cursor_comes_back(
    cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    for name, value in {'TERM': 'xterm-256color', 'NO_COLOR': '1', 'COLUMNS': '100'}.items():
        monkeypatch.setenv(name, value)
    for stream in ('stdout', 'stderr'):
        monkeypatch.setattr(sys, stream, terminal)
    assert main([*SHORT[2:]]) == 0
    shown = terminal.getvalue()
    assert_says(shown, ('dqn on 8 envs', 'env steps 104', '\x1b[2K', 'not solved', 'eval cartpole_dqn_seed0'))
    assert shown.rindex('\x1b[?25h') > shown.rindex('\x1b[?25l')
    assert not re.search(r'\x1b\[[0-9;]*3[0-9][0-9;]*m', shown)
