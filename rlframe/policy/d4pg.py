"""D4PG: DDPG whose critic learns the distribution of the return, from n-step returns and by priorities."""

from __future__ import annotations

from typing import Any

from rlframe.data.timestep import EnvSpec
from rlframe.policy.c51 import N_ATOM, V_MAX, V_MIN, check_atoms, support_of
from rlframe.policy.ddpg import DDPGConfig, DDPGUpdate
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.outputs import Atoms, Output
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.qac import ContinuousModel, QACPolicy
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class D4PGModel(ContinuousModel):
    """Section ``model`` of D4PG."""

    n_atom: int = option(N_ATOM)
    v_min: float = option(V_MIN)
    v_max: float = option(V_MAX)


class D4PGConfig(DDPGConfig):
    """Options of D4PG."""

    model: D4PGModel


class D4PGUpdate(DDPGUpdate):
    """DDPG whose critic gives the probability of each of ``n_atom`` returns between ``v_min`` and ``v_max``."""

    def __init__(self, model: torch.nn.Module, cfg: Any, spec: EnvSpec) -> None:
        super().__init__(model, cfg, spec)
        self.support = support_of(cfg.model, self.device)

    def returns(self, value: torch.Tensor) -> Output:
        return Atoms(value, self.support)

    def fitted(self, output: Output, target: torch.Tensor, rows: Rows) -> Loss:
        # the divergence of critics from the target is the error of a transition
        fit = output.fit(target, self.targets.weight(rows))
        return Loss(fit.loss.sum(), fit.metrics(), fit.error.mean(0))


@POLICY_REGISTRY.register('d4pg')
class D4PGPolicy(QACPolicy):
    """DDPG with a categorical critic, n-step returns and prioritized replay.

    The critic minimises the cross-entropy of its distribution Z(s, a) to r + ... + γⁿ Z'(s', π'(s')), projected on the atoms; the
    actor maximises the mean of Z(s, π(s)). Returns beyond ``v_min`` and ``v_max`` are clipped; with ``normalize_reward`` the defaults
    suit most envs. It needs the replay buffer 'advanced' or 'elastic'.

    Source:
        Barth-Maron et al., Distributed Distributional Deterministic Policy Gradients (2018), section 3, algorithm 1. Its many
        actors are collectors on Ray (``collect.collector.backend``). Priorities are divergences from the target, as in
        Rainbow.
    """

    _cfg: D4PGConfig
    # numbers by which a critic describes a return, so that networks with a core have them, too
    network_arguments = {**QACPolicy.network_arguments, 'n_atom': 'quantiles'}
    config = dict(
        priority=True,
        priority_IS_weight=True,
        nstep=3,
        model=dict(twin_critic=False),
        learn=dict(learning_rate_actor=3e-4),
    )
    update_class = D4PGUpdate
    checks = (check_atoms,)
    ding = DingNames(
        defaults={
            'random_collect_size': 25_000,
            'learn.update_per_collect': 1,
            'learn.learning_rate_actor': 1e-3,
            'other.replay_buffer.replay_buffer_size': 1_000_000,
        },
        unused={
            'model.critic_head_type': 'the critic is categorical',
            'learn.noise': 'D4PG has no noise on target actions',
            'reward_batch_norm': 'policy.normalize_reward divides rewards by running statistics',
        },
    )
    toy = QACPolicy.toy | dict(nstep=2, model=dict(v_min=-4.0, v_max=2.0, n_atom=31))
    solves = 'Pendulum-v1', 8_000
