"""Parallel runs as programs of their own, to be disturbed, and what is left of them."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fork_server
import numpy as np
import pytest
from fault_envs import processes
from numbered_parts import LEDGER, SCALE
from runs import HELPERS, ROOT

from rlframe.run.read_checkpoint import load_checkpoint

PATIENCE = 120.0
"""Seconds that a test waits for what has to happen."""
BOOT = """
import faulthandler, runpy, signal
import forked_roles
faulthandler.register(signal.SIGUSR1)
if {forks}:
    forked_roles.fork_workers()
runpy.run_module('rlframe.entry', run_name='__main__', alter_sys=True)
"""
"""The command line, whose workers are forks or what users have, and which prints where its threads are at a SIGUSR1."""
TOKEN = 'a-token-of-all-roles-0123'
COMM = {'type': 'flask_fs'}
CREATE: dict[str, Any] = {
    'import_names': ['numbered_parts'],
    'policy': {'type': 'dqn'},
    'commander': {'type': 'solo'},
    'parallel_collector': {'type': 'noted'},
    'comm_collector': COMM,
    'comm_learner': COMM,
}
SMALL: dict[str, Any] = {
    'exp_name': 'run',
    'env': {
        'env_id': 'numbered_parts:NumberedEnv',
        'kwargs': {'seconds': 0.002, 'gate': 'gate'},
        'collector_env_num': 2,
        'evaluator_env_num': 1,
        'n_evaluator_episode': 1,
    },
    'policy': {
        'cuda': False,
        'model': {'encoder_hidden_size_list': [8]},
        'learn': {'batch_size': 8, 'update_per_collect': 1},
        'collect': {'n_sample': 8},
        'eval': {'evaluator': {'eval_freq': 10**6}},
        'other': {'commander': {'collector_task_space': 2}},
    },
    'max_env_step': 1200,
}
QUICK = (
    *('parallel.coordinator.beat_interval=0.1', 'parallel.coordinator.worker_deadline=8'),
    'parallel.coordinator.wait=0.01',
)
"""Overrides for short deadlines."""


class Site:
    """A folder in which programs of one run work.

    Args:
        folder: An empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.programs = folder, list[Program]()
        self.ledger, self.temporary = folder / 'ledger', folder / 'tmp'
        self.temporary.mkdir()
        self.gate = folder / 'gate'
        (folder / 'c.py').write_text(f'main_config = {SMALL!r}\ncreate_config = {CREATE!r}\n')

    @property
    def run(self) -> Path:
        """The run folder."""
        return self.folder / 'run_seed0'

    def start(self, *words: str, forks: bool = True) -> Program:
        """Starts the command line with the config of this folder, or with the words alone if they name another run."""
        given = words if '--resume' in words else ('-c', 'c.py', *QUICK, *words)
        program = Program(self, given, forks)
        self.programs.append(program)
        return program

    def living(self) -> dict[int, str]:
        """Returns the names of all living processes of this folder's programs."""
        found = {}
        for pid, (state, _, _) in processes().items():
            try:
                if state != 'Z' and Path(f'/proc/{pid}/cwd').readlink() == self.folder:
                    name = re.search(r", '([^']+)'\)\)", Path(f'/proc/{pid}/cmdline').read_text())
                    named = name[1] if name else Path(f'/proc/{pid}/comm').read_text().strip()
                    found[pid] = named.partition(' (')[0]  # a comm is cut after 15 letters
            except OSError:  # it has ended meanwhile, or is somebody else's
                continue
        return found

    def worker(self, name: str) -> Any:
        """Returns the process of a worker that a run started; None, which cannot be killed by mistake, if there is none."""
        return next((pid for pid, its_name in self.living().items() if its_name == name), None)

    def rows(self, what: str, pid: int | None = None) -> int:
        """Returns how many rows were ``produced`` or ``confirmed``, by one collector or by all."""
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        entries = [line.split() for line in lines]
        return sum(int(rows) for who, kind, rows in entries if kind == what and pid in (None, int(who)))

    def end(self) -> None:
        """Kills what is left after a test that failed."""
        for program in self.programs:
            program.kill()
        for pid in self.living():
            os.kill(pid, signal.SIGKILL)


