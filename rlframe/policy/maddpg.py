"""MADDPG: DDPG for a team, with actors of what each agent sees and a critic of the state and all actions, also of choices."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.team import STATE
from rlframe.data.timestep import Array, Batch, EnvSpec
from rlframe.errors import ConfigError
from rlframe.policy.base_policy import StochasticEval
from rlframe.policy.ddpg import DDPGConfig, DDPGLearn, DDPGPolicy, DDPGUpdate
from rlframe.policy.parts.memory import CRITIC_OBS
from rlframe.policy.parts.options import refused
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.parts.team import AGENT_ID, GROUPS, OF_TEAM, RELAXATION, SEES_LAST_ACTION, Choices
from rlframe.policy.qac import CategoricalPolicy, ContinuousModel, QACConfig
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class TeamQACModel(ContinuousModel):
    """Section ``model`` of actor-critics of teams whose critics read all actions."""

    critic_obs: str | None = option(CRITIC_OBS.having(STATE, doc=OF_TEAM))
    agent_id: bool = option(AGENT_ID)
    last_action: bool = option(SEES_LAST_ACTION)


class MADDPGConfig(DDPGConfig):
    """Options of MADDPG."""

    groups: str | list[Any] = option(GROUPS)
    model: TeamQACModel


def check_core(cfg: Any) -> list[ConfigError]:
    """Refuses a memory, which actors of such teams do not have."""
    message = 'agents whose critics read all actions have no memory'
    return [] if cfg.model.core is None else [refused(cfg, 'model.core', message, 'None')]


@POLICY_REGISTRY.register('maddpg')
class MADDPGPolicy(DDPGPolicy):
    """Multi-agent DDPG: the critic values the actions of all agents in the state; each agent's actor follows its gradient.

    The team has one reward, so there is one critic, where the paper has one for each agent. Only learning needs the state.
    Absent agents act on in what the critic sees.

    Source:
        Lowe et al., Multi-Agent Actor-Critic for Mixed Cooperative-Competitive Environments (2017), eq. 5 and 6.
    """

    _cfg: MADDPGConfig
    is_for_teams = True
    supported_actions = 'Box'
    supports_action_mask = False
    checks = (check_core,)

    def default_model(self) -> str:
        return 'team_qac'


class MADDPGDiscreteLearn(DDPGLearn):
    """Section ``learn`` of MADDPG for choices."""

    relaxation: float = option(RELAXATION)


class MADDPGDiscreteConfig(QACConfig):
    """Options of MADDPG for choices."""

    groups: str | list[Any] = option(GROUPS)
    model: TeamQACModel
    learn: MADDPGDiscreteLearn
    eval: StochasticEval


class MADDPGDiscreteUpdate(DDPGUpdate):
    """The policy gradient of drawn choices, through a softmax."""

    def __init__(self, model: torch.nn.Module, cfg: Any, spec: EnvSpec) -> None:
        super().__init__(model, cfg, spec)
        self.choices = Choices(spec, cfg.learn.relaxation)

    def draws(self, rng: np.random.Generator, count: int) -> dict[str, Array]:
        return {name: self.choices.noise(rng, count) for name in ('next_noise', 'noise')}

    def next_action(self, rows: Rows) -> torch.Tensor:
        obs = rows['next_obs']
        logit = self.masked(self.targets.network['actor'](obs), obs)
        return self.choices.drawn(logit, rows['next_noise'])

    def actor_loss(self, rows: Rows) -> Loss:
        obs = rows['obs']
        logit = self.masked(self.model.actor(obs), obs)
        action = self.choices.drawn(logit, rows['noise'])
        return Loss(-self.model.critic(obs, action, count=1).mean())


@POLICY_REGISTRY.register('maddpg_discrete')
class MADDPGDiscretePolicy(CategoricalPolicy):
    """Multi-agent DDPG for choices: actors draw by their logits, and learn through a Gumbel softmax.

    Critics read choices one-hot. The actors' gradient is that of the softmax of logits and Gumbel noise, whose largest entry is
    the choice. All else is as in ``maddpg``.

    Source:
        Lowe et al., Multi-Agent Actor-Critic for Mixed Cooperative-Competitive Environments (2017), section 5.1, with the
        straight-through estimator of Jang et al., Categorical Reparameterization with Gumbel-Softmax (2017).
    """

    _cfg: MADDPGDiscreteConfig
    is_for_teams = True
    config = DDPGPolicy.config
    supported_actions = 'Discrete, MultiDiscrete'
    update_class = MADDPGDiscreteUpdate
    checks = (check_core,)

    def default_model(self) -> str:
        return 'team_qac'

    def columns(self, data: Batch) -> Rows:
        rows = super().columns(data)
        return rows | {'action': self.update.choices.one_hot(rows['action'])}

    def _monitor_vars(self) -> list[str]:
        return [name for name in super()._monitor_vars() if name not in ('entropy', 'alpha')]
