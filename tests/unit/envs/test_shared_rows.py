"""Answers of a few envs go into the shared arrays one by one only if they are exactly as declared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fault_envs import Steady, leftovers

from rlframe.envs import BaseEnvManager
from rlframe.envs.async_manager import SubprocessEnvManager
from rlframe.envs.env_manager import FEW
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


@pytest.mark.parametrize('env_num', [1, FEW, FEW + 1])
def test_few_and_many_envs_of_a_worker_step_as_those_of_this_process(env_num: int) -> None:
    make = [lambda i=i: Steady(i) for i in range(env_num)]
    here, there = BaseEnvManager(make), SubprocessEnvManager(make, {'worker_num': 1})
    for manager in (here, there):
        manager.reset(seed=list(range(env_num)))
    for turn in range(40):
        answers = [manager.step(np.full(env_num, turn % 2), manager.ready) for manager in (here, there)]
        for one, other in zip(*answers, strict=True):
            np.testing.assert_equal(list(one), list(other))
        for manager in (here, there):
            if answers[0].done.any():
                manager.reset(answers[0].env_id[answers[0].done])
        assert (here.obs == there.obs).all()
    there.close()


def test_a_message_is_parsed_only_when_it_is_complete() -> None:
    data = message(REPLY, b'body')
    assert parsed(data) == (REPLY, b'body')
    assert parsed(message(REPLY)) == (REPLY, b'')
    for count in (0, HEADER.size - 1, HEADER.size, len(data) - 1):
        assert parsed(data[:count]) is None
