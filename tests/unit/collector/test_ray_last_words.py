"""How a process ends is in its log afterwards, whatever ended it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rlframe.backend.ray.actor import last_words

ROOT = Path(__file__).parents[3]
BEGIN = 'import faulthandler, os, signal, sys; from rlframe.backend.ray.actor import note_ends; note_ends(); '
CRASH = 'faulthandler.enable(); signal.raise_signal(signal.SIGSEGV)'  # as Ray enables it


def end(folder: Path, program: str, name: str = 'logs/worker-1-2.err') -> tuple[Path, int]:
    """Runs a program whose stderr is such a log, and returns that and how it ended."""
    log = folder / name
    log.parent.mkdir(exist_ok=True)
    with log.open('ab') as file:
        done = subprocess.run(
            [sys.executable, '-c', BEGIN + program], cwd=ROOT, stderr=file, timeout=60, check=False
        )
    return log, done.returncode


@pytest.mark.slow
@pytest.mark.parametrize(
    ('program', 'code', 'words'),
    [
        ('os._exit(7)', 7, 'os._exit(7)'),
        ('os._exit(0)', 0, 'os._exit(0)'),
        (CRASH, -11, 'signal 11 (SIGSEGV)'),
        ('faulthandler.enable(); os.abort()', -6, 'signal 6 (SIGABRT)'),
        ('os.kill(os.getpid(), signal.SIGTERM)', -15, 'signal 15 (SIGTERM)'),
        ('os.kill(os.getpid(), signal.SIGHUP)', -1, 'signal 1 (SIGHUP)'),
        ('os.kill(os.getpid(), signal.SIGKILL)', -9, ''),
        ('pid = os.fork() or os._exit(3); os.waitpid(pid, 0); os.kill(os.getpid(), signal.SIGKILL)', -9, ''),
        ('print("words of an env", file=sys.stderr)', 0, ''),
    ],
)
def test_a_process_notes_how_it_ends(tmp_path: Path, program: str, code: int, words: str) -> None:
    log, ended = end(tmp_path, program)
    assert (ended, last_words(log)) == (code, words)
    if words.startswith('os._exit'):
        assert 'File "<string>", line 1' in log.read_text(), 'where it was called'


def test_only_processes_of_ray_note_anything_and_the_last_note_counts(tmp_path: Path) -> None:
    log, code = end(tmp_path, 'os._exit(7)', 'other.err')
    assert code == 7 and log.read_text() == '' and last_words(log) == ''
    log.write_text(
        '*** SIGSEGV received at time=1 on cpu 0 ***\nFatal Python error: Segmentation fault\n\nStack\n'
    )
    assert last_words(log) == 'signal 11 (SIGSEGV)'
    log.write_text(log.read_text() + 'x' * 100_000 + '\nrlframe: this process ends by os._exit(5)\n  File\n')
    assert last_words(log) == 'os._exit(5)'
    assert last_words(tmp_path / 'gone.err') == ''
