"""W8, the time to the published return: its rule, its records and its report, on figures that nobody measured."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / 'benchmarks'
FAST = {'seconds': 2.0, 'cpu_seconds': 1.5, 'look_seconds': 0.1, 'look_cpu_seconds': 0.1, 'env_steps': 1000}


@pytest.fixture
def w8(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module('time_to_return')


@pytest.fixture
def until_return(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS / 'peers')
    return importlib.import_module('until_return')


def runs(side, *seconds, reached=(), config='cartpole_dqn'):
    """Records of a side, one a seed; ``reached`` are the seeds that got to the return."""
    return [
        {'config': config, 'side': side, 'seed': i, **FAST, 'seconds': s, 'cpu_seconds': s, 'where': 'abacus'}
        | {'reached': 500.0 if i in reached else None}
        for i, s in enumerate(seconds)
    ]


def test_every_pair_names_a_shipped_config_of_its_env_and_budget(w8):
    from rlframe.config import read_config

    for pair in w8.PAIRS:
        main_config, _ = read_config(BENCHMARKS.parent / 'configs' / f'{pair.config}.py')
        assert main_config['env']['env_id'] == pair.env_id
        assert pair.every * 10 <= pair.budget


def test_runs_that_did_not_reach_the_return_come_after_those_that_did(w8):
    side = w8.side_of(runs('rlframe', 1.0, 9.0, 3.0, reached=(1, 2)), 'cartpole_dqn', 'rlframe')
    assert (side.seconds, side.is_reached, side.reached, side.runs) == (9.0, True, 2, 3)
    side = w8.side_of(runs('rlframe', 1.0, 9.0, 3.0, reached=(1,)), 'cartpole_dqn', 'rlframe')
    assert (side.seconds, side.is_reached) == (1.0, False)


@pytest.mark.parametrize(
    ('own', 'peer', 'expected'),
    [
        ((0, 1, 2), (0, 1, 2), ('3.0x', 'met')),
        ((0, 1, 2), (), ('> 3.0x', 'met')),
        ((0,), (0, 1, 2), ('', 'missed')),
    ],
)
def test_the_goal_is_a_third_of_the_time_by_a_run_that_got_there(w8, own, peer, expected):
    records = runs('rlframe', 2.0, 2.0, 2.0, reached=own) + runs('sb3', 6.0, 6.0, 6.0, reached=peer)
    (row,) = w8.table(records)
    assert (row[-3], row[-1]) == expected
    assert (row[6].startswith('> '), row[2].startswith('> ')) == (not peer, len(own) < 2)


@pytest.mark.parametrize('name', ['seconds', 'cpu_seconds'])
def test_the_goal_is_missed_if_one_clock_says_so(w8, name):
    records = runs('rlframe', 2.0, reached=(0,)) + [r | {name: 5.9} for r in runs('sb3', 6.0, reached=(0,))]
    assert w8.table(records)[0][-1] == 'missed'


def test_finished_runs_are_kept_on_disk_and_not_measured_again(w8, tmp_path, monkeypatch):
    file, measured = tmp_path / 'records.json', []

    def run_side(pair, seed, side, peer_python, env_steps):
        measured.append((seed, side))
        if len(measured) == 4:
            raise RuntimeError('interrupted')
        return runs(side, 2.0)[0] | {'seed': seed}

    monkeypatch.setattr(w8, 'run_side', run_side)
    words = [
        '--configs',
        'cartpole_dqn',
        '--seeds',
        '0',
        '1',
        '--results',
        str(file),
        '--page',
        str(tmp_path / 'page.md'),
    ]
    with pytest.raises(SystemExit, match='interrupted'):
        w8.main(words)
    assert len(json.loads(file.read_text(encoding='utf-8'))) == 3
    w8.main(words)
    assert measured == [(0, 'rlframe'), (0, 'sb3'), (1, 'rlframe'), (1, 'sb3'), (1, 'sb3')]
    assert '| cartpole_dqn | 1 | sb3 |' in (tmp_path / 'page.md').read_text(encoding='utf-8')


def test_a_look_plays_ten_episodes_and_a_hundred_only_if_they_are_at_the_return(until_return, monkeypatch):
    monkeypatch.setattr(until_return, 'EPISODES', 12)
    played = []

    def act(obs):
        played.append(len(obs))
        return np.zeros(len(obs), np.int64)

    watch = until_return.UntilReturn('CartPole-v1', 100.0, 50, 0, act)
    assert not watch.is_reached(49) and not played
    assert not watch.is_reached(50) and max(played) == 10
    easy = until_return.UntilReturn('CartPole-v1', 8.0, 50, 0, act)
    assert easy.is_reached(60) and max(played) == 12 and 8 <= easy.reached < 12


def test_the_time_of_looks_is_counted_apart(until_return, monkeypatch, capsys):
    clock = iter(np.arange(0.0, 100.0, 10.0))
    monkeypatch.setattr(until_return.UntilReturn, '_now', lambda self: np.full(2, next(clock)))
    monkeypatch.setattr(until_return.UntilReturn, '_mean_return', lambda self, episodes: 1.0)
    watch = until_return.UntilReturn('CartPole-v1', 2.0, 50, 0, lambda obs: obs)
    watch.is_reached(50)
    watch.print_result('rlframe', 50)
    printed = json.loads(capsys.readouterr().out)
    assert (printed['seconds'], printed['look_seconds'], printed['reached']) == (20.0, 10.0, None)
