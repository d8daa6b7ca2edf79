"""MADDPG: DDPG for a team, with actors of what each agent sees and a critic of the state and all actions, also of choices."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.timestep import Array, Batch, EnvSpec
from rlframe.policy.ddpg import DDPGConfig, DDPGLearn, DDPGPolicy, DDPGUpdate
from rlframe.policy.parts.actions import Choices
from rlframe.policy.parts.options import without_core
from rlframe.policy.parts.outputs import Values
from rlframe.policy.parts.sections import StochasticEval
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.parts.team import AGENT_REWARDS, GROUPS, RELAXATION, AgentCritics, TeamModel
from rlframe.policy.qac import CategoricalPolicy, ContinuousModel, QACConfig
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch

check_core = without_core('agents whose critics read all actions have no memory')


class TeamQACModel(TeamModel, ContinuousModel):
    """Section ``model`` of actor-critics of teams whose critics read all actions."""


class MADDPGConfig(DDPGConfig):
    """Options of MADDPG."""

    groups: str | list[Any] = option(GROUPS)
    agent_rewards: bool = option(AGENT_REWARDS)
    model: TeamQACModel


class MADDPGUpdate(DDPGUpdate):
    """Critics of the team or, with rewards of their own, of each agent, whose actor then follows its own critic alone."""

    def __init__(self, model: torch.nn.Module, cfg: Any, spec: EnvSpec) -> None:
        super().__init__(model, cfg, spec)
        self.critics = AgentCritics(model, cfg, spec, self.device)

    def _action(self, rows: Rows) -> torch.Tensor:
        """Returns the joint actions of the actors, float32 [B, S], with gradients."""
        action: torch.Tensor = self.model.actor(rows['obs'])
        return action

    def critic_loss(self, rows: Rows) -> Loss:
        # targets, by the smaller value of the critics of each agent
        with torch.no_grad():
            next_value = self.targets.network['critic'](rows['next_obs'], self.next_action(rows))
            target = self.critics.target(rows, next_value, self.targets.discount(rows))
        # critics
        value = self.model.critic(rows['obs'], rows['action'])
        return self.fitted(Values(value), self.critics.of_present(rows['obs'], target, value), rows)

    def actor_loss(self, rows: Rows) -> Loss:
        value = self.critics.followed(rows['obs'], self._action(rows))
        return Loss(-self.critics.first(value).sum(0).mean())


@POLICY_REGISTRY.register('maddpg')
class MADDPGPolicy(DDPGPolicy):
    """Multi-agent DDPG: the critic values the actions of all agents in the state; each agent's actor follows its gradient.

    The team has one reward, and one critic or, with ``agent_rewards``, each agent has its own, as in the paper. Only learning needs
    the state. Absent agents learn nothing: critics see zeros as their actions, and their own values are 0.

    Source:
        Lowe et al., Multi-Agent Actor-Critic for Mixed Cooperative-Competitive Environments (2017), eq. 5 and 6.
    """

    _cfg: MADDPGConfig
    is_for_teams = True
    supported_actions = 'Box'
    supports_action_mask = False
    default_network = 'team_qac'
    update_class: type[DDPGUpdate] = MADDPGUpdate
    checks = (check_core,)


class MADDPGDiscreteLearn(DDPGLearn):
    """Section ``learn`` of MADDPG for choices."""

    relaxation: float = option(RELAXATION)


class MADDPGDiscreteConfig(QACConfig):
    """Options of MADDPG for choices."""

    groups: str | list[Any] = option(GROUPS)
    agent_rewards: bool = option(AGENT_REWARDS)
    model: TeamQACModel
    learn: MADDPGDiscreteLearn
    eval: StochasticEval


class MADDPGDiscreteUpdate(MADDPGUpdate):
    """The policy gradient of drawn choices, through a softmax."""

    def __init__(self, model: torch.nn.Module, cfg: Any, spec: EnvSpec) -> None:
        super().__init__(model, cfg, spec)
        self.choices = Choices(spec, self.device)

    def draws(self, rng: np.random.Generator, count: int) -> dict[str, Array]:
        return {name: self.choices.gumbel(rng, count) for name in ('next_noise', 'noise')}

    def next_action(self, rows: Rows) -> torch.Tensor:
        obs = rows['next_obs']
        logit = self.masked(self.targets.network['actor'](obs), obs)
        return self.choices.drawn(logit, rows['next_noise'], self.cfg.learn.relaxation)

    def _action(self, rows: Rows) -> torch.Tensor:
        obs = rows['obs']
        logit = self.masked(self.model.actor(obs), obs)
        return self.choices.drawn(logit, rows['noise'], self.cfg.learn.relaxation)


@POLICY_REGISTRY.register('maddpg_discrete')
class MADDPGDiscretePolicy(CategoricalPolicy):
    """Multi-agent DDPG for choices: actors draw by their logits, and learn through a Gumbel softmax.

    Critics read one-hot choices. An actor takes the choice with the largest sum of logit and Gumbel noise; gradients are those of
    the softmax of these sums. All else is as in ``maddpg``.

    Source:
        Lowe et al., Multi-Agent Actor-Critic for Mixed Cooperative-Competitive Environments (2017), section 5.1, with the
        straight-through estimator of Jang et al., Categorical Reparameterization with Gumbel-Softmax (2017).
    """

    _cfg: MADDPGDiscreteConfig
    is_for_teams = True
    config = DDPGPolicy.config
    supported_actions = 'Discrete, MultiDiscrete'
    default_network = 'team_qac'
    update_class = MADDPGDiscreteUpdate
    checks = (check_core,)

    def columns(self, data: Batch) -> Rows:
        rows = super().columns(data)
        return rows | {'action': self.update.choices.one_hot(rows['action'])}
