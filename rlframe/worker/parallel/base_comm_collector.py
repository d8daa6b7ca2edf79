"""BaseCommCollector: the interface of what connects a parallel collector with a coordinator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from rlframe.registry import COMM_COLLECTOR_REGISTRY
from rlframe.utils.field import Configurable


class BaseCommCollector(Configurable, ABC):
    """Gets weights and sends data for a parallel collector.

    Args:
        cfg: Options.
    """

    def __init__(self, cfg: Mapping[str, Any] | None = None) -> None:
        self._cfg = self.resolve_config(cfg)

    @abstractmethod
    def get_policy_update_info(self, path: str) -> Any:
        """Returns the newest weights of a policy, by its name."""

    @abstractmethod
    def send_metadata(self, metadata: Any) -> Any:
        """Sends facts about the data of ``send_stepdata``."""

    @abstractmethod
    def send_stepdata(self, stepdata: Any) -> Any:
        """Takes training data."""

    @abstractmethod
    def start(self) -> None:
        """Begins to work, in a thread."""

    @abstractmethod
    def close(self) -> None:
        """Ends the work; may be called twice."""

    @property
    def collector_uid(self) -> str:
        """The collector's id in the run; empty if it has none."""
        return ''


def create_comm_collector(cfg: Mapping[str, Any], **kwargs: Any) -> BaseCommCollector:
    """Builds the comm collector named by ``cfg.type``.

    Raises:
        RegistryError: If no comm collector has that name; the closest one is named.
    """
    made: BaseCommCollector = COMM_COLLECTOR_REGISTRY.build(cfg, cfg, **kwargs)
    return made
