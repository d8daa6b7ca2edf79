"""Records the env steps of a run beside training, with facts about its env."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlframe._version import __version__
from rlframe.config.schema import ExperimentConfig
from rlframe.data.formats import check_target, read_recording, write_recording
from rlframe.data.recorder import EpisodeRecorder
from rlframe.data.recording import facts_of_spec
from rlframe.data.timestep import EnvSpec, FloatArray

SHAPING = ('kwargs', 'wrappers', 'frame_stack', 'action_mask')
"""Options of an env that change its observations and actions."""
FOLDER = 'record'
"""Folder in the folder of a run with what it has recorded so far."""


def env_facts(cfg: ExperimentConfig, spec: EnvSpec) -> dict[str, Any]:
    """Returns facts about the env of a run: the options that create it, and its spaces."""
    env = {name: cfg.env[name] for name in SHAPING if cfg.env.get(name) not in (None, [], {}, 1)}
    if isinstance(env_id := cfg.env['env_id'], str):
        env = {'type': cfg.env.type, 'env_id': env_id, 'manager': cfg.env.manager.type} | env
    return {'rlframe': __version__, 'env': env, 'spec': facts_of_spec(spec)}


def return_facts(returns: Sequence[float] | FloatArray) -> dict[str, float]:
    """Returns mean and standard deviation of returns, [E]."""
    return {'return': float(np.mean(returns)), 'return_std': float(np.std(returns))}


def check_record(cfg: ExperimentConfig, is_new: bool) -> None:
    """Checks that what a run is to record can be written, before the run has a folder.

    Raises:
        ConfigError: If there is something at the path already, or its format is only read.
        MissingDependencyError: If a package is missing.
    """
    if (path := cfg.policy.collect.get('record')) is not None and is_new:
        check_target(Path(path), None, 'policy.collect.record')


class Record:
    """Records the env steps of a run, and writes its whole episodes whenever the run is closed.

    Args:
        cfg: Config of the run.
        spec: Spec of its env.
        folder: Its folder.
    """

    def __init__(self, cfg: ExperimentConfig, spec: EnvSpec, folder: Path) -> None:
        self._cfg, self._spec = cfg, spec
        self._path = Path(cfg.policy.collect['record']).absolute()
        self.recorder = EpisodeRecorder(folder / FOLDER)
        """Takes the steps."""
        if not self.recorder.rows and self._path.exists():  # a finished run that goes on
            self.recorder.take(read_recording(self._path, 'policy.collect.record').columns)

    def finish(self, is_complete: bool) -> None:
        """Writes the data.

        Args:
            is_complete: Whether the run is finished, so that its own copy of them is deleted.
        """
        facts = env_facts(self._cfg, self._spec)
        self.recorder.write()
        if self.recorder.rows:
            recording = self.recorder.recording(facts)
            behaviour = {
                'policy': self._cfg.policy.type,
                'acts': 'as in training, from the beginning',
                **return_facts(recording.episodes().return_),
            }
            facts |= {'behaviour': behaviour, 'seed': self._cfg.seed}
            write_recording(dataclasses.replace(recording, facts=facts), self._path)
        if is_complete:
            self.recorder.remove()
        else:
            self.recorder.close()
