"""make_tuner: a search over the options of a config, checked before anything starts."""

from __future__ import annotations

import copy
import dataclasses
import importlib.util
import json
import math
import sys
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ray.tune import CheckpointConfig, FailureConfig, RunConfig, SyncConfig, TuneConfig, Tuner
from ray.tune.impl.placeholder import inject_placeholders
from ray.tune.logger import CSVLoggerCallback, JsonLoggerCallback
from ray.tune.schedulers import ASHAScheduler, PopulationBasedTraining, TrialScheduler
from ray.tune.search import ConcurrencyLimiter, Searcher
from ray.tune.search.basic_variant import BasicVariantGenerator
from ray.tune.search.search_generator import SearchGenerator

from rlframe.backend.ray.session import connect
from rlframe.config import compile_config, config_pair, parse_overrides, value_at
from rlframe.config.rules import check_serial
from rlframe.config.schema import ExperimentConfig
from rlframe.data.timestep import EnvSpec
from rlframe.errors import (
    CheckpointNotFoundError,
    ConfigError,
    ExperimentDirError,
    ExperimentExistsError,
    MissingDependencyError,
)
from rlframe.pipeline import build, memory_needs
from rlframe.registry import SERIAL_EVALUATOR_REGISTRY, nearest
from rlframe.run.run_folder import check_writable, free_folder
from rlframe.tune.default_space import default_space
from rlframe.tune.report import TrialTable
from rlframe.tune.schedulers import make_scheduler
from rlframe.tune.space import check_space, flat_space, is_searched
from rlframe.tune.trainable import RLTrainable, bundles_of
from rlframe.tune.trial import KEPT_BY_TUNE, METRIC, SEARCH, SEARCHES, TrialBase, trial_options
from rlframe.utils.field import to_plain
from rlframe.utils.secrets import secret_options

SEEDS = 2**32
"""Upper bound of seeds, exclusive."""
RESULT_KEYS = (
    METRIC,
    'eval/best_mean_reward',
    'rollout/ep_rew_mean',
    'envstep',
    'train_iter',
    'episodes',
    'wall_time',
    *KEPT_BY_TUNE,
)
"""Keys of every result, usable as metric or stop criterion; scores on recorded data have other names."""
PATHS = (
    'policy.init_from',
    'policy.collect.collector.data',
    'policy.eval.evaluator.data',
    'policy.other.replay_buffer.init_from',
)
"""Options that may name a file or a folder."""
KEPT = 4
"""Number of checkpoints kept per trial, those with the best scores and the last. If trials take over from others, all
are kept: Ray would delete the checkpoint from which a trial that waits for a CPU is to start."""


class Repeats:
    """Counts how often the options of a trial have occurred before.

    Runs whose options contain no seed have ``seed``; ``is_searched``: whether seeds are searched over, and therefore used
    as drawn.
    """

    def __init__(self, seed: int, is_searched: bool) -> None:
        self._seed, self._is_searched = seed, is_searched
        self._count: dict[str, int] = {}

    def seed_of(self, options: Mapping[str, Any]) -> int | None:
        """Returns the seed of a trial that repeats an earlier one, None for the first with its options."""
        if self._is_searched:
            return None
        key = repr(sorted(options.items()))
        number = self._count[key] = self._count.get(key, -1) + 1
        return (int(options.get('seed', self._seed)) + number) % SEEDS if number else None


