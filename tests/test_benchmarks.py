"""The benchmark report on figures that nobody measured: ratios, spreads, verdicts and tables; and cells of gpu.py."""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys

import pytest
from runs import ROOT

from rlframe.config import read_config

BENCHMARKS = ROOT / 'benchmarks'


def test_the_ratio_shown_is_the_median_of_ratios_of_one_round_each(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    report, cases = importlib.import_module('report'), importlib.import_module('cases')
    case = cases.Case(
        name='c', title='W1', script='s.py', side='w1', measure='seconds', peers=('a',), sizes=(1,),
        goals=(cases.Goal('a', 1.5),),
    )  # fmt: skip
    seconds = {'rlframe': (1.0, 2.0, 10.0), 'a': (4.0, 2.0, 30.0)}
    records = [
        report.Record('c', side, i, {'seconds': value, 'env_steps': 800, 'updates': 40})
        for side, values in seconds.items()
        for i, value in enumerate(values)
    ]
    own, peer = report.rows(records, case, {})
    assert (peer.ratio, peer.value, peer.verdict) == ((3.0, 1.0, 4.0), (4.0, 2.0, 30.0), 'met')
    assert own.verdict == ''


@pytest.mark.slow
def test_the_command_runs_both_sides_and_shows_a_ratio():
    options = ['--quick', '--workloads', 'w3', '--repeats', '1', '--peers', 'raw_uniform', '--no-write']
    before = sorted(BENCHMARKS.parent.glob('docs/*')), sorted(BENCHMARKS.glob('*.json'))
    answer = subprocess.run(
        [sys.executable, str(BENCHMARKS / 'run.py'), *options], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    assert 'W3 prioritized replay, 10,000 transitions' in answer.stdout
    assert 'w3-10000 round 1/1: raw_uniform' in answer.stderr
    assert 'tianshou' not in answer.stdout
    assert (sorted(BENCHMARKS.parent.glob('docs/*')), sorted(BENCHMARKS.glob('*.json'))) == before


@pytest.mark.parametrize('kind', ['flask_fs', 'files per sample'])
@pytest.mark.slow
def test_benchmark_of_transports_measures_each(kind, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    transport = importlib.import_module('transport')
    monkeypatch.setattr(transport, 'SECONDS', 0.0)
    monkeypatch.setattr(transport, 'SIZES', {'10 KB': 10_000})
    found = transport.measured(kind)
    assert list(found) == ['no payload', '10 KB'] and not transport.CHILDREN
    assert all(us > 0 and cpu >= 0 for us, cpu in found.values())


def test_every_pair_of_the_time_to_a_return_names_a_shipped_config_of_its_env(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    for pair in importlib.import_module('time_to_return').PAIRS:
        main_config, _ = read_config(BENCHMARKS.parent / 'configs' / pair.file)
        assert main_config['env']['env_id'] == pair.env_id or pair.config
        assert pair.every * 10 <= pair.budget


def test_shares_of_a_return_have_the_time_of_the_first_look_at_them_or_that_of_the_cut(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    returns = importlib.import_module('time_to_return')
    curves = {
        'rlframe': [(10.0, 1, 900.0), (20.0, 2, 1700.0), (40.0, 4, 2500.0)],
        'sb3': [(60.0, 1, 800.0), (90.0, 2, 804.0)],
        'sbx': [(5.0, 1, 2500.0)],  # has a table of its own
    }
    records = [
        {'config': 'mujoco_hopper_ppo', 'side': side, 'curve': curve, 'cpu_seconds': curve[-1][0]}
        for side, curve in curves.items()
    ]
    (row,) = returns.share_table(records)  # of 2410.4: 803.5, 1606.9
    assert row == ['mujoco_hopper_ppo', '10', '90', '9.0x', '20', '> 90', '> 4.5x', '40', '> 90', '> 2.2x']


def test_rows_of_whole_runs_compile_and_their_table_has_intervals(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    whole = importlib.import_module('whole_runs')
    for row in whole.ROWS:
        cfg = whole.config_of(row, 0)
        assert (cfg.policy.type, cfg.env.env_id, cfg.max_env_step) == (row.policy, row.env_id, row.env_steps)
    records = [
        {'config': whole.ROWS[0].name, 'side': side, 'return': score}
        for side, group in zip(whole.SIDES, ([4.0, 5.0], [1.0, 2.0]), strict=True)
        for score in group
    ]
    assert (
        whole.table(records)
        .splitlines()[-1]
        .endswith('| 4.5 [4.0, 5.0] | 1.5 [1.0, 2.0] | 1.00 [1.00, 1.00] |')
    )


def test_returns_of_runs_a_round_ahead_are_compared_seed_by_seed_and_measured_once(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(BENCHMARKS)
    scaling, asked = importlib.import_module('scaling'), []

    def learned(name, seed, overlap):
        asked.append((name, seed, overlap))
        return {'return': 10.0 * seed + (2 + seed) * overlap}

    monkeypatch.setattr(scaling, 'learned', learned)
    given = argparse.Namespace(results=tmp_path / 'records.json', configs=['one'], seeds=[0, 1])
    for _ in range(2):
        found = scaling.returns(given)
    assert asked == [('one', seed, overlap) for seed in (0, 1) for overlap in (0, 1)]
    assert found['one'] == {
        'serial': [0.0, 10.0],
        'a round ahead': [2.0, 13.0],
        'difference': [2.5, 2.0, 3.0],
    }


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


@pytest.mark.parametrize(
    ('script', 'words', 'text'),
    [
        (
            'time_to_return',
            ['--report', '--results', 'no.json', '--page', 'page.md'],
            'there is no file no.json',
        ),
        (
            'time_to_return',
            ['--env-step', '9', '--results', 'r.json'],
            '--env-step cuts runs short; name files',
        ),
        (
            'time_to_return',
            ['--env-step', '9', '--page', 'page.md'],
            '--env-step cuts runs short; name files',
        ),
        ('time_to_return', ['--peer-python', '/no/python'], 'there is no program /no/python'),
        ('whole_runs', ['--report', '--results', 'no.json'], 'there is no file no.json'),
        ('whole_runs', ['--peer-python', '/no/python'], 'there is no program /no/python'),
        ('run', ['--sb3-python', '/no/python'], 'there is no program /no/python'),
        ('offline_returns', ['iql', '--peer-python', '/no/python'], 'there is no program /no/python'),
        ('stacked_seeds', ['dqm'], "no case 'dqm'; there are dqn, ppo, sac"),
        ('hindsight', ['fetch'], 'unrecognized arguments: fetch'),
        ('teams', ['/no/python'], 'there is no program /no/python'),
        ('teams', [sys.executable, '--seeds', 'x'], 'argument --seeds: invalid'),
        ('offline', ['/no/python'], 'there is no program /no/python'),
        ('offline', [sys.executable, 'iql', '--updates', '0'], "'0' is not a whole number >= 1"),
        ('recording', ['cartpole_dqm'], "no config 'cartpole_dqm'; there are cartpole_dqn, "),
        ('dict_obs', ['cart'], "no env 'cart'; there are cartpole, "),
        ('ray_costs', ['call'], "invalid choice: 'call'"),
        ('transport', ['3', 'flask'], "no transport 'flask'; there are "),
        ('frames', ['many'], "'many' is not a whole number >= 1"),
        ('tune_costs', ['0'], "'0' is not a whole number >= 1"),
        ('hops', ['many'], "'many' is not a whole number >= 1"),
        ('league', ['nowhere'], 'nowhere/ckpt/latest: no such file or directory'),
    ],
)
def test_mistakes_of_a_command_end_it_before_anything_is_measured_or_written(
    script, words, text, cwd, monkeypatch, capsys
):
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setenv('OMP_NUM_THREADS', '1')  # some set it
    monkeypatch.setattr(sys, 'argv', [script, *words])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(script).main()
    assert text in f'{ended.value.code} {capsys.readouterr().err}'
    assert not (cwd / 'page.md').exists()
