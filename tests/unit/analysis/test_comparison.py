"""Groups of runs, their statistics and their pictures."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from written_runs import write_run

from rlframe.app import comparison as statistics
from rlframe.app import figure
from rlframe.app.comparison import (
    as_text,
    bootstrap,
    estimate,
    grouped,
    mean,
    smoothed,
)
from rlframe.app.figure import plot
from rlframe.app.run_files import read_runs
from rlframe.entry.__main__ import main
from rlframe.errors import MissingDependencyError
from rlframe.scores import interquartile_mean

NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: Any) -> Path:
    """Two policies with two seeds each, in the working directory."""
    monkeypatch.chdir(tmp_path)
    for seed in (0, 1):
        write_run(tmp_path / f'dqn{seed}', [10.0, 30.0 + seed], seed=seed)
        write_run(tmp_path / f'ppo{seed}', [5.0, 15.0, 25.0 - seed], policy='ppo', seed=seed)
    return tmp_path


@given(NUMBERS)
@settings(max_examples=50, deadline=None)
def test_the_interquartile_mean_equals_a_naive_one(scores: list[float]) -> None:
    cut = math.floor(0.25 * len(scores))
    middle = sorted(scores)[cut : len(scores) - cut]
    assert interquartile_mean(np.array(scores)) == pytest.approx(
        sum(middle) / len(middle), rel=1e-9, abs=1e-6
    )


@given(NUMBERS)
@settings(max_examples=5, deadline=None)
def test_the_bootstrap_interval_equals_a_naive_one(scores: list[float]) -> None:
    generator, count = np.random.default_rng(0), len(scores)
    draws = generator.integers(count, size=(statistics.RESAMPLES, count)).tolist()
    means = sorted(sum(scores[i] for i in draw) / count for draw in draws)
    low, high = bootstrap(np.array(scores))
    for tail, value in ((0.025, low), (0.975, high)):
        place = tail * (len(means) - 1)
        below = means[math.floor(place)]
        naive = below + (place % 1) * (means[math.ceil(place)] - below)
        assert value == pytest.approx(naive, rel=1e-9, abs=1e-6)
    assert min(scores) - 1e-6 <= low <= high <= max(scores) + 1e-6


def test_the_same_scores_give_the_same_interval_and_one_run_has_none() -> None:
    assert estimate([1.0, 2.0, 5.0]) == estimate([1.0, 2.0, 5.0])
    assert estimate([3.0]) == {'value': 3.0, 'low': 3.0, 'high': 3.0}
    columns = np.arange(12.0).reshape(3, 4)
    low, _ = bootstrap(columns, mean)
    assert low.shape == (3,) and low[1] == bootstrap(columns[1], mean)[0]


@given(NUMBERS, st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_smoothing_is_the_mean_of_the_last_values(values: list[float], window: int) -> None:
    naive = [np.mean(values[max(i - window + 1, 0) : i + 1]) for i in range(len(values))]
    np.testing.assert_allclose(smoothed(np.array(values), window), naive, rtol=1e-6, atol=1e-3)


def test_runs_that_differ_only_in_the_seed_are_one_group(runs: Path) -> None:
    groups = grouped(read_runs([runs]))
    assert [(group.label, len(group.runs)) for group in groups] == [('dqn', 2), ('ppo', 2)]
    write_run(runs / 'fast', learning_rate=0.01)
    labels = [group.label for group in grouped(read_runs([runs]))]
    assert labels == ['dqn, learning_rate=0.001', 'dqn, learning_rate=0.01', 'ppo']
    (_, fast) = grouped(read_runs(['dqn0', 'fast']))
    assert fast.label == 'learning_rate=0.01'


def test_a_solved_run_keeps_its_return_and_the_mean_ends_with_the_first_unsolved_run(runs: Path) -> None:
    write_run(runs / 'x' / 'early', [0.0, 40.0], seed=0)
    write_run(runs / 'x' / 'late', [0.0, 0.0, 0.0, 20.0], seed=1)
    (group,) = grouped(read_runs([runs / 'x']))
    band = group.band('eval/mean_reward')
    assert band is not None
    assert band.steps[-1] == 300 and band.mean[-1] == 30.0
    assert (band.low <= band.mean).all() and (band.mean <= band.high).all()


def test_compare_gives_scores_steps_options_and_a_picture(runs: Path, capsys: Any) -> None:
    assert main(['compare', '.', '--json']) == 0
    found = json.loads(capsys.readouterr().out)
    dqn, ppo = found['groups']
    assert dqn['final'] == {'value': 30.5, 'low': 30.0, 'high': 31.0} and dqn['env_steps_to_goal'] == 100
    assert ppo['reached_goal'] == 0 and ppo['env_steps_to_goal'] is None and ppo['seconds'] == 2.0
    assert dqn['options'] == {'policy.type': 'dqn'}
    assert Path(found['picture']).read_bytes().startswith(b'\x89PNG')
    text = as_text(found)
    assert '30.5 [30, 31]' in text and '2 of 2' in text and 'policy.type' in text


def test_plot_writes_pictures_and_says_where(runs: Path, capsys: Any) -> None:
    assert main(['plot', 'dqn0']) == 0
    assert capsys.readouterr().out.split() == ['dqn0/plot.png', 'dqn0/plot.svg']
    assert Path('dqn0/plot.png').read_bytes().startswith(b'\x89PNG')
    text = Path('dqn0/plot.svg').read_text(encoding='utf-8')
    assert 'evaluation return' in text and 'goal' in text


@pytest.mark.parametrize(
    ('words', 'said'),
    [
        (['plot', 'dqn'], "Did you mean 'dqn"),
        (['plot', 'dqn0', '--metric', 'eval/mean'], "Did you mean 'eval/mean_reward'?"),
        (['plot', 'dqn0', '--out', 'a.pdf'], 'ends in .png or .svg'),
        (['plot', 'dqn0', '--out', 'nowhere/a.png'], 'the folder nowhere does not exist'),
        (['compare', 'dqn0', 'other'], 'runs of different envs'),
        (['plot', 'begun'], 'has not written any metrics yet'),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    runs: Path, capsys: Any, words: list[str], said: str
) -> None:
    write_run(runs / 'other', env='Acrobot-v1')
    write_run(runs / 'begun', [])
    before = sorted(runs.rglob('*'))
    assert main(words) == 2
    line = capsys.readouterr().err
    assert said in line and line.count('\n') == 1 and sorted(runs.rglob('*')) == before


def test_without_matplotlib_plot_says_what_to_install_and_compare_has_no_picture(
    runs: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.setattr(figure.importlib.util, 'find_spec', lambda name: None)
    with pytest.raises(MissingDependencyError, match=r'rlframe\[plot\]'):
        plot(['dqn0'])
    assert main(['compare', '.']) == 0
    assert 'final score' in capsys.readouterr().out and not Path('compare.png').exists()
