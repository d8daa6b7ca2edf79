"""Resettable: what is given another env or another policy while it lives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class Resettable(ABC):
    """A collector or an evaluator: both work with an env and a face of a policy, which may change."""

    policy_face = 'collect_mode'
    """Which face of a policy it takes."""
    _policy: Any = None

    @abstractmethod
    def reset_env(self, _env: Any = None) -> None:
        """Takes over another env, or begins anew with the present one."""

    def reset_policy(self, _policy: Any = None) -> None:
        """Takes over another policy, or resets the present one."""
        if _policy is not None:
            self._policy = _policy
        if self._policy is None:
            raise ValueError(f'reset_policy needs a policy: the {self.policy_face} of one')
        self._policy.reset(None)

    def _attribute(self, name: str, default: Any, policy: Any = None) -> Any:
        """Returns an attribute of a policy, by default of the present one; ``default`` if it has none of that name."""
        try:
            return (self._policy if policy is None else policy).get_attribute(name)
        except AttributeError:
            return default

    def reset(self, _policy: Any = None, _env: Any = None) -> None:
        """Does ``reset_env`` and ``reset_policy``; counters and scores go on."""
        self.reset_env(_env)
        self.reset_policy(_policy)
