"""C51: DQN that learns the distribution of the return over fixed values; Rainbow."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.timestep import EnvSpec
from rlframe.errors import ConfigError
from rlframe.policy.dqn import DoubleConfig, QModel, QPolicy, QUpdate
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.options import refused
from rlframe.policy.parts.outputs import Atoms, Output
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import Field, option
from rlframe.utils.lazy import torch


def check_atoms(cfg: Any) -> list[ConfigError]:
    """Refuses a highest atom that is not above the lowest, and atoms that float32 rounds to the same number."""
    low, high, count = cfg.model.v_min, cfg.model.v_max, cfg.model.n_atom
    if low >= high:
        return [refused(cfg, 'model.v_max', 'bad value', f'more than v_min={low}')]
    if len(np.unique(np.linspace(low, high, count, dtype=np.float32))) == count:
        return []
    why = f'float32 cannot tell {count} atoms between v_min={low} and v_max={high} apart'
    return [refused(cfg, 'model.n_atom', why, 'fewer, or a wider range')]


V_MIN = Field(-10.0, unit='discounted return', doc='lowest atom of the return distribution')
V_MAX = Field(10.0, unit='discounted return', doc='highest atom of the return distribution')
N_ATOM = Field(51, range='[2, inf)', unit='atoms', doc='atoms of the distribution of returns')


class C51Model(QModel):
    """Section ``model`` of C51."""

    v_min: float = option(V_MIN)
    v_max: float = option(V_MAX)
    n_atom: int = option(N_ATOM)


ATOMS: dict[str, str | None] = {'n_atom': 'atoms', 'v_min': None, 'v_max': None}
"""Options of a distribution over fixed values, to the arguments of networks that output one."""


class C51Config(DoubleConfig):
    """Options of C51."""

    model: C51Model


def support_of(model: Any, device: torch.device) -> torch.Tensor:
    """Returns the returns that a section ``model`` tells apart, float32 [M]."""
    return torch.linspace(model.v_min, model.v_max, model.n_atom, device=device)


class C51Update(QUpdate):
    """The probability of each of ``n_atom`` returns between ``v_min`` and ``v_max``."""

    def __init__(self, model: torch.nn.Module, cfg: Any, spec: EnvSpec) -> None:
        super().__init__(model, cfg, spec)
        self.support = support_of(cfg.model, self.device)

    def output(self, network: Any, obs: Any, tau: torch.Tensor | None = None) -> Output:
        return Atoms(network(obs), self.support)


@POLICY_REGISTRY.register('c51')
class C51Policy(QPolicy):
    """DQN whose network outputs the probability of each of ``n_atom`` returns between ``v_min`` and ``v_max``.

    Source:
        Bellemare et al., A Distributional Perspective on Reinforcement Learning (2017), algorithm 1.
    """

    _cfg: C51Config
    network_arguments = ATOMS
    update_class = C51Update
    checks = (check_atoms,)
    ding = DingNames(defaults={'other.replay_buffer.replay_buffer_size': 10_000, 'model.dueling': False})
    toy = QPolicy.toy | dict(model=dict(v_min=0.0, v_max=4.0, n_atom=21))
    solves = 'CartPole-v1', 40_000


@POLICY_REGISTRY.register('rainbow')
class RainbowPolicy(C51Policy):
    """Rainbow: C51 with double and dueling networks, noisy heads, n-step returns and prioritized replay.

    It needs the replay buffer 'advanced' or 'elastic'. Noise in its heads explores, so ``eps`` is 0.

    Source:
        Hessel et al., Rainbow: Combining Improvements in Deep Reinforcement Learning (2018).
    """

    config: dict[str, Any] = dict(
        priority=True,
        priority_IS_weight=True,
        discount_factor=0.99,
        nstep=3,
        model=dict(noisy=True, dueling=True),
        other=dict(eps=0.0),
    )
    ding = DingNames(
        defaults={
            'learn.update_per_collect': 1,
            'learn.batch_size': 32,
            'collect.n_sample': 32,
            'random_collect_size': 2000,
            'other.replay_buffer.replay_buffer_size': 100_000,
            'other.eps': {'type': 'exp', 'start': 0.05, 'end': 0.05, 'decay': 100_000},
        },
        unused={'learn.iqn': 'without effect in DI-engine as well'},
    )
    toy = C51Policy.toy | dict(other={})
    search_space = QPolicy.search_space.having(
        {'nstep': 'choice(1,3,5)'}, f'{QPolicy.search_space.source}; n of Hessel et al. (2018), fig. 5'
    )
