"""The env of recorded data that nobody can create here: its spaces, and nothing to play in."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from rlframe.data.formats import peek, read_recording
from rlframe.data.recording import spec_of_data
from rlframe.data.timestep import EnvSpec
from rlframe.envs.base_env import EnvConfig, EnvFactory
from rlframe.errors import EnvError
from rlframe.registry import ENV_REGISTRY
from rlframe.utils.field import REQUIRED, option

if TYPE_CHECKING:
    import gymnasium


def is_name_here(path: Any) -> bool:
    """Whether this names something in the working directory."""
    return type(path) is str and re.fullmatch(r'\w[-\w.]{0,100}', path) is not None


class RecordedConfig(EnvConfig):
    """Options of ``RecordedEnvFactory``."""

    env_id: str = option(
        REQUIRED,
        doc='path of recorded data, whose spaces are those of the env',
        reaches='file',
        harmless=is_name_here,
    )


@ENV_REGISTRY.register('recorded')
class RecordedEnvFactory(EnvFactory):
    """Knows the spaces of recorded data. A policy learns and is scored by the data alone."""

    cfg: RecordedConfig

    def make(self, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
        """Raises ``EnvError``: there is no env."""
        raise EnvError(
            f'{self.cfg.env_id} is recorded data, not an env to play in',
            where='env.env_id',
            remedy="Score the policy on data (evaluator.type='metric'), or name an env: env.type=gym env.env_id=ID.",
        )

    @property
    def spec(self) -> EnvSpec:
        """The spaces in the data or, if they say none, those that their columns suggest."""
        if 'spec' not in self._known:
            path = self.cfg.env_id
            own = peek(path, 'env.env_id').spec()
            self._known['spec'] = own or spec_of_data(read_recording(path, 'env.env_id'))
        return self._known['spec']

    @spec.setter
    def spec(self, spec: EnvSpec) -> None:
        self._known['spec'] = spec
