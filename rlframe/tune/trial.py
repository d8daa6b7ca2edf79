"""Trial: a config with sampled options, trained from one evaluation to the next."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import sys
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from rlframe.config import compile_config, read_config
from rlframe.config.schema import ExperimentConfig
from rlframe.errors import CheckpointCorruptError, ConfigError, NonFiniteError
from rlframe.pipeline.serial import SerialPipeline
from rlframe.registry import nearest
from rlframe.run.child_process import StallDetector
from rlframe.run.read_checkpoint import verify_checkpoint
from rlframe.run.run_folder import free_folder
from rlframe.utils.field import to_plain
from rlframe.utils.secrets import secret_options

METRIC = 'eval/mean_reward'
"""Default score that trials are compared by: the mean return of the last evaluation."""
SCHEDULERS = ('asha', 'hyperband', 'median', 'pbt', 'none')
"""Schedulers, which end trials early or copy better ones."""
SEARCHES = ('random', 'optuna')
"""Ways to draw from domains."""


CHECKPOINT, OWNER = 'latest', 'trial.json'
"""In a checkpoint of Tune: the checkpoint of the run, which ``rlframe eval`` and ``--resume`` take, and whose it is."""
SEARCH = 'search.json'
"""File in a results folder that names the score of its trials."""
OWN_KEYS = ('config', 'main_config', 'create_config', 'metric', 'stop', 'resources')
"""Keys of a trial's config that are no options of a run."""
KEPT_BY_TUNE = ('training_iteration', 'timesteps_total', 'episodes_total', 'time_total_s')
"""Keys of results that Tune adds."""
BUDGET_PARTS, PARTS = 'budget_parts', 27
"""Key of the spent part of a trial's budget in env steps, and the whole: schedulers compare after 1, 3, 9 parts."""

STARTING = 60.0
"""Seconds that making envs and networks may take in any case: a new process imports torch meanwhile."""


@dataclasses.dataclass(frozen=True, repr=False)
class TrialBase:
    """The config that all trials have in common, as one value: Tune looks for samples in every dict."""

    main: Mapping[str, Any]
    """``main_config``."""
    create: Mapping[str, Any]
    """``create_config``."""
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Overrides of the config, by dotted keys."""
    import_path: tuple[str, ...] = ()
    """Absolute folders that its modules are imported from."""

    def __repr__(self) -> str:
        return f'<config {self.main.get("exp_name", "")}>'


def trial_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the sampled options of a trial, by dotted keys.

    Sections under a key without a dot are flattened; at a dotted key, a dict such as a schedule is a value.
    """
    found: dict[str, Any] = {}
    for key, value in config.items():
        if key not in OWN_KEYS:
            _flatten(str(key), value, found, is_value='.' in str(key))
    return found


def _flatten(key: str, value: Any, found: dict[str, Any], is_value: bool = False) -> None:
    if not is_value and isinstance(value, Mapping) and value and value.keys() != {'grid_search'}:
        for name, below in value.items():
            _flatten(f'{key}.{name}', below, found)
    else:
        if key in found:
            message = f'{key} is set twice, in a section and as a dotted key'
            raise ConfigError(message, where='param_space', remedy='Write it once.')
        is_number = hasattr(value, 'item') and getattr(value, 'shape', None) == ()
        found[key] = value.item() if is_number else value


