"""``rlframe play``: a trained policy is shown as text or in a window, and nothing is shown of foreign code."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from foreign import set_config

from rlframe.app import play as playing
from rlframe.app.play import DISPLAYS, play_run
from rlframe.app.scoring import Request
from rlframe.entry.__main__ import main
from rlframe.envs.two_step import PAYOFF
from rlframe.pipeline import serial_pipeline
from rlframe.run.read_checkpoint import open_checkpoint


@pytest.fixture(scope='module')
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a few steps in an env that draws itself as text."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp('runs'))
        env = dict(env_id='FrozenLake-v1', collector_env_num=1, evaluator_env_num=1, n_evaluator_episode=1)
        policy = dict(cuda=False, learn=dict(batch_size=4), model=dict(encoder_hidden_size_list=[8]))
        serial_pipeline(
            (dict(exp_name='lake', env=env, policy=policy), dict(policy=dict(type='dqn'))),
            seed=0,
            max_env_step=16,
        )
        return Path.cwd() / 'lake_seed0'


@pytest.fixture(autouse=True)
def no_display(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in DISPLAYS:
        monkeypatch.delenv(name, raising=False)


def test_an_env_that_draws_text_is_shown_as_text_with_the_return_of_each_episode(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(['play', str(run), '-n', '2']) == 0
    out = capsys.readouterr().out
    assert 'SFFF\nFHFH\nFFFH\nHFFG\nepisode 1 begins: obs 0' in out and '\x1b' not in out
    assert 'step 1: action ' in out and 'episode 2: return ' in out


@pytest.mark.parametrize('human', [False, True])
def test_without_a_display_an_env_without_text_is_summed_up_and_the_same_seed_plays_the_same_episodes(
    human: bool, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown(seed: int) -> list[str]:
        lines: list[str] = []
        request = Request(2, seed, overrides=['env.kwargs.is_slippery=True'])
        play_run(open_checkpoint(run), request, lines.append, human=human)
        return lines

    monkeypatch.setattr(playing, 'TEXT', 'no such mode')
    lines = shown(1)
    assert shown(1) == lines and len(lines) == 3 + human and ('no display' in lines[0]) == human
    assert lines[-3].startswith('episode 1: return') and 'over 2 episodes (min 0' in lines[-1]


def test_json_is_all_that_stdout_gets(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['play', str(run), '--json']) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found['returns']) == len(found['lengths']) == 1 and found['endings'] != ['cut']


@pytest.mark.slow
@pytest.mark.usefixtures('cwd')
def test_of_a_team_each_line_says_what_every_agent_did_and_the_last_one_what_each_earned(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    env = dict(env_id='rlframe.envs.team_env:Team', kwargs=dict(game='rlframe.envs.two_step'))
    env |= dict(collector_env_num=1, evaluator_env_num=1, n_evaluator_episode=1)
    section = dict(cuda=False, learn=dict(batch_size=4), model=dict(encoder_hidden_size_list=[8]))
    pair = dict(exp_name='team', env=env, policy=section), dict(policy=dict(type='vdn'))
    serial_pipeline(pair, seed=0, max_env_step=16)
    capsys.readouterr()
    assert main(['play', 'team_seed0']) == 0
    begin, first, second, end, *_ = capsys.readouterr().out.splitlines()
    assert begin == 'episode 1 begins: agent_0: acts next, return 0; agent_1: acts next, return 0'
    did = re.fullmatch(r'step 1: agent_0: (\d), reward 0, return 0; agent_1: (\d), reward 0, return 0', first)
    assert did
    half = re.fullmatch(r'step 2: agent_0: (\d), reward (.*), return (.*); agent_1: (\d), .*', second)
    assert half
    payoff = PAYOFF[int(did[1]), int(half[1]), int(half[4])]
    assert float(half[2]) == payoff / 2
    own = f'{payoff / 2:g}'
    assert end == f'episode 1: return {payoff:g} in 2 steps, terminated; agent_0 {own}, agent_1 {own}'
    assert main(['play', 'team_seed0', '--json']) == 0
    found = json.loads(capsys.readouterr().out)
    assert found['returns_of_agents'] == [{'agent_0': payoff / 2, 'agent_1': payoff / 2}]
    # a person takes a seat, and leaves
    monkeypatch.setattr('sys.stdin', io.StringIO('1\n'))
    assert main(['play', 'team_seed0', '--seat', 'agent_0', '--json']) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)['returns'] == [] and 'step 1: agent_0: 1, ' in err
    assert err.endswith('ended before the episode was over\n')


def test_a_window_is_opened_where_there_is_a_display(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('SDL_VIDEODRIVER', 'dummy')
    lines: list[str] = []
    play_run(open_checkpoint(run), Request(1), lines.append, human=True)
    assert len(lines) == 1 and lines[0].startswith('episode 1: return')


def test_ctrl_c_ends_it_quietly_and_closes_the_env(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []

    def interrupt(*args: Any) -> None:
        raise KeyboardInterrupt

    close = playing.BaseEnvManager.close
    monkeypatch.setattr(playing.BaseEnvManager, 'close', lambda self: (closed.append(1), close(self)))
    monkeypatch.setattr(playing, '_shown', interrupt)
    assert main(['play', str(run)]) == 130
    assert capsys.readouterr() == ('', '') and closed


@pytest.mark.parametrize(
    'words',
    [
        ['--episodes', '0'],
        ['env.env_id=Pendulum-v1']
    ]
)  # fmt: skip
def test_bad_input_is_one_line_and_writes_nothing(
    words: list[str], run: Path, refused: Callable[..., str]
) -> None:
    refused('play', str(run), *words)


def test_a_foreign_run_whose_env_would_run_code_is_refused(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / 'theirs', symlinks=True)
    set_config((copy / 'ckpt' / 'best').resolve(), env__env_id='theirs:Env')
    (tmp_path / 'theirs.py').write_text("raise SystemExit('imported')")
    assert main(['play', str(copy)]) == 2
