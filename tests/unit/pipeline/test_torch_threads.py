"""Idle threads of torch sleep: they take no core from threads of envs, nor from other programs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from runs import ROOT

from rlframe.run import machine

BEGIN = """
import os, sys
from rlframe import config
from rlframe.pipeline import SerialPipeline, build

given = build.set_threads
def looked_at(cfg):
    assert 'torch' not in sys.modules, 'the setting comes too late'
    given(cfg)
    print(os.environ['GOMP_SPINCOUNT'])
build.set_threads = looked_at
main = {'env': {'env_id': 'CartPole-v1'}, 'num_threads': 2}
with SerialPipeline(config.compile_config(main, {'policy': {'type': 'ppo'}}, seed=0)):
    pass
"""


@pytest.fixture
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that does not say what idle threads do, and is put back afterwards."""
    for name in machine.WAITING:
        monkeypatch.setenv(name, '')  # so that what a test sets is undone
        monkeypatch.delenv(name)


def test_threads_sleep_by_default(nothing_set: None) -> None:
    machine.let_threads_sleep()
    assert os.environ['GOMP_SPINCOUNT'] == machine.SPINS


@pytest.mark.parametrize('name', machine.WAITING)
def test_what_the_user_has_set_stays(name: str, nothing_set: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, 'ACTIVE')
    machine.let_threads_sleep()
    assert {own: os.environ.get(own) for own in machine.WAITING if own in os.environ} == {name: 'ACTIVE'}


@pytest.mark.slow
def test_a_run_sets_it_before_torch_is_loaded(nothing_set: None, tmp_path: Path) -> None:
    found = [str(ROOT), *filter(None, [os.environ.get('PYTHONPATH')])]
    env = {**os.environ, 'PYTHONPATH': os.pathsep.join(found)}
    done = subprocess.run(
        [sys.executable, '-c', BEGIN], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == machine.SPINS
