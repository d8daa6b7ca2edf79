"""The free memory is that of the machine, or what a container or a job has left of its limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlframe.run import machine
from rlframe.run.machine import GROUP_FILES, available_memory

GIB = 2**30


def group(folder: Path, kind: str, limit: str, used: int, cache: int) -> None:
    """Writes the files of a control group."""
    files = GROUP_FILES[kind]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / files.limit).write_text(f'{limit}\n')
    (folder / files.used).write_text(f'{used}\n')
    (folder / 'memory.stat').write_text(f'anon 7\n{files.cache} {cache}\n')


@pytest.mark.parametrize(('kind', 'line'), [('', '0::/job/step'), ('memory', '4:memory:/job/step')])
@pytest.mark.parametrize('limited', ['job/step', 'job', ''])
def test_the_tightest_limit_around_a_process_counts(
    kind: str, line: str, limited: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / 'groups' / kind
    read = Path.read_text
    monkeypatch.setattr(machine, 'CONTROL_GROUPS', tmp_path / 'groups')
    monkeypatch.setattr(
        Path,
        'read_text',
        lambda path, *args, **kwargs: (
            f'1:name=systemd:/\n{line}\n' if str(path) == '/proc/self/cgroup' else read(path, *args, **kwargs)
        ),
    )
    free = available_memory()
    for folder in ('job/step', 'job', ''):
        group(root / folder, kind, 'max' if kind == '' else str(2**63 - 4096), GIB, 0)
    assert available_memory() == pytest.approx(free, rel=0.2)
    group(root / limited, kind, '50000', 40_000, 5_000)
    assert available_memory() == 15_000
    group(root / limited, kind, '50000', 60_000, 5_000)
    assert available_memory() == 0


def test_a_process_without_control_groups_has_the_memory_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, 'CONTROL_GROUPS', tmp_path)
    assert 0 < available_memory() < float('inf')
