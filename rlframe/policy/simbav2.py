"""SimbaV2: SAC whose features and weights have length 1, with categorical critics."""

from __future__ import annotations

from typing import Any

from rlframe.data.timestep import EnvSpec
from rlframe.policy.c51 import N_ATOM, V_MAX, V_MIN, check_atoms, support_of
from rlframe.policy.dqn import TDConfig
from rlframe.policy.parts.options import ImageModel, Schedule, check_widths, learning_rate
from rlframe.policy.parts.outputs import Atoms, Output
from rlframe.policy.parts.sections import StochasticEval
from rlframe.policy.parts.starting import Facts, Settings
from rlframe.policy.qac import ContinuousCollect, QACPolicy
from rlframe.policy.sac import SACLearn, SACPolicy, SACUpdate
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


def check_blocks(widths: list[int]) -> str:
    """Returns a description of valid widths of blocks if these are invalid, else an empty string."""
    expected = 'one width for each block, all equal'
    return check_widths(widths) or ('' if len(set(widths)) == 1 else expected)


class SimbaV2Model(ImageModel):
    """Section ``model`` of SimbaV2."""

    encoder_hidden_size_list: list[int] = option(
        [128],
        unit='units',
        doc='width of each residual block of the actor; all are equal',
        check=check_blocks,
    )
    critic_hidden_size_list: list[int] = option(
        [128, 128],
        unit='units',
        doc='width of each residual block of critics; all are equal',
        check=check_blocks,
    )
    twin_critic: bool = option(True, doc='whether to use two critics; without terminations, one is enough')
    n_atom: int = option(N_ATOM.having(101))
    v_min: float = option(V_MIN.having(-5.0))
    v_max: float = option(V_MAX.having(5.0))


class SimbaV2Learn(SACLearn):
    """Section ``learn`` of SimbaV2."""

    learning_rate_actor: Schedule = option(learning_rate(1e-4, 'Adam for the actor'))
    learning_rate_critic: Schedule = option(learning_rate(1e-4, 'Adam for the critics'))
    learning_rate_alpha: Schedule = option(learning_rate(1e-4, 'Adam for the weight of the entropy'))


class SimbaV2Config(TDConfig):
    """Options of SimbaV2."""

    model: SimbaV2Model
    learn: SimbaV2Learn
    collect: ContinuousCollect
    eval: StochasticEval


class SimbaV2Update(SACUpdate):
    """SAC whose critics give the distribution of the return, by networks on the sphere."""

    follows_actor = False

    def __init__(self, model: torch.nn.Module, cfg: Any, spec: EnvSpec) -> None:
        super().__init__(model, cfg, spec)
        self.support = support_of(cfg.model, self.device)

    def returns(self, value: torch.Tensor) -> Output:
        return Atoms(value, self.support)

    def target_entropy(self) -> float:
        return super().target_entropy() / 2


@POLICY_REGISTRY.register('simbav2')
class SimbaV2Policy(QACPolicy):
    """SAC whose features and weights have length 1, with categorical critics.

    Observations are normalised and rewards scaled, so that the atoms of the critics hold their returns. The paper's critics have
    two blocks of 512 units, its learning rates halve over a run, and two updates follow each env step.

    Source:
        Lee et al., Hyperspherical Normalization for Scalable Deep Reinforcement Learning (2025), section 4 and table 5. The
        authors also keep the largest scaled return below the highest atom; here the deviation of returns alone scales.
    """

    _cfg: SimbaV2Config
    actor_kind = 'gaussian'
    config: dict[str, Any] = dict(normalize_reward=True, learn=dict(init_alpha=0.01))
    default_network = 'sphere_qac'
    update_class = SimbaV2Update
    checks = (check_atoms,)
    toy: dict[str, Any] = SACPolicy.toy | dict(
        model=dict(encoder_hidden_size_list=[32], critic_hidden_size_list=[32])
    )
    solves = 'Pendulum-v1', 6_000

    @classmethod
    def starting(cls, facts: Facts) -> Settings:
        found = super().starting(facts)
        narrow = {'encoder_hidden_size_list': [64], 'critic_hidden_size_list': [64]}
        wide = {'encoder_hidden_size_list': [128], 'critic_hidden_size_list': [128, 128]}
        sizes = narrow if facts.is_small else wide
        return found | {'model': {**found['model'], **sizes}}
