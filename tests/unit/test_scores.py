"""Numbers have as many digits as matter; intervals are compared with published quantiles of Student's t distribution."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rlframe.app.comparison import estimate
from rlframe.app.page import _band
from rlframe.app.scoring import Score
from rlframe.app.seeds import SeedRun
from rlframe.display.workers import last_lines
from rlframe.run.progress import evaluation_of
from rlframe.scores import (
    Interval,
    clock_text,
    duration_text,
    interval_of,
    mean_interval,
    number_text,
    t_quantile,
)


@pytest.mark.parametrize(
    ('freedom', 'quantile'),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (99, 1.984), (10**308, 1.960)],
)
def test_quantiles_are_those_of_the_tables(freedom: int, quantile: float) -> None:
    assert t_quantile(freedom) == pytest.approx(quantile, rel=2e-3)


def test_interval_of_values_equals_that_of_their_mean_and_deviation() -> None:
    found = interval_of([0.0, 1.0, 2.0, 3.0, 4.0])
    assert found is not None and found == pytest.approx((0.0368, 3.9632), abs=5e-3)
    assert mean_interval(2.0, 2**0.5, 5) == pytest.approx(found)
    assert str(found) == '0.0368 to 3.96'


def of_run(folder: Path, returns: list[float]) -> Interval | None:
    values = {'mean': np.mean(returns), 'std': np.std(returns), 'min': min(returns), 'max': max(returns)}
    record = {f'eval/{name}_reward': float(value) for name, value in values.items()}
    line = json.dumps({'envstep': 5, 'eval/episodes': len(returns), **record})
    (folder / 'metrics.jsonl').write_text(line)
    found = evaluation_of(folder, record['eval/mean_reward'])
    assert found is not None and found.interval == _band(*found[1:])
    return found.interval


def of_seeds(folder: Path, returns: list[float]) -> Interval:
    runs = [SeedRun(i, 'done', score=score) for i, score in enumerate(returns)]
    ends = re.search(r'seeds, (?:95 % interval )?(\S+) to (\S+?),? ', ' '.join(last_lines(runs, 1.0)))
    assert ends is not None
    return Interval(float(ends[1]), float(ends[2]))


def of_group(folder: Path, returns: list[float]) -> Interval:
    found = estimate(returns)
    return Interval(found['low'], found['high'])


@pytest.mark.parametrize('of', [of_run, of_seeds, of_group, lambda _, given: Score(given, [], 0, _).interval])
@pytest.mark.parametrize('returns', [[500.0] * 9, [500.0] * 9 + [480.0], [0.0, 500.0], [0.1] * 7])
def test_no_interval_that_is_shown_leaves_the_range_of_the_returns(
    of: Callable[[Path, list[float]], Interval], returns: list[float], tmp_path: Path
) -> None:
    low, high = of(tmp_path, returns)
    assert min(returns) - 1e-12 <= low <= high + 1e-12 <= max(returns) + 1e-12


def test_one_value_has_no_interval() -> None:
    assert interval_of([3.0]) is None and mean_interval(3.0, 0.0, 1) is None


@pytest.mark.parametrize(
    ('value', 'text'),
    [
        (0.97, '0.97'),
        (1.0, '1'),
        (-0.11, '-0.11'),
        (475.0, '475'),
        (498.37, '498.4'),
        (21.53, '21.5'),
        (99.97, '100'),
        (12345.6, '12,346'),
        (-0.0, '0'),
        (1e-5, '1e-05'),
        (float('nan'), 'nan'),
        (-1.7e308, '-1.7e+308'),
    ],
)
def test_numbers_have_as_many_digits_as_matter(value: float, text: str) -> None:
    assert number_text(value) == text


def test_durations_have_a_unit_or_are_a_clock() -> None:
    seconds = (1e-5, 9.04, 245, 3599.6, 7445)
    assert [duration_text(each) for each in seconds] == [
        '0 s',
        '9.04 s',
        '4:05 min',
        '1:00:00 h',
        '2:04:05 h',
    ]
    assert [clock_text(each) for each in seconds] == ['0:00', '0:09', '4:05', '59:59', '2:04:05']
    assert duration_text(float('inf')) == '-'
