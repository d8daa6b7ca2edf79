"""Reading of run folders: metrics that are cut, broken or huge, folders that are no runs, and those that somebody else filled."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from error_texts import raises
from written_runs import write_run

from rlframe.app.run_files import MetricColumns, SavedRun, find_runs, read_columns
from rlframe.entry.__main__ import main
from rlframe.errors import ExperimentDirError
from rlframe.run.metrics import METRICS, records
from rlframe.run.progress import evaluations


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = SavedRun(write_run(tmp_path / 'run', [1.0, None, 35.0], seed=4))
    assert (run.env, run.policy, run.seed, run.goal) == ('CartPole-v1', 'dqn', 4, 30.0)
    steps, scores = run.curve('eval/mean_reward')
    assert steps.tolist() == [0.0, 200.0] and scores.tolist() == [1.0, 35.0], 'null is a missing value'
    assert run.steps_to_goal() == 200 and run.metrics.last('train_iter') == 20 and run.seconds == 2.0


def written(folder: Path, *lines: str) -> MetricColumns:
    (folder / 'metrics.jsonl').write_text('\n'.join(lines), encoding='utf-8')
    return read_columns(folder)


def test_of_two_values_at_one_env_step_the_last_counts(tmp_path: Path) -> None:
    metrics = written(
        tmp_path, '{"envstep": 5, "a": 1}', '{"envstep": 5, "a": 2}', '{"envstep": 3, "a": 0, "b": 7}'
    )
    np.testing.assert_array_equal(metrics.curve('a'), [[3, 5], [0, 2]])
    np.testing.assert_array_equal(metrics.rows(['a', 'b', 'c'])[-1], [3, 0, 7, math.nan])


@pytest.mark.parametrize(
    'line',
    ['{"envstep": 1,', '{"a": 1}', '{"envstep": null}', '[' * 100_000],
)
def test_a_line_that_is_no_record_is_skipped(tmp_path: Path, line: str) -> None:
    metrics = written(tmp_path, '{"envstep": 0, "a": 5}', line, '{"envstep": 2}')
    assert metrics['envstep'].tolist() == [0, 2] and metrics.curve('a').values.tolist() == [5]


def test_values_that_are_no_finite_numbers_are_no_metrics(tmp_path: Path) -> None:
    record = '{"envstep": 0, "a": NaN, "b": Infinity, "d": "x", "e": [1], "g": 2}'
    assert written(tmp_path, record).tags == ['g']


def test_a_folder_of_runs_stands_for_all_of_them(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / 'all' / name) for name in ('a', 'b')]
    assert find_runs([tmp_path / 'all', tmp_path / 'all' / 'b']) == runs


def test_what_is_no_run_is_refused_with_the_nearest_run(tmp_path: Path) -> None:
    write_run(tmp_path / 'cartpole_dqn_seed0')
    (tmp_path / 'empty').mkdir()
    with raises(ExperimentDirError):
        find_runs([tmp_path / 'cartpole_dqn_seed'])
    with raises(ExperimentDirError):
        find_runs([tmp_path / 'empty'])


@pytest.mark.parametrize('text', ['{', '[]', '{"main_config": [], "create_config": {}}'])
def test_a_config_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    folder = write_run(tmp_path / 'run')
    (folder / 'config.json').write_text(text, encoding='utf-8')
    with raises(ExperimentDirError):
        SavedRun(folder)


def test_nothing_that_a_config_names_is_imported(tmp_path: Path) -> None:
    folder = write_run(tmp_path / 'run', env='a_module_that_is_not_there:Env')
    config = json.loads((folder / 'config.json').read_text(encoding='utf-8'))
    config['create_config']['import_names'] = ['a_module_that_is_not_there']
    (folder / 'config.json').write_text(json.dumps(config), encoding='utf-8')
    assert SavedRun(folder).env == 'a_module_that_is_not_there:Env'


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
    assert [tuple(found)[:4] for found in evaluations(tmp_path)] == [(8, 2.5, 1.0, 3)]


WRITERS = {'report': ('report.html',), 'plot': ('plot.png', 'plot.svg')}
"""Verbs that write into a run folder, and what they write."""


@pytest.mark.parametrize('verb', WRITERS)
def test_no_verb_writes_through_a_link_in_a_run_folder(tmp_path: Path, verb: str) -> None:
    folder, victim = write_run(tmp_path / 'run'), tmp_path / 'victim'
    victim.write_text('precious', encoding='utf-8')
    victim.chmod(0o644)
    for name in WRITERS[verb]:
        (folder / name).symlink_to(victim)
    assert main([verb, str(folder)]) == 0
    assert victim.read_text(encoding='utf-8') == 'precious' and victim.stat().st_mode & 0o777 == 0o644
    assert all((folder / name).is_file() and not (folder / name).is_symlink() for name in WRITERS[verb])


def test_links_that_the_user_names_are_followed(tmp_path: Path) -> None:
    folder, page = write_run(tmp_path / 'run'), tmp_path / 'page.html'
    (tmp_path / 'link.html').symlink_to(page)
    assert main(['report', str(folder), '--out', str(tmp_path / 'link.html')]) == 0
    assert page.is_file() and (tmp_path / 'link.html').is_symlink()
    mode = os.stat(os.devnull).st_mode
    assert main(['report', str(folder), '--out', os.devnull]) == 2, 'a device is no file'
    assert os.stat(os.devnull).st_mode == mode
