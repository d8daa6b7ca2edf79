"""The benchmark report: ratios, spreads, verdicts and tables, on figures that nobody measured."""

from __future__ import annotations

import importlib
import json
import os
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


def test_more_steps_a_second_than_the_peer_is_a_ratio_above_one(report, make_case, make_records):
    records = make_records('env_steps_per_s', rlframe={1: 30.0}, a={1: 10.0})
    assert report.ratios(records, make_case('env_steps_per_s'), 'a') == [3.0]


def test_a_ratio_compares_runs_of_one_round_only(report, make_case, make_records):
    records = make_records(rlframe={1: 1.0, 2: 100.0, 3: 1.0}, a={2: 200.0, 3: 5.0, 4: 9.0})
    assert report.ratios(records, make_case(), 'a') == [2.0, 5.0]


def test_the_ratio_shown_is_the_median_of_ratios_not_the_ratio_of_medians(report, make_case, make_records):
    records = make_records(rlframe={1: 1.0, 2: 2.0, 3: 10.0}, a={1: 4.0, 2: 2.0, 3: 30.0})
    line = report.rows(records, make_case(), {})[1]
    assert line.ratio == (3.0, 1.0, 4.0)
    assert line.value == (4.0, 2.0, 30.0)


def test_a_goal_against_a_peer_is_met_from_its_ratio_on(report, cases, make_case, make_records):
    case = make_case(goals=(cases.Goal('a', 1.5), cases.Goal('b', 1.5)))
    records = make_records(rlframe={1: 2.0}, a={1: 3.0}, b={1: 2.9})
    own, a, b = report.rows(records, case, {})
    assert (own.verdict, a.verdict, b.verdict) == ('', 'met', 'missed')
    assert a.goal == '>= 1.5x'


def test_a_peer_that_did_not_run_is_listed_with_the_reason(report, make_case, make_records):
    lines = report.rows(make_records(rlframe={1: 1.0}, a={1: 1.0}), make_case(), {'b': 'b is not installed'})
    assert report.cells(lines[2])[:2] == ['b', 'b is not installed']


def test_the_document_names_machine_command_workload_and_goals(report, cases, make_case, make_records):
    case = make_case(goals=(cases.Goal('a', 1.5),))
    run = report.Run(
        'python benchmarks/run.py',
        {'processor': 'abacus'},
        1,
        ('w1',),
        {},
        make_records(rlframe={1: 2.0}, a={1: 3.0}),
    )
    document = report.markdown([run], [case])
    for part in (
        'processor abacus',
        '1 round by `python benchmarks/run.py`',
        '## W1',
        'W1 fabricated',
        '| met |',
    ):
        assert part in document
    assert all(line.count('|') == 9 for line in document.splitlines() if line.startswith(('| side', '| a')))


def test_a_run_replaces_what_was_measured_of_its_workloads_and_keeps_the_rest(report):
    def run(name, *names):
        records = [report.Record(case, 'rlframe', 1, {'seconds': 1.0}) for case in names]
        return report.Run(name, {}, 1, tuple(case[:2] for case in names), {}, records)

    first, second = run('first', 'w1', 'w4'), run('second', 'w4')
    one, two = report.with_run([first], second)
    assert (one.workloads, [record.case for record in one.records]) == (('w1',), ['w1']) and two == second
    assert report.with_run([second], run('third', 'w4'))[0].command == 'third'
    assert report.Run.from_json(json.loads(json.dumps(first.to_json()))) == first


def test_every_case_names_halves_that_exist_and_goals_of_its_peers(cases):
    for case in cases.CASES:
        source = (BENCHMARKS / 'peers' / case.script).read_text(encoding='utf-8')
        assert all(f'def {peer}(' in source for peer in case.peers)
        assert {goal.peer for goal in case.goals} <= {'', *case.peers}
        assert case.workload in cases.WORKLOADS


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


@pytest.mark.slow
def test_rlframes_half_of_dqn_updates_as_often_as_the_hand_written_one():
    counts = []
    for script in ([BENCHMARKS / 'rlframe_side.py', 'w1'], [BENCHMARKS / 'peers' / 'w1_dqn.py', 'limit']):
        command = [sys.executable, *map(str, script), '160']
        answer = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, 'PYTHONPATH': str(BENCHMARKS.parent), 'OMP_NUM_THREADS': '1'},
        )
        measured = json.loads(answer.stdout.splitlines()[-1])
        counts.append((measured['env_steps'], measured['updates']))
    assert counts == [(160, 65), (160, 65)]


RAY = pytest.param('ray', marks=[pytest.mark.ray, pytest.mark.slow])


@pytest.mark.parametrize('kind', ['in_process', 'flask_fs', RAY, 'files per sample'])
def test_benchmark_of_transports_measures_each(kind, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    transport = importlib.import_module('transport')
    monkeypatch.setattr(transport, 'SECONDS', 0.0)
    monkeypatch.setattr(transport, 'SIZES', {'10 KB': 10_000})
    found = transport.measured(kind)
    assert list(found) == ['no payload', '10 KB'] and not transport.CHILDREN
    assert all(us > 0 and cpu >= 0 for us, cpu in found.values())
