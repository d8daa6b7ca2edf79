"""Workers of ``-m parallel`` that are killed, hang or freeze: the run goes on without them, and no row is counted twice."""

from __future__ import annotations

import os
import signal
import time

import pytest
from parallel_programs import Site, assert_counted, assert_nothing_left, state_of

pytestmark = pytest.mark.slow


@pytest.mark.parametrize('name', ['collector-1', 'learner'])
def test_run_goes_on_after_a_worker_is_killed_in_the_middle_of_its_work(name: str, site: Site) -> None:
    run = site.start('-m', 'parallel', 'parallel.coordinator.state_interval=1')
    run.until(lambda: site.rows('confirmed') >= 200)
    site.gate.touch()  # no rollout ends from here on
    victim = site.worker(name)
    os.kill(victim, signal.SIGKILL)
    site.gate.unlink()
    run.until(lambda: site.worker(name) not in (0, victim))
    text, log = run.ends(0), (site.run / 'log.txt').read_text()
    assert f'{name} ended (killed by SIGKILL); it is started again' in log and 'Results' in text
    rows = assert_counted(site, (victim,))
    assert rows['pushed'] >= 1200
    assert_nothing_left(site, run.address)


def test_collector_whose_env_hangs_is_replaced(site: Site) -> None:
    run = site.start(
        *(
            '-m',
            'parallel',
            'parallel.coordinator.stall_deadline=6',
            'parallel.coordinator.worker_deadline=4',
        ),
        *('parallel.close_timeout=5', 'env.kwargs.hang=hung', 'parallel.collector_num=1'),
    )
    run.until((site.folder / 'hung').exists)
    stuck = site.worker('collector')
    run.until(lambda: site.worker('collector') not in (0, stuck))
    run.ends(0)
    log = (site.run / 'log.txt').read_text()
    assert f'collector collector (pid {stuck} on' in log and 'is lost: no step of an env for 6 s' in log
    assert_counted(site, (stuck,))
    assert_nothing_left(site, run.address)


@pytest.mark.parametrize('name', ['collector-1', 'learner'])
def test_frozen_worker_is_lost_and_joins_again(name: str, site: Site) -> None:
    """Frozen for twice ``worker_deadline``, as 20 s and more are twice its default; too short to be replaced."""
    run = site.start(
        *('-m', 'parallel', 'parallel.coordinator.worker_deadline=4', 'max_env_step=2000'),
        'parallel.coordinator.state_interval=1',
    )
    run.until(lambda: site.rows('confirmed') >= 200)
    frozen = site.worker(name)
    site.gate.touch()
    os.kill(frozen, signal.SIGSTOP)
    log = site.run / 'log.txt'
    run.until(lambda: 'no sign of life for 4 s' in log.read_text())
    time.sleep(2.0)  # what is tested is a freeze of some length
    os.kill(frozen, signal.SIGCONT)
    site.gate.unlink()
    run.until(lambda: log.read_text().count(f'{name} (pid {frozen} on') >= 3)  # joined, lost, joined
    before = site.rows('confirmed')
    run.until(lambda: site.rows('confirmed') > before + 200)
    run.ends(0)
    assert 'started again' not in log.read_text() and log.read_text().count('is lost') == 1
    assert_counted(site)
    assert_nothing_left(site, run.address)


def test_nobody_is_lost_while_the_run_itself_is_frozen(site: Site) -> None:
    run = site.start('-m', 'parallel', 'parallel.coordinator.worker_deadline=2')
    run.until(lambda: site.rows('confirmed') >= 200)
    run.signal(signal.SIGSTOP)
    time.sleep(5.0)  # what is tested is a freeze of some length
    run.signal(signal.SIGCONT)
    run.ends(0)
    assert 'is lost' not in (site.run / 'log.txt').read_text()
    assert_counted(site)
    assert_nothing_left(site, run.address)


def fill(site: Site) -> None:
    """Leaves no room in the shared folder of a run that may use 100,000 bytes."""
    (site.run / 'data' / '0-0-up.safetensors').write_bytes(bytes(100_000))


ROOM = "parallel.coordinator.transport={'max_folder_bytes': 100000}"


def test_workers_wait_for_room_in_a_full_folder(site: Site) -> None:
    run = site.start('-m', 'parallel', ROOM)
    run.until(lambda: site.rows('confirmed') >= 200)
    fill(site)
    run.until(lambda: 'is full' in run.text or site.rows('produced') >= site.rows('confirmed') + 16)
    time.sleep(1.0)  # all that were on their way are there
    before = site.rows('confirmed')
    time.sleep(1.0)
    assert site.rows('confirmed') == before
    (site.run / 'data' / '0-0-up.safetensors').unlink()
    run.ends(0)
    assert_counted(site)
    assert_nothing_left(site, run.address)


def test_run_ends_if_the_folder_stays_full(site: Site) -> None:
    run = site.start(
        *('-m', 'parallel', ROOM, 'parallel.comm_collector.timeout=6', 'parallel.comm_learner.timeout=6'),
        *('parallel.max_restarts=0', 'parallel.close_timeout=5', 'parallel.coordinator.state_interval=0.5'),
    )
    run.until(lambda: site.rows('confirmed') >= 200)
    fill(site)
    text = run.ends(1)
    assert 'rlframe: WorkerLostError' in text and 'ended 1 times within 600 s' in text, text
    assert 'shared folder is full' in text or 'max_folder_bytes' in text
    assert_counted(site)
    assert_nothing_left(site, run.address)


def test_run_whose_collector_dies_too_often_ends_with_the_cause_and_can_be_resumed(site: Site) -> None:
    run = site.start('-m', 'parallel', 'parallel.max_restarts=0', 'parallel.collector_num=1')
    run.until(lambda: site.rows('confirmed') >= 200)
    victim = site.worker('collector')
    os.kill(victim, signal.SIGKILL)
    text = run.ends(1)
    assert (
        'WorkerLostError' in text
        and 'collector ended 1 times within 600 s; at last: killed by SIGKILL' in text
    )
    assert 'crash report' in text and list(site.run.glob('crash_iteration_*'))
    assert_counted(site, (victim,))
    assert_nothing_left(site, run.address)
    assert 'resumes' in site.start('--resume', 'run_seed0').ends(0)
    assert state_of(site.run)['progress']['envstep'] >= 1200
    assert_nothing_left(site)
