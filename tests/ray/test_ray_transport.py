"""The transport within a Ray cluster, beside what every transport must do: whose Ray it is, what it leaves, and what dies."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_envs import wait_until
from ray_runs import is_alive
from runs import ROOT
from transports import ORDERS, Coordinator, collected, join, joined, server_of, serving

from rlframe.backend.ray.transport import INLINE, NAMESPACE
from rlframe.errors import ConfigError, CoordinatorLostError, RequestRefusedError
from rlframe.parallel.transport import messages as m
from rlframe.parallel.transport.base import Envelope, Reply

pytestmark = pytest.mark.ray
LARGE = {'a': np.arange(INLINE, dtype=np.float64)}


def references() -> set[str]:
    """Returns the objects that this process refers to."""
    from ray._private.worker import global_worker

    gc.collect()

    return {ref.decode() for ref in global_worker.core_worker.get_all_reference_counts()}


def mailboxes(ray: Any) -> list[Any]:
    return [one for one in ray.util.list_named_actors(all_namespaces=True) if one['namespace'] == NAMESPACE]


def pid_of_mailbox(ray: Any, server: Any) -> int:
    return int(ray.get(server._mailbox.__ray_call__.remote(lambda mailbox: os.getpid()), timeout=60))


def test_nothing_is_left_when_a_server_ends(ray_of_tests: Any, tmp_path: Path) -> None:
    before = references()
    with serving('ray', tmp_path, Coordinator(lambda e, p: Reply(m.Weights('main', 1, 1), LARGE))) as server:
        with joined(server) as transport:
            for part in range(3):
                transport.request(collected(part), LARGE)
        pid = pid_of_mailbox(ray_of_tests, server)
        assert len(mailboxes(ray_of_tests)) == 1
    assert wait_until(lambda: not mailboxes(ray_of_tests) and not is_alive(pid), 10)
    assert wait_until(lambda: references() <= before, 10)
    assert ray_of_tests.is_initialized()


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes the objects that this process puts into the store."""
    from rlframe.backend.ray import transport as wire

    kept: list[str] = []
    true_put = wire.ray.put

    def noted(value: Any) -> Any:
        ref = true_put(value)
        kept.append(ref.hex())
        return ref

    monkeypatch.setattr(wire.ray, 'put', noted)
    return kept


def test_payloads_leave_the_store_when_nobody_asks_for_them_again(
    put: list[str], ray_of_tests: Any, tmp_path: Path
) -> None:
    coordinator = Coordinator(lambda e, p: Reply(m.Data(1, 1, {}), LARGE))
    with serving('ray', tmp_path, coordinator) as server, joined(server) as transport:
        for part in range(10):
            transport.request(collected(part), LARGE)
        assert len(put) == 20
        assert wait_until(lambda: len(references() & set(put)) == 1, 5), 'the last reply'
        server.forget('collector.1')
        assert wait_until(lambda: not references() & set(put), 5)


def test_weights_are_put_into_the_store_once_for_all_collectors(
    put: list[str], ray_of_tests: Any, tmp_path: Path
) -> None:
    newest = [LARGE]
    reply = lambda e, p: Reply(m.Weights('main', len(newest), 1), newest[-1], 'main')  # noqa: E731
    with serving('ray', tmp_path, Coordinator(reply)) as server:
        for version in range(2):
            for name in range(3):
                with joined(server, f'c{version}{name}') as transport:
                    got = transport.request(m.AskWeights('main', -1)).payload
                    np.testing.assert_array_equal(got['a'], newest[-1]['a'])
            assert len(put) == version + 1
            newest.append({'a': LARGE['a'] + 1})
    assert wait_until(lambda: not references() & set(put), 10)


