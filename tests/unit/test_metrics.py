"""Metrics of runs that a process left damaged, or that somebody wrote by hand."""

from __future__ import annotations

from pathlib import Path

from rlframe.app.run_files import read_columns
from rlframe.run.metrics import METRICS, records
from rlframe.run.progress import evaluations

FULL = '{"envstep": 8, "eval/mean_reward": 2.5, "eval/std_reward": 1, "eval/episodes": 3}'
LINES = (
    '{"envstep": 4, "train/loss": 0.5, "note": "text", "none": null}',
    FULL,
    FULL.replace('8', 'Infinity'),
    FULL.replace('3', 'NaN'),
    FULL.replace('1', '"one"'),
    FULL.replace('8', f'1{"0" * 400}'),
    '["eval/mean_reward"]',
    'no JSON',
    '[' * 100_000,
    FULL[:-9],
)


def test_records_of_a_run_are_its_lines_that_are_whole(tmp_path: Path) -> None:
    assert list(records(tmp_path)) == [] and len(read_columns(tmp_path)) == 0
    (tmp_path / METRICS).write_text('\n'.join(LINES), encoding='utf-8')
    first, second, *others = records(tmp_path)
    assert first == {'envstep': 4, 'train/loss': 0.5} and second['eval/mean_reward'] == 2.5
    assert len(others) == 3 and [row['eval/mean_reward'] for row in others] == [2.5] * 3
    assert list(records(tmp_path, containing='train/loss')) == [first]
    assert len(read_columns(tmp_path)['envstep']) == 4


def test_evaluations_are_the_records_with_all_finite_numbers_of_one(tmp_path: Path) -> None:
    (tmp_path / METRICS).write_text('\n'.join(LINES), encoding='utf-8')
    assert [tuple(found) for found in evaluations(tmp_path)] == [(8, 2.5, 1.0, 3)]
