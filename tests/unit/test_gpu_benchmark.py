"""benchmarks/gpu.py: its cells, its records and its page, on figures that nobody measured."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from rlframe.errors import ConfigError

BENCHMARKS = Path(__file__).parents[2] / 'benchmarks'
POPEN = subprocess.Popen
MACHINE = {'GPU': 'Abacus 1', 'driver': '1.2', 'CUDA': '13.0'}


def load(name):
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture
def gpu():
    return load('gpu')


@pytest.fixture
def workloads():
    return load('gpu_workloads')


@pytest.fixture
def pages():
    return load('gpu_page')


@pytest.fixture
def worker(monkeypatch):
    monkeypatch.setattr(sys, 'path', [str(BENCHMARKS), *sys.path])
    return load('gpu_worker')


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


@pytest.mark.parametrize('data', [None, {}, measured(), measured(**{'ppo/eager': {'error': 'KeyError: 1'}})])
def test_a_page_without_figures_says_so_and_how_to_measure(pages, workloads, data):
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
    }
    text = pages.page(measured(**cells))
    td3, *_ = rows(text, 'TD3')
    assert td3[1:] == ['>= 3x eager', '3.00x (cuda_graph bf16)', 'met']
    assert rows(text, 'SAC')[0][2:] == ['3.00x (cuda_graph)', 'missed']
    assert rows(text, 'PPO on native')[0][2:] == ['1,200,000 env steps/s (cuda_graph)', 'met']
    assert rows(text, 'PPO, MLP')[0][2:] == ['not measured', ''], 'there is nothing to compare it with'


def test_the_page_shows_medians_spreads_ratios_reasons_and_the_machine(pages):
    cells = {
        'c51/by hand': figures(500, 450, 510),
        'c51/eager': figures(250),
        'c51/cuda_graph': figures(1000),
        'c51/compile': {'error': 'RuntimeError: a | b\nc'},
        'c51/cuda_graph bf16': {'skipped': 'this version has no policy.precision'},
    }
    text = pages.page(measured(**cells))
    section = text.partition('### C51')[2].partition('###')[0]
    assert rows(section, 'by hand') == [['by hand', '500', '450 to 510', '2.00x', '1.00x', '1.5']]
    assert rows(section, 'cuda_graph ')[0] == [
        'cuda_graph',
        '1,000',
        '1,000 to 1,000',
        '4.00x',
        '2.00x',
        '1.5',
    ]
    assert rows(section, 'compile ')[0][1] == 'failed: RuntimeError: a / b c'
    assert 'skipped: this version has no policy.precision' in section
    assert (
        'Measured on 2030-01-02 by `python benchmarks/gpu.py`: GPU Abacus 1, driver 1.2, CUDA 13.0.' in text
    )
    assert 'Nothing was measured' not in text and 'of a CPU' not in text


def test_names_of_workloads_and_cells_choose_and_unknown_ones_are_refused(gpu, workloads, capsys):
    assert gpu.chosen(None) == workloads.all_cells()
    assert gpu.chosen(['r2d2/eager', 'cartpole']) == [
        *(f'cartpole/{side}' for side in workloads.WORKLOADS['cartpole'].sides),
        'r2d2/eager',
    ]
    for words, says in (
        (['--only', 'pong'], "no workload or cell 'pong'"),
        (['--device', 'cpu'], '--out FOLDER'),
    ):
        with pytest.raises(SystemExit):
            gpu.parse(words)
        assert says in capsys.readouterr().err


class Process:
    """Stands for a worker: a program that prints lines and ends."""

    def __init__(self, folder, *programs):
        self._folder, self._programs, self.given = folder, list(programs), []

    def __call__(self, command, **options):
        self.given.append(command[2:])
        file = self._folder / f'{len(self.given)}.py'
        file.write_text(self._programs.pop(0), encoding='utf-8')
        return POPEN([sys.executable, str(file)], **options)


def lines(*messages):
    return '\n'.join(f'print({json.dumps(message)!r}, flush=True)' for message in messages) + '\n'


def test_a_process_that_dies_fails_its_cell_and_the_others_are_measured_in_another(
    gpu, tmp_path, monkeypatch
):
    died = lines({'cell': 'ppo/eager'}) + "import sys\nsys.exit('a fault\\nof the GPU')\n"
    rest = 'print("a library talks")\n' + lines(
        {'cell': 'ppo/compile'}, {'cell': 'ppo/compile', **figures(5)}
    )
    start = Process(tmp_path, died, rest)
    monkeypatch.setattr(gpu.subprocess, 'Popen', start)
    found = dict(gpu.results_of(['ppo/eager', 'ppo/compile'], ['cpu', '1', '0'], gpu.Clock(10)))
    assert found['ppo/eager'] == {'error': 'the process ended with status 1: of the GPU'}
    assert found['ppo/compile']['median'] == 5
    assert start.given == [['cpu', '1', '0', 'ppo/eager', 'ppo/compile'], ['cpu', '1', '0', 'ppo/compile']]


def test_cells_of_the_same_machine_are_kept_and_those_of_another_are_not(gpu, tmp_path, monkeypatch):
    given = {'sac/eager': figures(1)}
    monkeypatch.setattr(
        gpu, 'results_of', lambda cells, settings, clock: iter([(cells[0], dict(given[cells[0]]))])
    )
    for machine, kept in (
        ('one', ['sac/eager']),
        ('one', ['td3/eager', 'sac/eager']),
        ('two', ['td3/eager']),
    ):
        monkeypatch.setattr(gpu, 'machine', lambda device, name=machine: {'GPU': name})
        gpu.main(['--device', 'cpu', '--out', str(tmp_path), '--only', next(iter(given))])
        data = json.loads((tmp_path / 'gpu.json').read_text(encoding='utf-8'))
        assert list(data['cells']) == kept
        assert (tmp_path / 'gpu.md').read_text(encoding='utf-8') == load('gpu_page').page(data)
        given = {'td3/eager': figures(2)}


def test_rates_are_those_of_blocks_behind_the_warm_up(worker, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(worker.time, 'perf_counter', lambda: now[0])

    def update():
        now[0] += 10.0 if now[0] == 0 else 0.5
        return 4

    found = worker.measured(update, 14.0, 'cpu')
    assert (found['median'], found['low'], found['high']) == (8.0, 8.0, 8.0)
    assert found['first_seconds'] == 10.0 and found['count'] == 4 * 6 * worker.BLOCKS


def test_a_cell_whose_option_is_missing_or_refused_is_skipped_and_one_that_raises_fails(worker, monkeypatch):
    monkeypatch.setitem(worker.SIDES, 'magic', dict(magic=True))
    assert worker.result_of('c51/magic', 'cpu', 0.0, 2) == {'skipped': 'this version has no policy.magic'}
    assert worker.result_of('r2d2/compile', 'cpu', 0.0, 2)['skipped'].startswith('refused: compile: ')

    def refuses(*given, **options):
        raise ConfigError('no')

    def fails(*given, **options):
        raise RuntimeError('out of memory')

    monkeypatch.setattr(worker, 'update_of', refuses)
    assert worker.result_of('c51/eager', 'cpu', 0.0, 2) == {'skipped': 'refused: no'}
    monkeypatch.setattr(worker, 'update_of', fails)
    assert worker.result_of('c51/eager', 'cpu', 0.0, 2) == {'error': 'RuntimeError: out of memory'}


@pytest.mark.slow
def test_on_a_cpu_every_cell_that_it_can_do_gets_a_number(gpu, workloads, tmp_path):
    wanted = [cell for cell in workloads.all_cells() if 'compile' not in cell] + ['c51/compile']
    command = [
        sys.executable,
        str(BENCHMARKS / 'gpu.py'),
        '--device',
        'cpu',
        '--seconds',
        '0.01',
        '--batch-size',
        '2',
    ]
    answer = subprocess.run(
        [*command, '--out', str(tmp_path), '--only', *wanted], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    data = json.loads((tmp_path / 'gpu.json').read_text(encoding='utf-8'))
    assert set(data['cells']) == set(wanted)
    for cell, result in data['cells'].items():
        name, _, side = cell.partition('/')
        if 'skipped' in result:
            needs = 'cuda_graph' in side or side == 'sb3' or name == 'cartpole'
            assert needs, (cell, result)
        else:
            assert 0 < result['low'] <= result['median'] <= result['high'], (cell, result)
    assert 'median' in data['cells']['ppo/eager'] and 'median' in data['cells']['r2d2/by hand']
    assert ('median' in data['cells']['cartpole/eager']) == (
        gpu.ROOT / 'configs' / 'cartpole_torch_ppo.py'
    ).exists()
    text = (tmp_path / 'gpu.md').read_text(encoding='utf-8')
    assert text == load('gpu_page').page(data) and '| r2d2' not in text
    assert 'done in ' in answer.stdout.splitlines()[-1]
