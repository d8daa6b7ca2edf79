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

from rlframe.errors import CoordinatorLostError, NoRoomError
from rlframe.parallel.transport import flask_fs as shared_payloads
from rlframe.parallel.transport import flask_fs_folder as folders
from rlframe.parallel.transport import messages as m
from rlframe.parallel.transport.base import Reply, Transport
from rlframe.parallel.transport.flask_fs import MOST_NAMES, SharedPayloads
from rlframe.parallel.transport.flask_fs_folder import OWNER, SharedFolder

KEPT = {'.lock', OWNER}
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


def test_a_file_with_several_names_takes_its_room_once(tmp_path: Path) -> None:
    folder = SharedFolder(tmp_path, 10_000, 12_000)
    shared = SharedPayloads(folder)
    files = [folder.payload_file(i, 1, 'down') for i in range(1, 7)]
    first = weights(1.0, 1000)
    for file in files[:4]:
        shared.give('main', first, file)
    folder.write(files[4], weights(0.0, 1000))
    with pytest.raises(NoRoomError, match='8,'):
        shared.give('main', weights(2.0, 1000), files[5])
    assert all((folder.take(file)['w'] == 1.0).all() for file in files[:4])


def test_payloads_that_are_kept_make_room_for_a_newer_one(tmp_path: Path) -> None:
    folder = SharedFolder(tmp_path, 10_000, 12_000)
    shared = SharedPayloads(folder)
    for i in range(9):
        file = folder.payload_file(i, 1, 'down')
        shared.give(f'main_{i}', weights(i, 1000), file)
        assert (folder.take(file)['w'] == i).all()
    assert len(os.listdir(tmp_path)) <= 2


def test_only_the_newest_payloads_of_some_names_are_kept(tmp_path: Path) -> None:
    folder = SharedFolder(tmp_path, 10_000, 10**6)
    shared = SharedPayloads(folder)
    for i in range(3 * MOST_NAMES):
        file = folder.payload_file(1, i, 'down')
        shared.give(f'main_{i}', weights(i), file)
        assert (folder.take(file)['w'] == i).all()
    assert len(os.listdir(tmp_path)) == MOST_NAMES


def test_a_payload_that_cannot_be_sent_is_not_kept(tmp_path: Path) -> None:
    folder = SharedFolder(tmp_path, 10_000, 10**6)
    shared, file, bad = SharedPayloads(folder), folder.payload_file(1, 1, 'down'), {'w': object()}
    for _ in range(2):
        with pytest.raises(Exception, match='cannot be sent'):
            shared.give('main', bad, file)
    assert os.listdir(tmp_path) == []
    shared.give('main', weights(1.0), file)
    assert (folder.take(file)['w'] == 1.0).all()
