"""RLTrainable: an experiment as a trial of Ray Tune."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ray.tune import PlacementGroupFactory, Trainable

from rlframe.config.schema import ExperimentConfig
from rlframe.errors import RLFrameError, TrialStoppedError
from rlframe.pipeline.build import get_backend_cls
from rlframe.remote.worker import failure_of, raise_failure
from rlframe.tune.trial import Trial, compile_trial

logger = logging.getLogger('rlframe.tune')


def bundles_of(cfg: ExperimentConfig, learner: Mapping[str, float] | None = None) -> list[dict[str, float]]:
    """Returns the resources of a trial: first the learning process, then each of its actors.

    ``learner`` are those of the process that learns; by default 1 CPU and, for a policy on CUDA, 1 GPU.
    """
    own = {'CPU': 1.0, **({'GPU': 1.0} if _on_cuda(cfg) else {}), **(learner or {})}
    bundles = [{name: float(size) for name, size in own.items()}]
    collector, evaluator = cfg.policy.collect.collector, cfg.policy.eval.evaluator
    bundles += get_backend_cls(collector).collector_resources(collector)
    bundles += get_backend_cls(evaluator).evaluator_resources(evaluator)
    return [bundle for i, bundle in enumerate(bundles) if bundle or i == 0]


def _on_cuda(cfg: ExperimentConfig) -> bool:
    """Whether the policy uses CUDA, even if this machine, which only schedules trials, has none."""
    import torch

    if cfg.policy.cuda is not None:
        return bool(cfg.policy.cuda)
    return str(cfg.policy.device).startswith('cuda') or (
        cfg.policy.device == 'auto' and torch.cuda.is_available()
    )


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

    A subclass can save additional state: its ``save_checkpoint`` calls the one of this class and writes files of its own
    into the same folder, and its ``load_checkpoint`` reads them.
    """

    _exp: Trial | None = None
    _exp_model: Any = None

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

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Writes everything that the next step depends on."""
        self._running.save(Path(checkpoint_dir))

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Continues from ``save_checkpoint``, with the options of this trial; as a clone if another trial wrote it.

        Raises:
            CheckpointError: If it is missing or damaged, or was made by another policy or for another env.
        """
        self._running.load(Path(checkpoint))

    def reset_config(self, new_config: Mapping[str, Any]) -> bool:
        """Begins another trial in this process, without any state of the last one."""
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
        """Copies the run folder to the results; Tune does so only at checkpoints."""
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


def _can_be_copied(error: Exception) -> bool:
    """Whether an exception and its causes can be copied intact; one with custom arguments may not be."""
    cause = error.__cause__
    return bool(failure_of(error).error) and (not isinstance(cause, Exception) or _can_be_copied(cause))
