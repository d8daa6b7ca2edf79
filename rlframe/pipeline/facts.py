"""RunFacts: the facts about a run in the manifests of its checkpoints, by which another run knows whether it fits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlframe import config
from rlframe.config.sections import ExperimentConfig
from rlframe.errors import CheckpointMismatchError


@dataclasses.dataclass(frozen=True)
class RunFacts:
    """The facts about a run in its manifests, apart from its progress."""

    cfg: ExperimentConfig
    """The config."""
    env: str
    """Name of the env."""
    score: Callable[[], float]
    """Returns the score of the last evaluation, NaN if there was none."""
    seconds: Callable[[], Mapping[str, float]] = dict
    """Returns the seconds spent on each kind of work, empty if nobody measures them."""

    @property
    def policy(self) -> str:
        """Type of the policy."""
        return str(self.cfg.policy.type)

    def config(self) -> dict[str, Any]:
        """Returns the config as plain data."""
        return config.config_data(*config.split_config(self.cfg))

    def check_same(self, manifest: Mapping[str, Any], path: Path) -> None:
        """Checks that this run can resume from a checkpoint.

        Args:
            manifest: Manifest of the checkpoint.
            path: Path of the checkpoint.

        Raises:
            CheckpointMismatchError: If it was made by another policy or for another env, or contains only a policy.
        """
        here = {'policy': self.policy, 'env': self.env}
        if differing := [
            f'{k}: {manifest.get(k)!r} there, {v!r} here' for k, v in here.items() if manifest.get(k) != v
        ]:
            raise CheckpointMismatchError('; '.join(differing), where=str(path))
        if 'logs' not in manifest:
            raise CheckpointMismatchError(
                'this checkpoint contains only a policy',
                where=str(path),
                remedy='To begin with its weights, set policy.init_from.',
            )
