"""RLTrainable: an experiment as a trial of Ray Tune."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ray.tune import PlacementGroupFactory, Trainable

from rlframe import checkpoint as checkpoints
from rlframe.backend.ray.actors.actor import failure_of, raise_failure
from rlframe.errors import RLFrameError, TrialStoppedError
from rlframe.tune.resources import bundles_of
from rlframe.tune.trial import Trial, compile_trial

logger = logging.getLogger('rlframe.tune')

OWN_STATE = 'own_state'
"""Name, in a Tune checkpoint, of the result of a subclass's ``save_checkpoint``."""


class OwnState(dict[str, Any]):
    """Result of a subclass's ``save_checkpoint``, as passed to its ``load_checkpoint``.

    Args:
        state: The returned dict.
        folder: Its checkpoint, which also contains the run itself.
    """

    def __init__(self, state: Mapping[str, Any], folder: Path) -> None:
        super().__init__(state)
        self.folder = folder
        """Folder of the checkpoint."""


class RLTrainable(Trainable):  # type: ignore[misc]  # Ray is untyped
    """Trains a policy as a trial of Ray Tune; each result is one evaluation.

    Its config has ``config``, the absolute path of a config file (or ``main_config`` and ``create_config``), and
    options by their dotted keys, such as ``policy.learn.learning_rate``, or nested in sections. Further keys:
    ``metric``, which must be a number in every result, and ``resources`` of the process that learns, such as ``{'CPU':
    0.5}``.

    A custom network is passed with ``tune.with_parameters(RLTrainable, model=network)``.

    The run folder is ``run`` in the trial's folder; a trial restored from a checkpoint creates another one, ``run_1``.
    In a custom Tuner, ``SyncConfig(sync_artifacts=True)`` copies it to the results; ``make_tuner`` sets this. A hook
    ``after_run`` is called for a trial that reaches its budget or stop value, not for one that a scheduler stops
    earlier.

    A subclass can save additional state: its ``save_checkpoint`` calls the one of this class and returns a dict of
    plain values, arrays and tensors. Its ``load_checkpoint`` receives that dict and passes it on to this one. The dict
    is not pickled.
    """

    _exp: Trial | None = None
    _exp_model: Any = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if 'load_checkpoint' in vars(cls):
            cls.load_checkpoint = _with_own_state(cls.load_checkpoint)  # type: ignore[method-assign,assignment]  # it wraps the method

    def setup(self, config: Mapping[str, Any], model: Any = None) -> None:
        """Checks the config; envs and networks are made by the first step, or by ``load_checkpoint``.

        Raises:
            ConfigError: If an option is unknown or impossible.
        """
        self._exp_model = model
        self._exp = self._trial(config)

    def _trial(self, config: Mapping[str, Any]) -> Trial:
        return Trial(config, Path(self.logdir).absolute(), str(self.trial_id), self._exp_model)

    @property
    def _running(self) -> Trial:
        if self._exp is None:
            raise TrialStoppedError(
                f'trial {self.trial_id} was stopped: it can no longer be trained, saved, loaded or exported',
                remedy='Create a new one and restore it from a checkpoint, or reset() this one.',
            )
        return self._exp

    def step(self) -> dict[str, Any]:
        """Trains until the next evaluation; see ``Trial.step``.

        Raises:
            TrialStoppedError: If it was stopped.
            Exception: Any exception of the run; as an ``ActorFailedError`` with its text if it cannot be copied, as
                Tune requires.
        """
        try:
            return self._running.step()
        except Exception as error:
            self._keep_files()
            if _can_be_copied(error):
                raise
            failure = failure_of(error)
        raise_failure(failure, f'trial {self.trial_id}')

    def log_result(self, result: dict[str, Any]) -> None:
        """Flushes the run's own metrics to disk before its result is reported."""
        self._running.pipeline.writer.flush()

    def save_checkpoint(self, checkpoint_dir: str) -> Any:
        """Writes everything that the next step depends on; a subclass may return a dict of additional state."""
        self._running.save(Path(checkpoint_dir))

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Continues from ``save_checkpoint``, with the options of this trial; as a clone if another trial wrote it.

        Args:
            checkpoint: The folder, or the dict that a subclass received.

        Raises:
            CheckpointError: If it is missing or damaged, or was made by another policy or for another env.
        """
        self._running.load(checkpoint.folder if isinstance(checkpoint, OwnState) else Path(checkpoint))

    def _report_class_trainable_checkpoint(self, checkpoint_dir: str, checkpoint_dict_or_path: Any) -> Any:
        """Saves a dict as data, as Ray would write a pickle, which can run code when it is loaded."""
        if isinstance(checkpoint_dict_or_path, Mapping):
            checkpoints.save_checkpoint(Path(checkpoint_dir) / OWN_STATE, checkpoint_dict_or_path)
            checkpoint_dict_or_path = None
        return super()._report_class_trainable_checkpoint(checkpoint_dir, checkpoint_dict_or_path)

    def reset_config(self, new_config: Mapping[str, Any]) -> bool:
        """Begins another trial in this process, of which nothing of the last one is part."""
        self.cleanup()
        self._exp = self._trial(new_config)
        return True

    def cleanup(self) -> None:
        """Closes everything; never raises, and may be called twice."""
        try:
            if self._exp is not None:
                self._exp.close()
            self._exp = None
        except Exception:
            logger.exception('closing a trial failed')

    def _keep_files(self) -> None:
        """Copies the run folder to the results; Tune does so only at checkpoints, before a crash report."""
        try:
            if self._storage is not None:
                self._storage.persist_artifacts(force=True)
        except Exception:  # the original error matters more
            logger.exception('the run folder could not be copied to the results')

    def _export_model(self, export_formats: list[str], export_dir: str) -> dict[str, str]:
        return self._running.export(export_formats, Path(export_dir))

    @classmethod
    def default_resource_request(cls, config: Mapping[str, Any]) -> PlacementGroupFactory:
        """Returns a bundle for the learner, and one for each actor that collects or evaluates."""
        try:
            cfg = compile_trial(config)
        except RLFrameError:  # the trial itself reports it, where its error is visible
            return PlacementGroupFactory([{'CPU': 1.0}])
        return PlacementGroupFactory(bundles_of(cfg, config.get('resources')), strategy='PACK')

    @classmethod
    def resource_help(cls, config: Mapping[str, Any]) -> str:
        """Returns the keys that decide the resources of a trial."""
        return (
            'A trial takes `resources` ({"CPU": 1}, and a GPU where policy.device is CUDA), and for each of'
            ' policy.collect.collector.num_collectors actors with backend="ray" what remote_configs says (1 CPU).'
        )


def _with_own_state(load: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Returns a ``load_checkpoint`` that receives the dict that ``save_checkpoint`` returned, if any."""

    @functools.wraps(load)
    def load_checkpoint(self: RLTrainable, checkpoint: Any) -> None:
        if isinstance(checkpoint, str | Path) and (Path(checkpoint) / OWN_STATE).is_dir():
            state, _ = checkpoints.load_checkpoint(Path(checkpoint) / OWN_STATE)
            checkpoint = OwnState(state, Path(checkpoint))
        load(self, checkpoint)

    return load_checkpoint


def _can_be_copied(error: Exception) -> bool:
    """Whether an exception and its causes can be copied intact; one with custom arguments may not be."""
    cause = error.__cause__
    return bool(failure_of(error).error) and (not isinstance(cause, Exception) or _can_be_copied(cause))