class Program:
    """A command line that runs, and what it prints.

    Args:
        site: Where it works.
        words: The words.
        forks: Whether its workers are forks.
    """

    def __init__(self, site: Site, words: tuple[str, ...], forks: bool) -> None:
        path = os.pathsep.join([str(ROOT), str(HELPERS), os.environ.get('PYTHONPATH', '')])
        own = {
            LEDGER: str(site.ledger),
            'TMPDIR': str(site.temporary),
            'PYTHONPATH': path,
            'RLFRAME_TOKEN': TOKEN,
        }
        self.process = fork_server.Copy(
            fork_server.start(),
            ['-c', BOOT.format(forks=forks), *words],
            cwd=site.folder,
            env={**os.environ, **own},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.pid = self.process.copy_pid
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None  # a pipe
        with self.process.stdout as output:
            self.lines.extend(iter(output.readline, ''))

    @property
    def text(self) -> str:
        """What it printed so far."""
        return ''.join(self.lines)

    @property
    def address(self) -> str:
        """Address of its coordinator; empty before it is known."""
        found = re.search(r'coordinator at (http://[\d.]+:\d+)', self.text)
        return found[1] if found else ''

    def until(self, holds: Callable[[], Any], seconds: float = PATIENCE) -> Any:
        """Waits until something holds while the program runs, and returns it."""
        end = time.monotonic() + seconds
        while not (found := holds()):
            assert self.process.poll() is None, f'it ended by {self.process.returncode}:\n{self.text}'
            assert time.monotonic() < end, f'it did not happen:\n{self.whereabouts()}'
            time.sleep(0.01)
        return found

    def signal(self, number: int) -> None:
        """Sends a signal to it alone."""
        self.process.send_signal(number)

    def ends(self, code: int, seconds: float = PATIENCE) -> str:
        """Waits for its end by an exit code, and returns what it printed."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f'it did not end in {seconds} s:\n{self.whereabouts()}')
        finally:
            self.kill()
        assert self.process.returncode == code, f'{self.process.returncode}:\n{self.text}'
        assert 'Traceback' not in self.text, self.text
        return self.text

    def whereabouts(self) -> str:
        """What it printed, and where its threads are."""
        self.process.send_signal(signal.SIGUSR1)
        time.sleep(1.0)
        return self.text

    def kill(self) -> None:
        """Kills it unless it has ended."""
        self.process.kill()
        self.process.wait()
        self._reader.join(PATIENCE)


def state_of(folder: Path) -> dict[str, Any]:
    """Returns the state in the last checkpoint of a run folder."""
    state: dict[str, Any] = load_checkpoint(folder / 'ckpt' / 'latest')[0]
    return state


def assert_counted(site: Site, killed: tuple[int, ...] = (), restarted: bool = False) -> dict[str, int]:
    """Makes sure that every row was delivered at most once, and that all are accounted for; returns the counts.

    Rows of killed collectors that nobody confirmed may have arrived or not, as nobody lives to say so.

    Args:
        site: The folder, with a run that has ended.
        killed: Processes of collectors that were killed.
        restarted: Whether all died with the coordinator: then nobody knows of rows after its last checkpoint.
    """
    state = state_of(site.run)
    rows: dict[str, int] = state['coordinator']['rows']
    assert rows['received'] == rows['pushed'] + rows['dropped'], rows
    unknown = sum(site.rows('produced', pid) - site.rows('confirmed', pid) for pid in killed)
    produced = site.rows('produced')
    assert rows['received'] <= produced, (rows, produced)
    if not restarted:
        assert rows['received'] >= produced - unknown, (rows, produced, unknown)
    storage = state['replay_buffer']['storage']
    held = np.asarray(storage['columns']['obs'])[storage['first'] : storage['stop']]
    assert len(held) == rows['pushed'] == len(np.unique(np.round(held * SCALE), axis=0))
    return rows


def assert_nothing_left(site: Site, address: str = '') -> None:
    """Makes sure that no process, port or temporary file of a run is left, but the run folder."""
    assert site.living() == {}
    if address:
        host, _, port = address.removeprefix('http://').partition(':')
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, int(port)))
    left = {path.name for path in site.folder.iterdir()} - {'c.py', 'ledger', 'tmp', '__pycache__', 'gate'}
    assert left <= {'run_seed0', 'hung'}, left
    assert list(site.temporary.iterdir()) == []
    for path in site.run.rglob('*'):
        assert path.name != '.lock' and 'tmp' not in path.name, path