def test_payload_that_was_lost_with_its_sender_is_refused_but_not_fatal(
    ray_of_tests: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(parcel: Any, seconds: float) -> Any:
        if parcel is not None:
            raise ray_of_tests.exceptions.OwnerDiedError('a' * 56, None, '')

    with serving('ray', tmp_path, Coordinator()) as server, joined(server) as transport:
        with monkeypatch.context() as patch, pytest.raises(RequestRefusedError, match='lost: Own') as caught:
            patch.setattr('rlframe.backend.ray.transport.unseal', lost)
            transport.request(collected(0), LARGE)
        assert not caught.value.is_fatal
        transport.request(m.AskTask())


def test_request_is_answered_although_the_mailbox_dies(ray_of_tests: Any, tmp_path: Path) -> None:
    coordinator = Coordinator()
    with serving('ray', tmp_path, coordinator) as server, joined(server) as transport:
        os.kill(pid_of_mailbox(ray_of_tests, server), signal.SIGKILL)
        reply = transport.request(collected(0), LARGE, timeout=60)
        assert reply.message.pushed == 1  # type: ignore[attr-defined]
    assert coordinator.rows == {'collector.1': 1}


def test_name_is_of_one_coordinator_and_the_next_one_of_that_name_is_found(
    ray_of_tests: Any, tmp_path: Path
) -> None:
    with serving('ray', tmp_path, Coordinator(), name='mine') as server:
        assert server.address.startswith('ray://mine@')
        with pytest.raises(ConfigError, match=r"name: another coordinator .*'mine'"):
            server_of('ray', tmp_path, name='mine').start(Coordinator())
        transport = server.connect()
        transport.request(join())
    with serving('ray', tmp_path, Coordinator(), name='mine'):
        assert transport.request(join(), timeout=60).message.worker == 'collector.1'  # type: ignore[attr-defined]
    transport.close()


def test_coordinator_that_is_not_there_is_named(ray_of_tests: Any, tmp_path: Path) -> None:
    with serving('ray', tmp_path, Coordinator()) as server:
        here = server.address.partition('@')[2]
        transport = type(server.connect())({}, f'ray://nobody@{here}')
        with pytest.raises(
            CoordinatorLostError, match=r"ray://nobody@.*the cluster has no coordinator 'nobody'"
        ):
            transport.request(join(), timeout=0.2)
        transport.close()
        away = type(transport)({}, 'ray://nobody@127.0.0.1:1')
        with pytest.raises(CoordinatorLostError, match=r'nothing answers at 127\.0\.0\.1:1'):
            away.request(join(), timeout=0.2)
        away.close()


WORKER = """
import sys
import numpy as np
import rlframe
from rlframe.registry import TRANSPORT_REGISTRY
from rlframe.parallel.transport import messages as m
transport = TRANSPORT_REGISTRY.get('ray')({}, sys.argv[1])
assert 'ray' not in sys.modules
join = m.Join('collector', 'far', rlframe.__version__, '', 1, 'host')
print(transport.request(join, timeout=60).message.worker, flush=True)
answer = transport.request(m.Collected('task', 0, 3, 3, 0, 0, {}), {'a': np.arange(100_000.0)})
print(float(answer.payload['a'].sum()), flush=True)
sys.stdin.readline()
try:
    print(transport.request(m.AskTask(), timeout=5.0).message.stop, flush=True)
except Exception as error:
    print(type(error).__name__, error, flush=True)
transport.close()
import ray
print('is in the cluster:', ray.is_initialized(), flush=True)
"""
SERVER = """
import sys, time
from rlframe.registry import TRANSPORT_REGISTRY
from rlframe.parallel.transport import messages as m
from rlframe.parallel.transport.base import Reply

def handle(envelope, payload):
    joined = m.Joined('far.1', 'run', 1.0, 10.0)
    return Reply(joined if isinstance(envelope.message, m.Join) else m.Weights('main', 1, 1), payload)

options = dict(address='local', object_store_memory=200 * 2**20, num_cpus=1)
server = TRANSPORT_REGISTRY.get('ray').server_cls({'ray_init_config': options})
server.start(handle)
print(server.address, flush=True)
sys.stdin.readline()
"""


def started(program: str, *words: str) -> subprocess.Popen[str]:
    pipes = dict.fromkeys(('stdin', 'stdout', 'stderr'), subprocess.PIPE)
    env = {**os.environ, 'PYTHONPATH': str(ROOT), 'RAY_AUTH_MODE': 'token'}  # SERVER's Ray has one
    return subprocess.Popen([sys.executable, '-c', program, *words], text=True, env=env, **pipes)  # type: ignore[call-overload,no-any-return]


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()
    return line.strip()


def test_process_outside_of_the_cluster_joins_by_the_address_and_leaves_it(
    ray_of_tests: Any, tmp_path: Path
) -> None:
    def reply(envelope: Envelope, payload: Any) -> Reply:
        is_data = isinstance(envelope.message, m.Collected)
        return Reply(m.Weights('main', 1, 1), payload) if is_data else Reply(ORDERS)

    with serving('ray', tmp_path, Coordinator(reply)) as server:
        worker = started(WORKER, server.address)
        assert line_of(worker) == 'far.1'
        assert line_of(worker) == str(float(np.arange(100_000.0).sum()))
        out, err = worker.communicate('go\n', timeout=60)
    assert out.splitlines() == ['False', 'is in the cluster: False'], out + err


@pytest.mark.slow
def test_worker_is_told_when_the_coordinator_and_its_ray_are_gone() -> None:
    coordinator = started(SERVER)
    worker = started(WORKER, line_of(coordinator))
    assert line_of(worker) == 'far.1'
    line_of(worker)
    coordinator.kill()
    coordinator.communicate(timeout=240)
    out, err = worker.communicate('go\n', timeout=240)
    lost, left = out.splitlines()
    assert lost.startswith('CoordinatorLostError ray://coordinator-'), out + err
    assert 'does not answer AskTask' in lost and left == 'is in the cluster: False'
