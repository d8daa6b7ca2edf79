"""Workers of ``-m parallel`` that are killed, hang or freeze: the run goes on without them, and no row is counted twice."""

from __future__ import annotations

import os
import signal
import time

import pytest
from parallel_programs import Site, assert_counted, assert_nothing_left, state_of

pytestmark = pytest.mark.slow
BOTH = ('collector-1', 'learner')


def test_killed_workers_are_started_again_until_one_dies_too_often(site: Site) -> None:
    run = site.start(
        *('-m', 'parallel', 'parallel.max_restarts=1', 'max_env_step=100000'),
        *('parallel.coordinator.state_interval=1', 'parallel.coordinator.worker_deadline=60'),
    )
    run.until(lambda: site.rows('confirmed') >= 200)
    site.gate.touch()  # no rollout ends from here on
    victims = [site.worker(name) for name in BOTH]
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    site.gate.unlink()
    run.until(lambda: all(site.worker(name) not in (None, *victims) for name in BOTH))
    again = site.worker('collector-1')
    run.until(lambda: site.rows('confirmed', again) >= 40)
    log = (site.run / 'log.txt').read_text()
    assert all(
        f'{name} (process) was lost: in run: killed by SIGKILL; out of memory?; another one starts' in log
        for name in BOTH
    )
    os.kill(again, signal.SIGKILL)
    text = run.ends(1)
    assert 'WorkerLostError' in text and 'emergency checkpoint' in text
    assert (
        '2 workers were lost within 600 s, 1 may be replaced' in text
        and 'collector-1 (process) was lost: in run: killed by SIGKILL' in text
    )
    assert list(site.run.glob('ckpt/emergency_*'))
    assert_counted(site, (*victims, again))
    assert_nothing_left(site, run.address)
    steps = state_of(site.run)['progress']['envstep'] + 100
    assert 'resumes' in site.start('--resume', 'run_seed0', '--env-step', str(steps)).ends(0)
    assert state_of(site.run)['progress']['envstep'] >= steps
    assert_nothing_left(site)


def test_collector_whose_env_hangs_is_replaced(site: Site) -> None:
    run = site.start(
        *('-m', 'parallel', 'parallel.coordinator.stall_deadline=6'),
        *(
            'parallel.coordinator.worker_deadline=4',
            'parallel.close_timeout=2',
            'env.kwargs.hang=hung',
            'parallel.collector_num=1',
            'max_env_step=400',
        ),
    )
    run.until((site.folder / 'hung').exists)
    stuck = site.worker('collector')
    run.until(lambda: site.worker('collector') not in (None, stuck))
    run.ends(0)
    log = (site.run / 'log.txt').read_text()
    assert f'collector collector (pid {stuck} on' in log and 'is lost: no step of an env for 6 s' in log
    assert_counted(site, (stuck,))
    assert_nothing_left(site, run.address)


def test_frozen_workers_are_lost_and_join_again_but_none_is_lost_while_the_run_itself_is_frozen(
    site: Site,
) -> None:
    """Frozen for longer than ``worker_deadline``, but too short to be replaced."""
    run = site.start(
        *('-m', 'parallel', 'max_env_step=100000', 'parallel.coordinator.state_interval=1'),
        'parallel.coordinator.worker_deadline=5',
    )
    run.until(lambda: site.rows('confirmed') >= 200)
    frozen = {name: site.worker(name) for name in BOTH}
    site.gate.touch()
    for pid in frozen.values():
        os.kill(pid, signal.SIGSTOP)
    log = site.run / 'log.txt'
    run.until(lambda: log.read_text().count('no sign of life for 5 s') == 2)
    for pid in frozen.values():
        os.kill(pid, signal.SIGCONT)
    site.gate.unlink()
    for name, pid in frozen.items():  # joined, lost, joined
        run.until(lambda words=f'{name} (pid {pid} on': log.read_text().count(words) >= 3)
    before = site.rows('confirmed')
    run.until(lambda: site.rows('confirmed') > before + 200)
    run.signal(signal.SIGSTOP)
    time.sleep(6.0)  # what is tested is a freeze of some length
    run.signal(signal.SIGCONT)
    before = site.rows('confirmed')
    run.until(lambda: site.rows('confirmed') > before + 200)
    run.signal(signal.SIGINT)
    run.ends(130)
    assert 'another one starts' not in log.read_text() and log.read_text().count('is lost') == 2
    assert_counted(site)
    assert_nothing_left(site, run.address)
