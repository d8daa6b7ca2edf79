"""What ``ray.tune.Trainable`` promises of any trainable, without a Ray: own states, stopped trials, repeated samples."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ray import tune
from ray.cloudpickle import dumps, loads
from test_search_input import CONFIG
from tune_runs import RATE as RATE_KEY
from tune_runs import comparable, trial_config

from rlframe.errors import CheckpointError, TrialStoppedError
from rlframe.tune import RLTrainable
from rlframe.tune.trial import compile_trial
from rlframe.tune.tuner import Repeats, SeededVariants


class Plain(RLTrainable):
    """Makes its folder where the test says."""

    home: Path

    def _setup_logdir(self) -> None:
        self._logdir = str(self.home)
        Path(self._logdir).mkdir(exist_ok=True)


class Counting(Plain):
    """Saves more than the run does."""

    def setup(self, config: Any, **given: Any) -> None:
        super().setup(config, **given)
        self.seen: list[int] = []

    def step(self) -> dict[str, Any]:
        result = super().step()
        self.seen.append(result['train_iter'])
        return result

    def save_checkpoint(self, checkpoint_dir: str) -> Any:
        super().save_checkpoint(checkpoint_dir)
        return {'seen': self.seen, 'weights': torch.arange(3.0), 'table': np.arange(4), 'note': None}

    def load_checkpoint(self, checkpoint: Any) -> None:
        super().load_checkpoint(checkpoint)
        self.seen, self.loaded = list(checkpoint['seen']), checkpoint


class Further(Counting):
    """Adds to what its base saves."""

    def save_checkpoint(self, checkpoint_dir: str) -> Any:
        return {**super().save_checkpoint(checkpoint_dir), 'further': len(self.seen)}

    def load_checkpoint(self, checkpoint: Any) -> None:
        super().load_checkpoint(checkpoint)
        self.further = checkpoint['further']


class Alone(Plain):
    """Keeps nothing but a dict."""

    def save_checkpoint(self, checkpoint_dir: str) -> Any:
        return {'number': 7}

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.number = checkpoint['number']


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Any]:
    """Makes trials in this process, which end with the test."""
    made: list[RLTrainable] = []

    def start(kind: type[Plain] = Plain, case: str = 'dqn naive') -> Any:
        home = tmp_path / f'trial{len(made)}'
        made.append(type(kind.__name__, (kind,), {'home': home})(trial_config(case)))
        return made[-1]

    yield start
    for trial in made:
        trial.stop()


def test_a_subclass_may_save_a_dict_and_gets_it_back(begin: Any, tmp_path: Path) -> None:
    one, other = begin(Further), begin(Further)
    one.train()
    saved = one.save(str(tmp_path / 'saved'))
    assert not list((tmp_path / 'saved').rglob('*.pkl')), 'a pickle would run code when it is read'
    expected = comparable(one.train())
    other.restore(saved)
    assert other.seen == one.seen[:1] and isinstance(other.loaded, dict)
    assert torch.equal(torch.as_tensor(other.loaded['weights']), torch.arange(3.0))
    assert other.loaded['table'].tolist() == [0, 1, 2, 3] and other.loaded['note'] is None
    assert other.further == 1
    since = ('iterations_since_restore', 'timesteps_since_restore')
    got = comparable(other.train())
    assert {k: v for k, v in got.items() if k not in since} == {
        k: v for k, v in expected.items() if k not in since
    }
    assert other.seen == one.seen


def test_a_dict_alone_is_what_is_loaded_and_holds_no_run(begin: Any, tmp_path: Path) -> None:
    one, other, third = begin(Alone), begin(Alone), begin(Counting)
    saved = one.save(str(tmp_path / 'saved'))
    other.restore(saved)
    assert other.number == 7
    with pytest.raises(CheckpointError):
        third.restore(saved)


def test_what_cannot_be_kept_as_data_is_named(begin: Any, tmp_path: Path) -> None:
    class Bad(Plain):
        def save_checkpoint(self, checkpoint_dir: str) -> Any:
            return {'inner': {'thing': object()}}

    with pytest.raises(CheckpointError, match=r'inner.*thing'):
        begin(Bad).save(str(tmp_path / 'saved'))


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
        with pytest.raises(TrialStoppedError, match='was stopped'):
            use()
    trial.stop(), trial.cleanup()
    error = TrialStoppedError('was stopped', remedy='none')
    assert str(copy.copy(error)) == str(pickle.loads(pickle.dumps(error))) == str(error)
    assert isinstance(error, RuntimeError)
    assert trial.reset_config(trial_config()) and trial.train()['train_iter'] > 0


# repeated samples


def sampled(space: dict[str, Any], num_samples: int, is_searched: bool = False, draws: int = 0) -> list[Any]:
    """Returns the configs of the trials of a search."""
    search = SeededVariants(Repeats(10, is_searched), random_state=draws)
    search.add_configurations({'test': {'run': Plain, 'config': space, 'num_samples': num_samples}})
    found = []
    while (trial := search.next_trial()) is not None:
        found.append(trial.config)
    return found


def test_repeated_samples_get_seeds_of_their_own() -> None:
    configs = sampled({RATE_KEY: tune.grid_search([0.1, 0.2]), 'policy.nstep': 3}, 3)
    assert [(c[RATE_KEY], c.get('seed')) for c in configs] == [
        (0.1, None), (0.2, None), (0.1, 11), (0.2, 11), (0.1, 12), (0.2, 12),
    ]  # fmt: skip
    assert [c.get('seed') for c in sampled({}, 4)] == [None, 11, 12, 13]
    assert [c.get('seed') for c in sampled({'seed': 5}, 3)] == [5, 6, 7]
    drawn = sampled({RATE_KEY: tune.loguniform(1e-4, 1e-2)}, 5)
    assert len({c[RATE_KEY] for c in drawn}) == 5 and not any('seed' in c for c in drawn)
    seeds = sampled({'seed': tune.grid_search([0, 1])}, 2, is_searched=True)
    assert [c['seed'] for c in seeds] == [0, 1, 0, 1]


def test_a_search_that_goes_on_still_knows_what_it_had() -> None:
    search = SeededVariants(Repeats(0, False))
    search.add_configurations({'test': {'run': Plain, 'config': {}, 'num_samples': 4}})
    first = [search.next_trial().config.get('seed') for _ in range(2)]
    other = SeededVariants(Repeats(0, False))
    other.set_state(loads(dumps(search.get_state())))
    assert first + [other.next_trial().config.get('seed') for _ in range(2)] == [None, 1, 2, 3]


def test_repetitions_by_a_repeater_of_ray_have_seeds_of_their_own() -> None:
    config = {'config': CONFIG, 'seed': 4}
    assert [compile_trial(config | {'__trial_index__': i}).seed for i in range(3)] == [4, 5, 6]
    assert (
        compile_trial({'config': CONFIG}).seed + 2
        == compile_trial({'config': CONFIG, '__trial_index__': 2}).seed
    )
