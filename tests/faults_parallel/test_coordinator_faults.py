"""Roles as programs of their own: a coordinator that is killed, stopped or fails, workers that come and go."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from parallel_programs import Program, Site, assert_counted, assert_nothing_left, state_of
from runs import every, free_port

pytestmark = pytest.mark.slow
LONG = 'max_env_step=100000'


def coordinator(site: Site, *words: str) -> Program:
    """Starts a coordinator to which workers come."""
    program = site.start('-m', 'coordinator', f'parallel.coordinator.port={free_port()}', *words)
    program.until(lambda: program.address)
    return program


def worker(site: Site, role: str, address: str, name: str, *words: str) -> Program:
    """Starts a worker that joins."""
    return site.start('-m', role, '--join', address, '--name', name, *words)


def test_killed_coordinator_is_restarted_and_the_workers_that_waited_go_on(site: Site) -> None:
    first = coordinator(site, LONG, every(20))
    workers = [worker(site, 'learner', first.address, 'l', LONG, every(20))]
    workers += [worker(site, 'collector', first.address, f'c{i}', LONG, every(20)) for i in range(2)]
    first.until(lambda: site.rows('confirmed') >= 200 and Path(site.run / 'ckpt' / 'latest').exists())
    spare = worker(site, 'learner', first.address, 'spare', LONG, every(20))
    first.until(lambda: 'spare' in (site.run / 'log.txt').read_text())
    first.kill()
    time.sleep(1.0)  # the workers ask in vain
    assert [program.process.poll() for program in workers] == [None] * 3
    spare.signal(signal.SIGINT)
    assert 'left the run (it was closed)' in spare.ends(130, 30), 'it does not wait for the coordinator'
    before, confirmed = state_of(site.run)['coordinator']['rows'], site.rows('confirmed')
    steps = state_of(site.run)['progress']['envstep'] + 200
    second = site.start('-m', 'coordinator', '--resume', 'run_seed0', '--env-step', str(steps))
    assert 'resumes' in second.ends(0)
    for program in workers:
        assert 'left the run (training is complete)' in program.ends(0)
    rows = assert_counted(site)
    # the rows of the time between the checkpoint and the kill are counted as dropped
    assert rows['received'] == site.rows('produced') and rows['dropped'] >= confirmed - before['received']
    assert rows['pushed'] - before['pushed'] >= 150
    assert_nothing_left(site, first.address)


def test_workers_join_in_the_middle_and_leave_by_a_signal_or_when_the_coordinator_is_stopped(
    site: Site,
) -> None:
    run = coordinator(site, LONG)
    learner = worker(site, 'learner', run.address, 'l')
    early = worker(site, 'collector', run.address, 'early')
    run.until(lambda: site.rows('confirmed') >= 200)
    late = worker(site, 'collector', run.address, 'late')
    again = worker(site, 'learner', run.address, 'l2')
    run.until(lambda: site.rows('confirmed', late.pid) >= 40)
    early.signal(signal.SIGINT)
    assert 'left the run (it was closed)' in early.ends(130)
    learner.signal(signal.SIGTERM)
    learner.ends(143)
    before = site.rows('confirmed')
    run.until(lambda: site.rows('confirmed') >= before + 100)
    run.signal(signal.SIGINT)
    assert 'interrupted and saved' in run.ends(130)
    for program in (late, again):
        assert 'left the run (the run was interrupted)' in program.ends(0)
    rows = assert_counted(site)
    assert rows['received'] == site.rows('produced')
    log = (site.run / 'log.txt').read_text()
    assert log.count(' joined') == 4 and log.count(' left: it was closed') == 2 and 'is lost' not in log
    assert_nothing_left(site, run.address)


def test_workers_of_a_run_that_fails_are_told_why(site: Site) -> None:
    run = coordinator(
        site, LONG, 'parallel.coordinator.role_deadline=8', 'parallel.coordinator.worker_deadline=4'
    )
    learner = worker(site, 'learner', run.address, 'l')
    collector = worker(site, 'collector', run.address, 'c')
    run.until(lambda: site.rows('confirmed') >= 40)
    collector.kill()
    text = run.ends(1)
    assert 'rlframe: WorkerLostError' in text and 'no collector for 8 s; lost: collector c (pid' in text
    assert 'no sign of life for 4 s' in text and f'-m collector --join {run.address}' in text
    assert 'left the run (no collector for 8 s' in learner.ends(0)
    assert_counted(site, (collector.pid,))
    assert_nothing_left(site, run.address)
