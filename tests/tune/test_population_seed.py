"""What a population draws depends on its seed alone, not on who else draws or whose result comes first. No Ray is started."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler
from test_search_input import CONFIG

from rlframe.config import compile_config, read_config
from rlframe.tune.schedulers import make_scheduler

SPACE = {
    'policy.learn.learning_rate': tune.loguniform(1e-4, 1e-2),
    'policy.learn.batch_size': tune.choice([16, 32, 64, 128]),
}
METRIC = 'eval/mean_reward'


class Population:
    """Trials that are all paused at a decision, and what a scheduler asks of whoever runs them."""

    search_alg = None

    def __init__(self, seed: int | None, prefix: str = 'abc') -> None:
        cfg = compile_config(*read_config(CONFIG))
        self.scheduler = make_scheduler('pbt', cfg, SPACE, 1, seed)
        self.scheduler.set_search_properties(METRIC, 'max')
        self.scheduler._log_config = False  # a file for each takeover
        rates = np.geomspace(1e-4, 1e-2, 8).tolist()
        self.trials = [
            Trial(
                'test',
                stub=True,
                trial_id=f'{prefix}_{i:05d}',
                config={'policy.learn.learning_rate': rate, 'policy.learn.batch_size': [16, 32][i % 2]},
            )
            for i, rate in enumerate(rates)
        ]
        for trial in self.trials:
            self.scheduler.on_trial_add(self, trial)

    def get_trials(self) -> list[Trial]:
        return self.trials

    get_live_trials = get_trials

    def pause_trial(self, trial: Trial, should_checkpoint: bool = True) -> None:
        trial.status = Trial.PAUSED

    def _schedule_trial_save(self, trial: Trial, result: Any = None) -> Any:
        return f'checkpoint of {trial.trial_id}'

    def decide(self, time: int, order: list[int], disturb: int) -> list[dict[str, Any]]:
        """Lets the results come in an order, while others draw from the global generators; returns all configs."""
        for i in order:
            random.seed(disturb + i), np.random.seed(disturb + i)  # noqa: NPY002
            trial = self.trials[i]
            trial.status = Trial.RUNNING
            result = {'training_iteration': time, METRIC: float((i * 5 + time) % 8)}
            trial.run_metadata.last_result = result
            decision = self.scheduler.on_trial_result(self, trial, result)
            assert decision in (TrialScheduler.PAUSE, TrialScheduler.NOOP)
        return [dict(trial.config) for trial in self.trials]


def history(seed: int | None, disturb: int, order: list[int], **options: Any) -> list[Any]:
    """Returns the configs of a population after each of three decisions."""
    population = Population(seed, **options)
    return [population.decide(time, order, disturb + 100 * time) for time in (1, 2, 3)]


FORWARD, BACKWARD = list(range(8)), list(range(8))[::-1]


def test_same_seed_same_takeovers_whoever_else_draws() -> None:
    first = history(3, 0, FORWARD)
    assert first[0] != first[1] != first[2], 'options are changed'
    assert history(3, 77, FORWARD, prefix='xyz') == history(3, 5, BACKWARD) == first
    assert history(4, 0, FORWARD) != first
    assert history(None, 0, FORWARD) != history(None, 77, FORWARD)


def test_the_global_generators_stay_as_they_were() -> None:
    population = Population(3)
    population.decide(1, FORWARD[:-1], 0)
    random.seed(1), np.random.seed(1)  # noqa: NPY002
    before = random.getstate()
    trial = population.trials[-1]
    population.scheduler.on_trial_result(population, trial, {'training_iteration': 1, METRIC: 9.0})
    assert random.getstate() == before
