"""Resettable: base class of workers whose env, data or policy can be replaced."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from rlframe.errors import ConfigError


class Resettable(ABC):
    """A collector or an evaluator: both use an env and a face of a policy, which can be replaced."""

    policy_face = 'collect_mode'
    """The face of a policy that it uses."""
    _policy: Any = None

    @abstractmethod
    def reset_env(self, _env: Any = None) -> None:
        """Replaces the env, or resets the current one."""

    def reset_data(self, data: Any) -> None:
        """Replaces the recorded data, in a worker that uses data instead of envs.

        Raises:
            ConfigError: By default, as a worker that steps envs takes no data.
        """
        raise ConfigError(
            f'{type(self).__name__} steps envs, it reads no recorded data', where='data', got=type(data)
        )

    def reset_policy(self, _policy: Any = None) -> None:
        """Replaces the policy, or resets the current one."""
        if _policy is not None:
            self._policy = _policy
        if self._policy is None:
            raise ValueError(f'reset_policy needs a policy: the {self.policy_face} of one')
        self._policy.reset(None)

    def _attribute(self, name: str, default: Any, policy: Any = None) -> Any:
        """Returns an attribute of a policy, by default of the current one; ``default`` if it does not exist."""
        try:
            return (self._policy if policy is None else policy).get_attribute(name)
        except AttributeError:
            return default

    def reset(self, _policy: Any = None, _env: Any = None) -> None:
        """Calls ``reset_env`` and ``reset_policy``; counters and scores are kept."""
        self.reset_env(_env)
        self.reset_policy(_policy)
