"""BDQ: DQN for several choices at once, with a branch of the network for each, so that outputs add up instead of multiplying."""

from __future__ import annotations

from typing import Any

from rlframe.data.timestep import Array, Batch, EnvSpec, IntArray
from rlframe.policy.dqn import DoubleConfig, QPolicy, QUpdate
from rlframe.policy.parts.actions import Choices, explored
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.lazy import torch


class BDQUpdate(QUpdate):
    """Double Q-learning of every branch, to a target that all of them share."""

    def __init__(self, model: torch.nn.Module, cfg: Any, spec: EnvSpec) -> None:
        super().__init__(model, cfg, spec)
        self.choices = Choices(spec, self.device)

    def target(self, rows: Rows) -> torch.Tensor:
        # mean over branches of the values of the best actions in the next state
        next_obs = rows['next_obs']
        value = self.targets.network(next_obs)
        judge = self.model(next_obs) if self.double else value
        best = self.distribution.mode_tensor(self.masked(judge, next_obs))
        joint = self.choices.taken(value, best).mean(1)
        target: torch.Tensor = rows['reward'] + self.targets.discount(rows) * joint
        return target

    def loss(self, rows: Rows) -> Loss:
        # values of the actions taken
        value = self.choices.taken(self.model(rows['obs']), rows['action'])  # [B, D]
        # target
        with torch.no_grad():
            target = self.target(rows)
        # branches
        wrong = target[:, None] - value
        metrics = {'q_value': value.detach().mean(), 'target_q_value': target.mean()}
        return Loss(self.targets.mean(wrong.square().mean(1), rows), metrics, wrong.detach().abs().sum(1))


@POLICY_REGISTRY.register('bdq')
class BDQPolicy(QPolicy):
    """DQN whose network has a dueling head for each of D choices, on a trunk that they share.

    Branch d values its actions by Q_d(s, a) = V(s) + A_d(s, a) - mean A_d(s, ·). All branches learn the same target: r + gamma *
    (mean over branches of Q'_d(s', argmax Q_d(s', ·))). Each choice is random with probability ``eps``, whatever the others are.
    Continuous actions become choices by ``gymnasium.wrappers.DiscretizeAction``, with ``multidiscrete=True``.

    Source:
        Tavakoli et al., Action Branching Architectures for Deep Reinforcement Learning (2018), section 'Branching
        Dueling Q-Network'; as there, priorities are sums of the branches' errors.
    """

    _cfg: DoubleConfig
    supported_actions = 'Discrete, MultiDiscrete'
    default_network = 'branching_q_net'
    update_class = BDQUpdate
    ding = DingNames(
        defaults={'other.replay_buffer.replay_buffer_size': 10_000},
        unused={
            'model.num_branches': 'read from the spaces of the env',
            'model.action_bins_per_branch': 'read from the spaces of the env',
        },
    )
    solves = 'CartPole-v1', 40_000

    def forward_collect(self, obs: Array, env_id: IntArray, eps: float = 0.0, **settings: Any) -> Batch:
        return self.actions.batch(explored(self, self.q_value(obs).numpy(), eps))
