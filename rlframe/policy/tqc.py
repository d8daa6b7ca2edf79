"""TQC: SAC whose critics learn quantiles of the return, and whose targets leave out the largest ones."""

from __future__ import annotations

from typing import Any

from rlframe.data.timestep import EnvSpec
from rlframe.errors import ConfigError
from rlframe.policy.parts.options import refused
from rlframe.policy.parts.outputs import Output, Quantiles
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.qac import ContinuousModel, QACPolicy
from rlframe.policy.sac import ContinuousSACConfig, SACLearn, SACPolicy, SACUpdate
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


def check_quantiles(cfg: Any) -> list[ConfigError]:
    """Refuses targets without quantiles."""
    count, dropped = cfg.model.num_quantiles, cfg.learn.dropped_quantiles
    if not dropped or dropped < count:
        return []
    message = 'a critic has no quantiles' if count == 1 else 'no quantile would be left'
    return [refused(cfg, 'learn.dropped_quantiles', message, f'fewer than model.num_quantiles={count}')]


class TQCModel(ContinuousModel):
    """Section ``model`` of TQC."""

    num_quantiles: int = option(
        25, range='[1, inf)', unit='quantiles', doc='numbers that a critic describes a return by; 1: its mean'
    )


class TQCLearn(SACLearn):
    """Section ``learn`` of TQC."""

    dropped_quantiles: int = option(
        2,
        range='[0, inf)',
        unit='quantiles for each critic',
        doc='largest quantiles, of those of all critics together, that targets leave out',
        may_change=True,
    )


class TQCConfig(ContinuousSACConfig):
    """Options of TQC."""

    model: TQCModel
    learn: TQCLearn


class TQCUpdate(SACUpdate):
    """SAC with truncated quantile critics."""

    def __init__(self, model: torch.nn.Module, cfg: Any, spec: EnvSpec) -> None:
        super().__init__(model, cfg, spec)
        self._dropped = cfg.learn.dropped_quantiles

    def returns(self, value: torch.Tensor) -> Quantiles:
        return Quantiles(value)

    def next_returns(self, rows: Rows, action: torch.Tensor) -> Output:
        value = self.returns(self.targets.network['critic'](rows['next_obs'], action))
        return value.truncated(self._dropped)

    def value_of(self, obs: Any, action: torch.Tensor) -> torch.Tensor:
        return self.returns(self.model.critic(obs, action)).mean().mean(0)


@POLICY_REGISTRY.register('tqc')
class TQCPolicy(QACPolicy):
    """SAC whose critics learn quantiles of the return, and whose targets leave out the largest ones.

    Source:
        Kuznetsov et al., Controlling Overestimation Bias with Truncated Mixture of Continuous Distributional Quantile
        Critics (2020), algorithm 1; the paper has five critics.
    """

    _cfg: TQCConfig
    actor_kind = 'gaussian'
    update_class = TQCUpdate
    checks = (check_quantiles,)
    toy = SACPolicy.toy | dict(model=dict(num_quantiles=9))
    search_space = QACPolicy.search_space.having(
        {'model.num_quantiles': 'randint(5,51)', 'learn.dropped_quantiles': 'randint(0,5)'},
        f'{QACPolicy.search_space.source}; fewer dropped quantiles than the fewest quantiles',
    )
    solves = 'Pendulum-v1', 6_000
