"""CrossQ and XQC: SACs with batch norm, whose critics see this and the next state in one pass."""

from __future__ import annotations

from typing import Any

from rlframe.data.faces import Metrics
from rlframe.data.observation import mapped
from rlframe.data.timestep import EnvSpec
from rlframe.errors import ConfigError
from rlframe.policy.c51 import N_ATOM, V_MAX, V_MIN, check_atoms, support_of
from rlframe.policy.parts.options import BATCH_SIZE
from rlframe.policy.parts.outputs import Atoms, Output, Quantiles, Values
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.qac import ContinuousModel, QACPolicy
from rlframe.policy.sac import ContinuousSACConfig, SACLearn, SACPolicy, SACUpdate
from rlframe.policy.tqc import TQCLearn, TQCModel, check_quantiles
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


def _has_spread(policy: type[Any], cfg: Any) -> ConfigError | None:
    """Refuses batches that batch norm cannot normalise by."""
    if cfg.learn.batch_size > 1:
        return None
    return ConfigError('a batch of one transition has no spread to normalise by', expected='2 or more')


def joined(rows: Rows, next_action: torch.Tensor) -> tuple[Any, torch.Tensor]:
    """Returns observations and actions of a batch, and behind them the next ones, [2 B, ...]."""
    return behind(rows['obs'], rows['next_obs']), torch.cat([rows['action'], next_action])


def behind(first: Any, second: Any) -> Any:
    """Returns two columns of observations, tensors or dicts of them, one behind the other."""
    return mapped(lambda *parts: torch.cat(parts), first, second)


def norms_of(model: torch.nn.Module) -> list[Any]:
    """Returns the batch norms of a network."""
    from rlframe.model.core import BatchRenorm

    return [part for part in model.modules() if isinstance(part, BatchRenorm)]


NORMED_BATCH = BATCH_SIZE.having(256, rule=_has_spread)
"""Option ``learn.batch_size`` of updates with batch norm."""


class CrossQLearn(TQCLearn):
    """Section ``learn`` of CrossQ."""

    batch_size: int = option(NORMED_BATCH)
    adam_beta1: float = option(
        0.5,
        range='[0, 1)',
        doc='decay of the mean of gradients in Adam, of actor and critics',
        may_change=True,
    )


class CrossQConfig(ContinuousSACConfig):
    """Options of CrossQ."""

    model: TQCModel
    learn: CrossQLearn


class CrossQUpdate(SACUpdate):
    """SAC with batch norm and without target networks, by means or quantiles of the return."""

    needs_whole_batch = True
    why_alone = 'keeps running statistics of its batches'
    mode = {'is_training': True}
    target_parts: tuple[str, ...] = ()

    def __init__(self, model: torch.nn.Module, cfg: Any, spec: EnvSpec) -> None:
        super().__init__(model, cfg, spec)
        self._norms = norms_of(model)
        self._dropped: int = cfg.learn.get('dropped_quantiles', 0)

    def returns(self, value: torch.Tensor) -> Output:
        return Values(value) if value.dim() == 2 else Quantiles(value)  # [critics, B], or [critics, B, M]

    def critic_loss(self, rows: Rows) -> Loss:
        # both states, in one pass, so that batch norm sees the actions of both
        with torch.no_grad():
            next_action, log_prob = self.act(rows['next_obs'], rows['next_noise'])
        both = joined(rows, next_action)
        value, next_value = map(self.returns, self.model.critic(*both, is_training=True).chunk(2, 1))
        # target
        with torch.no_grad():
            if isinstance(next_value, Quantiles):
                least: Output = next_value.truncated(self._dropped)
            else:
                least = next_value.smallest()
            discount = self.targets.discount(rows)
            target = least.target(rows['reward'], discount, self.entropy.value * log_prob)
        # critics
        return self.fitted(value, target, rows)

    def after(self, name: str, loss: Loss) -> Metrics:
        from rlframe.model.core import update_norms

        update_norms(self._norms)  # the actor is judged by what they are now
        return super().after(name, loss)


