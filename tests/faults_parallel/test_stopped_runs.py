"""``-m parallel`` that is stopped by signals, at any time: all roles end, and the run can be resumed."""

from __future__ import annotations

import os
import signal
import time

import pytest
from parallel_programs import Site, assert_counted, assert_nothing_left, state_of
from runs import every

pytestmark = pytest.mark.slow
LONG = 'max_env_step=100000'


def wait_for_the_end_of_all(site: Site) -> None:
    end = time.monotonic() + 10
    while site.living() and time.monotonic() < end:
        time.sleep(0.05)
    assert site.living() == {}


def test_stop_signal_while_a_checkpoint_is_written_ends_all_roles_and_leaves_a_whole_one(site: Site) -> None:
    run = site.start('-m', 'parallel', LONG, every(1))
    run.until(lambda: (site.run / 'ckpt' / 'latest').exists())
    for _ in range(200):  # nearly all the time of this run goes into checkpoints
        if any('tmp' in path.name for path in (site.run / 'ckpt').iterdir()):
            break
        time.sleep(0.002)
    run.signal(signal.SIGTERM)
    text = run.ends(143)
    assert 'interrupted and saved' in text and '--resume run_seed0' in text
    rows = assert_counted(site)
    assert rows['received'] == site.rows('produced')
    assert_nothing_left(site, run.address)


def test_killed_run_takes_its_workers_along_and_can_be_resumed(site: Site) -> None:
    run = site.start('-m', 'parallel', LONG, every(50))
    run.until(lambda: (site.run / 'ckpt' / 'latest').exists() and site.rows('confirmed') >= 400)
    run.kill()
    wait_for_the_end_of_all(site)
    before = state_of(site.run)['progress']['envstep']
    text = site.start('--resume', 'run_seed0', '--env-step', str(before + 100)).ends(0)
    assert 'resumes' in text and f'{before:,} env steps' in text
    assert state_of(site.run)['progress']['envstep'] >= before + 100
    assert_nothing_left(site)
    assert_counted(site, restarted=True)


def test_stop_signal_while_workers_join_ends_the_start(site: Site) -> None:
    run = site.start('-m', 'parallel', LONG)
    run.until(lambda: site.worker('collector-1'))
    run.signal(signal.SIGINT)
    text = run.ends(130)
    assert 'interrupted' in text
    assert_nothing_left(site, run.address)


def test_second_stop_signal_ends_everything_at_once(site: Site) -> None:
    run = site.start('-m', 'parallel', LONG, 'parallel.close_timeout=60', forks=False)
    run.until(lambda: site.rows('confirmed') >= 40)
    frozen = site.worker('collector-0')
    os.kill(frozen, signal.SIGSTOP)  # the run waits for it
    run.signal(signal.SIGINT)
    run.until(lambda: 'stopping' in run.text)
    time.sleep(0.5)
    run.signal(signal.SIGTERM)
    run.ends(143, 10)
    wait_for_the_end_of_all(site)
