"""Whose Ray it is: what is found is left as it was, what is started is ended, and what cannot be had is said at once."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fault_envs import wait_until
from ray_runs import descendants, is_alive

from rlframe.backend.ray.session import actor_resources, connect
from rlframe.errors import ConfigError, ResourceError
from rlframe.utils.lazy import LazyModule

pytestmark = pytest.mark.ray
ROOT = Path(__file__).parents[2]
RAY = {
    'address': 'local',
    'include_dashboard': False,
    'configure_logging': False,
    'object_store_memory': 200 * 2**20,
}
"""Arguments of ``ray.init`` for a Ray that lives as long as a test does."""
START = f"""
import os, signal, sys, time
from rlframe.errors import *
from rlframe.utils.lazy import LazyModule
from rlframe.backend.ray.session import connect
RAY = {RAY!r}
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


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return int(probe.getsockname()[1])


def test_ray_that_is_there_is_used_and_left_running(
    ray_of_tests: Any, caplog: pytest.LogCaptureFixture
) -> None:
    session = connect({'num_cpus': 64})
    assert not session.own
    assert 'ray_init_config is not used' in caplog.text
    session.close()
    assert ray_of_tests.is_initialized() and ray_of_tests.cluster_resources()['CPU'] == 4


def test_more_than_the_cluster_has_is_an_error_with_numbers(ray_of_tests: Any) -> None:
    with connect() as session:
        message = r'collector\.num_collectors: .*5 x \{CPU: 1\}.*CPU 4 of 4 on 1 node.*fewer actors'
        with pytest.raises(ResourceError, match=message):
            session.require([{'CPU': 1.0}] * 5, 'collector.num_collectors', wait_s=0)
        with pytest.raises(ResourceError, match=r'1 x \{GPU: 1\}.*GPU 0 of 0'):
            session.require([actor_resources({'num_gpus': 1, 'num_cpus': 0})], 'x', wait_s=0)


def test_what_is_set_aside_for_one_is_not_free_for_another_before_its_actors_are_there(
    ray_of_tests: Any,
) -> None:
    with connect() as other:
        with connect() as session:
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
    with connect() as session:
        until_seen = time.monotonic() + 30
        while ray_of_tests.available_resources().get('CPU', 0) > 1 and time.monotonic() < until_seen:
            time.sleep(0.05)
        with pytest.raises(ResourceError, match=r'2 x \{CPU: 1\}; free: CPU 1 of 4'):
            session.require([{'CPU': 1.0}] * 2, 'x', wait_s=0)
        ray_of_tests.kill(busy)
        session.require([{'CPU': 1.0}] * 4, 'x', wait_s=30)  # it waits for what is being given back


def test_one_actor_that_no_single_node_can_hold_is_an_error(ray_of_tests: Any) -> None:
    with connect() as session, pytest.raises(ResourceError, match=r'1 x \{CPU: 8\}'):
        session.require([actor_resources({'num_cpus': 8})], 'x', wait_s=0)


def test_resources_of_an_actor_are_one_cpu_if_nothing_is_said() -> None:
    assert actor_resources({}) == {'CPU': 1.0}
    given = {'num_cpus': 0, 'num_gpus': 0.5, 'memory': 10, 'resources': {'tpu': 2}}
    assert actor_resources(given) == {'GPU': 0.5, 'memory': 10.0, 'tpu': 2.0}


def test_ray_of_its_own_ends_with_the_last_session_and_leaves_signal_handlers_alone() -> None:
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
one.close(), one.close()
assert ray.is_initialized()
other.close()
assert not ray.is_initialized()
ray.init(**RAY, num_cpus=1)  # somebody else's
third = connect()
assert not third.own
third.close(), other.close()
assert ray.is_initialized()
ray.shutdown()
""")
    assert out.split('\n')[:2] == ['caught 2', 'caught 15']


def test_arguments_that_ray_does_not_take_are_a_config_error() -> None:
    out = output_of("""
