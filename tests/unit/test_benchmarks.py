"""The benchmark report: ratios, spreads, verdicts and tables, on figures that nobody measured."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / 'benchmarks'


@pytest.fixture
def report(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module('report')


@pytest.fixture
def cases(report):
    return importlib.import_module('cases')


@pytest.fixture
def make_case(cases):
    def make(measure='seconds', goals=()):
        return cases.Case(
            name='c',
            title='W1 fabricated',
            script='s.py',
            side='w1',
            measure=measure,
            peers=('a', 'b'),
            goals=goals,
            sizes=(1,),
        )

    return make


@pytest.fixture
def make_records(report):
    def make(measure='seconds', **sides):
        return [
            report.Record('c', side, i, {measure: value, 'env_steps': 800, 'updates': 40 + i})
            for side, values in sides.items()
            for i, value in values.items()
        ]

    return make


def test_the_ratio_shown_is_the_median_of_ratios_not_the_ratio_of_medians(report, make_case, make_records):
    records = make_records(rlframe={1: 1.0, 2: 2.0, 3: 10.0}, a={1: 4.0, 2: 2.0, 3: 30.0})
    line = report.rows(records, make_case(), {})[1]
    assert line.ratio == (3.0, 1.0, 4.0)
    assert line.value == (4.0, 2.0, 30.0)


def test_a_run_replaces_what_was_measured_of_its_workloads_and_keeps_the_rest(report):
    def run(name, *names):
        records = [report.Record(case, 'rlframe', 1, {'seconds': 1.0}) for case in names]
        return report.Run(name, {}, 1, tuple(case[:2] for case in names), {}, records)

    first, second = run('first', 'w1', 'w4'), run('second', 'w4')
    one, two = report.with_run([first], second)
    assert (one.workloads, [record.case for record in one.records]) == (('w1',), ['w1']) and two == second
    assert report.with_run([second], run('third', 'w4'))[0].command == 'third'
    assert report.Run.from_json(json.loads(json.dumps(first.to_json()))) == first


@pytest.mark.slow
def test_the_command_runs_both_sides_and_shows_a_ratio():
    options = ['--quick', '--workloads', 'w2', '--repeats', '1', '--peers', 'raw', '--no-write']
    before = sorted(BENCHMARKS.parent.glob('docs/*')), sorted(BENCHMARKS.glob('*.json'))
    answer = subprocess.run(
        [sys.executable, str(BENCHMARKS / 'run.py'), *options], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    assert 'W2 collect, 8 envs (transitions/s)' in answer.stdout
    assert 'w2-8 round 1/1: raw' in answer.stderr
    assert 'tianshou' not in answer.stdout
    assert (sorted(BENCHMARKS.parent.glob('docs/*')), sorted(BENCHMARKS.glob('*.json'))) == before


@pytest.mark.parametrize('kind', ['flask_fs', 'files per sample'])
def test_benchmark_of_transports_measures_each(kind, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    transport = importlib.import_module('transport')
    monkeypatch.setattr(transport, 'SECONDS', 0.0)
    monkeypatch.setattr(transport, 'SIZES', {'10 KB': 10_000})
    found = transport.measured(kind)
    assert list(found) == ['no payload', '10 KB'] and not transport.CHILDREN
    assert all(us > 0 and cpu >= 0 for us, cpu in found.values())
