"""VDN: DQN for a team, whose value is the sum of the values of its agents."""

from __future__ import annotations

from typing import Any, Literal

from rlframe.data.timestep import Array, Batch, IntArray
from rlframe.policy.bdq import BDQUpdate
from rlframe.policy.dqn import DoubleConfig, QLearn, QModel, QPolicy
from rlframe.policy.parts.actions import explored
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.memory import BURN_IN, PRIORITY_ETA
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.parts.starting import Facts, Settings
from rlframe.policy.parts.team import GROUPS, AgentModel
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch

VDN_DING = DingNames(
    options={
        'model.hidden_size_list': 'model.encoder_hidden_size_list',
        'learn.double_q': 'double',
        'learn.discount_factor': 'discount_factor',
        'collect.unroll_len': 'other.replay_buffer.unroll_len',
        'unroll_len': 'other.replay_buffer.unroll_len',
    },
    defaults={
        'double': False,
        'discount_factor': 0.99,
        'learn.update_per_collect': 20,
        'learn.batch_size': 32,
        'learn.learning_rate': 5e-4,
        'model.core': 'gru',
        'other.eps': {'type': 'exp', 'start': 1, 'end': 0.05, 'decay': 50_000},
        'other.replay_buffer.replay_buffer_size': 5000,
        'other.replay_buffer.unroll_len': 10,
    },
    unused={
        'agent_num': 'read from the spaces of the env',
        'model.agent_num': 'read from the spaces of the env',
        'learn.clip_value': 'gradients are clipped by their norm, with learn.grad_clip_norm',
    },
)
"""What DI-engine calls the options of policies that value the choices of a team."""


class TeamQModel(AgentModel, QModel):
    """Section ``model`` of policies that value the choices of a team."""

    core: Literal[None, 'gru', 'lstm'] = option(
        None, doc='recurrent core behind the hidden layers of agents, a memory for each; None: no memory'
    )
    core_hidden_size: int = option(
        64, range='[1, inf)', unit='units', doc='width of the recurrent core, if there is one'
    )


class TeamQLearn(QLearn):
    """Section ``learn`` of policies that value the choices of a team."""

    burn_in: int = option(BURN_IN)


class TeamQConfig(DoubleConfig):
    """Options of policies that value the choices of a team."""

    groups: str | list[Any] = option(GROUPS)
    priority_eta: float = option(PRIORITY_ETA)
    model: TeamQModel
    learn: TeamQLearn


class VDNUpdate(BDQUpdate):
    """Double Q-learning of the team's value, which the network mixes of the values of what the agents choose."""

    def joint(self, network: Any, value: torch.Tensor, action: torch.Tensor, obs: Any) -> torch.Tensor:
        """Returns the value of joint actions, [B, A], by the values of all choices, [B, S]: float32 [B]."""
        joint: torch.Tensor = network.mixed(self.choices.taken(value, action), obs)
        return joint

    def best(self, value: torch.Tensor, obs: Any) -> torch.Tensor:
        """Returns the allowed choice of the highest value of each agent, int64 [B, A]."""
        return self.distribution.mode_tensor(self.masked(value, self.model.now(obs)))

    def target(self, rows: Rows) -> torch.Tensor:
        next_obs = rows['next_obs']
        value = self.targets.network(next_obs)
        judge = self.model(next_obs) if self.double else value
        joint = self.joint(self.targets.network, value, self.best(judge, next_obs), next_obs)
        target: torch.Tensor = rows['reward'] + self.targets.discount(rows) * joint
        return target

    def loss(self, rows: Rows) -> Loss:
        # value of the joint actions taken
        obs = rows['obs']
        value = self.joint(self.model, self.model(obs), rows['action'], obs)
        # target
        with torch.no_grad():
            target = self.target(rows)
        error = target - value
        metrics = {'q_value': value.detach().mean(), 'target_q_value': target.mean()}
        return Loss(self.targets.mean(error.square(), rows), metrics, error.detach())


@POLICY_REGISTRY.register('vdn')
class VDNPolicy(QPolicy):
    """Value decomposition network: each agent takes its best choice by what it sees, and their values add up to the team's.

    Q_tot(s, a) = sum over agents i of Q_i(o_i, a_i), learned by double Q-learning from the reward of the team; an agent that
    is absent counts as 0. With ``model.core`` each agent remembers what it saw, and learns from replayed sequences.

    Source:
        Sunehag et al., Value-Decomposition Networks For Cooperative Multi-Agent Learning (2017), eq. 3. Agents that share
        weights and know their number: section 3.
    """

    _cfg: TeamQConfig
    is_for_teams = True
    config: dict[str, Any] = dict(model=dict(encoder_hidden_size_list=[64, 64], dueling=False))
    supported_actions = 'Discrete, MultiDiscrete'
    default_network = 'team_q_net'
    update_class = VDNUpdate
    solves = 'CartPole-v1', 40_000
    ding = VDN_DING

    @classmethod
    def starting(cls, facts: Facts) -> Settings:
        settings = super().starting(facts)
        settings['normalize_obs'] = facts.has_numbers
        settings['model'] = facts.encoder([128, 128]) | dict(dueling=False)
        settings['learn'] |= dict(
            update_per_collect=2,
            batch_size=64,
            learning_rate=5e-4,
            target_update_freq=None,
            target_theta=0.01,
            grad_clip_norm=10.0,
        )
        # teams need long to find out what only works together
        settings['other'] |= dict(eps=facts.exploration(4))
        return settings

    def forward_collect(self, obs: Array, env_id: IntArray, eps: float = 0.0, **settings: Any) -> Batch:
        return self.actions.batch(explored(self, self.q_value(obs).numpy(), eps))
