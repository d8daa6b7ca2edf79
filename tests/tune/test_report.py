"""What a search leaves for its user, told from results that are made up; and its picture: scales and labels."""

from __future__ import annotations

import itertools
import math
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from runs import records
from tune_runs import trial_config

from rlframe.app.figure import scatter_panels
from rlframe.entry.__main__ import main
from rlframe.entry.tune import _last_lines
from rlframe.tune import report as module
from rlframe.tune.report import Row, write_report
from rlframe.tune.trial import Trial

METRIC, BEST = 'eval/mean_reward', 'eval/best_mean_reward'


class Checkpoint(NamedTuple):
    path: str


class Result:
    """What Ray knows of a trial."""

    def __init__(self, folder: Path, scores: list[float], config: dict[str, Any], error: Any = None) -> None:
        self.path, self.config, self.error = str(folder), config, error
        best = -math.inf
        kept = []
        for i, score in enumerate(scores):
            best = max(best, score)
            kept.append((Checkpoint(str(folder / f'checkpoint_{i}')), {METRIC: score, BEST: best}))
        self.best_checkpoints = kept[::-1]
        self.checkpoint = kept[-1][0] if kept else None
        self.metrics = {**kept[-1][1], 'timesteps_total': 10 * len(kept), 'time_total_s': 1.0} if kept else {}


class Results(list[Result]):
    experiment_path = ''


def results(folder: Path, *trials: Result, mode: str = 'max') -> Results:
    (folder / 'search.json').write_text(f'{{"metric": "{METRIC}", "mode": "{mode}"}}')
    found = Results(trials)
    found.experiment_path = str(folder)
    return found


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    return trial_config(options={'policy.learn.learning_rate': 0.5})


