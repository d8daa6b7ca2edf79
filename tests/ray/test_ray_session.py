"""Whose Ray it is: what is found is left as it was, what is started is ended, and what cannot be had is said at once."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing
from typing import Any

import pytest
from one_ray import OPTIONS
from ray_runs import is_alive
from runs import ROOT, free_port

from rlframe.backend.ray.session import actor_resources, connect
from rlframe.errors import ConfigError, ResourceError
from rlframe.utils.lazy import LazyModule

pytestmark = pytest.mark.ray
START = f"""
import os, signal, sys
from rlframe.errors import *
from rlframe.utils.lazy import LazyModule
from rlframe.backend.ray.session import connect
RAY = {OPTIONS!r}
"""


def run_script(code: str, **environment: str) -> subprocess.Popen[str]:
    """Starts a process that may have a Ray of its own."""
    return subprocess.Popen(
        [sys.executable, '-c', START + code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, 'PYTHONPATH': str(ROOT), **environment},
    )


def output_of(code: str, **environment: str) -> str:
    process = run_script(code, **environment)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    return out


def test_ray_that_is_there_is_used_and_left_running(
    ray_of_tests: Any, caplog: pytest.LogCaptureFixture
) -> None:
    session = connect({'num_cpus': 64})
    assert not session.own
    assert 'ray_init_config is not used' in caplog.text
    session.close()
    assert ray_of_tests.is_initialized() and ray_of_tests.cluster_resources()['CPU'] == 4


def test_what_is_set_aside_for_one_is_not_free_for_another_before_its_actors_are_there(
    ray_of_tests: Any,
) -> None:
    with closing(connect()) as other:
        with closing(connect()) as session:
            session.require([{'CPU': 1.0}] * 3, 'x', wait_s=0)
            with pytest.raises(ResourceError, match=r'2 x \{CPU: 1\}; free: CPU 1 of 4'):
                other.require([{'CPU': 1.0}] * 2, 'x', wait_s=0)
            session.release([{'CPU': 1.0}])
            other.require([{'CPU': 1.0}] * 2, 'x', wait_s=0)
            other.release([{'CPU': 1.0}] * 2)
        other.require([{'CPU': 1.0}] * 4, 'x', wait_s=0)


def test_what_is_free_counts_not_what_there_is(ray_of_tests: Any) -> None:
    class Idle:
        def ping(self) -> int:
            return os.getpid()

    busy = ray_of_tests.remote(num_cpus=3)(Idle).remote()
    ray_of_tests.get(busy.ping.remote(), timeout=60)
    with closing(connect()) as session:
        until_seen = time.monotonic() + 30
        while ray_of_tests.available_resources().get('CPU', 0) > 1 and time.monotonic() < until_seen:
            time.sleep(0.05)
        with pytest.raises(ResourceError, match=r'2 x \{CPU: 1\}; free: CPU 1 of 4'):
            session.require([{'CPU': 1.0}] * 2, 'x', wait_s=0)
        ray_of_tests.kill(busy)
        session.require([{'CPU': 1.0}] * 4, 'x', wait_s=30)  # it waits for what is being given back


def test_resources_of_an_actor_are_one_cpu_if_nothing_is_said() -> None:
    assert actor_resources({}) == {'CPU': 1.0}
    given = {'num_cpus': 0, 'num_gpus': 0.5, 'memory': 10, 'resources': {'tpu': 2}}
    assert actor_resources(given) == {'GPU': 0.5, 'memory': 10.0, 'tpu': 2.0}


def test_ray_of_its_own_ends_with_the_last_session_and_all_that_it_started_but_no_signal_handler() -> None:
    out = output_of("""
handler = lambda number, frame: print('caught', number, flush=True)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, handler)
os.environ['RAY_ADDRESS'] = '127.0.0.1:1'  # an explicit address wins
one, other = connect(RAY | {'num_cpus': 3}), connect()
import ray
assert one.own and other.own and ray.cluster_resources()['CPU'] == 3
for number in (signal.SIGINT, signal.SIGTERM):
    os.kill(os.getpid(), number)