def trial_pair(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Returns the main and create config that a trial's config begins with.

    Raises:
        ConfigError: If it names no config, or a file by a relative path: trials have their own working directories.
    """
    base = config.get('config')
    if isinstance(base, TrialBase):
        sys.path += [folder for folder in base.import_path if folder not in sys.path]
        return base.main, base.create
    if base is None and 'main_config' in config and 'create_config' in config:
        return to_plain(config['main_config']), to_plain(config['create_config'])
    if not isinstance(base, str | Path) or not Path(base).is_absolute():
        raise ConfigError(
            'a trial needs a config',
            where='config',
            got=base,
            expected='the absolute path of a file, or main_config and create_config beside it',
        )
    return read_config(base)


def compile_trial(config: Mapping[str, Any]) -> ExperimentConfig:
    """Compiles a trial's config.

    Args:
        config: ``config``, a file or a ``TrialBase``, or ``main_config`` and ``create_config``; ``metric``; and options
            by dotted keys or in sections, which are laid over them.

    Raises:
        ConfigError: If an option is unknown or invalid.
    """
    base = config.get('config')
    common = base.options if isinstance(base, TrialBase) else {}
    options = {**common, **trial_options(config)}
    return compile_config(*trial_pair(config), overrides=options)


class Trial:
    """A run that can be held, handed on and taken over between two evaluations.

    Its pipeline is created when first needed, from a checkpoint if the trial is restored.

    ``config`` is as ``compile_trial`` accepts it, ``home`` the folder for the run folder; checkpoints of a trial with
    another ``trial_id`` are cloned. ``model`` is a network that replaces the one named in the config.
    """

    def __init__(self, config: Mapping[str, Any], home: Path, trial_id: str, model: Any = None) -> None:
        self.cfg = compile_trial(config)
        """The compiled config."""
        self._metric: str = config.get('metric', METRIC)
        self._needed = (self._metric, *config.get('stop', ()))
        self._home, self._trial_id, self._model = home, trial_id, model
        self._pipeline: SerialPipeline | None = None

    @property
    def pipeline(self) -> SerialPipeline:
        """The run itself."""
        if self._pipeline is None:
            self._pipeline = self._make()
        return self._pipeline

    def _make(self, resume: Path | None = None, clone_key: int | None = None) -> SerialPipeline:
        limit = self.cfg.stall_timeout and max(self.cfg.stall_timeout, STARTING)
        with closing(StallDetector(limit, raises=True)):  # envs may hang when they are made
            model = copy.deepcopy(self._model)
            return SerialPipeline(self.cfg, lambda: free_folder(self._home / 'run'), model, resume, clone_key)

    def step(self) -> dict[str, Any]:
        """Trains until the next evaluation is there, or to the end.

        Returns:
            Counters and scores, always under the same keys, and values for Tune.

        Raises:
            NonFiniteError: If the score is no number: schedulers would pass such a trial over without a word.
            ConfigError: If the result lacks the metric or a stop criterion.
        """
        pipeline = self.pipeline
        progress, best, evaluations = pipeline.progress, pipeline.evaluator.best, pipeline.evaluations
        envstep, episodes = progress.envstep, progress.episodes
        is_untrained = progress.train_iter == 0  # so the first evaluation is not informative
        wanted = evaluations + (2 if is_untrained else 1)

        def is_scored(pipeline: SerialPipeline) -> bool:
            if pipeline.evaluations < wanted:
                return False
            waits = self._metric.startswith('rollout/')  # for an episode that ends
            return not waits or math.isfinite(pipeline.result().get(self._metric, 0.0))

        # train
        if not pipeline.finished:
            pipeline.run(is_scored, supervised=True)
        # report
        result = {name: _plain(value) for name, value in pipeline.result().items()}
        self._check(result)
        return {
            **result,
            'timesteps_this_iter': progress.envstep - envstep,
            'episodes_this_iter': progress.episodes - episodes,
            BUDGET_PARTS: PARTS * progress.envstep / self.cfg.max_env_step,
            'eval_is_fresh': pipeline.evaluations > evaluations,
            'done': pipeline.finished,
            'should_checkpoint': pipeline.evaluator.best != best,
        }

    def _check(self, result: Mapping[str, Any]) -> None:
        if missing := [key for key in self._needed if key not in result and key not in KEPT_BY_TUNE]:
            raise ConfigError(
                f'no result has the key {missing[0]!r}.{nearest(missing[0], result)}',
                where='metric' if missing[0] == self._metric else 'stop',
                got=missing[0],
                expected=f'one of {", ".join([*result, *KEPT_BY_TUNE])}',
            )
        if not math.isfinite(score := result.get(self._metric, 0.0)):
            raise NonFiniteError(
                f'the score of the trial is {score}',
                where=self._metric,
                remedy='Was there an evaluation, or an episode that ended, before the budget was spent?',
            )

    def save(self, folder: Path) -> None:
        """Writes everything that the next step depends on into a folder."""
        verify_checkpoint(self.pipeline.save_checkpoint(folder / CHECKPOINT))
        (folder / OWNER).write_text(json.dumps({'trial_id': self._trial_id}), encoding='utf-8')

    def load(self, folder: Path) -> None:
        """Resumes from a trial's checkpoint; with new random numbers if another trial wrote it.

        Learning rates and all other options are those of this trial.

        Raises:
            CheckpointError: If it is missing or damaged, or was made by another policy or for another env.
        """
        self.close()
        origin = _owner(folder)
        is_clone = origin not in (None, self._trial_id)
        number = self._trial_id.rpartition('_')[2]  # the same in a search that is done once more
        clone_key = zlib.crc32(number.encode()) if is_clone else None
        self._pipeline = self._make(folder / CHECKPOINT, clone_key)

    def export(self, formats: Sequence[str], folder: Path) -> dict[str, str]:
        """Exports the current policy and returns the paths, by format.

        Raises:
            ConfigError: If a format is unknown, or cannot hold such a policy.
        """
        from rlframe.export import export_policy

        with tempfile.TemporaryDirectory() as place:
            saved = self.pipeline.checkpoints.save_policy(Path(place) / CHECKPOINT)
            written = export_policy(saved, formats, folder, trust=True, overrides=secret_options(self.cfg))
        return {name: str(path) for name, path in written.items()}

    def close(self) -> None:
        """Closes envs, actors, logs and files; may be called twice."""
        pipeline = self._pipeline
        self._pipeline = None
        if pipeline is not None:
            pipeline.cleanup()


def _owner(folder: Path) -> str | None:
    """Returns the trial that wrote a checkpoint, None if it is not a Tune checkpoint."""
    path = folder / OWNER
    try:
        return str(json.loads(path.read_text(encoding='utf-8'))['trial_id']) if path.is_file() else None
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointCorruptError(f'not what a trial writes: {error}', where=str(path)) from error


def short_value(value: Any) -> str:
    """Returns an option's value, or a score, as it is shown."""
    return f'{value:.4g}' if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, 'item') else value