def test_best_policy_is_that_of_the_best_score_not_of_a_later_one(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    result = Result(tmp_path / 'a', [1.0, 5.0, 3.0], config)
    row = Row('a', {}, config, 5.0, 30, 1.0, '', result)
    assert module._best_checkpoint(row, METRIC) == tmp_path / 'a' / 'checkpoint_1' / 'latest'
    row = Row('a', {}, config, 9.0, 30, 1.0, '', result)
    assert module._best_checkpoint(row, METRIC) == tmp_path / 'a' / 'checkpoint_2' / 'latest', 'the last one'


@pytest.mark.parametrize(('mode', 'names'), [('max', ['b', 'a', 'c', 'd']), ('min', ['c', 'a', 'b', 'd'])])
def test_rows_are_sorted_by_their_best_scores(
    mode: str, names: list[str], tmp_path: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, '_write_best', lambda *arguments: [])
    scores = {'a': [2.0, 2.0], 'b': [9.0, 8.0], 'c': [1.5, 1.0], 'd': [math.nan]}
    trials = [
        Result(tmp_path / name, found, {**config, 'policy.learn.batch_size': i + 1})
        for i, (name, found) in enumerate(scores.items())
    ]
    report = write_report(results(tmp_path, *trials, mode=mode))
    assert [row.name for row in report.rows] == names
    assert report.best is report.rows[0] and math.isnan(report.rows[-1].score)
    assert report.best.score == (9.0 if mode == 'max' else 1.0)
    lines = (tmp_path / 'trials.csv').read_text().splitlines()
    assert [line.partition(',')[0] for line in lines[1:]] == names
    assert (tmp_path / 'scores.png').read_bytes()[:4] == b'\x89PNG'


def test_options_of_one_trial_only_are_drawn_too(
    tmp_path: Path, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, '_write_best', lambda *arguments: [])
    trials = [
        Result(tmp_path / 'a', [1.0], {**config, 'x': 1}),
        Result(tmp_path / 'b', [2.0], {**config, 'y': None, 'x': 'one'}),
        Result(tmp_path / 'c', [3.0], {**config, 'x': [8, 8], 'z': True}),
    ]
    assert write_report(results(tmp_path, *trials)).notes == ()
    assert (tmp_path / 'scores.png').is_file()


def test_failed_and_unfinished_trials_are_rows_too(tmp_path: Path, config: dict[str, Any]) -> None:
    error = RuntimeError('first line\nlast line')
    failed, unfinished = Result(tmp_path / 'a', [], config, error), Result(tmp_path / 'b', [], config)
    unfinished.metrics = None  # type: ignore[assignment]
    report = write_report(results(tmp_path, failed, unfinished))
    assert report.best is None and [row.name for row in report.errors] == ['a']
    assert report.errors[0].error == 'RuntimeError: last line'
    assert sorted(path.name for path in tmp_path.iterdir()) == ['search.json', 'trials.csv']
    assert write_report(results(tmp_path)).rows == ()


def test_best_config_and_policy_can_be_used(tmp_path: Path, config: dict[str, Any]) -> None:
    folder = tmp_path / 'a'
    folder.mkdir()
    running = Trial(config, folder, 'a')
    score = running.step()[METRIC]
    running.save(folder / 'checkpoint_0')
    running.close()
    report = write_report(results(tmp_path, Result(folder, [score], config)))
    assert report.notes == ()
    import rlframe
    from rlframe.config import compile_config, read_config

    assert compile_config(*read_config(tmp_path / 'best_config.py')).policy.learn.learning_rate == 0.5
    assert rlframe.load(tmp_path / 'best_policy').act([0.0, 0.0, 0.0, 0.0]) in (0, 1)
    assert write_report(results(tmp_path, Result(folder, [score], config))).notes == (), 'once more'


def test_what_cannot_be_written_is_noted(tmp_path: Path, config: dict[str, Any]) -> None:
    result = Result(tmp_path / 'a', [1.0], config)
    (note,) = write_report(results(tmp_path, result)).notes
    assert note.startswith('best_policy: not written: ') and str(tmp_path / 'a') in note
    result.best_checkpoints, result.checkpoint = [], None
    assert write_report(results(tmp_path, result)).notes == (
        'best_policy: not written, as a left no checkpoint',
    )


@pytest.mark.parametrize(
    ('options', 'flags'),
    [
        ({'max_env_step': 60, 'max_train_iter': 10**6}, ' --env-step 120'),
        ({'max_env_step': 300, 'env.stop_value': -5.0}, ' --env-step 600'),  # solved
        (
            {'max_env_step': 300, 'policy.eval.evaluator.eval_freq': '90 env steps'},
            '',
        ),  # ended by a scheduler
    ],
)
def test_the_last_line_is_a_command_that_trains_the_best_trial_further(
    options: dict[str, Any],
    flags: str,
    cwd: Path,
    config: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    home = cwd / 'my search'
    (home / 'trial_1').mkdir(parents=True)
    config |= options
    running = Trial(config, home / 'trial_1', 'a')
    last = running.step()
    running.save(home / 'trial_1' / 'checkpoint_0')
    running.close()
    result = Result(home / 'trial_1', [last[METRIC]], config)
    result.metrics |= last
    line = _last_lines(write_report(results(home, result)), False).splitlines()[-1]
    title, _, command = line.partition(': ')
    assert title == 'continue the best trial' and line.endswith(f"--resume 'my search/trial_1'{flags}")
    words = shlex.split(command)
    assert main(words[words.index('--resume') :]) == 0
    (run,) = cwd.glob('*_seed0')
    assert records(run)[-1]['envstep'] > last['envstep'] and 'nothing is left' not in capsys.readouterr().out


class Shown(NamedTuple):
    """A trial as Tune has it."""

    budget_parts: float

    @property
    def last_result(self) -> dict[str, float]:
        return {'budget_parts': self.budget_parts}

    def is_finished(self) -> bool:
        return self.budget_parts >= 27


def test_table_says_how_long_the_search_still_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said = [100.0], list[str]()
    monkeypatch.setattr(module, 'monotonic', lambda: now[0])
    monkeypatch.setattr(module.CLIReporter, 'report', lambda table, trials, done, *info: said.extend(info))
    table = module.TrialTable(METRIC)
    table.set_total_samples(4)
    table.report([Shown(27), Shown(0)], False)
    now[0] += 60
    table.report([Shown(27), Shown(13.5)], False)  # half of one of four since the start
    table.report([Shown(27)] * 4, True)
    assert said == ['About --:-- left', 'About 5:00 left']


COLUMNS = {
    'policy.learn.learning_rate': [1e-4 * 1.9**i for i in range(8)],
    'policy.discount_factor': [0.9 + 0.01 * i for i in range(8)],
    'policy.learn.batch_size': [32, 256, 32, 64, 128, 64, 32, 32],
    'policy.other.replay_buffer.replay_buffer_size': [10 * 3**i for i in range(8)],
    'policy.model.encoder_hidden_size_list': [[2**i, 2**i, 2**i] for i in range(8)],
    'policy.learn.target_update_freq': [None, 20, 100, 20, None, True, 100, 20],
}


def test_domains_that_are_logarithmic_are_drawn_so_and_labels_do_not_overlap() -> None:
    figure = scatter_panels(COLUMNS, list(range(8)), 'score', 'title')
    figure.canvas.draw()
    panels = {axes.get_xlabel(): axes for axes in figure.axes if axes.get_visible()}
    assert {key: axes.get_xscale() for key, axes in panels.items()} == {
        'learn.learning_rate': 'log',
        'policy.discount_factor': 'linear',
        'learn.batch_size': 'linear',
        'replay_buffer.replay_buffer_size': 'log',
        'model.encoder_hidden_size_list': 'linear',
        'learn.target_update_freq': 'linear',
    }
    for key, axes in panels.items():
        labels = [label for label in axes.get_xticklabels() if label.get_text()]
        assert len(labels) >= 2, key
        if labels[0].get_rotation():
            continue  # slanted
        boxes = [label.get_window_extent() for label in labels]
        shown = [box for box in boxes if axes.bbox.x0 - 1 <= (box.x0 + box.x1) / 2 <= axes.bbox.x1 + 1]
        assert all(one.x1 < other.x0 for one, other in itertools.pairwise(shown)), key
