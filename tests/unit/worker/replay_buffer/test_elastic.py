"""Laws of the buffer whose sampled part changes."""

from __future__ import annotations

from typing import Any

import numpy as np
from buffer_helpers import transitions
from error_texts import raises

from rlframe.errors import ConfigError
from rlframe.worker.replay_buffer.advanced_buffer import ElasticReplayBuffer


def half(envstep: int) -> int:
    """Half of the env steps, at least one."""
    return max(envstep // 2, 1)


def pushed(size: int = 20, function: Any = half, count: int = 10, **kwargs: Any) -> ElasticReplayBuffer:
    buffer = ElasticReplayBuffer(dict(replay_buffer_size=size, set_buffer_size=function), **kwargs)
    for i in range(count):
        buffer.push(transitions(i, 1), i + 1)
    return buffer


def seen(buffer: ElasticReplayBuffer, **options: Any) -> list[int]:
    return sorted(set(buffer.sample(200, 0, replace=True, **options)['action'].tolist()))


def test_the_newest_k_are_sampled_and_k_follows_the_env_step() -> None:
    rng = np.random.default_rng(0)
    for case in range(15):
        size, sizes = int(rng.integers(1, 15)), [int(n) for n in rng.integers(1, 20, size=31)]
        buffer = ElasticReplayBuffer(
            dict(replay_buffer_size=size, set_buffer_size=lambda step, sizes=sizes: sizes[step]), seed=case
        )
        for step in range(1, 31):
            buffer.push(transitions(step, 1), step)
            count = min(sizes[step], step, size)
            assert buffer.count() == count
            assert seen(buffer) == list(range(step - count + 1, step + 1))


def test_update_asks_for_another_env_step_and_ranges_are_within_the_newest(caplog: Any) -> None:
    buffer = pushed()
    assert seen(buffer) == [5, 6, 7, 8, 9]
    assert seen(buffer, sample_range=slice(0, 2)) == [5, 6]
    assert buffer.sample(6, 0) is None and 'has 5 items' in caplog.text
    buffer.update(14)
    assert seen(buffer) == [3, 4, 5, 6, 7, 8, 9] and buffer.count() == 7
    buffer.update({'priority': [1.0]})
    assert buffer.count() == 7 and 'no priorities' in caplog.text
    assert [len(set(b['action'])) for b in buffer.batches(3, 7, 0)] == [7] * 3


def test_without_a_function_it_is_the_plain_buffer_and_a_name_stands_for_one() -> None:
    assert pushed(function=None).count() == 10
    assert pushed(function='test_elastic:half').count() == 5
    for bad in ('math:no_such', 'no_module:f'):
        with raises(ConfigError):
            pushed(function=bad)
    for bad in (3, 'isqrt'):
        with raises(ConfigError):
            pushed(function=bad)
    for wrong in (0, 2.5, None):
        with raises(ConfigError):
            pushed(function=lambda step, wrong=wrong: wrong)


def test_state_keeps_the_size() -> None:
    buffer, other = pushed(), pushed(count=0, seed=4)
    buffer.update(6)
    other.load_state_dict(buffer.state_dict())
    assert other.count() == 3 and seen(other) == [7, 8, 9]
