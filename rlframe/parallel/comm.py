"""The interfaces of comm collectors and comm learners, and their creation by registered names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from rlframe.parallel.base_parallel_collector import BaseParallelCollector
from rlframe.registry import (
    COMM_COLLECTOR_REGISTRY,
    COMM_LEARNER_REGISTRY,
    PARALLEL_COLLECTOR_REGISTRY,
    with_type,
)
from rlframe.utils.field import Configurable
from rlframe.worker.learner.learner_hook import LearnerHook


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


class BaseCommLearner(Configurable, ABC):
    """Gets data for a learner, and sends its weights and what it reports.

    Args:
        cfg: Options.
    """

    def __init__(self, cfg: Mapping[str, Any] | None = None) -> None:
        self._cfg = self.resolve_config(cfg)

    @abstractmethod
    def send_policy(self, state_dict: Mapping[str, Any]) -> None:
        """Publishes weights."""

    @abstractmethod
    def get_data(self, batch_size: int) -> Any:
        """Returns a batch to train on; None if there are to be no more."""

    @abstractmethod
    def send_learn_info(self, learn_info: Mapping[str, Any]) -> None:
        """Reports on an update; see ``BaseLearner.learn_info``."""

    @property
    @abstractmethod
    def hooks4call(self) -> list[LearnerHook]:
        """The hooks by which a learner calls ``send_policy`` and ``send_learn_info``."""

    @abstractmethod
    def start(self) -> None:
        """Begins to work, in a thread."""

    @abstractmethod
    def close(self) -> None:
        """Ends the work; may be called twice."""


def create_parallel_collector(cfg: Mapping[str, Any], **kwargs: Any) -> BaseParallelCollector:
    """Builds the parallel collector named by ``cfg.type``, by default ``zergling``.

    Args:
        cfg: Its options.
        kwargs: Further arguments of its constructor, such as ``make_collector``.

    Raises:
        RegistryError: If no parallel collector has that name; the closest one is named.
    """
    named = {'type': 'zergling', **{name: cfg[name] for name in ('type', 'import_names') if name in cfg}}
    return PARALLEL_COLLECTOR_REGISTRY.build(named, cfg, **kwargs)


def get_parallel_collector_cls(cfg: Mapping[str, Any]) -> type[BaseParallelCollector]:
    """Returns the class named by ``cfg.type``."""
    return PARALLEL_COLLECTOR_REGISTRY.get_cls(cfg)


def create_comm_collector(cfg: Mapping[str, Any], **kwargs: Any) -> BaseCommCollector:
    """Builds the comm collector named by ``cfg.type`` or, as in DI-engine, ``cfg.comm_collector_type``.

    Args:
        cfg: Its options.
        kwargs: Further arguments of its constructor, such as ``collector`` and ``transport``.

    Raises:
        RegistryError: If no comm collector has that name; the closest one is named.
    """
    cfg = with_type(cfg, 'comm_collector_type')
    return COMM_COLLECTOR_REGISTRY.build(cfg, cfg, **kwargs)


def create_comm_learner(cfg: Mapping[str, Any], **kwargs: Any) -> BaseCommLearner:
    """Builds the comm learner named by ``cfg.type`` or, as in DI-engine, ``cfg.comm_learner_type``.

    Args:
        cfg: Its options.
        kwargs: Further arguments of its constructor, such as ``make_learner`` and ``transport``.

    Raises:
        RegistryError: If no comm learner has that name; the closest one is named.
    """
    cfg = with_type(cfg, 'comm_learner_type')
    return COMM_LEARNER_REGISTRY.build(cfg, cfg, **kwargs)
