"""Ready-made hooks: each does what it says, and no more."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import FakeBoard
from test_run_hooks import compiled, hook_of, trained

from rlframe.pipeline import SerialPipeline
from rlframe.pipeline.resume import resume
from rlframe.run.progress import Progress
from rlframe.worker.hooks import EarlyStopHook, RunView

pytestmark = pytest.mark.usefixtures('cwd')


def run_with(**facts: Any) -> RunView:
    """Returns the view of a run that there is not."""
    evaluator = SimpleNamespace(best=1.0, latest=1.0, stop_value=None)
    parts: dict[str, Any] = dict(evaluator=evaluator, spec=None, writer=FakeBoard())
    return RunView({}, Path('.'), Progress(), **{**parts, **facts})


def judged(hook: EarlyStopHook, *scores: float) -> str:
    """Returns the reason why a hook stops a run with these scores."""
    run = run_with()
    for score in scores:
        run.evaluation = SimpleNamespace(score=score)
        hook.after_eval(run)
    return run.stop_reason


def test_early_stop_waits_for_its_patience_since_the_best_score() -> None:
    assert judged(EarlyStopHook({'patience': 2}), 1, 2, 1, 3, 3) == ''
    assert 'in 2' in judged(EarlyStopHook({'patience': 2}), 1, 2, 1, 3, 3, 2)
    assert judged(EarlyStopHook({'patience': 2}), 1, 2, 1, 2) != ''
    assert judged(EarlyStopHook({'patience': 2, 'min_delta': 0.5}), 1, 1.4, 1.45) != ''
    assert judged(EarlyStopHook({'patience': 2, 'min_delta': 0.4}), 1, 1.2, 1.45, 1.5) == ''
    assert judged(EarlyStopHook({'patience': 2}), float('nan'), 1, float('nan'), 2) == ''


def test_early_stop_ends_a_resumed_run_again_unless_it_gets_more_patience() -> None:
    overrides = ['max_train_iter=50', 'env.kwargs.max_episode_steps=1']  # every score is 1
    pipeline = trained(*overrides, early_stop=dict(patience=3))
    assert pipeline.progress.train_iter == 3
    for patience, train_iter in ((3, 3), (5, 5)):
        found = resume(pipeline.folder, overrides=[f'hooks.early_stop.patience={patience}'])
        with SerialPipeline(found.cfg, found.folder, resume=found.saved) as again:
            again.run()
        assert again.progress.train_iter == train_iter
        assert again.hooks.stop_reason.startswith(
            f'no better evaluation in {patience} (hooks.early_stop.patience)'
        )


def test_wall_clock_counts_the_seconds_of_all_resumes() -> None:
    with SerialPipeline(compiled(wall_clock=dict(seconds=1000.0))) as pipeline:
        pipeline.progress.wall_time = 999.9
        hook_of(pipeline, 'wall_clock').before_run(pipeline.hooks.run)
        assert pipeline.hooks.stop_reason == ''
        pipeline.progress.wall_time = 1000.5
        pipeline.step()
        assert pipeline.finished
        assert pipeline.hooks.stop_reason == 'the budget of 1000 s is spent (hooks.wall_clock.seconds)'


def test_gradient_histograms_are_of_every_layer_and_come_as_often_as_asked(monkeypatch: Any) -> None:
    board = FakeBoard()
    with SerialPipeline(
        compiled('max_train_iter=5', gradient_histogram=dict(every=3, weights=True))
    ) as pipeline:
        pipeline.hooks.run.writer = board
        pipeline.run()
        layers = [name for name, _ in pipeline.policy.get_attribute('model').named_parameters()]
    assert [(tag, step) for tag, _, step in board.histograms if tag.startswith('gradient/')] == [
        (f'gradient/{name}', step) for step in (8, 32) for name in layers
    ]
    assert {tag for tag, *_ in board.histograms if tag.startswith('weight/')} == {
        f'weight/{name}' for name in layers
    }


def test_metrics_of_the_machine_are_not_part_of_the_state() -> None:
    board = SimpleNamespace(latest={'train/kl': 0.1, 'time/fps': 9.0, 'ray/in_flight': 1.0})
    run = run_with(writer=board)
    assert run.state_dict() == {'train/kl': 0.1} and set(run.metrics()) == {'train/kl', 'ray/in_flight'}
