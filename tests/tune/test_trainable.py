"""RLTrainable keeps the contract of ray.tune.Trainable, method by method, in a process of Ray."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from ray import tune
from ray.cloudpickle import dumps, loads
from ray.tune.utils import validate_save_restore
from runs import ROOT
from torch import nn
from tune_runs import RATE, RESULTS, assert_same_state, comparable, learning_rates, trial_config

import rlframe
from rlframe import errors
from rlframe.config import read_config
from rlframe.tune import RLTrainable

pytestmark = pytest.mark.ray
Remote = Any


class Watched(RLTrainable):
    """Tells what only its own process can see."""

    def __init__(self, *args: Any, **given: Any) -> None:
        import ray.tune.trainable.trainable as module

        module.DEFAULT_STORAGE_PATH = os.environ[RESULTS]
        super().__init__(*args, **given)

    def rates(self) -> list[float]:
        return learning_rates(self._running.pipeline.policy)

    def threads(self) -> int:
        return torch.get_num_threads()

    def place(self) -> str:
        return self.logdir

    def model_type(self) -> str:
        return type(self._running.pipeline.policy._model).__name__


@pytest.fixture
def begin(two_cpus: None) -> Iterator[Any]:
    """Makes trials in processes of Ray, which end with the test."""
    made: list[Remote] = []

    def start(config: Any, kind: Any = Watched) -> Remote:
        made.append(ray.remote(num_cpus=1)(kind).remote(config=config))
        return made[-1]

    yield start
    for actor in made:
        ray.kill(actor)


def ask(method: Any, *arguments: Any) -> Any:
    return ray.get(method.remote(*arguments), timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize('case', ['dqn naive', 'ppo', 'sac'])
def test_save_and_restore_pass_the_check_of_ray(case: str, two_cpus: None) -> None:
    assert validate_save_restore(Watched, trial_config(case))


@pytest.mark.slow
def test_every_method_does_what_tune_expects(begin: Any, tmp_path: Path) -> None:
    config = trial_config(options={RATE: 0.02})
    one, other = begin(config), begin(config)
    results = [ask(one.train) for _ in range(2)] + ask(one.train_buffered, 0.0, 5)
    assert [result['training_iteration'] for result in results] == [1, 2, 3]
    assert (
        results[-1]['timesteps_total']
        == sum(r['timesteps_this_iter'] for r in results)
        == results[-1]['envstep']
    )
    assert results[-1]['episodes_total'] == results[-1]['episodes']
    assert len({tuple(r) for r in (sorted(r.keys() - {'timesteps_since_restore'}) for r in results)}) == 1
    assert ask(one.rates) == [0.02]
    assert ask(one.is_actor) is True and ask(one.get_current_ip_pid)[1] == results[0]['pid']
    assert ask(one.get_config)[RATE] == 0.02
    assert ask(one.get_auto_filled_metrics)['pid'] == results[0]['pid']
    state = ask(one.get_state)
    assert (state['iteration'], state['timesteps_total']) == (3, results[-1]['envstep'])
    saved = ask(one.save, str(tmp_path / 'saved'))
    assert isinstance(saved.checkpoint, tune.Checkpoint) and saved.metrics['training_iteration'] == 3
    ask(other.restore, saved)
    after = [ask(actor.train) for actor in (one, other)]
    assert comparable(after[0]).items() >= {'training_iteration': 4}.items()
    since = ('iterations_since_restore', 'timesteps_since_restore')
    assert len({json.dumps({k: v for k, v in comparable(r).items() if k not in since}) for r in after}) == 1
    for i, actor in enumerate((one, other)):
        ask(actor.save, str(tmp_path / f'end{i}'))
    assert_same_state(tmp_path / 'end0', tmp_path / 'end1')
    ask(other.restore, str(tmp_path / 'saved'))
    assert ask(other.train)['envstep'] == after[0]['envstep'], 'a bare path restores what rlframe counts'
    exported = ask(one.export_model, ['artifact', 'state_dict'], str(tmp_path / 'out'))
    assert set(exported) == {'artifact', 'state_dict'}
    ask(one.stop), ask(one.cleanup), ask(one.stop)


@pytest.mark.slow
def test_reset_leaves_nothing_of_the_trial_before(begin: Any, tmp_path: Path) -> None:
    first, second = trial_config(options={RATE: 0.02}), trial_config('ppo')
    used, fresh = begin(first), begin(second)
    ask(used.train), ask(used.train)
    before = ask(used.place)
    assert ask(used.reset, dict(second)) is True
    assert ask(used.place) != before
    results = [[comparable(ask(actor.train)) for _ in range(3)] for actor in (used, fresh)]
    assert results[0] == results[1]
    for i, actor in enumerate((used, fresh)):
        ask(actor.save, str(tmp_path / f'end{i}'))
    assert_same_state(tmp_path / 'end0', tmp_path / 'end1')


class Net(nn.Module):
    """A network of a user's own."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 2)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.body(obs.float())


@pytest.mark.slow
def test_network_is_given_by_with_parameters_and_resources_by_with_resources(
    begin: Any, tmp_path: Path
) -> None:
    with_model = tune.with_parameters(Watched, model=Net())
    actor = begin(trial_config(), with_model)
    results = [comparable(ask(actor.train)) for _ in range(3)]
    assert ask(actor.model_type) == 'Net'
    ask(actor.save, str(tmp_path / 'first'))
    assert ask(actor.reset, trial_config()) is True
    assert [comparable(ask(actor.train)) for _ in range(3)] == results
    ask(actor.save, str(tmp_path / 'second'))
    assert_same_state(tmp_path / 'first', tmp_path / 'second')
    assert with_model.default_resource_request(trial_config()).bundles == [{'CPU': 1.0}]
    smaller = tune.with_resources(RLTrainable, {'CPU': 0.5})
    assert smaller.default_resource_request(trial_config()).required_resources == {'CPU': 0.5}
    assert issubclass(smaller, RLTrainable) and issubclass(RLTrainable, tune.Trainable)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RLTrainable]:
    """A trial outside of Tune, in this process."""
    import ray.tune.trainable.trainable as module

    monkeypatch.setattr(module, 'DEFAULT_STORAGE_PATH', str(tmp_path))
    trainable = RLTrainable(trial_config())
    yield trainable
    trainable.stop()


