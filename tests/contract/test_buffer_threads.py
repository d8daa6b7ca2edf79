"""Every registered replay buffer may be used by several threads at the same time.

To check your own: ``RLFRAME_IMPORT=my_module,other_module pytest tests/contract/test_buffer_threads.py``.
"""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest
from checked_names import names_of
from test_buffer import draw, numbers, push, rows

from rlframe.data import Batch
from rlframe.errors import BufferUnderflowError
from rlframe.registry import BUFFER_REGISTRY
from rlframe.worker.replay_buffer import IBuffer, create_buffer

PATIENCE = 0.05
"""Seconds in which a thread that nothing holds back would be through; a slower machine only misses a mistake."""
CALLS: dict[str, Callable[[IBuffer], Any]] = {
    'push': lambda buffer: push(buffer, rows(100, 4), 0),
    'sample': lambda buffer: draw(buffer, 4),
    'update': lambda buffer: buffer.update(places(buffer)),
    'clear': lambda buffer: buffer.clear(),
    'state_dict': lambda buffer: buffer.state_dict(),
    'checkpoint_state': lambda buffer: buffer.checkpoint_state(),
    'load_state_dict': lambda buffer: buffer.load_state_dict({'data': []}),
}
"""What threads do with a buffer, by the method that must wait."""


def places(buffer: IBuffer) -> dict[str, Any]:
    """Returns priorities for the first four rows."""
    return {
        'replay_unique_id': np.arange(4),
        'replay_buffer_idx': np.arange(4),
        'priority': np.ones(4),
    }


@pytest.fixture(params=names_of(BUFFER_REGISTRY))
def buffer(request: pytest.FixtureRequest) -> IBuffer:
    """The buffer under test, with 32 rows in it."""
    made = create_buffer({'type': request.param, 'replay_buffer_size': 64})
    push(made, rows(0, 32), 0)
    return made


class Halting:
    """A column that calls a function in the middle of being pushed."""

    def __init__(self, values: np.ndarray, then: Callable[[], None]) -> None:
        self._values, self._then = values, then

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: Any) -> Any:
        return Halting(self._values[index], self._then)

    def detach(self) -> Any:
        self._then()
        return self

    def cpu(self) -> Any:
        return self

    def numpy(self) -> np.ndarray:
        return self._values


def test_while_a_push_is_under_way_other_threads_wait(buffer: IBuffer) -> None:
    def run(call: Callable[[IBuffer], Any]) -> None:
        with suppress(BufferUnderflowError):  # others may have cleared the buffer
            call(buffer)

    threads = {name: threading.Thread(target=run, args=(call,)) for name, call in CALLS.items()}
    waited: list[str] = []

    def halt() -> None:
        if not waited:
            for thread in threads.values():
                thread.start()
            threads['push'].join(PATIENCE)
            waited.extend(name for name, thread in threads.items() if thread.is_alive())

    block = rows(32, 1)
    push(buffer, block.replace(action=Halting(block['action'], halt)), 0)
    for thread in threads.values():
        thread.join(60)
        assert not thread.is_alive()
    assert waited == list(CALLS)


@pytest.fixture
def restless() -> Iterator[None]:
    """Lets threads take turns as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@contextmanager
def pushed_to(buffer: IBuffer) -> Iterator[None]:
    """Another thread pushes rows while the block runs."""
    done = threading.Event()

    def pushes() -> None:
        start = 32
        while not done.is_set():
            push(buffer, rows(start, 16), start)
            start += 16

    thread = threading.Thread(target=pushes)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(60)


def test_samples_never_mix_columns_of_two_pushes(buffer: IBuffer, restless: None) -> None:
    with pushed_to(buffer):
        for train_iter in range(40):
            assert len(numbers(draw(buffer, 16, train_iter))) == 16
            buffer.update(places(buffer))
    twin = create_buffer({'type': type_of(buffer), 'replay_buffer_size': 64})
    twin.load_state_dict(buffer.state_dict())
    assert numbers(draw(twin, 16)) == numbers(draw(buffer, 16))


def type_of(buffer: IBuffer) -> str:
    """Returns the name that a buffer is registered under."""
    return next(
        name for name in BUFFER_REGISTRY.names() if type(create_buffer({'type': name})) is type(buffer)
    )


def test_states_that_are_saved_meanwhile_are_whole(buffer: IBuffer, restless: None) -> None:
    with pushed_to(buffer):
        states = [buffer.state_dict() for _ in range(10)]
    for state in states:
        twin = create_buffer({'type': type_of(buffer), 'replay_buffer_size': 64})
        twin.load_state_dict(state)
        numbers(draw(twin, 32))


def test_a_call_that_fails_lets_the_next_thread_in(buffer: IBuffer) -> None:
    with pytest.raises((TypeError, ValueError)):
        buffer.push(Batch(other=np.zeros(3)), 0)
    thread = threading.Thread(target=lambda: draw(buffer, 4))
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


def test_several_calls_can_be_held_together(buffer: IBuffer) -> None:
    thread = threading.Thread(target=lambda: push(buffer, rows(32, 4), 0))
    with buffer.locked():
        before = buffer.count()
        thread.start()
        thread.join(PATIENCE)
        assert buffer.count() == before
    thread.join(60)
    assert buffer.count() == before + 4


def test_copies_have_locks_of_their_own(buffer: IBuffer) -> None:
    for twin in (copy.deepcopy(buffer), pickle.loads(pickle.dumps(buffer))):
        with buffer.locked():
            thread = threading.Thread(target=lambda twin=twin: draw(twin, 4))
            thread.start()
            thread.join(60)
            assert not thread.is_alive()
        assert numbers(draw(twin, 8))
