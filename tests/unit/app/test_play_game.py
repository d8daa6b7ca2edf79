"""``rlframe play`` of a game: a person against the policy, who is asked for legal actions, until the games or the input end."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from error_texts import raises

from rlframe.app.play import play_run
from rlframe.app.play_game import board_text, play_game
from rlframe.app.scoring import Request
from rlframe.app.starting import starting_config
from rlframe.data.timestep import EnvSpec
from rlframe.entry.__main__ import main
from rlframe.errors import ConfigError
from rlframe.pipeline import serial_pipeline
from rlframe.run.read_checkpoint import open_checkpoint

pytest.importorskip('pettingzoo')


@pytest.fixture(scope='module', params=['tictactoe_v3', 'connect_four_v3'])
def run(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a few moves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp('runs'))
        main_config, create_config = starting_config(
            f'pettingzoo:classic.{request.param}', 'dqn', max_env_step=160
        )
        main_config.env.n_evaluator_episode = main_config.env.evaluator_env_num = 2
        main_config.exp_name = 'game'
        serial_pipeline((main_config, create_config), seed=0, max_env_step=160)
        return Path.cwd() / 'game_seed0'


def first_legal(prompt: str) -> str:
    return prompt.partition('(')[2].partition(',')[0].partition(')')[0]


def test_a_person_and_the_policy_begin_in_turn_and_the_winner_is_told(run: Path) -> None:
    lines: list[str] = []
    played = play_run(open_checkpoint(run), Request(2, 0), lines.append, ask=first_legal)
    begins = [line for line in lines if line.startswith('game ')]
    assert begins == ['game 1: you begin; Ctrl-D ends', 'game 2: the policy begins; Ctrl-D ends']
    results = {'win': 'the policy wins', 'loss': 'you win', 'draw': 'a draw'}
    told = [line for line in lines if line in results.values()]
    assert told == [results[episode.ending] for episode in played]
    for episode in played:
        assert episode.return_ == {'win': 1.0, 'loss': -1.0, 'draw': 0.0}[episode.ending]
    moves = [line for line in lines if line.startswith('the policy plays ')]
    boards = [line for line in lines if '\n' in line]
    assert len(moves) + len(boards) - len(played) == sum(episode.length for episode in played)
    assert lines[lines.index(begins[1]) + 1].startswith('the policy plays ')
    pieces = [(board.count('X'), board.count('O')) for board in boards]
    assert all(0 <= own - others <= 1 or others - own == 1 for own, others in pieces) and pieces[0] == (0, 0)


def test_bad_input_gets_a_line_and_the_end_of_input_ends_the_games(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr('sys.stdin', io.StringIO('x\n\n99\n-1\n1.0\n0\n'))
    assert main(['play', str(run), '-n', '2', '--json']) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)['returns'] == [] and 'ended before the game was over' in err
    for text in (
        "'x' is no action",
        "'' is no action",
        "'99' is no action",
        "'-1' is no action",
        "'1.0' is no",
    ):
        assert f'{text}' in err
    assert 'game 1: you begin' in err and 'the policy plays ' in err and 'game 2' not in err


def test_an_action_that_is_taken_is_not_legal(run: Path) -> None:
    lines: list[str] = []
    asked: list[str] = []

    def ask(prompt: str) -> str:
        asked.append(prompt)
        if len(asked) > 9:
            raise EOFError
        return '0'

    play_run(open_checkpoint(run), Request(1, 0), lines.append, ask=ask)
    told = [line for line in lines if line.startswith('0 is not legal now; choose one of ')]
    assert told or 'you win' in lines  # by a column of four


def test_a_window_is_refused(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('DISPLAY', ':0')
    with raises(ConfigError):
        play_run(open_checkpoint(run), Request(1, 0), print, human=True)


def test_a_game_of_other_players_or_actions_is_refused() -> None:
    from gymnasium.spaces import Box, Discrete

    obs = Box(0, 1, (2,))
    for spec in (EnvSpec(obs, Discrete(3), 3, name='Three'), EnvSpec(obs, obs, 2, name='Moving')):
        with raises(ConfigError):
            play_game(None, spec, None, 1, 0, print, input)  # type: ignore[arg-type]  # it is not called


def test_a_board_has_numbers_where_actions_have_cells_or_columns() -> None:
    board = np.zeros((2, 3, 2), np.int8)
    board[0, 1, 0] = board[1, 2, 1] = 1
    assert board_text(board, [1, 3, 4, 5], 1, 6) == ' 1  X  3\n 4  5  O'
    assert board_text(board, [0, 1], 0, 3) == ' .  X  .\n .  .  O\n 0  1  2'
    assert board_text(board) == ' .  X  .\n .  .  O'
    assert board_text(np.array([1.0, 2.0])) == '[1. 2.]'
