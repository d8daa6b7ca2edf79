"""MASAC: soft actor-critic for a team, with actors of what each agent sees and critics of the state and all actions or choices."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import numpy as np

from rlframe.data.timestep import Array, Batch, EnvSpec
from rlframe.policy.maddpg import TeamQACModel, check_core
from rlframe.policy.parts.actions import Choices, mask_of
from rlframe.policy.parts.outputs import Values
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.parts.team import AGENT_REWARDS, GROUPS, RELAXATION, AgentCritics
from rlframe.policy.qac import CategoricalPolicy
from rlframe.policy.sac import ContinuousSACConfig, SACConfig, SACLearn, SACPolicy, SACUpdate
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class MASACConfig(ContinuousSACConfig):
    """Options of MASAC."""

    groups: str | list[Any] = option(GROUPS)
    agent_rewards: bool = option(AGENT_REWARDS)
    model: TeamQACModel


class TeamSACUpdate(SACUpdate):
    """Soft actor-critic of the agents that are present.

    With rewards of their own, each agent has critics of what it earns, with the cost of its own actions, which its actor follows.
    """

    def __init__(self, model: torch.nn.Module, cfg: Any, spec: EnvSpec) -> None:
        super().__init__(model, cfg, spec)
        self.critics = AgentCritics(model, cfg, spec, self.device)

    @abstractmethod
    def each(self, obs: Any, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns actions of the actors, [B, S], and the part of each number or choice in their log-probabilities, [B, S]."""

    @abstractmethod
    def target_share(self, rows: Rows) -> torch.Tensor:
        """Returns the share of the entropy to aim at that present agents can reach, float32 [B]."""

    def act(self, obs: Any, noise: torch.Tensor, **mode: bool) -> tuple[torch.Tensor, torch.Tensor]:
        action, log_prob = self.each(obs, noise)
        return action, log_prob.sum(1)

    def critic_loss(self, rows: Rows) -> Loss:
        if not self.cfg.agent_rewards:
            return super().critic_loss(rows)
        # targets of agents
        with torch.no_grad():
            next_action, log_prob = self.each(rows['next_obs'], rows['next_noise'])
            next_value = self.targets.network['critic'](rows['next_obs'], next_action)
            cost = self.entropy.value * self.critics.sums(log_prob)
            target = self.critics.target(rows, next_value, self.targets.discount(rows), cost)
        # critics
        value = self.model.critic(rows['obs'], rows['action'])
        return self.fitted(Values(value), self.critics.of_present(rows['obs'], target, value), rows)

    def actor_loss(self, rows: Rows) -> Loss:
        loss = self._loss_of_each(rows) if self.cfg.agent_rewards else super().actor_loss(rows)
        if not self.entropy.is_learned:
            return loss
        # the target of each state is that of the agents that are present
        target = self.entropy.target * self.target_share(rows).mean()
        return loss._replace(metrics=dict(loss.metrics) | {'target_entropy': target})

    def _loss_of_each(self, rows: Rows) -> Loss:
        """Returns minus the values that agents expect themselves, and the entropy of the team."""
        action, log_prob = self.each(rows['obs'], rows['noise'])
        value = self.critics.smallest(self.critics.followed(rows['obs'], action)).sum(0)
        cost = log_prob.sum(1)
        return Loss((self.entropy.value * cost - value).mean(), {'entropy': -cost.detach().mean()})


