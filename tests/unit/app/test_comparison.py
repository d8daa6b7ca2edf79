"""Groups of runs, their statistics and their pictures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from error_texts import raises
from written_runs import write_run

from rlframe.app import comparison as statistics
from rlframe.app import figure
from rlframe.app.comparison import as_text, bootstrap, estimate, grouped, improvement, smoothed
from rlframe.app.figure import plot
from rlframe.app.run_files import read_runs
from rlframe.entry.__main__ import main
from rlframe.errors import MissingDependencyError
from rlframe.scores import interquartile_mean


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: Any) -> Path:
    """Two policies with two seeds each, in the working directory."""
    monkeypatch.chdir(tmp_path)
    for seed in (0, 1):
        write_run(tmp_path / f'dqn{seed}', [10.0, 30.0 + seed], seed=seed)
        write_run(tmp_path / f'ppo{seed}', [5.0, 15.0, 25.0 - seed], policy='ppo', seed=seed)
    return tmp_path


def test_the_interquartile_mean_cuts_a_quarter_off_either_end() -> None:
    assert interquartile_mean(
        np.array([[100.0, 3.0, 1.0, 2.0, 0.0], [5.0, 1.0, 1.0, 1.0, -9.0]])
    ).tolist() == [2, 1]
    assert interquartile_mean(np.array([0.0, 3.0, 6.0])) == 3


def test_the_bootstrap_interval_is_that_of_resampled_means_and_one_run_has_none() -> None:
    draws = np.random.default_rng(0).integers(3, size=(statistics.RESAMPLES, 3))
    scores = np.array([1.0, 2.0, 5.0])
    low, high = bootstrap(np.stack([scores, scores + 1]))
    np.testing.assert_allclose([low[0], high[0]], np.percentile(scores[draws].mean(1), [2.5, 97.5]))
    np.testing.assert_allclose([low[1], high[1]], [low[0] + 1, high[0] + 1])
    assert estimate([3.0]) == {'value': 3.0, 'low': 3.0, 'high': 3.0}


def test_the_probability_of_improvement_counts_pairs_and_half_of_equal_ones() -> None:
    assert improvement(([1.0, 2.0, 3.0], [2.0, 2.0, 0.0]))['value'] == 6 / 9  # 0 0 1, 1/2 1/2 1, 1 1 1
    assert improvement(([5.0, 6.0], [1.0, 2.0, 3.0])) == {'value': 1.0, 'low': 1.0, 'high': 1.0}
    # with a single run below, the value of a resample is the share of draws that are above it: 0, 1/2 or 1
    assert improvement(([5.0], [1.0]), ([0.0, 2.0], [1.0])) == {
        'value': 0.75,
        'low': 0.5,
        'high': 1.0,
    }  # the mean over envs
    assert improvement(([0.0, 2.0], [1.0])) == {'value': 0.5, 'low': 0.0, 'high': 1.0}
    scores, others = np.arange(20.0), np.arange(20.0) + 0.5
    found = improvement((list(scores), list(others)))
    assert found['value'] == 190 / 400
    spread = (41 / (12 * 400)) ** 0.5  # of the Mann-Whitney statistic, (n + m + 1) / 12 n m
    assert found['high'] - found['low'] == pytest.approx(2 * 1.96 * spread, rel=0.1)


def test_smoothing_is_the_mean_of_the_last_values() -> None:
    assert smoothed(np.array([1.0, 2.0, 3.0, 8.0]), 3).tolist() == [1, 1.5, 2, 13 / 3]


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
    assert dqn['improvement'] is None and ppo['improvement'] == {'value': 0.0, 'low': 0.0, 'high': 0.0}
    assert dqn['options'] == {'policy.type': 'dqn'}
    assert Path(found['picture']).read_bytes().startswith(b'\x89PNG')
    text = as_text(found)
    assert (
        '30.5 [30, 31]' in text and 'above the first' in text and '2 of 2' in text and 'policy.type' in text
    )


def test_plot_writes_pictures_and_says_where(runs: Path, capsys: Any) -> None:
    assert main(['plot', 'dqn0']) == 0
    assert capsys.readouterr().out.split() == ['dqn0/plot.png', 'dqn0/plot.svg']
    assert Path('dqn0/plot.png').read_bytes().startswith(b'\x89PNG')
    text = Path('dqn0/plot.svg').read_text(encoding='utf-8')
    assert 'evaluation return' in text and 'goal' in text


@pytest.mark.parametrize(
    'words',
    [
        ['plot', 'dqn'],
        ['plot', 'dqn0', '--metric', 'eval/mean'],
        ['plot', 'dqn0', '--out', 'a.pdf'],
        ['plot', 'dqn0', '--out', 'nowhere/a.png'],
        ['compare', 'dqn0', 'other'],
        ['plot', 'begun'],
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    runs: Path, words: list[str], refused: Callable[..., str]
) -> None:
    write_run(runs / 'other', env='Acrobot-v1')
    write_run(runs / 'begun', [])
    refused(*words)


def test_without_matplotlib_plot_says_what_to_install_and_compare_has_no_picture(
    runs: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.setattr(figure.importlib.util, 'find_spec', lambda name: None)
    with raises(MissingDependencyError):
        plot(['dqn0'])
    assert main(['compare', '.']) == 0
    assert 'final score' in capsys.readouterr().out and not Path('compare.png').exists()
