"""Weights for several workers are written once, and their files are deleted as all others are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transports import Coordinator, joined, serving

from rlframe.errors import CoordinatorLostError, RequestRefusedError
from rlframe.parallel.transport import flask_fs as shared_payloads
from rlframe.parallel.transport import flask_fs_folder as folders
from rlframe.parallel.transport import messages as m
from rlframe.parallel.transport.answering import MOST_NAMES, Newest
from rlframe.parallel.transport.base import Reply, Transport
from rlframe.parallel.transport.flask_fs_folder import SECRET

KEPT = {'.lock', SECRET}
ASK = m.AskWeights('main', -1)


def weights(value: float, size: int = 100) -> dict[str, Any]:
    return {'w': np.full(size, value, np.float32)}


class Weights(Coordinator):
    """Answers with the newest weights."""

    def __init__(self) -> None:
        super().__init__(lambda e, p: Reply(m.Weights('main', 1, 1), self.newest, 'main'))
        self.newest = weights(1.0)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of all payload files that this process writes, in order."""
    names, write = [], folders.write_file

    def noted(path: Path, packed: Any) -> None:
        names.append(path.name)
        write(path, packed)

    monkeypatch.setattr(folders, 'write_file', noted)
    return names


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[tuple[Weights, Any, list[Transport]]]:
    coordinator = Weights()
    with ExitStack() as stack:
        server = stack.enter_context(serving('flask_fs', tmp_path, coordinator))
        yield coordinator, server, [stack.enter_context(joined(server, f'c{i}')) for i in range(4)]
    assert os.listdir(tmp_path) == []


def waiting(tmp_path: Path) -> set[str]:
    return {name.rpartition('-')[2] for name in set(os.listdir(tmp_path / 'data')) - KEPT}


def test_weights_are_written_once_for_each_version_however_many_workers_ask(
    workers: Any, written: list[str], tmp_path: Path
) -> None:
    coordinator, _, transports = workers
    with ThreadPoolExecutor(4) as pool:
        for value in (1.0, 2.0):
            coordinator.newest = weights(value)
            got = list(pool.map(lambda one: one.request(ASK).payload['w'], transports))
            assert all((array == value).all() for array in got)
            got[0][:] = 9.0  # every worker has its own
            assert (transports[0].request(ASK).payload['w'] == value).all()
    assert len(written) == 2 and waiting(tmp_path) == {'shared.safetensors'}
    assert len(os.listdir(tmp_path / 'data')) == len(KEPT) + 1  # that of the first version is deleted


def test_weights_that_a_lost_worker_did_not_fetch_are_deleted_and_others_get_theirs(
    workers: Any, tmp_path: Path
) -> None:
    _, server, (lost, other, *_) = workers
    lost._payload = lambda *_: (_ for _ in ()).throw(TimeoutError('the reply was lost'))
    with pytest.raises(CoordinatorLostError):
        lost.request(ASK, timeout=0.05)
    assert waiting(tmp_path) == {'shared.safetensors', 'down.safetensors'}
    assert (other.request(ASK).payload['w'] == 1.0).all()
    server.forget('c0.1')
    assert waiting(tmp_path) == {'shared.safetensors'}
    assert (other.request(ASK).payload['w'] == 1.0).all()


def test_without_hard_links_every_worker_gets_a_file_of_its_own(
    workers: Any, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: Any, **__: Any) -> None:
        raise OSError(95, 'Operation not supported')

    monkeypatch.setattr(shared_payloads.os, 'link', unsupported)
    for transport in workers[2]:
        assert (transport.request(ASK).payload['w'] == 1.0).all()
    assert len(written) == 5


def test_only_the_newest_payloads_of_some_names_are_kept() -> None:
    packed, dropped = [], list[str]()
    newest = Newest(lambda payload: packed.append(payload) or str(payload), dropped.append)
    for i in range(3 * MOST_NAMES):
        assert newest.get(f'main_{i}', i) == str(i)
    assert dropped == [str(i) for i in range(2 * MOST_NAMES)] and len(packed) == 3 * MOST_NAMES
    newest.clear()
    assert len(dropped) == 3 * MOST_NAMES


def test_a_payload_that_cannot_be_sent_is_not_kept(workers: Any, tmp_path: Path) -> None:
    coordinator, _, (worker, *_) = workers
    coordinator.newest = {'w': object()}
    for _ in range(2):
        with pytest.raises(RequestRefusedError, match='cannot be sent'):
            worker.request(ASK)
    assert waiting(tmp_path) == set()
    coordinator.newest = weights(1.0)
    assert (worker.request(ASK).payload['w'] == 1.0).all()
