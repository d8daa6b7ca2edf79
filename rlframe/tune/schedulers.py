"""Schedulers by name, which stop trials early or let them copy better ones."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import ASHAScheduler, HyperBandScheduler, MedianStoppingRule, PopulationBasedTraining
from ray.tune.search.sample import Categorical, Function

from rlframe.config import changeable
from rlframe.config.schema import ExperimentConfig
from rlframe.errors import ConfigError
from rlframe.registry import nearest
from rlframe.tune.space import ends, searched_options
from rlframe.tune.trial import BUDGET_PARTS, PARTS, SCHEDULERS
from rlframe.utils.seed import seeded_globals

TIME = 'timesteps_total'
"""Unit by which ASHA compares trials: env steps, warm-up included."""
REDUCTION = 3
"""Reduction factor: one of this many trials continues at each rung of ASHA and HyperBand."""


def make_scheduler(
    name: str,
    cfg: ExperimentConfig,
    space: Mapping[str, Any],
    interval: int | None = None,
    seed: int | None = None,
) -> Any:
    """Creates a scheduler.

    Args:
        name: One of ``SCHEDULERS``.
        cfg: The config that all trials share.
        space: The search space, by dotted keys.
        interval: Evaluations between two decisions of PBT, and before the first decision of the median rule
            and, without a budget in env steps, of ASHA.
        seed: Seed of the draws of PBT; None: the global generators.

    Raises:
        ConfigError: If the name is unknown, or the experiment does not meet the scheduler's requirements.
    """
    if name not in SCHEDULERS:
        hint = nearest(name, SCHEDULERS)
        raise ConfigError(
            f'no scheduler is called {name!r}.{hint}',
            where='scheduler',
            got=name,
            expected=f'one of {", ".join(SCHEDULERS)}',
        )
    made: Any = MAKERS[name](cfg, space, 4 if interval is None else interval)
    if hasattr(made, 'draw_seed'):
        made.draw_seed = seed
    return made


def _asha(cfg: ExperimentConfig, space: Mapping[str, Any], interval: int) -> Any:
    """Compares trials at fractions of the budget in env steps; without one, of 27 intervals of evaluations."""
    in_steps = cfg.max_env_step < 10**10
    budget = cfg.max_env_step if in_steps else interval * PARTS
    return ASHAScheduler(
        time_attr=TIME if in_steps else 'training_iteration',
        max_t=budget,
        grace_period=max(1, budget // PARTS),
        reduction_factor=REDUCTION,
    )


def _hyperband(cfg: ExperimentConfig, space: Mapping[str, Any], interval: int) -> Any:
    if cfg.max_env_step >= 10**10:
        raise ConfigError(
            'hyperband compares trials after parts of a budget, and this config has none',
            where='max_env_step',
            remedy='Give --env-step, or max_env_step in the config.',
        )
    return HyperBandScheduler(time_attr=BUDGET_PARTS, max_t=PARTS, reduction_factor=REDUCTION)


def _median(cfg: ExperimentConfig, space: Mapping[str, Any], interval: int) -> Any:
    return MedianStoppingRule(time_attr='training_iteration', grace_period=interval, min_samples_required=2)


def _pbt(cfg: ExperimentConfig, space: Mapping[str, Any], interval: int) -> Any:
    searched = _perturbable(cfg, space)
    mutations = {key: _choices(domain) or domain for key, domain in searched.items()}
    intervals = {key: ends(domain) for key, domain in searched.items() if not _choices(domain)}
    bounds = {key: (found[0], found[1]) for key, found in intervals.items() if found}
    return PopulationInStep(
        time_attr='training_iteration',
        perturbation_interval=interval,
        hyperparam_mutations=mutations,
        synch=True,
        custom_explore_fn=functools.partial(_clipped, bounds=bounds),
    )


def _choices(domain: Any) -> list[Any]:
    """Returns the choices of a domain; PBT moves to a neighbour in a list and treats everything else as a number."""
    if isinstance(domain, Mapping):
        return list(domain['grid_search'])
    return list(domain.categories) if isinstance(domain, Categorical) else []


class PopulationInStep(PopulationBasedTraining):  # type: ignore[misc]  # Ray is untyped
    """PBT whose trials wait for each other at every decision, except for ended trials.

    Without waiting, a fast trial takes over the same state repeatedly while the trial that it copies waits for a
    process. With waiting, two faults of Ray must be avoided: it waits forever if the last trial that others wait for
    fails or is done, and a trial that is still being saved when it takes over from another would end after its next
    checkpoint, as if it were done (ray 2.60, issue 57906).

    A trial's draws at a decision (the trial to copy, and the new options) depend only on ``draw_seed``, the trial's
    number and the time of the decision, not on other users of the global generators.
    """

    draw_seed: int | None = None
    _next_perturbation_sync: Any  # of the base class

    def _checkpoint_or_exploit(self, trial: Any, *where: Any) -> None:
        if self.draw_seed is None:
            super()._checkpoint_or_exploit(trial, *where)
            return
        # the same in a search that is repeated
        number = zlib.crc32(trial.trial_id.rpartition('_')[2].encode())
        with seeded_globals(self.draw_seed, number, int(self._next_perturbation_sync)):
            super()._checkpoint_or_exploit(trial, *where)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: Any) -> Any:
        """Decides about a trial, without waiting for failed ones."""
        for other in tune_controller.get_trials():
            if other.status == Trial.ERROR:
                self._trial_state[other].last_train_time = self._next_perturbation_sync
        return super().on_trial_result(tune_controller, trial, result)

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        """Returns the next trial; if all wait for those that are done, the time of the next decision has come."""
        chosen = super().choose_trial_to_run(tune_controller)
        running = [trial for trial in tune_controller.get_trials() if not trial.is_finished()]
        if chosen is None and running and all(trial.status == Trial.PAUSED for trial in running):
            self._next_perturbation_sync += self._perturbation_interval
            chosen = super().choose_trial_to_run(tune_controller)
        return chosen

    def _exploit(self, tune_controller: Any, trial: Any, trial_to_clone: Any) -> None:
        trial.temporary_state.saving_to = None  # it continues with the state of the other one
        super()._exploit(tune_controller, trial, trial_to_clone)


def _perturbable(cfg: ExperimentConfig, space: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the searched options, after checking that all of them may change during a run."""
    searched = searched_options(space)
    if not searched:
        raise ConfigError('pbt needs an option to change', where='param_space')
    for key, domain in searched.items():
        if not changeable(cfg).get(key):
            raise ConfigError(
                f'pbt changes options while training continues, and {key} cannot change then',
                where=f'param_space[{key!r}]',
                remedy='Search it with asha, hyperband, median or none; for example policy.learn.learning_rate may change.',
            )
        if isinstance(domain, Function):
            raise ConfigError('pbt cannot change what a function draws', where=f'param_space[{key!r}]')
    return searched


def _clipped(config: dict[str, Any], bounds: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    """Returns a config whose searched numbers are clipped to their domains, as PBT multiplies them by 0.8 or 1.2."""
    for key, (lower, upper) in bounds.items():
        config[key] = type(config[key])(min(max(config[key], lower), upper))
    return config


MAKERS: dict[str, Callable[[ExperimentConfig, Mapping[str, Any], int], Any]] = {
    'asha': _asha,
    'hyperband': _hyperband,
    'median': _median,
    'pbt': _pbt,
    'none': lambda cfg, space, interval: None,
}
"""Maps the names in ``SCHEDULERS`` to factories."""