def test_exported_policies_are_written_and_unknown_formats_refused(bare: RLTrainable, tmp_path: Path) -> None:
    bare.train()
    formats = ['artifact', 'state_dict', 'torch_export']
    written = bare.export_model(formats, str(tmp_path / 'out'))
    assert sorted(written) == sorted(formats) and all(Path(path).exists() for path in written.values())
    obs = torch.zeros(1, 4)
    policy = rlframe.load(written['artifact'])
    assert int(policy.act(obs[0].numpy())) in (0, 1)
    assert isinstance(torch.load(written['state_dict'], weights_only=True), dict)
    with pytest.raises(ValueError, match=r"(?s)'savedmodel'.*artifact.*onnx.*state_dict.*torch_export"):
        bare.export_model('savedmodel', str(tmp_path / 'other'))
    assert not (tmp_path / 'other').exists()


def test_onnx_is_written_or_says_what_is_missing(bare: RLTrainable, tmp_path: Path) -> None:
    bare.train()
    try:
        import onnx  # noqa: F401
    except ImportError:
        with pytest.raises(errors.MissingDependencyError, match='onnx'):
            bare.export_model('onnx', str(tmp_path / 'out'))
    else:
        assert Path(bare.export_model('onnx', str(tmp_path / 'out'))['onnx']).is_file()


def test_trial_keeps_to_its_folder_and_to_its_own_attribute(bare: RLTrainable, tmp_path: Path) -> None:
    bare.train()
    assert {name for name in vars(bare) if 'exp' in name} == {'_exp', '_exp_model'}
    run = Path(bare.logdir) / 'run'
    assert (run / 'metrics.jsonl').is_file() and list(run.glob('tensorboard/events*'))
    assert [path.name for path in Path(bare.logdir).iterdir()] == ['run']


def test_cleanup_never_raises(bare: RLTrainable, monkeypatch: pytest.MonkeyPatch) -> None:
    bare.train()
    exp = bare._running

    def fail() -> None:
        raise RuntimeError('cannot')

    with monkeypatch.context() as patch:
        patch.setattr(exp, 'close', fail)
        bare.cleanup()
    bare.cleanup(), bare.cleanup()
    assert exp._pipeline is None


def test_exception_of_a_step_keeps_its_type_and_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray.tune.trainable.trainable as module

    monkeypatch.setattr(module, 'DEFAULT_STORAGE_PATH', str(tmp_path))
    kwargs = {'fault': 'obs nan', 'at': 30}
    trainable = RLTrainable(
        trial_config(options={'env.env_id': 'broken_envs:BrokenEnv', 'env.kwargs': kwargs})
    )
    with pytest.raises(errors.NonFiniteError, match=r'obs is .* nan') as caught:
        for _ in range(5):
            trainable.train()
    trainable.stop()
    for other in (
        copy.copy(caught.value),
        pickle.loads(pickle.dumps(caught.value)),
        loads(dumps(caught.value)),
    ):
        assert type(other) is errors.NonFiniteError
        assert str(other) == str(caught.value) and vars(other).keys() >= {
            'where',
            'got',
            'expected',
            'remedy',
        }


# resources


def test_each_actor_has_a_bundle_and_the_learner_the_first() -> None:
    request = RLTrainable.default_resource_request
    assert request(trial_config()).bundles == [{'CPU': 1.0}]
    nested = {'collector.backend': 'ray', 'collector.num_collectors': 3, 'evaluator.backend': 'ray'}
    options = {**nested, 'collector.remote_configs': {'num_cpus': 0.5}, 'resources': {'CPU': 2, 'GPU': 1}}
    found = request(trial_config(options=options))
    assert found.bundles == [{'CPU': 2.0, 'GPU': 1.0}, *[{'CPU': 0.5}] * 3, {'CPU': 1.0}]
    assert found.strategy == 'PACK'
    assert request({'config': 'nowhere'}).bundles == [{'CPU': 1.0}], 'the trial itself says what is wrong'
    text = RLTrainable.resource_help(trial_config())
    assert all(name in text for name in ('resources', 'num_collectors', 'remote_config'))


# pickling, imports


def test_class_and_configs_can_be_copied_and_pickled() -> None:
    assert loads(dumps(RLTrainable)) is RLTrainable
    for path in sorted((ROOT / 'configs').glob('*.py')):
        pair = read_config(path)
        config = {'main_config': pair[0], 'create_config': pair[1]}
        assert copy.deepcopy(config) == config == loads(dumps(config)), path


WITHOUT_RAY = """
import sys
sys.path.insert(0, sys.argv[2])
sys.modules['ray'] = None
import rlframe, rlframe.pipeline
from rlframe.entry.__main__ import main
sys.exit(main(['tune', '-c', sys.argv[1], '-n', '2']))
"""


@pytest.mark.slow
def test_rlframe_can_be_imported_without_ray_and_a_search_says_what_is_missing(tmp_path: Path) -> None:
    config = str(ROOT / 'configs' / 'cartpole_dqn.py')
    done = subprocess.run(
        [sys.executable, '-c', WITHOUT_RAY, config, str(ROOT)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert 'Ray cannot be imported' in done.stderr and 'pip install' in done.stderr
    assert 'Traceback' not in done.stderr
