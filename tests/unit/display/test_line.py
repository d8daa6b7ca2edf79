"""The progress line fits every width, and never loses the time and the time that is left."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlframe.pipeline.live import Part, fitted, left_part, status_part, steps_part, time_part
from rlframe.scores import number_text, short_count

SECONDS = st.floats(0, 8.64e6)


def parts(steps: int, score: float, seconds: float, left: float | None) -> list[Part]:
    return [
        steps_part(steps),
        Part('speed', ('12,345/s', '')),
        Part('updates', (f'updates {steps:,}', f'updates {short_count(steps)}', '')),
        Part('return', (f'return {number_text(score)}', '')),
        Part('eval', (f'eval {number_text(score)}', '')),
        status_part('evaluating: 3 of 20 episodes, 1,234 env steps'),
        Part('loss', (f'loss {number_text(score)}', '')),
        time_part(seconds),
        left_part(left),
    ]


@settings(max_examples=60, deadline=None)
@given(st.integers(28, 220), st.integers(0, 10**10), st.floats(-1e9, 1e9), SECONDS, st.none() | SECONDS)
def test_line_fits_and_keeps_time_and_what_is_left(
    width: int, steps: int, score: float, seconds: float, left: float | None
) -> None:
    line = fitted(parts(steps, score, seconds, left), width).plain
    assert len(line) <= width
    time, rest = line.split(' | ')[-2:]
    assert time == time_part(seconds).texts[0] and rest.endswith(left_part(left).texts[1])


@pytest.mark.parametrize(
    ('width', 'line'),
    [
        (
            200,
            'env steps 1,234,567 | 12,345/s | updates 1,234,567 | return 498.4 | eval 498.4'
            ' | evaluating: 3 of 20 episodes, 1,234 env steps | loss 498.4 | 1:01:01 | at most 2:00:00 left',
        ),
        (80, '1.23M steps | return 498.4 | eval 498.4 | evaluating | 1:01:01 | 2:00:00 left'),
        (40, '1,234,567 steps | 1:01:01 | 2:00:00 left'),
        (28, '1:01:01 | 2:00:00 left'),
    ],
)
def test_less_important_parts_go_first(width: int, line: str) -> None:
    assert fitted(parts(1_234_567, 498.37, 3661, 7200), width).plain == line
