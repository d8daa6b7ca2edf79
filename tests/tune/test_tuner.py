"""Searches do what they are for, every failure is seen, and nothing is left but the results folder."""

from __future__ import annotations

import csv
import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray import tune
from tune_runs import (
    RATE,
    SCORED,
    assert_same_state,
    children,
    comparable,
    has_free_cpus,
    ray_results,
    run_records,
    saved_state,
    search,
    trial_config,
)

import rlframe
from rlframe.errors import ResourceError
from rlframe.pipeline import SerialPipeline
from rlframe.tune import write_report
from rlframe.tune.schedulers import make_scheduler
from rlframe.tune.trial import Trial, compile_trial

pytestmark = [pytest.mark.ray, pytest.mark.slow]
FAULT = 'env.kwargs.fault'


@pytest.fixture(autouse=True)
def nothing_is_left(two_cpus: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Every search leaves the working directory, Ray's own folder for results and all CPUs as they were, and no thread."""
    cwd = tmp_path / 'cwd'
    cwd.mkdir()
    monkeypatch.chdir(cwd)
    threads, before = threading.active_count(), ray_results()
    yield
    assert list(cwd.iterdir()) == [] and ray_results() == before
    assert threading.active_count() <= threads + 1, [thread.name for thread in threading.enumerate()]
    assert has_free_cpus(), ray.available_resources()


def rows(result: Any) -> list[dict[str, Any]]:
    """Returns the results of a trial as they were written, one line each."""
    return [json.loads(line) for line in (Path(result.path) / 'result.json').read_text().splitlines()]


# schedulers


def test_asha_stops_the_worst_early_and_says_what_was_best(tmp_path: Path) -> None:
    scores = [7, 0, 5, 1, 6, 2, 4, 3]
    options = {'env.kwargs.score': tune.grid_search(scores)}
    results = search(
        tmp_path, options, SCORED, scheduler='asha', max_env_step=1500, name='found', max_concurrent_trials=1
    )
    assert len(results) == 8 and results.num_errors == 0
    steps = {result.config['env.kwargs.score']: result.metrics['timesteps_total'] for result in results}
    assert steps[7] >= 1500
    assert all(steps[score] < 700 for score in scores if score < 7)
    assert all(steps[score] < 300 for score in (0, 1, 2))
    for result in results:
        lines = rows(result)
        assert [line['training_iteration'] for line in lines] == list(range(1, len(lines) + 1))
        assert (
            lines[-1]['timesteps_total']
            == lines[-1]['envstep']
            == sum(r['timesteps_this_iter'] for r in lines)
        )
        assert lines[-1]['episodes_total'] == lines[-1]['episodes']
        header = (Path(result.path) / 'progress.csv').read_text().splitlines()[0].split(',')
        assert {'eval/mean_reward', 'rollout/ep_rew_mean', 'eval_is_fresh', 'timesteps_total'} <= set(header)
        run = Path(result.path) / 'run'
        assert list(run.glob('tensorboard/events*')) and run_records(run)
        assert len(list(Path(result.path).glob('checkpoint_*'))) <= 4
        assert 'nothing read it' not in (run / 'log.txt').read_text()
    report = write_report(results)
    assert report.folder == tmp_path / 'found' and report.notes == () and report.errors == []
    assert report.best is not None and report.best.options == {'env.kwargs.score': 7}
    assert [round(row.score) for row in report.rows] == sorted(scores, reverse=True)
    with open(report.folder / 'trials.csv', encoding='utf-8') as file:
        table = list(csv.DictReader(file))
    assert [row['env.kwargs.score'] for row in table] == ['7', '6', '5', '4', '3', '2', '1', '0']
    assert (report.folder / 'scores.png').stat().st_size > 5000
    best = compile_trial({'config': str(report.folder / 'best_config.py')})
    assert best.env.kwargs.score == 7 and best.max_env_step == 1500
    assert rlframe.load(report.folder / 'best_policy').act(np.zeros(2, np.float32)) in (0, 1)


def test_pbt_clones_train_with_their_own_rates_and_the_moments_of_the_donor(tmp_path: Path) -> None:
    results = search(
        tmp_path,
        {RATE: tune.uniform(0.001, 0.01)},
        SCORED,
        scheduler='pbt',
        interval=2,
        num_samples=2,
        seed=1,
        max_env_step=900,
    )
    assert results.num_errors == 0
    exploits = (Path(results.experiment_path) / 'pbt_global.txt').read_text().splitlines()
    assert exploits
    clones = 0
    for result in results:
        runs = sorted((path for path in Path(result.path).glob('run*')), key=lambda p: int(p.name[4:] or 0))
        used = [
            record['train/learning_rate']
            for record in run_records(runs[-1])
            if 'train/learning_rate' in record
        ]
        assert used and used[-1] == pytest.approx(result.config[RATE], rel=1e-6)
        lines = rows(result)
        totals = [line['timesteps_total'] for line in lines]
        assert all(line['timesteps_total'] == line['envstep'] for line in lines)
        assert totals[-1] >= 900
        clones += len({line['config'][RATE] for line in lines}) > 1 and len(runs) > 1
        state = saved_state(Path(result.checkpoint.path))
        for moment in state['policy']['optimizers']['model'].values():
            assert int(moment['steps']) == state['progress']['train_iter'], (
                "moments are of all steps, also the donor's"
            )
    assert clones > 0, 'a trial was given another rate'
    assert write_report(results).best is not None


def test_pbt_goes_on_without_a_trial_that_failed(tmp_path: Path) -> None:
    """Four trials share two CPUs; Ray's own PBT would wait for the failed one for ever."""
    env = {**SCORED, 'env.env_id': 'tune_envs:FirstFails', 'env.kwargs.folder': str(tmp_path)}
    space = {RATE: tune.choice([0.001, 0.002, 0.004])}
    results = search(
        tmp_path, space, env, scheduler='pbt', interval=2, num_samples=4, seed=0, max_env_step=900
    )
    assert results.num_errors == 1
    ended = sorted((result.metrics or {}).get('timesteps_total', 0) >= 900 for result in results)
    assert ended == [False, True, True, True]
    assert (Path(results.experiment_path) / 'pbt_global.txt').read_text().count('\n') >= 2


class SlowToSave(tune.Trainable):
    """The worse one of two trials takes long to be saved, and meanwhile the better one comes to the decision too."""

    def setup(self, config: dict[str, Any]) -> None:
        self.is_worse = config[RATE] == 0.001

    def step(self) -> dict[str, Any]:
        time.sleep(0 if self.is_worse else 0.4)
        return {'eval/mean_reward': float(not self.is_worse), 'done': self.iteration == 3}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        time.sleep(2 if self.is_worse and self.iteration == 2 else 0)
        Path(checkpoint_dir, 'any').touch()

    def load_checkpoint(self, checkpoint: Any) -> None: ...


@pytest.mark.filterwarnings('ignore:Consider boosting PBT')
def test_trial_that_is_being_saved_when_it_takes_over_goes_on_to_its_end(tmp_path: Path) -> None:
    space = {RATE: tune.grid_search([0.001, 0.002])}
    cfg = compile_trial(trial_config())
    tuner = tune.Tuner(
        SlowToSave,
        param_space=space,
        tune_config=tune.TuneConfig(
            metric='eval/mean_reward', mode='max', scheduler=make_scheduler('pbt', cfg, space, 2)
        ),
        run_config=tune.RunConfig(
            storage_path=str(tmp_path),
            name='slow',
            verbose=0,
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
        ),
    )
    results = tuner.fit()
    assert [result.metrics['training_iteration'] for result in results] == [4, 4]
    assert (tmp_path / 'slow' / 'pbt_global.txt').is_file()


@pytest.mark.filterwarnings('ignore:The optimal value found for dimension', 'ignore:scipy.optimize')
@pytest.mark.parametrize(
    ('scheduler', 'package', 'options'),
    [
        ('hyperband', 'ray', {'num_samples': 4}),
        ('median', 'ray', {'num_samples': 3, 'interval': 1}),
        ('pb2', 'sklearn', {'num_samples': 2, 'interval': 2}),
    ],
)
def test_scheduler_brings_a_search_to_its_end(
    scheduler: str, package: str, options: dict[str, Any], tmp_path: Path
) -> None:
    pytest.importorskip(package)
    space = {RATE: tune.uniform(0.001, 0.01)}
    results = search(tmp_path, space, scheduler=scheduler, max_env_step=900, seed=0, **options)
    assert results.num_errors == 0 and len(results) == options['num_samples']
    assert max(result.metrics['timesteps_total'] for result in results) >= 900
    assert all(rows(result)[-1]['timesteps_total'] == rows(result)[-1]['envstep'] for result in results)
    assert write_report(results).best is not None


def test_optuna_searches_and_its_trials_are_stopped_by_a_scheduler(tmp_path: Path) -> None:
    pytest.importorskip('optuna')
    space = {'env.kwargs.score': tune.uniform(1, 2), 'policy.learn.batch_size': tune.choice([8, 16])}
    results = search(
        tmp_path,
        space,
        SCORED,
        search='optuna',
        scheduler='asha',
        num_samples=4,
        seed=0,
        max_env_step=600,
        max_concurrent_trials=1,
    )
    assert results.num_errors == 0 and len(results) == 4
    report = write_report(results)
    assert report.best is not None and 1 <= report.best.options['env.kwargs.score'] <= 2
    assert len({row.options['env.kwargs.score'] for row in report.rows}) == 4


def test_reused_process_gives_what_a_new_one_gives_and_both_what_a_plain_run_gives(tmp_path: Path) -> None:
    space = {RATE: tune.grid_search([0.001, 0.003]), 'seed': 5}
    found = []
    for reuse_actors in (True, False):
        results = search(
            tmp_path, space, max_concurrent_trials=1, max_env_step=600, reuse_actors=reuse_actors
        )
        assert results.num_errors == 0
        found.append(list(results))
    pids = [{row['pid'] for result in half for row in rows(result)} for half in found]
    assert len(pids[0]) == 1 and len(pids[1]) == 2
    for reused, fresh in zip(*found, strict=True):
        lines = [[comparable(row) for row in rows(result)] for result in (reused, fresh)]
        assert lines[0] == lines[1] and len(lines[0]) > 2
        assert_same_state(Path(reused.checkpoint.path), Path(fresh.checkpoint.path))
        kept = [run_records(Path(result.path) / 'run') for result in (reused, fresh)]
        assert kept[0] == kept[1]
    options = {RATE: 0.003, 'seed': 5, 'max_env_step': 600}
    (tmp_path / 'straight').mkdir()
    with SerialPipeline(compile_trial(trial_config(options=options)), tmp_path / 'straight') as pipeline:
        pipeline.run()
        assert pipeline.progress.envstep == found[0][1].metrics['envstep']
        pipeline.save_checkpoint(tmp_path / 'plain' / 'latest')
    assert_same_state(tmp_path / 'plain', Path(found[0][1].checkpoint.path))


# failures


def told(results: Any, name: str) -> tuple[Any, Any]:
    """Returns the error of the one trial that failed, and its row in the report; the other trial is a success."""
    report = write_report(results)
    assert results.num_errors == len(report.errors) == 1 and len(results) == 2
    row = report.errors[0]
    assert report.best is not None and report.best is not row
    assert report.best.result.metrics['timesteps_total'] >= 600
    assert name in row.error and '\n' not in row.error
    assert name in (report.folder / 'trials.csv').read_text()
    return next(result.error for result in results if result.error), row


@pytest.mark.parametrize(
    ('fault', 'says'),
    [
        ('raise', 'SimulatorError: joint 3: lost its mind'),
        ('nan', 'NonFiniteError: env 0'),
        ('hang', 'StallError: stall_timeout: no progress for 1.5 seconds'),
    ],
)
def test_fault_of_an_env_is_the_error_of_its_trial(fault: str, says: str, tmp_path: Path) -> None:
    space = {FAULT: tune.grid_search(['', fault])} | ({'stall_timeout': 1.5} if fault == 'hang' else {})
    results = search(tmp_path, space, SCORED, max_env_step=600)
    error, row = told(results, says)
    assert says.partition(': ')[2] in str(error)
    reports = list((Path(row.result.path) / 'run').glob('crash_iteration_*.txt'))
    assert len(reports) == 1 and 'Traceback' in reports[0].read_text()
    if fault == 'hang':
        assert 'time.sleep' in reports[0].read_text()


def test_env_that_hangs_in_a_worker_process_is_the_error_of_its_trial(tmp_path: Path) -> None:
    before = children()
    manager = {'env.manager.type': 'subprocess', 'env.manager.worker_num': 1, 'env.manager.step_timeout': 1.5}
    results = search(tmp_path, {FAULT: tune.grid_search(['', 'hang']), **manager}, SCORED, max_env_step=600)
    told(results, 'EnvTimeoutError: env.manager.step_timeout: env ')
    assert [pid for pid in children() - before if 'env_worker' in command(pid)] == []


def command(pid: int) -> str:
    try:
        return Path(f'/proc/{pid}/cmdline').read_text().replace('\0', ' ')
    except OSError:
        return ''


def test_search_of_failures_only_has_a_report_without_a_best(tmp_path: Path) -> None:
    space = {FAULT: 'raise', 'env.kwargs.at': tune.grid_search([1, 2])}
    results = search(tmp_path, space, SCORED, max_env_step=600)
    report = write_report(results)
    assert report.best is None and len(report.errors) == 2
    assert sorted(path.name for path in report.folder.glob('*.csv')) == ['trials.csv']
    assert not (report.folder / 'best_config.py').exists()


def test_trial_that_is_begun_again_after_an_error_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    once = tmp_path / 'once'
    options = {**SCORED, 'env.env_id': 'tune_envs:FailsOnce', 'env.kwargs.file': str(once)}
    results = search(
        tmp_path, {'env.kwargs.at': tune.grid_search([60])}, options, max_env_step=600, max_failures=1
    )
    assert once.exists() and results.num_errors == 0
    lines = rows(results[0])
    assert lines[-1]['timesteps_total'] == lines[-1]['envstep'] >= 600
    assert [line['training_iteration'] for line in lines] == list(range(1, len(lines) + 1))
    assert sorted(path.name for path in Path(results[0].path).glob('run*')) == ['run', 'run_1']


# resources


NESTED = {
    'collector.backend': 'ray',
    'collector.num_collectors': 1,
    'collector.remote_configs': {'num_cpus': 0.5},
    'resources': {'CPU': 0.5},
}


def test_nested_collectors_of_more_trials_than_fit_wait_and_finish(tmp_path: Path) -> None:
    """Each trial takes a CPU and a half of the two that there are."""
    before = children()
    nested = {k: v for k, v in NESTED.items() if k != 'resources'}
    results = search(
        tmp_path, {RATE: tune.grid_search([0.001, 0.01, 0.1])}, nested, max_env_step=400, resources={'CPU': 1}
    )
    assert results.num_errors == 0 and len(results) == 3
    assert all(result.metrics['timesteps_total'] >= 400 for result in results)
    for result in results:
        records = run_records(Path(result.path) / 'run')
        assert any(key.startswith('ray/') for record in records for key in record)
    assert [command(pid) for pid in children() - before if 'Collector' in command(pid)] == []
    assert [actor for actor in ray.util.list_named_actors(True) if actor] == []


def test_request_larger_than_the_cluster_is_refused_with_the_numbers(tmp_path: Path) -> None:
    big = {'collector.backend': 'ray', 'collector.num_collectors': 3}
    with pytest.raises(
        ResourceError, match=r'a trial needs 4 CPU in 4 bundle\(s\).*the cluster has 2 on 1 node'
    ):
        search(tmp_path, {RATE: tune.uniform(0.1, 0.2)}, big)
    with pytest.raises(ResourceError, match=r'a trial needs 9 CPU'):
        search(tmp_path, {RATE: tune.uniform(0.1, 0.2)}, resources={'CPU': 9})
    assert list(tmp_path.iterdir()) == [tmp_path / 'cwd'], 'nothing was made'


def test_sampled_request_that_never_fits_ends_the_search_with_the_numbers(tmp_path: Path) -> None:
    seven = {'collector.num_collectors': tune.grid_search([1, 7]), 'collector.backend': 'ray'}
    with pytest.raises(ResourceError, match=r'a trial needs 8 CPU in 8 bundle\(s\).*the cluster has 2'):
        search(tmp_path, seven)
    assert list(tmp_path.iterdir()) == [tmp_path / 'cwd'], 'nothing was made'
    seven['collector.num_collectors'] = tune.sample_from(lambda spec: 7)  # known when it is drawn
    with pytest.raises(ResourceError, match=r'trial_\w+ needs 8 CPU in 8 bundle\(s\).*the cluster has 2'):
        search(tmp_path, seven)


# what a user gave


def test_ray_of_the_user_is_used_and_stays(tmp_path: Path) -> None:
    job = ray.get_runtime_context().get_job_id()
    results = search(tmp_path, {RATE: tune.grid_search([0.01])}, max_env_step=300)
    assert results.num_errors == 0
    assert ray.is_initialized() and ray.get_runtime_context().get_job_id() == job


def test_path_in_a_space_is_that_of_the_driver_whatever_the_folder_of_the_trial(tmp_path: Path) -> None:
    (tmp_path / 'first').mkdir()
    with SerialPipeline(compile_trial(trial_config()), tmp_path / 'first') as pipeline:
        pipeline.save_checkpoint(tmp_path / 'old')
    results = search(tmp_path, {'policy.init_from': '../old'}, max_env_step=200)
    assert results.num_errors == 0


def test_trials_can_be_stopped_by_a_score_and_compared_by_rollouts(tmp_path: Path) -> None:
    results = search(
        tmp_path,
        {'env.kwargs.score': tune.grid_search([1.0, 9.0])},
        SCORED,
        metric='rollout/ep_rew_mean',
        mode='min',
        stop={'eval/mean_reward': 8.0},
        checkpoint_frequency=3,
        max_env_step=1500,
    )
    assert results.num_errors == 0
    by_score = {result.config['env.kwargs.score']: result.metrics for result in results}
    assert by_score[9.0]['training_iteration'] == 1 < by_score[1.0]['training_iteration']
    report = write_report(results)
    assert report.best is not None and report.best.options == {'env.kwargs.score': 1.0}
    assert rlframe.load(report.folder / 'best_policy')
    assert next(iter(results)).get_best_checkpoint('rollout/ep_rew_mean', 'min') is not None


def test_checkpoint_of_a_trial_is_one_of_the_command_line(tmp_path: Path) -> None:
    results = search(tmp_path, {RATE: tune.grid_search([0.01])}, max_env_step=300, storage='results here')
    folder = Path(results[0].checkpoint.path)
    taken = Trial(trial_config(options={RATE: 0.01, 'max_env_step': 900}), tmp_path / 'home', 'other')
    (tmp_path / 'home').mkdir()
    taken.load(folder)
    assert taken.step()['envstep'] > 300
    taken.close()
