"""SQL: Q-learning whose policy is the softmax of action values, and is rewarded for its entropy."""

from __future__ import annotations

from typing import Any

from rlframe.data.timestep import FloatArray, IntArray
from rlframe.model.distributions import perturbed
from rlframe.policy.dqn import QLearn, QPolicy, QReplayConfig, QUpdate
from rlframe.policy.parts.sequences import Rows
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class SQLLearn(QLearn):
    """Section ``learn`` of soft Q-learning."""

    alpha: float = option(
        0.1,
        range='(0, inf)',
        unit='in units of returns',
        doc='temperature of the softmax policy: what a nat of its entropy is worth',
        may_change=True,
    )


class SQLConfig(QReplayConfig):
    """Options of soft Q-learning."""

    learn: SQLLearn


class SQLUpdate(QUpdate):
    """DQN with soft values of the next state."""

    def temperature(self) -> Any:
        """Returns alpha, a number or a tensor []."""
        return self.cfg.learn.alpha

    def target(self, rows: Rows) -> torch.Tensor:
        # soft value of the next state, over the allowed actions
        alpha = self.temperature()
        next_obs = rows['next_obs']
        value = self.masked(self.output(self.targets.network, next_obs).mean(), next_obs)
        soft = alpha * torch.logsumexp(value / alpha, 1)
        target: torch.Tensor = rows['reward'] + self.targets.discount(rows) * soft
        return target


@POLICY_REGISTRY.register('sql')
class SQLPolicy(QPolicy):
    """Soft Q-learning for discrete actions: DQN whose policy is softmax(q / alpha), and whose targets value its entropy.

    It collects with that policy and, with probability ``eps``, with random actions; evaluations take the best action.

    Source:
        Haarnoja et al., Reinforcement Learning with Deep Energy-Based Policies (2017), eq. 4 to 6; for discrete actions, the
        integral of eq. 5 is a sum, and needs no sampling network.
    """

    _cfg: SQLConfig
    update_class = SQLUpdate
    solves: tuple[str, int] | None = ('CartPole-v1', 40_000)

    def pick(self, value: FloatArray) -> IntArray:
        action: IntArray = perturbed(value / float(self.update.temperature()), self.rng).argmax(1)
        return action
