"""benchmarks/gpu.py: its cells, its records and its page, on figures that nobody measured."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / 'benchmarks'
MACHINE = {'GPU': 'Abacus 1', 'driver': '1.2', 'CUDA': '13.0'}


@pytest.fixture
def pages(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module('gpu_page')


def figures(median, low=None, high=None):
    return {
        'median': median,
        'low': low or median,
        'high': high or median,
        'blocks': 7,
        'count': 70,
        'first_seconds': 1.5,
        'wall_seconds': 4.0,
    }


def measured(**cells):
    return {
        'device': 'cuda',
        'machine': MACHINE,
        'date': '2030-01-02',
        'command': 'python benchmarks/gpu.py',
        'cells': cells,
    }


def rows(text, first):
    return [
        [part.strip() for part in line.split('|')[1:-1]]
        for line in text.splitlines()
        if line.startswith(f'| {first}')
    ]


@pytest.mark.parametrize('data', [None, measured(**{'ppo/eager': {'error': 'KeyError: 1'}})])
def test_a_page_without_figures_says_so_and_how_to_measure(pages, data):
    text = pages.page(data)
    assert 'Nothing was measured on a GPU yet' in text and 'makes no claim about its speed' in text
    assert 'python -m pytest -m gpu ; python benchmarks/gpu.py\n```' in text
    goals = [row for row in rows(text, '') if row[2] == 'not measured']
    assert [row[1] for row in goals] == [*['>= 3x eager'] * 4, '>= 1,000,000 env steps/s']
    assert '## Figures' not in text


def test_a_goal_is_met_by_the_fastest_side_with_a_graph_only(pages):
    cells = {
        'td3/eager': figures(1000),
        'td3/compile': figures(9000),
        'td3/cuda_graph': figures(2000),
        'td3/cuda_graph bf16': figures(3000),
        'sac/eager': figures(1000),
        'sac/cuda_graph': figures(2999),
        'cartpole/cuda_graph': figures(1.2e6),
        'ppo/cuda_graph': figures(1000),
        'c51/eager': figures(250),
        'c51/cuda_graph': figures(1000, 900, 1100),
        'c51/compile': {'error': 'RuntimeError: a | b\nc'},
    }
    text = pages.page(measured(**cells))
    td3, *_ = rows(text, 'TD3')
    assert td3[1:] == ['>= 3x eager', '3.00x (cuda_graph bf16)', 'met']
    assert rows(text, 'SAC')[0][2:] == ['3.00x (cuda_graph)', 'missed']
    assert rows(text, 'PPO on native')[0][2:] == ['1,200,000 env steps/s (cuda_graph)', 'met']
    section = text.partition('### C51')[2].partition('###')[0]
    assert rows(section, 'cuda_graph ')[0][1:4] == ['1,000', '900 to 1,100', '4.00x']
    assert rows(section, 'compile ')[0][1] == 'failed: RuntimeError: a / b c'
    assert (
        'Measured on 2030-01-02 by `python benchmarks/gpu.py`: GPU Abacus 1, driver 1.2, CUDA 13.0.' in text
    )
    assert rows(text, 'PPO, MLP')[0][2:] == ['not measured', ''], 'there is nothing to compare it with'


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
