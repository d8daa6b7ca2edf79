"""LocalBackend: collects and evaluates in the process that trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlframe.backend.base import Backend
from rlframe.data.dataset import COLLECTOR_DATA, check_source
from rlframe.pipeline import build
from rlframe.registry import BACKEND_REGISTRY, SERIAL_COLLECTOR_REGISTRY, SERIAL_EVALUATOR_REGISTRY

if TYPE_CHECKING:
    from rlframe.config.sections import ExperimentConfig
    from rlframe.policy import Policy
    from rlframe.worker import ISerialCollector, ISerialEvaluator


@BACKEND_REGISTRY.register('local')
class LocalBackend(Backend):
    """Collects and evaluates in this process: in envs, or from recorded data."""

    env: Any = None
    """The envs; None if there are data instead."""
    data: Any = None
    """The recorded data of a collector or an evaluator that steps no envs."""

    def open_collector(self, cfg: ExperimentConfig) -> None:
        """Creates the envs, or opens the recorded data of a collector that steps none."""
        section = cfg.policy.collect.collector
        kind = SERIAL_COLLECTOR_REGISTRY.get_cls(section)
        self.data = kind.open_data(section) if hasattr(kind, 'open_data') else None
        if self.data is None:
            self.env = build.make_env(cfg, self.factory, cfg.env.collector_env_num)
        else:
            check_source(self.data, self.factory.spec, COLLECTOR_DATA)

    def open_evaluator(self, cfg: ExperimentConfig) -> None:
        """Creates the envs, or opens the recorded data of an evaluator that plays no episodes."""
        section = cfg.policy.eval.evaluator
        kind = SERIAL_EVALUATOR_REGISTRY.get_cls(section)
        if hasattr(kind, 'open_data'):
            self.data = kind.open_data(section, self.factory.spec)
        else:
            render_mode = 'rgb_array' if build.films(cfg) else None
            self.env = build.make_eval_env(cfg, self.factory, cfg.env.evaluator_env_num, render_mode)

    @property
    def _envs_or_data(self) -> dict[str, Any]:
        """The opened envs or data, as an argument of a constructor."""
        return {'env': self.env} if self.data is None else {'data': self.data}

    def make_collector(self, cfg: ExperimentConfig, policy: Policy, **common: Any) -> ISerialCollector:
        """Creates the collector that the config names."""
        section = cfg.policy.collect.collector
        given = {'policy': build.collecting_policy(cfg, policy), 'seed': cfg.seed, **common}
        return SERIAL_COLLECTOR_REGISTRY.build(section, cfg=section, **self._envs_or_data, **given)

    def make_evaluator(self, cfg: ExperimentConfig, policy: Policy, **common: Any) -> ISerialEvaluator:
        """Creates the evaluator that the config names."""
        section, seed = cfg.policy.eval.evaluator, common.get('seed', cfg.seed)
        acting = build.with_opponents(cfg, policy.eval_mode, self.factory.spec, seed)
        return SERIAL_EVALUATOR_REGISTRY.build(
            section, cfg=section, policy=acting, **self._envs_or_data, **{'seed': seed, **common}
        )

    def close(self) -> None:
        """Closes the envs or the data."""
        for opened in (self.env, self.data):
            if opened is not None:
                opened.close()

    def summary(self, cfg: ExperimentConfig) -> str:
        """Says in a few words where training samples come from."""
        if cfg.policy.collect.collector.get('data') is not None:
            return f'recorded data of {self.factory.spec.name}'
        return super().summary(cfg)

    @classmethod
    def is_interchangeable(cls, section: Mapping[str, Any]) -> bool:
        """Whether a resumed run can collect with another backend: always, as there is a single random generator."""
        return True

    @classmethod
    def collector_state(cls, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Converts the state of a collector with a single Ray actor."""
        from rlframe.backend.state import in_process

        return in_process(state)
