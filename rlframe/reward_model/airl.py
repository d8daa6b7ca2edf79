"""Adversarial inverse reinforcement learning: a discriminator whose logit is an advantage pays for rows."""

from __future__ import annotations

from typing import Any, Literal

from rlframe.data.timestep import Batch
from rlframe.registry import REWARD_MODEL_REGISTRY
from rlframe.reward_model.adversarial import FORM, AdversarialConfig, AdversarialModel, Rows
from rlframe.reward_model.gail import discriminator_loss
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class AIRLConfig(AdversarialConfig):
    """Options of ``airl``."""

    form: Literal['positive', 'logit', 'negative'] = option(FORM.having('logit'))
    state_only: bool = option(
        False,
        doc='whether the reward depends on the state alone, so that it is of use in an env with other dynamics',
    )
    discount_factor: float = option(0.99, range='[0, 1]', unit='per env step', doc='weight of the next state')


@REWARD_MODEL_REGISTRY.register('airl')
class AIRL(AdversarialModel):
    """Adversarial inverse reinforcement learning.

        f(s, a, s') = g(s, a) + gamma h(s') - h(s),    D = exp(f) / (exp(f) + pi(a|s))
        r(s, a, s') = log D - log(1 - D) = f(s, a, s') - log pi(a|s)

    h of a terminal state is 0. The network learns to tell demonstrations from the agent, as that of GAIL.

    Source:
        Fu et al., Learning Robust Rewards with Adversarial Inverse Reinforcement Learning (2018), algorithm 1.
    """

    _cfg: AIRLConfig
    columns = 'obs', 'action', 'next_obs', 'terminated'
    needs_likelihood = True

    def make_network(self) -> torch.nn.Module:
        from rlframe.reward_model.reward_net import RewardNet

        of_reward = ('obs',) if self._cfg.state_only else ('obs', 'action')
        nets = {
            name: RewardNet(self.spec, self.demonstrations, reads, self._cfg.hidden_size_list)
            for name, reads in (('reward', of_reward), ('shaping', ('obs',)))
        }
        return torch.nn.ModuleDict(nets)

    def read(self, rows: Batch) -> dict[str, Any]:
        return super().read(rows) | {'log_prob': self.log_probs(rows)}

    def logit(self, rows: Rows) -> torch.Tensor:
        shaping = self.network['shaping']
        later = shaping({'obs': rows['next_obs']}) * ~rows['terminated']
        advantage = self.network['reward'](rows) + self._cfg.discount_factor * later - shaping(rows)
        logit: torch.Tensor = advantage - rows['log_prob']
        return logit

    def contrast(self, agent: Rows, expert: Rows) -> torch.Tensor:
        return discriminator_loss(self.logit(agent), self.logit(expert))
