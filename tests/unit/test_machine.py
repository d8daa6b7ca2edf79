"""The free memory is that of the machine, or what a container or a job has left of its limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlframe.run import machine
from rlframe.run.machine import available_memory

GIB = 2**30


def group(folder: Path, limit: str, used: int, cache: int) -> None:
    """Writes the files of a control group."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / 'memory.max').write_text(f'{limit}\n')
    (folder / 'memory.current').write_text(f'{used}\n')
    (folder / 'memory.stat').write_text(f'anon 7\ninactive_file {cache}\n')


@pytest.mark.parametrize('limited', ['job/step', ''])
def test_the_tightest_limit_around_a_process_counts(
    limited: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, read = tmp_path / 'groups', Path.read_text
    monkeypatch.setattr(machine, 'CONTROL_GROUPS', root)
    monkeypatch.setattr(
        Path,
        'read_text',
        lambda path, *args, **kwargs: (
            '1:name=systemd:/\n0::/job/step\n'
            if str(path) == '/proc/self/cgroup'
            else read(path, *args, **kwargs)
        ),
    )
    free = available_memory()
    for folder in ('job/step', 'job', ''):
        group(root / folder, 'max', GIB, 0)
    assert available_memory() == pytest.approx(free, rel=0.2)
    group(root / limited, '50000', 40_000, 5_000)
    assert available_memory() == 15_000
    group(root / limited, '50000', 60_000, 5_000)
    assert available_memory() == 0


def test_a_process_without_control_groups_has_the_memory_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, 'CONTROL_GROUPS', tmp_path)
    assert 0 < available_memory() < float('inf')
