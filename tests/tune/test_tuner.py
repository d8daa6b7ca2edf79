"""Searches do what they are for, every failure is seen, and nothing is left but the results folder."""

from __future__ import annotations

import csv
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import torch
from error_texts import raises
from fault_envs import wait_until
from ray import tune
from ray.tune.search import Searcher
from ray_runs import descendants
from runs import DQN, ROOT
from torch import nn
from tune_runs import (
    RATE,
    RESULTS,
    SCORED,
    assert_same_state,
    command,
    comparable,
    has_free_cpus,
    ray_results,
    run_records,
    saved_state,
    search,
    trial_config,
)
from zoo import ScoredEnv, SlowEnv

import rlframe
from rlframe.entry.__main__ import main
from rlframe.errors import ResourceError
from rlframe.pipeline import SerialPipeline
from rlframe.tune import RLTrainable, restore_tuner, write_report
from rlframe.tune.schedulers import make_scheduler
from rlframe.tune.trial import compile_trial, trial_options

pytestmark = [pytest.mark.ray, pytest.mark.slow]
FAULT = 'env.kwargs.fault'
COMMAND = ('tune', '-c', str(ROOT / DQN[1]), *DQN[2:])


@pytest.fixture(autouse=True)
def nothing_is_left(two_cpus: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Every search leaves the working directory, Ray, its own folder for results and all CPUs as they were, and no thread."""
    cwd = tmp_path / 'cwd'
    cwd.mkdir()
    monkeypatch.chdir(cwd)
    threads, before = threading.active_count(), ray_results()
    job = ray.get_runtime_context().get_job_id()
    yield
    assert list(cwd.iterdir()) == [] and ray_results() == before
    assert threading.active_count() <= threads + 1, [thread.name for thread in threading.enumerate()]
    assert ray.get_runtime_context().get_job_id() == job, 'it is the Ray of the user'
    assert has_free_cpus(), ray.available_resources()


def rows(trial: str | Path) -> list[dict[str, Any]]:
    """Returns the results of a trial as they were written, one line each."""
    return [json.loads(line) for line in (Path(trial) / 'result.json').read_text().splitlines()]


# the command line


def test_asha_stops_the_worst_early_and_the_command_line_says_what_was_best(
    cwd: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ('--search', 'env.kwargs.score=grid(7,0,5,1)', 'env.env_id=zoo:ScoredEnv')
    words += ('--scheduler', 'asha', '--env-step', '900', '--out', 'found', '--max-concurrent', '1')
    assert main([*COMMAND, *words]) == 0
    out, err = capsys.readouterr()
    assert 'env.kwargs.score each of [7, 0, 5, 1]' in out and 'Number of trials: 4/4 (4 TERMINATED)' in err
    assert 'best of 4 trials' in out and 'done: eval/mean_reward 7 ' in out
    steps = {}
    for trial in Path('found').glob('trial_*/'):
        lines = rows(trial)
        score = json.loads((trial / 'params.json').read_text())['env.kwargs.score']
        steps[score] = lines[-1]['timesteps_total']
        assert [line['training_iteration'] for line in lines] == list(range(1, len(lines) + 1))
        assert steps[score] == lines[-1]['envstep'] == sum(r['timesteps_this_iter'] for r in lines)
        assert lines[-1]['episodes_total'] == lines[-1]['episodes']
        header = (trial / 'progress.csv').read_text().splitlines()[0].split(',')
        assert {'eval/mean_reward', 'rollout/ep_rew_mean', 'eval_is_fresh', 'timesteps_total'} <= set(header)
        assert list(trial.glob('run/tensorboard/events*')) and run_records(trial / 'run')
        assert 1 <= len(list(trial.glob('checkpoint_*'))) <= 4
        assert 'nothing read it' not in (trial / 'run' / 'log.txt').read_text()
    assert steps[7] >= 900 and all(steps[score] < 500 for score in (0, 5, 1))
    with open('found/trials.csv', encoding='utf-8') as file:
        assert [row['env.kwargs.score'] for row in csv.DictReader(file)] == ['7', '5', '1', '0']
    assert Path('found/scores.png').stat().st_size > 5000

    said = dict(line.split(': ', 1) for line in out.splitlines() if ': ' in line)
    best = compile_trial({'config': str(cwd / 'found' / 'best_config.py')})
    assert best.env.kwargs.score == 7 and best.max_env_step == 900
    assert said['train'].split()[3:] == ['-c', 'found/best_config.py']
    assert main(['-c', 'found/best_config.py', '--env-step', '200', '--exp-name', 'again']) == 0
    assert Path('again/metrics.jsonl').is_file()
    assert said['use it'] == "rlframe.load('found/best_policy').act(obs)"
    assert rlframe.load('found/best_policy').act(np.zeros(2, np.float32)) in (0, 1)
    checkpoint = next(Path('found').glob('trial_*/checkpoint_*/latest'))
    assert main(['eval', str(checkpoint), '--episodes', '2', '--json']) == 0


@pytest.mark.parametrize('last', [2, 9999])
def test_search_in_which_a_trial_fails_ends_with_1_and_says_why(
    last: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = [at for at in (1, last) if at < 600]
    words = ('--search', f'env.kwargs.at=grid(1,{last})', '--out', str(tmp_path / 'failed'))
    words += ('--env-step', '200', 'env.env_id=zoo:ScoredEnv', f'{FAULT}=raise')
    assert main([*COMMAND, *words]) == 1
    out, err = capsys.readouterr()
    assert all(f': evaluation: env 0, episode 1, step {at}: step() raised' in out for at in failed)
    assert out.count('lost its mind') == len(failed)
    assert ('no trial has a score' in out) == ('train: ' not in out) == (len(failed) == 2)
    assert 'Traceback' not in out + err
    folder = tmp_path / 'failed'
    assert [path.name for path in folder.glob('*.csv')] == ['trials.csv']
    assert (folder / 'best_config.py').exists() == (len(failed) == 1)


# schedulers and searchers


def test_pbt_clones_have_their_own_rates_and_the_moments_of_the_donor_and_failures_stop_nobody(
    tmp_path: Path,
) -> None:
    """Three trials share two CPUs; Ray's own PBT would wait for the failed one for ever."""
    env = {**SCORED, 'env.env_id': 'zoo:FirstFails', 'env.kwargs.folder': str(tmp_path)}
    space = {RATE: tune.uniform(0.001, 0.01)}
    results = search(
        tmp_path, space, env, scheduler='pbt', interval=2, num_samples=3, seed=1, max_env_step=900
    )
    assert results.num_errors == 1
    assert (Path(results.experiment_path) / 'pbt_global.txt').read_text()
    clones = 0
    for result in [result for result in results if not result.error]:
        runs = sorted(Path(result.path).glob('run*'), key=lambda path: int(path.name[4:] or 0))
        used = [
            line['train/learning_rate'] for line in run_records(runs[-1]) if 'train/learning_rate' in line
        ]
        assert used and used[-1] == pytest.approx(result.config[RATE], rel=1e-6)
        lines = rows(result.path)
        assert all(line['timesteps_total'] == line['envstep'] for line in lines)
        assert lines[-1]['timesteps_total'] >= 900
        clones += len({line['config'][RATE] for line in lines}) > 1 and len(runs) > 1
        state = saved_state(Path(result.checkpoint.path))
        for moment in state['policy']['optimizers']['model'].values():
            assert int(moment['steps']) == state['progress']['train_iter'], "also the donor's"
    assert clones > 0, 'a trial was given another rate'
    assert write_report(results).best is not None


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
    scheduler = make_scheduler('pbt', compile_trial(trial_config()), space, 2)
    tuner = tune.Tuner(
        SlowToSave,
        param_space=space,
        tune_config=tune.TuneConfig(metric='eval/mean_reward', mode='max', scheduler=scheduler),
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


def test_optuna_searches_and_its_trials_are_stopped_by_a_scheduler(tmp_path: Path) -> None:
    pytest.importorskip('optuna')
    space = {'env.kwargs.score': tune.uniform(1, 2), 'policy.learn.batch_size': tune.choice([8, 16])}
    options = {'max_env_step': 600, 'max_concurrent_trials': 1, 'num_samples': 3, 'seed': 0}
    results = search(tmp_path, space, SCORED, search='optuna', scheduler='asha', **options)
    assert results.num_errors == 0
    report = write_report(results)
    assert report.best is not None and 1 <= report.best.options['env.kwargs.score'] <= 2
    assert len({row.options['env.kwargs.score'] for row in report.rows}) == 3


def test_trials_can_be_stopped_by_a_score_and_compared_by_rollouts(tmp_path: Path) -> None:
    results = search(
        tmp_path,
        {'env.kwargs.score': tune.grid_search([1.0, 9.0])},
        SCORED,
        metric='rollout/ep_rew_mean',
        mode='min',
        stop={'eval/mean_reward': 8.0},
        checkpoint_frequency=3,
        max_env_step=600,
    )
    assert results.num_errors == 0
    by_score = {result.config['env.kwargs.score']: result.metrics for result in results}
    assert by_score[9.0]['training_iteration'] == 1 < by_score[1.0]['training_iteration']
    report = write_report(results)
    assert report.best is not None and report.best.options == {'env.kwargs.score': 1.0}
    assert rlframe.load(report.folder / 'best_policy')
    assert next(iter(results)).get_best_checkpoint('rollout/ep_rew_mean', 'min') is not None


# interrupted searches

NETWORKS = tune.choice([[8], [16, 8]])
SPACES: dict[str, dict[str, Any]] = {
    'random': {
        RATE: tune.grid_search([0.001, 0.002]),
        'env.env_id': tune.grid_search([ScoredEnv, SlowEnv]),
        'env.kwargs': tune.choice([{'score': 1.0}, {'score': 2.0, 'at': 3}]),
        'policy.model.encoder_hidden_size_list': NETWORKS,
        'policy.learn.batch_size': tune.sample_from(lambda config: 8 if config[RATE] < 0.002 else 16),
    },
    'optuna': {RATE: tune.uniform(0.001, 0.01), 'policy.learn.batch_size': tune.choice([8, 16])},
    'own': {'policy.model.encoder_hidden_size_list': [8]},
    'asha': {'env.kwargs.score': tune.grid_search([7.0, 0.0, 5.0, 1.0])},
}


class OwnSearch(Searcher):
    """Suggests the learning rates 0.001, 0.002, ..."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def suggest(self, trial_id: str) -> dict[str, Any]:
        self.count += 1
        return {RATE: 0.001 * self.count}

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None: ...

    def save(self, checkpoint_path: str) -> None:
        Path(checkpoint_path).write_text(str(self.count))

    def restore(self, checkpoint_path: str) -> None:
        self.count = int(Path(checkpoint_path).read_text())


class Interrupts(tune.Callback):
    """Ends a search after its first trial, as a signal does; not one that is resumed."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        if not self._file.exists():
            self._file.touch()
            signal.raise_signal(signal.SIGUSR1)


@pytest.mark.filterwarnings('ignore:unclosed file', 'ignore:Exception ignored in')
@pytest.mark.parametrize('name', SPACES)
def test_trials_that_begin_after_a_resume_are_those_of_the_whole_search(name: str, tmp_path: Path) -> None:
    def begun(folder: str, *callbacks: Any) -> Any:
        return search(
            tmp_path / folder,
            SPACES[name],
            {} if name == 'random' else {**SCORED, 'env.kwargs.score': 1.0},
            search={'own': OwnSearch(), 'optuna': 'optuna'}.get(name, 'random'),
            scheduler='asha' if name == 'asha' else 'none',
            num_samples=4 if name in ('own', 'optuna') else 1,
            seed=3,
            max_env_step=900 if name == 'asha' else 100,
            max_concurrent_trials=1,
            callbacks=callbacks,
        )

    def known(results: Any) -> list[tuple[Any, int]]:
        assert [result.error for result in results] == [None] * 4
        assert all(Path(result.checkpoint.path).is_dir() for result in results)
        assert all(result.path.startswith(results.experiment_path) for result in results)
        found = [(trial_options(result.config), result.metrics['timesteps_total']) for result in results]
        return sorted(found, key=repr)

    if name == 'optuna':
        pytest.importorskip('optuna')
    whole = known(begun('whole'))
    assert len(begun('cut', Interrupts(tmp_path / 'cut.txt'))) < 4
    (tmp_path / 'cut').rename(tmp_path / 'moved')
    assert known(restore_tuner(tmp_path / 'moved' / 'search').fit()) == whole
    assert not (tmp_path / 'cut').exists()


# trials


def test_reused_process_gives_what_a_plain_run_gives(tmp_path: Path) -> None:
    (tmp_path / 'first').mkdir(), (tmp_path / 'straight').mkdir()
    with SerialPipeline(compile_trial(trial_config()), tmp_path / 'first') as pipeline:
        pipeline.save_checkpoint(tmp_path / 'old')
    space = {RATE: tune.grid_search([0.001, 0.003]), 'seed': 5, 'policy.init_from': '../old'}
    options = {'max_concurrent_trials': 1, 'max_env_step': 400, 'reuse_actors': True}
    found = list(search(tmp_path / 'results here', space, **options))
    assert not any(result.error for result in found)
    assert len({row['pid'] for result in found for row in rows(result.path)}) == 1
    options = {RATE: 0.003, 'seed': 5, 'max_env_step': 400, 'policy.init_from': str(tmp_path / 'old')}
    with SerialPipeline(compile_trial(trial_config(options=options)), tmp_path / 'straight') as pipeline:
        pipeline.run()
        assert pipeline.progress.envstep == found[1].metrics['envstep']
        pipeline.save_checkpoint(tmp_path / 'plain' / 'latest')
    assert_same_state(tmp_path / 'plain', Path(found[1].checkpoint.path))


class Watched(RLTrainable):
    """A trial outside of Tune, which tells what only its own process can see."""

    def __init__(self, *args: Any, **given: Any) -> None:
        import ray.tune.trainable.trainable as module

        module.DEFAULT_STORAGE_PATH = os.environ[RESULTS]
        super().__init__(*args, **given)

    def model_type(self) -> str:
        return type(self._running.pipeline.policy.model).__name__


class Net(nn.Module):
    """A network of a user's own."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 2)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.body(obs.float())


def test_network_is_given_by_with_parameters_and_resources_by_with_resources() -> None:
    def ask(method: Any, *arguments: Any) -> Any:
        return ray.get(method.remote(*arguments), timeout=60)

    with_model = tune.with_parameters(Watched, model=Net())
    actor = ray.remote(num_cpus=1)(with_model).remote(config=trial_config())
    results = [comparable(ask(actor.train)) for _ in range(2)]
    assert ask(actor.model_type) == 'Net'
    assert ask(actor.reset, trial_config()) is True
    assert [comparable(ask(actor.train)) for _ in range(2)] == results
    ray.kill(actor)
    assert with_model.default_resource_request(trial_config()).bundles == [{'CPU': 1.0}]
    smaller = tune.with_resources(RLTrainable, {'CPU': 0.5})
    assert smaller.default_resource_request(trial_config()).required_resources == {'CPU': 0.5}


# failures


def test_fault_of_an_env_is_the_error_of_its_trial(tmp_path: Path) -> None:
    says = {
        'raise': 'SimulatorError: joint 3: lost its mind',
        'nan': 'NonFiniteError: env 0',
        'hang': 'StallError: stall_timeout: no progress for 8 seconds',
    }
    space = {FAULT: tune.grid_search(['', *says]), 'stall_timeout': 8}
    results = search(tmp_path, space, SCORED, max_env_step=400)
    report = write_report(results)
    assert results.num_errors == len(report.errors) == 3
    assert report.best is not None and report.best.result.metrics['timesteps_total'] >= 400
    for row in report.errors:
        fault = row.options[FAULT]
        assert says[fault] in row.error and '\n' not in row.error
        assert says[fault].partition(': ')[2] in str(row.result.error)
        assert says[fault] in (report.folder / 'trials.csv').read_text()
        told = (Path(row.result.path) / 'run' / 'log.txt').read_text()
        assert 'Traceback' in told and (fault != 'hang' or 'time.sleep' in told)


def test_trial_that_is_begun_again_after_an_error_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    once = tmp_path / 'once'
    options = {**SCORED, 'env.env_id': 'zoo:FailsOnce', 'env.kwargs.file': str(once)}
    results = search(tmp_path, {'env.kwargs.at': 60}, options, max_env_step=600, max_failures=1)
    assert once.exists() and results.num_errors == 0
    lines = rows(results[0].path)
    assert lines[-1]['timesteps_total'] == lines[-1]['envstep'] >= 600
    assert [line['training_iteration'] for line in lines] == list(range(1, len(lines) + 1))
    assert sorted(path.name for path in Path(results[0].path).glob('run*')) == ['run', 'run_1']


# resources


def test_nested_collectors_of_more_trials_than_fit_wait_and_finish(tmp_path: Path) -> None:
    """Each trial takes a CPU and a half of the two that there are."""
    before = descendants(os.getpid())
    nested = {'collector.backend': 'ray', 'collector.num_collectors': 1}
    nested['collector.remote_configs'] = {'num_cpus': 0.5}
    results = search(
        tmp_path, {RATE: tune.grid_search([0.001, 0.01])}, nested, max_env_step=400, resources={'CPU': 1}
    )
    assert results.num_errors == 0 and len(results) == 2
    for result in results:
        assert result.metrics['timesteps_total'] >= 400
        assert any(
            key.startswith('ray/') for record in run_records(Path(result.path) / 'run') for key in record
        )

    def collectors_are_gone() -> bool:
        return not any('Collector' in command(pid) for pid in descendants(os.getpid()) - before)

    assert wait_until(collectors_are_gone, 60), 'their processes end soon after the search'
    assert [actor for actor in ray.util.list_named_actors(True) if actor] == []


def test_request_larger_than_the_cluster_is_refused_with_the_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    actors = ('collector.backend=ray', 'collector.num_collectors=5000')
    assert main([*COMMAND, *actors, '-n', '2']) == 2
    assert 'resources: actors need 5001 x {CPU: 1}; free: CPU 2 of 2 on 1 node' in capsys.readouterr().err
    with raises(ResourceError):
        search(tmp_path, {RATE: tune.uniform(0.1, 0.2)}, resources={'CPU': 9})
    seven = {'collector.num_collectors': tune.grid_search([1, 7]), 'collector.backend': 'ray'}
    with raises(ResourceError):
        search(tmp_path, seven)
    assert list(tmp_path.iterdir()) == [tmp_path / 'cwd'], 'nothing was made'
