"""Answers of a few envs go into the shared arrays one by one only if they are exactly as declared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fault_envs import leftovers

from rlframe.envs.env_worker import SharedRows
from rlframe.envs.worker_process import HEADER, REPLY, message, parsed

OBS = np.array([1.5, -2.5, 0.25], np.float32)
FINE = (OBS, 0.5, True, False, {})


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = leftovers()
    yield
    assert leftovers() == before


def rows(count: int) -> SharedRows:
    return SharedRows(
        np.zeros((count, 3), np.float32),
        np.zeros(count, np.float32),
        np.zeros(count, np.bool_),
        np.zeros(count, np.bool_),
    )


@pytest.mark.parametrize('reward', [0.5, np.float64(0.5), -3.4e38])
def test_answers_as_declared_are_copied(reward: Any) -> None:
    taken = rows(2)
    assert taken.take([(OBS, reward, True, False, {}), (OBS * 2, 1.0, False, True, {'a': 1})])
    assert taken.obs.tolist() == [OBS.tolist(), (OBS * 2).tolist()]
    assert taken.reward.tolist() == [np.float32(reward), 1.0]
    assert (taken.terminated.tolist(), taken.truncated.tolist()) == ([True, False], [False, True])


@pytest.mark.parametrize(
    'answer',
    [
        None,
        FINE[:4],
        list(FINE),
        (OBS.tolist(), *FINE[1:]),
        (OBS.astype(np.float64), *FINE[1:]),
        (OBS[:1], *FINE[1:]),
        (OBS[:, None], *FINE[1:]),
        (OBS, 1, True, False, {}),
        (OBS, np.ones(1), True, False, {}),
        (OBS, 0.5, True, False, None),
        (OBS, 0.5, 1, False, {}),
        (OBS, 0.5, True, np.bool_(False), {}),
        (OBS, 0.5, True, None, {}),
    ],
)
def test_anything_else_is_left_to_the_checked_way(answer: Any) -> None:
    assert not rows(2).take([FINE, answer])


def test_a_message_is_parsed_only_when_it_is_complete() -> None:
    data = message(REPLY, b'body')
    assert parsed(data) == (REPLY, b'body')
    assert parsed(message(REPLY)) == (REPLY, b'')
    for count in (0, HEADER.size - 1, HEADER.size, len(data) - 1):
        assert parsed(data[:count]) is None