@POLICY_REGISTRY.register('crossq')
class CrossQPolicy(QACPolicy):
    """SAC with batch norm and without target networks, which needs a fraction of the env steps.

    With ``num_quantiles`` above 1, its critics learn quantiles as those of TQC do.

    Source:
        Bhatt et al., CrossQ: Batch Normalization in Deep Reinforcement Learning for Greater Sample Efficiency and
        Simplicity (2024), section 4; the paper's critics have 2,048 units a layer.
    """

    _cfg: CrossQConfig
    actor_kind = 'gaussian'
    layers = {'norm': 'batch'}
    config: dict[str, Any] = dict(
        model=dict(num_quantiles=1),
        learn=dict(
            actor_update_freq=3,
            learning_rate_actor=1e-3,
            learning_rate_critic=1e-3,
            learning_rate_alpha=1e-3,
            dropped_quantiles=0,
        ),
    )
    update_class = CrossQUpdate
    checks = (check_quantiles,)
    toy = QACPolicy.toy | dict(
        model=dict(encoder_hidden_size_list=[64, 64]), learn=dict(batch_size=64, learning_rate_alpha=1e-2)
    )
    search_space = QACPolicy.search_space.without(
        'learn.target_theta', source=f'{QACPolicy.search_space.source}; no target networks'
    )
    solves = 'Pendulum-v1', 6_000


class XQCModel(ContinuousModel):
    """Section ``model`` of XQC."""

    n_atom: int = option(N_ATOM.having(101))
    v_min: float = option(V_MIN.having(-5.0))
    v_max: float = option(V_MAX.having(5.0))


class XQCLearn(SACLearn):
    """Section ``learn`` of XQC."""

    batch_size: int = option(NORMED_BATCH)


class XQCConfig(ContinuousSACConfig):
    """Options of XQC."""

    model: XQCModel
    learn: XQCLearn


class XQCUpdate(CrossQUpdate):
    """CrossQ with target networks and categorical critics."""

    target_parts = ('critic',)
    follows_actor = False

    def __init__(self, model: torch.nn.Module, cfg: Any, spec: EnvSpec) -> None:
        super().__init__(model, cfg, spec)
        self.support = support_of(cfg.model, self.device)

    def init_learn(self) -> None:
        super().init_learn()
        self._target_norms = norms_of(self.targets.network)

    def returns(self, value: torch.Tensor) -> Output:
        return Atoms(value, self.support)

    def critic_loss(self, rows: Rows) -> Loss:
        # both states, in one pass of each network, so that batch norm sees the actions of both
        with torch.no_grad():
            next_action, log_prob = self.act(rows['next_obs'], rows['next_noise'])
        both = joined(rows, next_action)
        value = self.returns(self.model.critic(*both, is_training=True).chunk(2, 1)[0])
        # target: the distribution of the critic whose mean is smallest
        with torch.no_grad():
            next_value = self.targets.network['critic'](*both, is_training=True).chunk(2, 1)[1]
            discount = self.targets.discount(rows)
            cost = self.entropy.value * log_prob
            target = self.returns(next_value).smallest().target(rows['reward'], discount, cost)
        # critics
        return self.fitted(value, target, rows)

    def reset_targets(self) -> None:
        super().reset_targets()
        for norm in self._target_norms:
            norm.passes.zero_()  # target networks normalise by batches alone: their running statistics follow nothing


@POLICY_REGISTRY.register('xqc')
class XQCPolicy(QACPolicy):
    """CrossQ with weights of length 1, categorical critics, and target networks.

    The paper's critics have four layers of 512 units and its actor four of 256, its learning rates fall to a tenth, and
    its target entropy is half of SAC's (``learn.target_entropy``).

    Source:
        Palenicek et al., XQC: Well-conditioned Optimization Accelerates Deep Reinforcement Learning (2026), section 4.
        Which weights have length 1 (all of actor and critics, outputs included), that target critics see both states,
        and the initial temperature, are those of the authors' code; its batch norm has no renormalisation.
    """

    _cfg: XQCConfig
    actor_kind = 'gaussian'
    layers = {'norm': 'batch', 'weight_norm': True}
    config: dict[str, Any] = dict(
        normalize_reward=True, learn=dict(update_per_collect=16, actor_update_freq=3, init_alpha=0.01)
    )
    update_class = XQCUpdate
    checks = (check_atoms,)
    toy = SACPolicy.toy | dict(model=dict(encoder_hidden_size_list=[64, 64]))
    solves = 'Pendulum-v1', 6_000
