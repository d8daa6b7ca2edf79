"""What a running training says of itself: how long the rest takes is counted from the beginning of this process."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from easydict import EasyDict

from rlframe.display import live
from rlframe.display.live import Display
from rlframe.display.workers import ParallelDisplay
from rlframe.run.progress import NO_BUDGET, Progress


def pipeline(progress: Progress, max_env_step: int = NO_BUDGET, max_train_iter: int = NO_BUDGET) -> Any:
    return SimpleNamespace(
        progress=progress,
        cfg=EasyDict(
            max_env_step=max_env_step,
            max_train_iter=max_train_iter,
            policy={'collect': {'collector': {'type': 'sample'}}},
        ),
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


def test_a_return_that_stands_still_says_that_no_episode_ended(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    progress, returns = Progress(), [float('nan')]
    run = pipeline(progress)
    run.episodes = SimpleNamespace(window_mean=lambda: returns[0])  # as in parallel mode
    run.collector.mean_return, run.variables = run.episodes.window_mean, {}
    for kind in (Display, ParallelDisplay):
        progress.envstep, progress.episodes, returns[0] = 0, 0, float('nan')
        view = kind(run)
        view._statuses = list  # type: ignore[method-assign]
        assert 'episode' not in shown(view, clock, 1, capsys)
        progress.envstep = 4_000
        assert 'no episode has ended yet' in shown(view, clock, 1, capsys)
        progress.envstep, progress.episodes, returns[0] = 8_000, 8, -300.0
        assert '| return -300 |' in shown(view, clock, 1, capsys)
        progress.envstep = 15_000
        assert 'return -300 (no episode ended in 7,000 env steps)' in shown(view, clock, 1, capsys)
        progress.envstep, progress.episodes = 16_000, 16
        assert '| return -300 |' in shown(view, clock, 1, capsys)


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
