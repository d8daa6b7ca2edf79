"""Training from Python shows what the command line shows; where it is shown decides how."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

import pytest
from fakes import Terminal, config_pair
from rich.console import Console

from rlframe.config import compile_config
from rlframe.display.live import redraws
from rlframe.display.text import NEXT, program, shell_commands
from rlframe.entry.verbs import VERBS
from rlframe.pipeline import serial_pipeline
from rlframe.run.progress import Progress, evaluation_of


@pytest.mark.parametrize(
    ('file', 'variables', 'redrawn', 'colours'),
    [
        (Terminal(), {}, True, True),
        (Terminal(), {'NO_COLOR': '1'}, True, False),
        (Terminal(), {'TERM': 'dumb'}, False, False),
        (io.StringIO(), {}, False, False),
        (io.StringIO(), {'FORCE_COLOR': '1'}, False, True),
    ],
)
def test_line_is_redrawn_on_terminals_and_coloured_where_colours_are_wanted(
    file: io.StringIO, variables: dict[str, str], redrawn: bool, colours: bool
) -> None:
    console = Console(file=file, _environ={'TERM': 'xterm-256color', **variables})
    assert redraws(console) == redrawn
    console.print('a', style='cyan')
    assert ('\x1b[36m' in file.getvalue()) == colours


@pytest.mark.filterwarnings('ignore:CountingEnv. two calls of reset')
def test_serial_pipeline_shows_start_progress_score_and_commands(
    cwd: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    serial_pipeline(config_pair(max_train_iter=5, evaluator=dict(eval_freq=2)), progress=True)
    out, err = capsys.readouterr()
    (folder,) = cwd.iterdir()
    first, second, *_, last, counts, evaluate, plot, report, export, further = out.splitlines()
    assert (
        'envs of' in first and 'until an evaluation averages 1,000,000,000' in first and folder.name in second
    )
    assert last.startswith('not solved: best evaluation') and '95 % interval' in last
    assert counts.endswith(f'Results: {folder.name}')
    assert evaluate == f'evaluate: python -m rlframe.entry eval {folder.name}'
    assert plot == f'plot: python -m rlframe.entry plot {folder.name}'
    assert (
        report.startswith('report: ')
        and export.startswith('export: ')
        and further.endswith('--train-iter 10')
    )
    assert 'env steps' in err.splitlines()[-1]


def test_commands_are_verbs_and_begin_as_rlframe_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(NEXT.values()) <= set(VERBS)
    for started, shown in {
        '/usr/bin/rlframe': 'rlframe',
        '/a/rlframe/__main__.py': 'python -m rlframe',
        '/a/rlframe/entry/__main__.py': 'python -m rlframe.entry',
        'notebook.py': 'python -m rlframe.entry',
    }.items():
        monkeypatch.setattr('sys.argv', [started])
        assert program() == shown


def test_interval_is_of_the_evaluation_with_the_best_score_and_bad_lines_are_skipped(tmp_path: Path) -> None:
    lines = [
        '{"envstep": 5, "eval/mean_reward": 2.0, "eval/std_reward": 1.0, "eval/episodes": 5.0}',
        '{"envstep": 9, "eval/mean_reward": 3.0, "eval/std_reward": 0.0, "eval/episodes": 1.0}',
        '{"envstep": 10, "eval/mean_reward": null, "eval/std_reward": 0.0, "eval/episodes": 1.0}',
        '{"envstep": 12, "eval/mean_reward": 2.0, "eval/std_',
    ]
    (tmp_path / 'metrics.jsonl').write_text('\n'.join(lines))
    found = evaluation_of(tmp_path, 2.0)
    assert found is not None and found.envstep == 5 and found.interval is not None
    assert found.interval == pytest.approx((2 - 2.7764 / 2, 2 + 2.7764 / 2), abs=1e-3)
    lone = evaluation_of(tmp_path, 3.0)
    assert lone is not None and lone.interval is None
    assert evaluation_of(tmp_path, 4.0) is None and evaluation_of(tmp_path / 'nowhere', 1.0) is None


@pytest.mark.parametrize(
    ('budgets', 'used', 'flags'),
    [
        (dict(max_env_step=10_000), (10_016, 5), '--env-step 20000'),
        (dict(max_env_step=10_000, max_train_iter=80), (20_000, 80), '--env-step 30000 --train-iter 160'),
        (dict(max_env_step=10_000, max_train_iter=80), (20, 90), '--train-iter 160'),
    ],
)
def test_a_run_is_trained_further_by_budgets_that_are_not_spent(
    budgets: dict[str, int], used: tuple[int, int], flags: str
) -> None:
    cfg = compile_config(*config_pair(**budgets))
    evaluator = SimpleNamespace(best=None, describe=lambda score: '')
    run = SimpleNamespace(
        cfg=cfg, progress=Progress(*used), evaluator=evaluator, solved=False, folder=Path.cwd() / 'toy'
    )
    assert [line for line in shell_commands(run, False)] == [
        f'train further: {program()} --resume toy {flags}'
    ]
