"""MASAC: soft actor-critic for a team, with actors of what each agent sees and critics of the state and all actions or choices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlframe.data.timestep import Array, Batch, EnvSpec
from rlframe.policy.maddpg import TeamQACModel, check_core
from rlframe.policy.parts.actions import Choices, mask_of
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.parts.team import GROUPS, RELAXATION
from rlframe.policy.qac import CategoricalPolicy
from rlframe.policy.sac import ContinuousSACConfig, SACConfig, SACLearn, SACPolicy, SACUpdate
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class MASACConfig(ContinuousSACConfig):
    """Options of MASAC."""

    groups: str | list[Any] = option(GROUPS)
    model: TeamQACModel


class MASACUpdate(SACUpdate):
    """Soft actor-critic of the agents that are present."""

    def act(self, obs: Any, noise: torch.Tensor, **mode: bool) -> tuple[torch.Tensor, torch.Tensor]:
        from rlframe.model.qac import squashed_numbers

        mean, log_std = self.model.actor(obs, **mode)
        action, log_prob = squashed_numbers(mean, log_std, noise)
        return action, self.model.of_present(obs, log_prob).sum(1)

    def actor_loss(self, rows: Rows) -> Loss:
        loss = super().actor_loss(rows)
        if not self.entropy.is_learned:
            return loss
        # the target of each state is that of the agents that are present
        each = torch.ones_like(rows['noise'])
        share = self.model.of_present(rows['obs'], each).sum(1) / each.sum(1)
        return loss._replace(
            metrics=dict(loss.metrics) | {'target_entropy': self.entropy.target * share.mean()}
        )


@POLICY_REGISTRY.register('masac')
class MASACPolicy(SACPolicy):
    """Multi-agent SAC: critics value the actions of all agents in the state, and actors also earn the entropy of the team.

    As in ``maddpg`` the team has one reward, and only learning needs the state.

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
    model: TeamQACModel
    learn: MASACDiscreteLearn


class MASACDiscreteUpdate(SACUpdate):
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

    def act(self, obs: Any, noise: torch.Tensor, **mode: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns choices of the actors, one-hot, [B, S], and their mean log-probability, [B], which is minus the entropy."""
        logit = self.logit(obs)
        log_prob = torch.cat([part.log_softmax(1) for part in self.choices.each(logit)], 1)
        action = self.choices.drawn(logit, noise, self.cfg.learn.relaxation)
        return action, self.model.of_present(obs, log_prob.exp() * log_prob).sum(1)

    def log_prob(self, obs: Any, action: torch.Tensor) -> torch.Tensor:
        return self.distribution.evaluate(self.logit(obs), action)[0]

    def actor_loss(self, rows: Rows) -> Loss:
        loss = super().actor_loss(rows)
        if not self.entropy.is_learned:
            return loss
        # the target of each state is scaled to the largest entropy of what its present agents may choose
        obs, noise = rows['obs'], rows['noise']
        largest = torch.tensor([math.log(count) for count in self.choices.counts], device=noise.device)
        each = largest.expand(len(noise), -1)
        mask = mask_of(obs)
        if mask is not None:
            allowed = [part.sum(1).clamp(min=1).float().log() for part in self.choices.each(mask)]
            own = torch.stack(allowed, 1)
        else:
            own = each
        share = (own * self.model.present(obs, own)).sum(1) / each.sum(1).clamp(min=1e-8)
        return loss._replace(
            metrics=dict(loss.metrics) | {'target_entropy': self.entropy.target * share.mean()}
        )


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
