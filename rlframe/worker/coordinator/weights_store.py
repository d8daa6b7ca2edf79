"""WeightsStore: the newest weights of each policy, and copies under other names."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple


class Version(NamedTuple):
    """Weights of a policy."""

    version: int
    """Grows with each publication."""
    train_iter: int
    """Train iterations that they contain."""
    weights: Any
    """Tree of arrays, which nobody changes."""


class WeightsStore:
    """Keeps one version of the weights of each policy."""

    def __init__(self) -> None:
        self._by_name: dict[str, Version] = {}

    def put(self, policy: str, version: Version) -> bool:
        """Publishes weights; returns False if newer ones are there already."""
        if version.version < self.version(policy):
            return False
        self._by_name[policy] = version
        return True

    def get(self, policy: str) -> Version | None:
        """Returns the newest weights of a policy, or None."""
        return self._by_name.get(policy)

    def version(self, policy: str) -> int:
        """Returns the newest version of a policy; -1 if there is none."""
        found = self._by_name.get(policy)
        return -1 if found is None else found.version

    def copy(self, policy: str, name: str) -> None:
        """Keeps the newest weights of a policy under another name, too."""
        self._by_name[name] = self._by_name[policy]

    def keep_only(self, names: Collection[str]) -> None:
        """Forgets all other policies."""
        self._by_name = {name: version for name, version in self._by_name.items() if name in names}

    def state_dict(self, without: str = '') -> dict[str, Any]:
        """Returns all weights by name, except those of one name."""
        return {name: version._asdict() for name, version in self._by_name.items() if name != without}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        self._by_name = {name: Version(**version) for name, version in state.items()}
