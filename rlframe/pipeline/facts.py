"""RunFacts: the facts about a run in the manifests of its checkpoints, by which another run knows whether it fits."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlframe import config
from rlframe.config.sections import ExperimentConfig
from rlframe.data.space_json import is_plain, space_to_json
from rlframe.data.timestep import EnvSpec
from rlframe.errors import CheckpointMismatchError

logger = logging.getLogger('rlframe.pipeline')

MOST_LETTERS = 200
"""Letters of a space in an error."""


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

    spec: EnvSpec | None = None
    """The spaces of the env, if they are to be compared."""

    @property
    def spaces(self) -> dict[str, Any]:
        """The spaces of the env as plain data, by name; those of custom kinds are left out."""
        if self.spec is None:
            return {}
        kinds = {'action': self.spec.action_space, 'observation': self.spec.observation_space}
        return {name: space_to_json(space) for name, space in kinds.items() if is_plain(space)}

    @property
    def policy(self) -> str:
        """Type of the policy."""
        return str(self.cfg.policy.type)

    def config(self) -> dict[str, Any]:
        """Returns the config as plain data."""
        return config.config_data(*config.split_config(self.cfg))

    def check_same(self, manifest: Mapping[str, Any], path: Path) -> None:
        """Checks that this run can resume from a checkpoint; warns if bounds of observations have changed.

        Args:
            manifest: Manifest of the checkpoint.
            path: Path of the checkpoint.

        Raises:
            CheckpointMismatchError: If it was made by another policy, for another env or for other actions, or contains only a
                policy.
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
        saved = manifest.get('spaces', {})
        for name, space in self.spaces.items():
            if saved.get(name, space) == space:
                continue
            message = f"the env's {name} space has changed: {_short(saved[name])} there, {_short(space)} here"
            if name == 'action':  # the replay buffer has actions that mean something else now
                raise CheckpointMismatchError(
                    message,
                    where=str(path),
                    remedy='Resume with the env as it was, or begin with the weights: policy.init_from.',
                )
            logger.warning('%s: %s', path, message)


def _short(space: Mapping[str, Any]) -> str:
    """Returns a space of a manifest as a short text."""
    options = ', '.join(f'{name}={value}' for name, value in space.items() if name != 'type')
    return f'{space["type"]}({options})'[:MOST_LETTERS]
