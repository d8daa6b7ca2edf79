"""What a parallel run shows: its progress, and what is the matter with its workers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from easydict import EasyDict

from rlframe.display import live
from rlframe.display.live import joined
from rlframe.display.workers import ParallelDisplay
from rlframe.run.progress import NO_BUDGET, Progress


class Workers:
    def __init__(self, table: dict[str, tuple[str, float]]) -> None:
        self.table, self.lost = table, ['collector-1 (pid 3 on here): killed by SIGKILL']

    deadline = 15.0

    def silences(self) -> dict[str, float]:
        return {name: seconds for name, (_, seconds) in self.table.items()}

    def present(self, role: str) -> int:
        return sum(own == role for own, _ in self.table.values())


def run_of(table: dict[str, tuple[str, float]]) -> Any:
    return SimpleNamespace(
        progress=Progress(envstep=12_345, train_iter=678),
        cfg=EasyDict(
            max_env_step=NO_BUDGET,
            max_train_iter=NO_BUDGET,
            policy={'collect': {'collector': {'type': 'zergling'}}},
        ),
        finished=False,
        evaluator=SimpleNamespace(
            describe=lambda score: f'{score:g}', latest=42.0, reached=lambda score: False
        ),
        coordinator=SimpleNamespace(
            name='main',
            version=lambda name: 678,
            workers=Workers(table),
            system_shutdown_flag=False,
        ),
        crew=SimpleNamespace(restarts=1),
        variables={'total_loss': 0.25},
        episodes=SimpleNamespace(window_mean=lambda: 21.5),
    )


TABLE = {
    'collector-0': ('collector', 0.1),
    'learner': ('learner', 0.1),
    'collector-2': ('collector', 9.2),
}


def test_the_line_tells_what_everyone_wants_to_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, 'monotonic', lambda: 1000.0)
    view = ParallelDisplay(run_of(TABLE))
    line = joined(view._facts(10.0)).plain
    for part in (
        'env steps 12,345',
        'return 21.5',
        'eval 42',
        '2 collectors',
        '1 lost',
        'collector-2 silent 9 s',
        '1 restarted',
        'loss 0.25',
    ):
        assert part in line
    assert 'waiting' not in line
    assert 'waiting for workers' in ' '.join(
        text for text, _ in ParallelDisplay(run_of({'a': ('collector', 0.1)}))._facts(1.0)
    )