class _Resumable:
    """Makes trials that begin after a resume equal to those of an uninterrupted search, in the same folder.

    Tune replaces objects in a space (the config, classes, functions) by placeholders, which only the process that began
    the search resolves, begins trials where the folder was at first, and forgets the rungs of ASHA (ray 2.60). If Tune
    got the space again, it would take from resumed trials what PBT gave them.

    ``given`` are arguments of Ray's class beside the space, as Tune gets it, and the scheduler.
    """

    folder: Path | None = None
    """Results folder of a resumed search."""

    def __init__(self, space: Mapping[str, Any], scheduler: Any, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._space, self._scheduler = space, scheduler

    def get_state(self) -> dict[str, Any]:
        """Returns the state that Tune saves."""
        brackets = self._scheduler._brackets if isinstance(self._scheduler, ASHAScheduler) else None
        return {**super().get_state(), 'brackets': brackets}  # type: ignore[misc]  # of the class beside it

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continues from a state."""
        folder, scheduler = self.folder, self._scheduler
        super().set_state(state)  # type: ignore[misc]  # of the class beside it
        self.folder, self._scheduler = folder, scheduler
        if state['brackets'] is not None:
            scheduler._brackets = state['brackets']

    def next_trial(self) -> Any:
        """Returns the next trial, None if none is available now."""
        trial: Any = super().next_trial()  # type: ignore[misc]  # of the class beside it
        if trial is not None and self.folder is not None:
            resolvers: Any = defaultdict(list)
            inject_placeholders(copy.deepcopy(self._space), resolvers)
            trial.resolve_config_placeholders(resolvers)
            trial.storage.storage_fs_path = str(self.folder.parent)
            trial.storage.experiment_dir_name = self.folder.name
        return trial


class SearcherTrials(_Resumable, SearchGenerator):  # type: ignore[misc]  # Ray is untyped
    """Trials that a ``Searcher`` of Ray suggests."""


class SeededVariants(_Resumable, BasicVariantGenerator):  # type: ignore[misc]  # Ray is untyped
    """Grids and random draws; a trial with the same options as an earlier one gets the next seed.

    ``repeats`` counts them; ``options`` are arguments of Ray's ``BasicVariantGenerator``.
    """

    def __init__(self, space: Mapping[str, Any], scheduler: Any, repeats: Repeats, **options: Any) -> None:
        super().__init__(space, scheduler, **options)
        self._repeats = repeats

    def next_trial(self) -> Any:
        """Returns the next trial, None if none is available now."""
        trial = super().next_trial()
        if trial is not None and (seed := self._repeats.seed_of(trial_options(trial.config))) is not None:
            trial.config['seed'] = trial.evaluated_params['seed'] = seed
        return trial


def seeded_optuna(repeats: Repeats, seed: int | None) -> Any:
    """Returns Optuna's search, in which a trial with the same options as an earlier one gets the next seed."""
    from ray.tune.search.optuna import OptunaSearch

    class SeededOptuna(OptunaSearch):  # type: ignore[misc]  # Ray is untyped
        _repeats: Repeats

        def suggest(self, trial_id: str) -> Any:
            drawn: Any = super().suggest(trial_id)
            own = None if drawn is None else self._repeats.seed_of(trial_options(drawn))
            return drawn if own is None else {**drawn, 'seed': own}

    search = SeededOptuna(seed=seed)
    search._repeats = repeats  # an attribute, which is saved with the search
    return search


class _KeepsRows:
    """Fetches a file only if it is missing here: for a driver that continues another driver's search."""

    def _restore_from_remote(self, file_name: str, trial: Any) -> None:
        if not Path(trial.local_path, file_name).is_file():
            super()._restore_from_remote(file_name, trial)  # type: ignore[misc]  # of the logger beside it


class _JsonLogger(_KeepsRows, JsonLoggerCallback):  # type: ignore[misc]  # Ray is untyped
    """Writes ``result.json``."""


class _CSVLogger(_KeepsRows, CSVLoggerCallback):  # type: ignore[misc]  # Ray is untyped
    """Writes ``progress.csv``."""


LOGGERS: tuple[Any, ...] = (_JsonLogger, _CSVLogger)
"""Used in place of Ray's own."""


def make_tuner(  # noqa: PLR0913  # what the command line takes, by keyword
    config: str | Path | tuple[Mapping[str, Any], Mapping[str, Any]],
    param_space: Mapping[str, Any] | str,
    *,
    overrides: Sequence[str] = (),
    metric: str = METRIC,
    mode: str = 'max',
    num_samples: int = 1,
    scheduler: str | TrialScheduler | None = 'none',
    interval: int | None = None,
    search: str | Any = 'random',
    seed: int | None = None,
    stop: Mapping[str, float] | None = None,
    max_concurrent_trials: int = 0,
    time_budget_s: float | None = None,
    max_env_step: int | None = None,
    max_train_iter: int | None = None,
    folder: str | Path | None = None,
    resources: Mapping[str, float] | None = None,
    max_failures: int = 0,
    checkpoint_frequency: int = 1,
    reuse_actors: bool | None = None,
    callbacks: Sequence[Any] = (),
    progress: bool = False,
    ray_init_config: Mapping[str, Any] | None = None,
) -> Tuner:
    """Prepares a search; call ``fit()`` of the returned object to run it.

    Connects to Ray if this process is not connected yet, see ``rlframe.backend.ray.session.connect``.

    Args:
        config: Path of a config file, or a pair of main and create config.
        param_space: Dotted keys of options, such as ``policy.learn.learning_rate``, mapped to domains of ``ray.tune``,
            such as ``tune.loguniform(1e-4, 1e-2)``, or fixed values; sections may be nested. ``'default'``: the default
            space of the policy, without the options in ``overrides``.
        overrides: ``key=value`` texts that apply to all trials.
        metric: Score by which trials are compared: one of ``RESULT_KEYS``, or another score of the config's evaluator.
        mode: ``max`` or ``min``: whether a higher or lower metric is better.
        num_samples: Number of draws from the space; a grid is searched completely in each.
        scheduler: One of ``SCHEDULERS``, or a scheduler of Ray.
        interval: Evaluations between two decisions of PBT, and before the first of the median rule; 4 if not
            given.
        search: ``random``, ``optuna``, or a ``Searcher`` of Ray.
        seed: Seed of the draws, including those of PBT. Runs use the config's seed, which can also be searched
            over; a sample that repeats an earlier one gets the next seed (not with a custom searcher).
        stop: Maps keys of results to the values at which a trial ends.
        max_concurrent_trials: Maximum number of trials at the same time; 0: as many as fit into the cluster.
        time_budget_s: Seconds after which the search ends.
        max_env_step: Budget of each trial in env steps.
        max_train_iter: Budget of each trial in train iterations.
        folder: The results folder, which must not exist; by default ``<exp_name>_tune`` in the working directory, with a
            number if that is taken. Folders above it are created.
        resources: Resources of the process that learns; by default ``{'CPU': 1}``, and a GPU for a policy on CUDA.
        max_failures: How often a trial is restarted from its last checkpoint after an error; -1: always.
        checkpoint_frequency: Evaluations between two checkpoints of a trial.
        reuse_actors: Whether the process of an ended trial is reused for the next one. By default, with all schedulers
            except PBT, for whose paused trials it can leak CPUs of the cluster (ray 2.60, issue 64693).
        callbacks: Callbacks of ``ray.tune``.
        progress: Whether to show a table of the trials from time to time.
        ray_init_config: Arguments of ``ray.init``, used if Ray is started here.

    Raises:
        ConfigError: If an argument is unknown or invalid; nothing is written then.
        ResourceError: If a trial needs more resources than the cluster has; with the numbers.
    """
    # the space, and a config for each class that it names
    pair = config_pair(config)
    budgets = {'max_env_step': max_env_step, 'max_train_iter': max_train_iter}
    common = parse_overrides(overrides) | {key: value for key, value in budgets.items() if value is not None}
    # so that only what the space brings is laid to the space
    given = compile_config(*pair, overrides=common)
    check_serial(given)
    if isinstance(param_space, str):
        param_space = default_space(given, common, param_space)[0]
    space = flat_space(param_space)
    base = TrialBase(pair[0], pair[1], common, tuple(str(Path(entry).absolute()) for entry in sys.path))
    possible = check_space(base, space)
    cfg = possible[0]
    paths = _absolute_paths(cfg)
    modules = {'import_names': list(cfg.import_names)}  # also those that this program imported itself
    base = dataclasses.replace(base, options=common | modules | paths)
    space |= {key: paths[key] for key in space.keys() & paths.keys()}
    # checks
    _check_numbers(
        num_samples=(num_samples, 1),
        checkpoint_frequency=(checkpoint_frequency, 1),
        interval=(interval, 1),
        max_concurrent_trials=(max_concurrent_trials, 0),
        time_budget_s=(time_budget_s, 1e-3),
        max_failures=(max_failures, -1),
        **{f'stop[{key!r}]': (value, -math.inf) for key, value in (stop or {}).items()},
    )
    if mode not in ('max', 'min'):
        raise ConfigError('bad value', where='mode', got=mode, expected="'max' or 'min'")
    _check_key(metric, 'metric', cfg)
    for key in stop or ():
        _check_key(key, 'stop', cfg)
    # scheduler and search
    ends_early = (
        make_scheduler(scheduler, cfg, space, interval, seed) if isinstance(scheduler, str) else scheduler
    )
    clones = isinstance(ends_early, PopulationBasedTraining)
    if reuse_actors is None:
        reuse_actors = not clones
        warnings.filterwarnings('ignore', 'Consider boosting PBT')  # by what it is not safe with
    facts = {'metric': metric, 'stop': list(stop or ()), 'resources': dict(resources or {})}
    param_space = {'config': base, **facts, **space}
    if isinstance(search, str):
        repeats = Repeats(cfg.seed, is_searched(space.get('seed')))
        search = _make_search(search, (param_space, ends_early), seed, max_concurrent_trials, repeats)
        max_concurrent_trials = 0
    elif isinstance(search, Searcher):
        search = _limited(search, (param_space, ends_early), max_concurrent_trials)
        max_concurrent_trials = 0
    # envs, cluster and folder, the last of which alone leaves something behind
    wanted = _wanted_folder(folder, cfg)
    _check_envs(possible)
    own_arguments = cfg.policy.collect.collector.get('ray_init_config') or {}
    session = connect({**own_arguments, **(ray_init_config or {})})
    for each in possible:
        session.check_possible(bundles_of(each, resources), 'resources')
    made = _make_folder(wanted, cfg, {'metric': metric, 'mode': mode})
    return Tuner(
        RLTrainable,
        param_space=param_space,
        tune_config=TuneConfig(
            metric=metric,
            mode=mode,
            num_samples=num_samples,
            scheduler=ends_early,
            search_alg=search,
            max_concurrent_trials=max_concurrent_trials or None,
            time_budget_s=time_budget_s,
            reuse_actors=reuse_actors,
            trial_name_creator=_trial_name,
            trial_dirname_creator=_trial_name,
        ),
        run_config=RunConfig(
            name=made.name,
            storage_path=str(made.parent),
            stop=dict(stop or {}),
            verbose=int(progress),
            progress_reporter=TrialTable(metric) if progress else None,
            callbacks=[*(kind() for kind in LOGGERS), *callbacks],
            failure_config=FailureConfig(max_failures=max_failures),
            sync_config=SyncConfig(sync_artifacts=True),
            checkpoint_config=CheckpointConfig(
                num_to_keep=None if clones else KEPT,
                checkpoint_score_attribute=metric,
                checkpoint_score_order=mode,
                checkpoint_frequency=checkpoint_frequency,
                checkpoint_at_end=True,
            ),
        ),
    )


def _make_folder(wanted: Path, cfg: ExperimentConfig, facts: Mapping[str, str]) -> Path:
    """Makes the results folder with its description of the search; it is private if the config has secrets."""
    made = free_folder(wanted)
    if secret_options(cfg):
        made.chmod(0o700)  # where Ray does not change the config
    (made / SEARCH).write_text(json.dumps(facts) + '\n', encoding='utf-8')
    return made


def restore_tuner(
    path: str | Path, *, restart_errored: bool = False, ray_init_config: Mapping[str, Any] | None = None
) -> Tuner:
    """Prepares to resume an interrupted search; finished trials are not run again.

    Ray's files in the results folder contain pickles, which can run code when they are loaded: resume only from folders
    that you trust.

    Args:
        path: Results folder of the search; it may have been moved.
        restart_errored: Whether trials that ended with an error are restarted.
        ray_init_config: Arguments of ``ray.init``, used if Ray is started here.

    Raises:
        CheckpointNotFoundError: If there is no search to resume.
    """
    folder = Path(path).expanduser().absolute()
    if not (folder / 'tuner.pkl').is_file():
        seen = (
            ', '.join(sorted(entry.name for entry in folder.iterdir())[:8]) if folder.is_dir() else 'nothing'
        )
        raise CheckpointNotFoundError(
            f'no search to resume: there is no tuner.pkl, but {seen or "nothing"}', where=str(folder)
        )
    saved = {path.name.partition('state-')[0] for path in folder.glob('*state-*.json')}
    # without the experiment's state, Ray would start a search without options; without the others, one without trials
    if not saved > {'experiment_'}:
        raise CheckpointNotFoundError(
            'the search was killed before its state was saved',
            where=str(folder),
            remedy='Start it again with another --out.',
        )
    connect(ray_init_config)
    tuner = Tuner.restore(str(folder), trainable=RLTrainable, restart_errored=restart_errored)
    restored: Any = tuner._local_tuner
    if isinstance(search := restored._tune_config.search_alg, _Resumable):
        search.folder = folder
    return tuner


def _absolute_paths(cfg: ExperimentConfig) -> dict[str, str]:
    """Returns the options that name a path in the working directory, made absolute: trials run elsewhere."""
    found = {}
    for key in PATHS:
        value = value_at(cfg, key)
        if isinstance(value, str) and Path(value).exists():
            found[key] = str(Path(value).absolute())
    return found


def _check_envs(possible: Sequence[ExperimentConfig]) -> None:
    """Checks that each env can be created, that its policy can act in it, and that its replay buffer fits into memory.

    Raises:
        EnvError, IncompatibleError, ResourceError: As the run itself would raise, but before Ray starts.
    """
    specs: dict[str, EnvSpec] = {}
    for cfg in possible:
        key = repr(to_plain(cfg.env))
        if key not in specs:
            specs[key] = build.make_factory(cfg).spec
        build.check_policy(cfg, specs[key])
        memory_needs.check_memory(cfg, specs[key])


def _check_numbers(**given: tuple[Any, float]) -> None:
    """Checks that each value, if given, is a number not below its minimum."""
    for where, (value, least) in given.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:
            raise ConfigError('bad value', where=where, got=value, expected=f'a number >= {least:g}')


def _check_key(key: str, what: str, cfg: ExperimentConfig) -> None:
    evaluator = SERIAL_EVALUATOR_REGISTRY.get_cls(cfg.policy.eval.evaluator)
    known = [known for known in RESULT_KEYS if evaluator.scores_returns or not known.startswith('eval/')]
    names_a_score = not evaluator.scores_returns and key.startswith('eval/') and key not in RESULT_KEYS
    if key not in known and not names_a_score:
        raise ConfigError(
            f'no result has the key {key!r}.{nearest(key, known)}',
            where=what,
            got=key,
            expected=f'one of {", ".join(known)}'
            + ('' if evaluator.scores_returns else ', or eval/ and the name of what the evaluator measures'),
        )


def _make_search(
    name: str, given: tuple[Mapping[str, Any], Any], seed: int | None, at_once: int, repeats: Repeats
) -> Any:
    """Returns a search of ``SEARCHES``, given its space and its scheduler."""
    if name not in SEARCHES:
        hint = nearest(name, SEARCHES)
        raise ConfigError(
            f'no search is called {name!r}.{hint}', where='search', got=name, expected=' or '.join(SEARCHES)
        )
    if name == 'random':
        return SeededVariants(*given, repeats, random_state=seed, max_concurrent=at_once)
    if importlib.util.find_spec('optuna') is None:
        raise MissingDependencyError(
            'this search needs Optuna', where='search', remedy="pip install 'rlframe[tune]'."
        )
    if grids := [
        key for key, domain in given[0].items() if isinstance(domain, Mapping) and is_searched(domain)
    ]:
        raise ConfigError(
            'Optuna draws from domains and does not support grids',
            where=f'param_space[{grids[0]!r}]',
            remedy='Use a choice.',
        )
    return _limited(seeded_optuna(repeats, seed), given, at_once)


def _limited(searcher: Any, given: tuple[Mapping[str, Any], Any], at_once: int) -> SearcherTrials:
    """Limits how many trials of a searcher run at the same time; 0: no limit."""
    if at_once:
        searcher = ConcurrencyLimiter(searcher, max_concurrent=at_once)
    return SearcherTrials(*given, searcher)


def _wanted_folder(folder: str | Path | None, cfg: ExperimentConfig) -> Path:
    """Returns the path of the results folder after checking that it can be created, with the folders above it."""
    if '://' in str(folder):
        raise ExperimentDirError(
            'results are written to a folder',
            where='folder',
            got=str(folder),
            expected='a path; on a cluster, one that all nodes share',
        )
    wanted = Path(folder or f'{cfg.exp_name}_tune').expanduser().absolute()
    if folder is not None and wanted.exists():
        raise ExperimentExistsError(
            'the results folder exists already' if wanted.is_dir() else 'this is a file, not a folder',
            where=str(wanted),
            remedy='Resume it with --resume, choose another --out, or leave that out for a free name.',
        )
    existing = next(above for above in wanted.parents if above.exists())
    if not existing.is_dir():
        raise ExperimentDirError('this is a file, not a folder', where=str(existing))
    check_writable(existing)
    return wanted


def _trial_name(trial: Any) -> str:
    return f'trial_{trial.trial_id}'
