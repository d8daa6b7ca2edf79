"""``RLTrainable`` does what ``ray.tune.Trainable`` promises, without a Ray: own states, stopped trials, repeated samples."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from error_texts import raises
from ray import tune
from ray.cloudpickle import dumps, loads
from runs import ROOT
from tune_runs import RATE, assert_same_state, comparable, trial_config

import rlframe
from rlframe import errors
from rlframe.config import read_config
from rlframe.errors import NonFiniteError, TrialStoppedError
from rlframe.tune import RLTrainable
from rlframe.tune.tuner import Repeats, SeededVariants

SINCE = ('iterations_since_restore', 'timesteps_since_restore')


def results_of(*trials: Any) -> list[dict[str, Any]]:
    """Returns the next result of each trial but for what only a restored one has."""
    return [{k: v for k, v in comparable(trial.train()).items() if k not in SINCE} for trial in trials]


class Plain(RLTrainable):
    """Makes its folder where the test says."""

    home: Path

    def _setup_logdir(self) -> None:
        self._logdir = str(self.home)
        Path(self._logdir).mkdir(exist_ok=True)


class Counting(Plain):
    """Saves more than the run does, in a file of its own."""

    steps = 0

    def step(self) -> dict[str, Any]:
        self.steps += 1
        return super().step()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        super().save_checkpoint(checkpoint_dir)
        Path(checkpoint_dir, 'steps.txt').write_text(str(self.steps))

    def load_checkpoint(self, checkpoint: str) -> None:
        super().load_checkpoint(checkpoint)
        self.steps = int(Path(checkpoint, 'steps.txt').read_text())


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Any]:
    """Makes trials in this process, which end with the test."""
    made: list[RLTrainable] = []

    def start(kind: type[Plain] = Plain, **config: Any) -> Any:
        home = tmp_path / f'trial{len(made)}'
        made.append(type(kind.__name__, (kind,), {'home': home})(config or trial_config()))
        return made[-1]

    yield start
    for trial in made:
        trial.stop()


# states


def test_restored_trial_goes_on_with_the_same_bits_and_counts(begin: Any, tmp_path: Path) -> None:
    one, other = begin(Counting), begin(Counting)
    results = [one.train(), *one.train_buffered(0.0, 5)]
    assert [result['training_iteration'] for result in results] == [1, 2]
    steps = sum(result['timesteps_this_iter'] for result in results)
    assert results[-1]['timesteps_total'] == steps == results[-1]['envstep']
    assert results[-1]['episodes_total'] == results[-1]['episodes']
    saved = one.save(str(tmp_path / 'saved'))
    assert isinstance(saved.checkpoint, tune.Checkpoint) and saved.metrics['training_iteration'] == 2
    other.restore(saved)
    after = results_of(one, other)
    assert after[0] == after[1] and after[0]['training_iteration'] == one.steps == other.steps == 3
    one.save(str(tmp_path / 'end0')), other.save(str(tmp_path / 'end1'))
    assert_same_state(tmp_path / 'end0', tmp_path / 'end1')
    other.restore(str(tmp_path / 'saved'))
    assert other.train()['envstep'] == after[0]['envstep'], 'a bare path restores what rlframe counts'


def test_reset_leaves_nothing_of_the_trial_before(begin: Any, tmp_path: Path) -> None:
    second = trial_config('ppo')
    used, fresh = begin(**trial_config(options={RATE: 0.02})), begin(**second)
    used.train()
    assert used.reset(dict(second)) is True
    assert results_of(used) == results_of(fresh)
    used.save(str(tmp_path / 'end0')), fresh.save(str(tmp_path / 'end1'))
    assert_same_state(tmp_path / 'end0', tmp_path / 'end1')


def test_a_stopped_trial_refuses_to_go_on(begin: Any, tmp_path: Path) -> None:
    trial = begin()
    trial.train()
    saved = trial.save(str(tmp_path / 'saved'))
    trial.stop()
    for use in (
        trial.train,
        lambda: trial.save(str(tmp_path / 'late')),
        lambda: trial.restore(saved),
        lambda: trial.export_model(['state_dict'], str(tmp_path / 'out')),
    ):
        with raises(TrialStoppedError):
            use()
    trial.stop(), trial.cleanup()
    error = TrialStoppedError('was stopped', remedy='none')
    assert str(copy.copy(error)) == str(pickle.loads(pickle.dumps(error))) == str(error)
    assert isinstance(error, RuntimeError)
    assert trial.reset_config(trial_config()) and trial.train()['train_iter'] > 0


# what it writes and raises


@pytest.mark.slow
def test_exported_policies_are_written_and_unknown_formats_refused(begin: Any, tmp_path: Path) -> None:
    trial, out = begin(), tmp_path / 'out'
    trial.train()
    assert {name for name in vars(trial) if 'exp' in name} == {'_exp', '_exp_model'}
    assert [path.name for path in Path(trial.logdir).iterdir()] == ['run']
    formats = ['artifact', 'state_dict', 'torch_export']
    written = trial.export_model(formats, str(out))
    assert sorted(written) == sorted(formats) and all(Path(path).exists() for path in written.values())
    assert int(rlframe.load(written['artifact']).act(np.zeros(4, np.float32))) in (0, 1)
    assert isinstance(torch.load(written['state_dict'], weights_only=True), dict)
    with raises(ValueError):
        trial.export_model('savedmodel', str(tmp_path / 'other'))
    assert not (tmp_path / 'other').exists()
    try:
        import onnx  # noqa: F401
    except ImportError:
        with pytest.raises(errors.MissingDependencyError, match='onnx'):
            trial.export_model('onnx', str(out))
    else:
        assert Path(trial.export_model('onnx', str(out))['onnx']).is_file()


def test_cleanup_never_raises(begin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = begin()
    trial.train()
    exp = trial._running

    def fail() -> None:
        raise RuntimeError('cannot')

    with monkeypatch.context() as patch:
        patch.setattr(exp, 'close', fail)
        trial.cleanup()
    trial.cleanup(), trial.cleanup()
    assert exp._pipeline is None


def test_exception_of_a_step_keeps_its_type_and_text(begin: Any) -> None:
    broken = {'env.env_id': 'broken_envs:BrokenEnv', 'env.kwargs': {'fault': 'obs nan', 'at': 30}}
    with raises(NonFiniteError) as caught:
        begin(**trial_config(options=broken)).train()
    error = caught.value
    for other in (copy.copy(error), pickle.loads(pickle.dumps(error)), loads(dumps(error))):
        assert type(other) is NonFiniteError and str(other) == str(error)
        assert vars(other).keys() >= {'where', 'got', 'expected', 'remedy'}


# resources, pickling


def test_each_actor_has_a_bundle_and_the_learner_the_first() -> None:
    request = RLTrainable.default_resource_request
    assert request(trial_config()).bundles == [{'CPU': 1.0}]
    nested = {'collector.backend': 'ray', 'collector.num_collectors': 3, 'evaluator.backend': 'ray'}
    options = {**nested, 'collector.remote_configs': {'num_cpus': 0.5}, 'resources': {'CPU': 2, 'GPU': 1}}
    found = request(trial_config(options=options))
    assert found.bundles == [{'CPU': 2.0, 'GPU': 1.0}, *[{'CPU': 0.5}] * 3, {'CPU': 1.0}]
    assert found.strategy == 'PACK'
    assert request({'config': 'nowhere'}).bundles == [{'CPU': 1.0}], 'the trial itself says what is wrong'


def test_class_and_configs_can_be_copied_and_pickled() -> None:
    assert loads(dumps(RLTrainable)) is RLTrainable
    for path in sorted((ROOT / 'configs').glob('*.py')):
        pair = read_config(path)
        config = {'main_config': pair[0], 'create_config': pair[1]}
        assert copy.deepcopy(config) == config == loads(dumps(config)), path


# repeated samples


def sampled(space: dict[str, Any], num_samples: int, is_searched: bool = False, draws: int = 0) -> list[Any]:
    """Returns the configs of the trials of a search."""
    search = SeededVariants({}, None, Repeats(10, is_searched), random_state=draws)
    search.add_configurations({'test': {'run': Plain, 'config': space, 'num_samples': num_samples}})
    found = []
    while (trial := search.next_trial()) is not None:
        found.append(trial.config)
    return found


def test_repeated_samples_get_seeds_of_their_own() -> None:
    configs = sampled({RATE: tune.grid_search([0.1, 0.2]), 'policy.nstep': 3}, 3)
    assert [(c[RATE], c.get('seed')) for c in configs] == [
        (0.1, None), (0.2, None), (0.1, 11), (0.2, 11), (0.1, 12), (0.2, 12),
    ]  # fmt: skip
    assert [c.get('seed') for c in sampled({}, 4)] == [None, 11, 12, 13]
    assert [c.get('seed') for c in sampled({'seed': 5}, 3)] == [5, 6, 7]
    drawn = sampled({RATE: tune.loguniform(1e-4, 1e-2)}, 5)
    assert len({c[RATE] for c in drawn}) == 5 and not any('seed' in c for c in drawn)
    seeds = sampled({'seed': tune.grid_search([0, 1])}, 2, is_searched=True)
    assert [c['seed'] for c in seeds] == [0, 1, 0, 1]


def test_a_search_that_goes_on_still_knows_what_it_had() -> None:
    search = SeededVariants({}, None, Repeats(0, False))
    search.add_configurations({'test': {'run': Plain, 'config': {}, 'num_samples': 4}})
    first = [search.next_trial().config.get('seed') for _ in range(2)]
    other = SeededVariants({}, None, Repeats(0, False))
    other.set_state(loads(dumps(search.get_state())))
    assert first + [other.next_trial().config.get('seed') for _ in range(2)] == [None, 1, 2, 3]
