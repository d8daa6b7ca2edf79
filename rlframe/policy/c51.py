"""C51: DQN that learns the distribution of the return over fixed values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from easydict import EasyDict

from rlframe.data.faces import Metrics
from rlframe.errors import ConfigError
from rlframe.policy.dqn import DQNConfig, DQNModel, QPolicy, Returns, soft_policy
from rlframe.policy.parts.actions import mask_of
from rlframe.policy.parts.options import refused
from rlframe.policy.parts.sequences import Rows
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class C51Model(DQNModel):
    """Section ``model`` of C51."""

    v_min: float = option(-10.0, unit='discounted return', doc='lowest atom of the return distribution')
    v_max: float = option(10.0, unit='discounted return', doc='highest atom of the return distribution')
    n_atom: int = option(51, range='[2, inf)', unit='atoms', doc='atoms of the distribution of returns')


ATOMS: dict[str, str | None] = {'n_atom': 'atoms', 'v_min': None, 'v_max': None}
"""Options of a distribution over fixed values, to the arguments of networks that output one."""


class C51Config(DQNConfig):
    """Options of C51."""

    model: C51Model


class Atoms(Returns):
    """The probability of each of ``n_atom`` returns between ``v_min`` and ``v_max``.

    Source:
        Bellemare et al., A Distributional Perspective on Reinforcement Learning (2017), algorithm 1. The priority is
        the Kullback-Leibler divergence as in Hessel et al., Rainbow (2018).
    """

    def __init__(self, policy: QPolicy) -> None:
        super().__init__(policy)
        model: Any = policy._cfg.model
        self.support = torch.linspace(model.v_min, model.v_max, model.n_atom, device=policy.device)
        """The returns, float32 [M]."""

    @classmethod
    def check_config(cls, cfg: EasyDict) -> list[ConfigError]:
        errors = check_atoms(cfg.model)
        if cfg.learn.kappa is not None:
            why = 'the loss of distributions has no Huber loss in it'
            errors.append(refused(cfg, 'learn.kappa', why, 'None'))
        return errors

    def expected(self, output: torch.Tensor) -> torch.Tensor:
        return output.softmax(2) @ self.support

    def loss(self, rows: Rows) -> tuple[torch.Tensor, torch.Tensor, Metrics]:
        policy = self._policy
        chosen = policy.chosen(policy.valued(policy.model, rows, 'obs'), rows['action'])
        log_probability = chosen.log_softmax(1)  # [B, M]
        target = policy.target(rows)  # [B, M]
        losses = -(target * log_probability).sum(1)
        # rounding can make it negative
        divergence = (losses.detach() + target.xlogy(target).sum(1)).clamp(min=0)
        value = (log_probability.detach().exp() @ self.support).mean()
        metrics = {'q_value': value, 'target_q_value': (target @ self.support).mean()}
        return losses, divergence, metrics

    def target(self, rows: Rows) -> torch.Tensor:
        policy = self._policy
        with torch.no_grad():
            reward, discount = policy.reward(rows), policy.targets.discount(rows)
            if policy._tau is None:
                return project(policy.next_output(rows).softmax(1), reward, discount, self.support)
            output = policy.valued(policy.target_model, rows, 'next_obs')  # [B, A, M]
            share, log_policy = soft_policy(self.expected(output), policy._tau, mask_of(rows['next_obs']))
            count = share.shape[1]
            rewards = reward[:, None] - discount[:, None] * log_policy  # [B, A]
            parts = project(
                output.softmax(2).flatten(0, 1),
                rewards.flatten(),
                discount.repeat_interleave(count),
                self.support,
            )
            return (share[:, :, None] * parts.unflatten(0, (-1, count))).sum(1)


@POLICY_REGISTRY.register('c51')
class C51Policy(QPolicy):
    """DQN whose network outputs the probability of each of ``n_atom`` returns between ``v_min`` and ``v_max``.

    Source:
        Bellemare et al. (2017), algorithm 1.
    """

    _cfg: C51Config
    network_arguments = ATOMS
    return_kind = Atoms


@POLICY_REGISTRY.register('rainbow')
class RainbowPolicy(QPolicy):
    """Rainbow: C51 with double and dueling networks, noisy heads, n-step returns and prioritized replay.

    It needs the replay buffer 'advanced' or 'elastic'. Noise in its heads explores, so ``eps`` is 0.

    Source:
        Hessel et al., Rainbow: Combining Improvements in Deep Reinforcement Learning (2018).
    """

    _cfg: C51Config
    network_arguments = ATOMS
    return_kind = Atoms
    config: dict[str, Any] = dict(
        priority=True,
        priority_IS_weight=True,
        discount_factor=0.99,
        nstep=3,
        model=dict(noisy=True, dueling=True),
        other=dict(eps=0.0),
    )


def check_atoms(model: Mapping[str, Any]) -> list[ConfigError]:
    """Refuses a highest atom that is not above the lowest, and atoms that float32 rounds to the same number."""
    low, high, count = model['v_min'], model['v_max'], model['n_atom']
    if low >= high:
        return [refused({'model': model}, 'model.v_max', 'bad value', f'more than v_min={low}')]
    if count is None or len(np.unique(np.linspace(low, high, count, dtype=np.float32))) == count:
        return []
    why = f'float32 cannot tell {count} atoms between v_min={low} and v_max={high} apart'
    return [refused({'model': model}, 'model.n_atom', why, 'fewer, or a wider range')]


def project(
    probability: torch.Tensor, reward: torch.Tensor, discount: torch.Tensor, support: torch.Tensor
) -> torch.Tensor:
    """Moves a distribution over ``support`` by reward and discount and distributes it over ``support`` again.

    Each moved value gives its probability to its two neighbours, to the nearer one more; beyond the ends it is clipped.

    Args:
        probability: Of each value in the next state, float32 [B, M].
        reward: float32 [B].
        discount: Weight of the next state, float32 [B].
        support: Values in rising order, evenly spaced, float32 [M].

    Returns:
        float32 [B, M]; each row sums to 1.

    Source:
        Bellemare et al. (2017), eq. 7.
    """
    number = torch.arange(len(support), device=support.device)
    # in units of the distance of atoms, from float64, as float32 rounds atoms far from 0 by a large share of it
    low, high = support[0].double(), support[-1].double()
    gap = (high - low) / (len(support) - 1)
    first = ((reward.double() + (discount.double() - 1) * low) / gap).to(probability.dtype)  # [B]
    place = (first[:, None] + discount[:, None] * number).clamp(0, len(support) - 1)  # [B, M]
    share = (1 - (place[:, None, :] - number[:, None]).abs()).clamp_(min=0)  # [B, M, M]
    return (share @ probability[:, :, None])[:, :, 0]