class MASACUpdate(TeamSACUpdate):
    """Soft actor-critic of continuous actions."""

    def each(self, obs: Any, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        from rlframe.model.qac import squashed_numbers

        mean, log_std = self.model.actor(obs)
        action, log_prob = squashed_numbers(mean, log_std, noise)
        return action, self.model.of_present(obs, log_prob)

    def target_share(self, rows: Rows) -> torch.Tensor:
        each = torch.ones_like(rows['noise'])
        return self.model.of_present(rows['obs'], each).sum(1) / each.sum(1)


@POLICY_REGISTRY.register('masac')
class MASACPolicy(SACPolicy):
    """Multi-agent SAC: critics value the actions of all agents in the state, and actors also earn the entropy of the team.

    As in ``maddpg`` the team has one reward or, with ``agent_rewards``, each agent has critics of its own, and only learning needs
    the state. All agents have one weight of their entropy.

    Source:
        Haarnoja et al., Soft Actor-Critic Algorithms and Applications (2018), for the joint action of Lowe et al.,
        Multi-Agent Actor-Critic for Mixed Cooperative-Competitive Environments (2017), section 4.1.
    """

    _cfg: MASACConfig
    update_class = MASACUpdate
    default_network = 'team_qac'
    is_for_teams = True
    checks = (check_core,)


class MASACDiscreteLearn(SACLearn):
    """Section ``learn`` of MASAC for choices."""

    relaxation: float = option(RELAXATION)


class MASACDiscreteConfig(SACConfig):
    """Options of MASAC for choices."""

    groups: str | list[Any] = option(GROUPS)
    agent_rewards: bool = option(AGENT_REWARDS)
    model: TeamQACModel
    learn: MASACDiscreteLearn


class MASACDiscreteUpdate(TeamSACUpdate):
    """Soft actor-critic of drawn choices, with their exact entropy."""

    def __init__(self, model: torch.nn.Module, cfg: Any, spec: EnvSpec) -> None:
        super().__init__(model, cfg, spec)
        self.choices = Choices(spec, self.device)

    def target_entropy(self) -> float:
        return 0.5 * self._largest

    @property
    def _largest(self) -> float:
        """The largest entropy of a team, in nats: that of equally likely choices."""
        return sum(math.log(count) for count in self.choices.counts)

    def noise(self, rng: np.random.Generator, count: int) -> Array:
        return self.choices.gumbel(rng, count)

    def logit(self, obs: Any) -> torch.Tensor:
        """Returns the logits of all choices, [B, S]."""
        return self.masked(self.model.actor(obs), obs)

    def each(self, obs: Any, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        # the expected log-probability is minus the entropy
        logit = self.logit(obs)
        log_prob = torch.cat([part.log_softmax(1) for part in self.choices.each(logit)], 1)
        action = self.choices.drawn(logit, noise, self.cfg.learn.relaxation)
        return action, self.model.of_present(obs, log_prob.exp() * log_prob)

    def log_prob(self, obs: Any, action: torch.Tensor) -> torch.Tensor:
        return self.distribution.evaluate(self.logit(obs), action)[0]

    def target_share(self, rows: Rows) -> torch.Tensor:
        # the largest entropy of what its present agents may choose
        obs, noise = rows['obs'], rows['noise']
        largest = torch.tensor([math.log(count) for count in self.choices.counts], device=noise.device)
        each = largest.expand(len(noise), -1)
        mask = mask_of(obs)
        if mask is not None:
            allowed = [part.sum(1).clamp(min=1).float().log() for part in self.choices.each(mask)]
            own = torch.stack(allowed, 1)
        else:
            own = each
        return (own * self.model.present(obs, own)).sum(1) / each.sum(1).clamp(min=1e-8)


@POLICY_REGISTRY.register('masac_discrete')
class MASACDiscretePolicy(CategoricalPolicy):
    """Multi-agent SAC for choices: critics value the choices of all agents, and actors learn through a Gumbel softmax.

    The entropy of the team is the sum of those of its agents, exactly. As in ``sac_discrete`` the entropy to aim at is half of
    the largest. All else is as in ``masac``.

    Source:
        Haarnoja et al., Soft Actor-Critic Algorithms and Applications (2018), with the straight-through estimator of Jang et
        al., Categorical Reparameterization with Gumbel-Softmax (2017), for the joint action of Lowe et al. (2017), section 5.1.
    """

    _cfg: MASACDiscreteConfig
    is_for_teams = True
    supported_actions = 'Discrete, MultiDiscrete'
    default_network = 'team_qac'
    update_class = MASACDiscreteUpdate
    checks = (check_core,)
    toy = SACPolicy.toy

    def columns(self, data: Batch) -> Rows:
        rows = super().columns(data)
        return rows | {'action': self.update.choices.one_hot(rows['action'])}