import subprocess
@ray.remote(num_cpus=1)
class Parent:
    def work(self):
        return [subprocess.Popen(['sleep', '1000']).pid for _ in range(2)]
parent = Parent.remote()
print('pids', *ray.get(parent.work.remote()))
one.close(), one.close()
assert ray.is_initialized()
other.close()
assert not ray.is_initialized()
try:
    connect({**RAY, 'num_cpu': 2}, 'collector.ray_init_config')
except ConfigError as error:
    print(error)
ray.init(**RAY, num_cpus=1)  # somebody else's
third = connect()
assert not third.own
third.close(), other.close()
assert ray.is_initialized()
ray.shutdown()
""")
    assert out.split('\n')[:2] == ['caught 2', 'caught 15']
    pids = [int(word) for word in re.findall(r'\d+', re.search(r'pids.*', out)[0])]  # type: ignore[index]  # it is there
    assert len(pids) == 2 and not [pid for pid in pids if is_alive(pid)], 'children of an actor'
    assert re.search(r'collector\.ray_init_config: .*num_cpu.*expected arguments of ray\.init', out), out


@pytest.fixture
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes this process look as if it had no Ray; nothing is started where the address is refused before."""
    monkeypatch.setattr('ray.is_initialized', lambda: False)
    monkeypatch.setattr('rlframe.backend.ray.session.ray', LazyModule('ray'))


@pytest.mark.usefixtures('no_ray')
@pytest.mark.parametrize('from_environment', [False, True])
def test_address_that_nobody_answers_at_is_an_error(
    from_environment: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f'127.0.0.1:{free_port()}'
    monkeypatch.setenv('RAY_ADDRESS', address if from_environment else '127.0.0.1:1')
    with pytest.raises(ResourceError, match=rf'no Ray answers at {address}.*ray start --head'):
        connect(None if from_environment else {'address': address})


@pytest.mark.usefixtures('no_ray')
def test_address_of_another_program_is_an_error() -> None:
    def greet() -> None:
        with other.accept()[0] as connection:
            connection.sendall(b'SSH-2.0-other')

    with socket.create_server(('127.0.0.1', 0)) as other:
        greeter = threading.Thread(target=greet)
        greeter.start()
        address = f'127.0.0.1:{other.getsockname()[1]}'
        told = f'no Ray answers at {address}: what listens there is another program'
        with pytest.raises(ResourceError, match=told):
            connect({'address': address})
        greeter.join()


@pytest.mark.usefixtures('no_ray')
@pytest.mark.parametrize('address', ['ray://127.0.0.1:10001', 'localhost', 'localhost:http'])
def test_address_of_another_form_is_an_error(address: str) -> None:
    with pytest.raises(ConfigError, match='host:port'):
        connect({'address': address})


def test_cluster_that_is_named_is_used_and_lives_on() -> None:
    owner = run_script(
        """
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args=dict(num_cpus=3, object_store_memory=100 * 2**20, include_dashboard=False))
print('address', cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
""",
        RAY_AUTH_MODE='token',
    )
    assert owner.stdout is not None
    address = next(line.split()[1] for line in owner.stdout if line.startswith('address'))
    code = """
from contextlib import closing
import ray
for config in (BY_ENVIRONMENT, BY_ADDRESS):
    with closing(connect(config)) as session:
        assert ray.cluster_resources()['CPU'] == 3
        session.require([{'CPU': 1.0}], 'x')
        assert ray.get(ray.remote(lambda: os.getpid()).remote(), timeout=60) != os.getpid()
    assert not ray.is_initialized()
"""
    given = f"BY_ENVIRONMENT, BY_ADDRESS = None, {{'address': {address!r}}}"
    output_of(given + code, RAY_ADDRESS=address, RAY_AUTH_MODE='token')
    owner.communicate('', timeout=60)
