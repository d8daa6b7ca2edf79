"""benchmarks/gpu.py: its cells and its records; ``tests/test_docs.py`` has its page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / 'benchmarks'


@pytest.mark.slow
def test_on_a_cpu_each_kind_of_cell_gets_a_number_or_a_reason(tmp_path):
    wanted = ['r2d2/by hand', 'r2d2/eager', 'r2d2/cuda_graph']
    command = [sys.executable, str(BENCHMARKS / 'gpu.py'), '--device', 'cpu', '--seconds', '0.01']
    words = ['--batch-size', '2', '--out', str(tmp_path), '--only', *wanted]
    answer = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    data = json.loads((tmp_path / 'gpu.json').read_text(encoding='utf-8'))
    assert set(data['cells']) == set(wanted) and 'skipped' in data['cells'].pop('r2d2/cuda_graph')
    for cell, result in data['cells'].items():
        assert 0 < result['low'] <= result['median'] <= result['high'], (cell, result)
    assert '| r2d2' not in (tmp_path / 'gpu.md').read_text(encoding='utf-8')
    assert 'done in ' in answer.stdout.splitlines()[-1]
