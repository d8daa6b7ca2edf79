"""What a running training says of itself: how long the rest takes is counted from the beginning of this process."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rlframe.pipeline import live
from rlframe.pipeline.live import Display
from rlframe.run.progress import NO_BUDGET, Progress


def pipeline(progress: Progress, max_env_step: int = NO_BUDGET, max_train_iter: int = NO_BUDGET) -> Any:
    return SimpleNamespace(
        progress=progress,
        cfg={'max_env_step': max_env_step, 'max_train_iter': max_train_iter},
        finished=False,
        curriculum=SimpleNamespace(status=lambda: ''),
        collector=SimpleNamespace(mean_return=lambda: float('nan'), status=lambda: ''),
        evaluator=SimpleNamespace(
            describe=lambda score: '',
            latest=None,
            reached=lambda score: False,
            status=lambda: 'evaluating: 3 of 9 episodes',
        ),
        learner=SimpleNamespace(monitor=SimpleNamespace(means=dict)),
    )


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(live, 'monotonic', lambda: now[0])
    return now


def shown(view: Display, clock: list[float], seconds: float, capsys: pytest.CaptureFixture[str]) -> str:
    clock[0] += seconds
    capsys.readouterr()
    view.show(final=True)
    return capsys.readouterr().err


def test_time_that_is_left_after_a_resume_counts_the_steps_since_then(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    progress = Progress(envstep=1_000_000, train_iter=1_000_000)
    view = Display(pipeline(progress, 1_010_000, 1_100_000))
    progress.envstep, progress.train_iter = 1_001_000, 1_000_500
    text = shown(view, clock, 10, capsys)
    assert 'at most 1:30 left' in text and '100/s' in text, '9,000 steps at 100 a second'
    assert 'evaluating: 3 of 9 episodes' in text


def test_time_that_is_left_is_not_said_before_it_can_be_known(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    progress = Progress()
    view = Display(pipeline(progress, 10_000_000))
    progress.envstep = 8
    assert 'at most --:-- left' in shown(view, clock, 1, capsys)
    assert 'at most --:-- left' in shown(view, clock, 9, capsys), 'it would be more than a hundred days'
    progress.envstep = 10_000
    assert 'at most 2:46:30 left' in shown(view, clock, 0, capsys)


def test_without_a_budget_nothing_is_said_and_before_the_first_step_neither(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    assert 'left' not in shown(Display(pipeline(Progress())), clock, 10, capsys)
    assert 'at most --:-- left' in shown(Display(pipeline(Progress(), 100)), clock, 10, capsys)