try:
    connect({**RAY, 'num_cpu': 2}, 'collector.ray_init_config')
except ConfigError as error:
    print(error)
""")
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
    with pytest.raises(ResourceError, match=rf'nothing answers at {address}.*ray start --head'):
        connect(None if from_environment else {'address': address})


@pytest.mark.usefixtures('no_ray')
@pytest.mark.parametrize('address', ['ray://127.0.0.1:10001', 'localhost', 'localhost:http'])
def test_address_of_another_form_is_an_error(address: str) -> None:
    with pytest.raises(ConfigError, match='host:port'):
        connect({'address': address})


@pytest.fixture(scope='module', params=['disabled', 'token'])
def cluster(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """A cluster of another process, as ``ray start --head`` makes one; yields how a process finds it."""
    code = """
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args=dict(num_cpus=3, object_store_memory=100 * 2**20, include_dashboard=False))
print('address', cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""
    owner = run_script(code, RAY_AUTH_MODE=request.param)
    assert owner.stdout is not None
    address = next(line.split()[1] for line in owner.stdout if line.startswith('address'))
    yield {'RAY_ADDRESS': address, 'RAY_AUTH_MODE': request.param}
    owner.communicate('', timeout=60)


def test_cluster_that_is_named_is_used_and_lives_on(cluster: dict[str, str]) -> None:
    code = """
session = connect({'num_cpus': 7})
import ray
assert ray.cluster_resources()['CPU'] == 3
session.require([{'CPU': 1.0}] * 3, 'x')
assert ray.get(ray.remote(lambda: os.getpid()).remote(), timeout=60) != os.getpid()
session.close()
assert not ray.is_initialized()
"""
    output_of(code, **cluster)
    address = cluster['RAY_ADDRESS']
    output_of(code.replace("{'num", f"{{'address': {address!r}, 'num"), **{**cluster, 'RAY_ADDRESS': ''})


def test_local_means_a_ray_of_its_own_beside_a_cluster(cluster: dict[str, str]) -> None:
    output_of(
        """
with connect(RAY | {'num_cpus': 1}):
    import ray
    assert ray.cluster_resources()['CPU'] == 1
""",
        **cluster,
    )


def test_an_orderly_end_leaves_no_child_of_an_actor_behind() -> None:
    out = output_of("""
import subprocess
session = connect(RAY | {'num_cpus': 1})
import ray
@ray.remote(num_cpus=1)
class Parent:
    def work(self):
        return [subprocess.Popen(['sleep', '1000']).pid for _ in range(2)]
parent = Parent.remote()
print('pids', *ray.get(parent.work.remote()))
session.close()
""")
    pids = [int(word) for word in re.findall(r'\d+', re.search(r'pids.*', out)[0])]  # type: ignore[index]  # it is there
    assert len(pids) == 2 and not [pid for pid in pids if is_alive(pid)]


@pytest.mark.parametrize('number', [signal.SIGKILL, signal.SIGTERM])
def test_driver_that_is_killed_leaves_no_process_of_its_own_behind(number: int) -> None:
    """Ray's agents may take longer."""
    driver = run_script("""
session = connect(RAY | {'num_cpus': 1})
import ray
@ray.remote(num_cpus=1)
class Busy:
    def work(self):
        time.sleep(1000)
    def pid(self):
        return os.getpid()
busy = Busy.remote()
print('pid', ray.get(busy.pid.remote()), flush=True)
busy.work.remote()
time.sleep(1000)
""")
    assert driver.stdout is not None
    try:
        found = re.search(r'pid (\d+)', driver.stdout.readline())
        assert found is not None and int(found[1]) in descendants(driver.pid)
    finally:
        driver.send_signal(number)
        driver.communicate(timeout=60)
    assert wait_until(lambda: not is_alive(int(found[1])), 60)
