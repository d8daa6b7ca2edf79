"""Backend: the interface of all backends, in which collection and evaluation run."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlframe.errors import ConfigError
from rlframe.utils.field import Configurable, Options

if TYPE_CHECKING:
    from rlframe.config.sections import ExperimentConfig
    from rlframe.envs import EnvFactory
    from rlframe.policy import Policy
    from rlframe.worker import ISerialCollector, ISerialEvaluator


class Backend(Configurable):
    """Runs collection or evaluation, and returns its results.

    A run creates one backend for its collector and one for its evaluator. ``open_collector`` or ``open_evaluator``,
    which acquires resources, is called before the policy and the run folder exist, ``make_collector`` or
    ``make_evaluator`` afterwards.

    Args:
        factory: Creates the envs of the run.
    """

    config: dict[str, Any] = dict(collector={}, evaluator={})
    """Options that a config may set under ``policy.collect.collector`` and ``policy.eval.evaluator``, in addition to
    those of the collector or evaluator."""

    def __init__(self, factory: EnvFactory) -> None:
        self.factory = factory

    # running

    @abstractmethod
    def open_collector(self, cfg: ExperimentConfig) -> None:
        """Acquires what the collector needs, such as envs.

        Args:
            cfg: The whole config of the run.
        """

    @abstractmethod
    def open_evaluator(self, cfg: ExperimentConfig) -> None:
        """Acquires what the evaluator needs, such as envs."""

    @abstractmethod
    def make_collector(self, cfg: ExperimentConfig, policy: Policy, **common: Any) -> ISerialCollector:
        """Creates the collector.

        Args:
            cfg: The whole config of the run.
            policy: The policy that is trained in this process.
            common: Further arguments of every collector: ``tb_logger``, ``exp_name``, ``progress``.
        """

    @abstractmethod
    def make_evaluator(self, cfg: ExperimentConfig, policy: Policy, **common: Any) -> ISerialEvaluator:
        """Creates the evaluator.

        Args:
            cfg: The whole config of the run.
            policy: The policy that is trained in this process.
            common: Further arguments of every evaluator: ``tb_logger``, ``exp_name``, ``seed``, ``purpose``.
        """

    @abstractmethod
    def close(self) -> None:
        """Releases everything that was acquired; may be called twice, and after ``open_...`` failed."""

    def summary(self, cfg: ExperimentConfig) -> str:
        """Says in a few words where training samples come from."""
        manager = cfg.env.manager.type
        return f'{cfg.env.collector_env_num} envs of {self.factory.spec.name} ({manager})'

    # facts about a config, known before anything runs

    @classmethod
    def options_of(cls, role: str) -> Options:
        """Returns the options for a collector or an evaluator.

        Args:
            role: ``'collector'`` or ``'evaluator'``.
        """
        found: Options = cls.config_fields()[role]
        return found

    @classmethod
    def collector_errors(cls, known: Mapping[str, Any]) -> list[ConfigError]:
        """Returns the mistakes of a config that collects here, beyond those of single options.

        Args:
            known: Dotted keys of the whole config to values; keys with invalid values are left out.
        """
        return []

    @classmethod
    def evaluator_errors(cls, known: Mapping[str, Any]) -> list[ConfigError]:
        """Returns the mistakes of a config that evaluates here, beyond those of single options."""
        return []

    @classmethod
    def collector_num(cls, section: Mapping[str, Any]) -> int:
        """Returns the number of collectors that share the target of a call.

        Args:
            section: Options of the collector.
        """
        return 1

    @classmethod
    def collector_resources(cls, section: Mapping[str, Any]) -> list[dict[str, float]]:
        """Returns the resources of a Ray cluster that each collecting process takes, by names such as ``'CPU'``."""
        return []

    @classmethod
    def evaluator_resources(cls, section: Mapping[str, Any]) -> list[dict[str, float]]:
        """Returns the resources of a Ray cluster that each evaluating process takes, by names such as ``'CPU'``."""
        return []

    @classmethod
    def is_interchangeable(cls, section: Mapping[str, Any]) -> bool:
        """Whether a run that collects here can be resumed with another interchangeable backend, and the reverse.

        Args:
            section: Options of the collector.
        """
        return False

    @classmethod
    def collector_state(cls, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Converts a collector's state of another backend; a state of this backend is returned unchanged.

        Raises:
            CheckpointMismatchError: If it cannot be converted.
        """
        return state
