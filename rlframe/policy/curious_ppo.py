"""Curious PPO: PPO that values what reward models pay by a critic of its own, beyond the ends of episodes."""

from __future__ import annotations

import numpy as np

from rlframe.data.returns import gae
from rlframe.data.timestep import Array, Batch, BoolArray
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.ppo import PPOCollect, PPOConfig, PPOPolicy, PPOUpdate
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import ABSENT, option
from rlframe.utils.lazy import torch


class CuriousCollect(PPOCollect):
    """Section ``collect`` of curious PPO."""

    bonus_discount_factor: float = option(
        0.99, range='[0, 1]', unit='per env step', doc='discount factor of bonuses'
    )
    bonus_ends: bool = option(
        False,
        doc='whether returns of bonuses end with the episode; False: they go on in the next one',
    )


class CuriousConfig(PPOConfig):
    """Options of curious PPO."""

    collect: CuriousCollect


class CuriousUpdate(PPOUpdate):
    """PPO's loss, and that of the critic of bonuses."""

    inputs = (*PPOUpdate.inputs, 'bonus_return')
    logged = (*PPOUpdate.logged, 'bonus_value_loss')

    def loss(self, rows: Rows) -> Loss:
        loss = super().loss(rows)
        wrong = self.model.bonus_critic(rows['obs']).squeeze(1) - rows['bonus_return']
        bonus_loss = wrong.square().mean()
        value = loss.value + self.value_weight * bonus_loss
        return loss._replace(value=value, parts={**loss.parts, 'bonus_value_loss': bonus_loss})


@POLICY_REGISTRY.register('curious_ppo')
class CuriousPPOPolicy(PPOPolicy):
    """PPO with a second critic, of what reward models pay, which has a discount of its own and no ends of episodes.

    Advantages of both are added; without a reward model it learns as PPO does:

        A = GAE(r, V; gamma) + GAE(bonus, V_bonus; gamma_bonus)

    An end costs an explorer nothing that it could not find again, so the second critic looks beyond it.

    Source:
        Burda et al., Exploration by Random Network Distillation (2018), sections 2.3 and 3.3.
    """

    _cfg: CuriousConfig
    update_class = CuriousUpdate
    config = dict(model=dict(core=ABSENT, core_hidden_size=ABSENT), learn=dict(unroll_len=ABSENT))
    ding = DingNames()
    solves = 'CartPole-v1', 60_000

    def create_model(self) -> torch.nn.Module:
        from rlframe.model.core import MLP
        from rlframe.model.encoder import images_of

        model = super().create_model()
        options = self.model_kwargs()
        sizes, activation = options['encoder_hidden_size_list'], options['activation']
        model.bonus_critic = MLP(self.spec.observation_space, sizes, activation, 1, **images_of(options))
        return model

    def sample_columns(self, block: Batch, apart: BoolArray) -> dict[str, Array]:
        return super().sample_columns(block, apart) | {'next_obs': block['next_obs']}

    def advantages(self, data: Batch) -> Rows:
        found = super().advantages(data)
        bonus = np.asarray(data['bonus']) if 'bonus' in data else np.zeros(len(data), np.float32)
        ends = self._bonus_ends(data)
        with torch.no_grad():
            value = self.model.bonus_critic(self.tensor(data['obs'])).squeeze(1).cpu().numpy()
            behind = self.model.bonus_critic(self.tensor(data['next_obs'][ends])).squeeze(1).cpu().numpy()
        following = np.append(value[1:], value[-1:])
        following[ends] = behind
        cfg = self._cfg.collect
        advantage = gae(
            bonus[:, None],
            value[:, None],
            following[:, None],
            ends[:, None],
            cfg.bonus_discount_factor,
            cfg.gae_lambda,
        )[:, 0]
        found['advantage'] = found['advantage'] + self.tensor(advantage)
        return found | {'bonus_return': self.tensor(advantage + value)}

    def _bonus_ends(self, data: Batch) -> BoolArray:
        """Returns behind which rows nothing is followed that is paid, bool [M]: the last ones of envs or of episodes."""
        ends = np.ones(len(data), bool)
        if 'env_id' in data:
            env_id, step = (np.asarray(data[name]) for name in ('env_id', 'episode_step'))
            ends[:-1] = env_id[1:] != env_id[:-1]
            if self._cfg.collect.bonus_ends:
                ends[:-1] |= step[1:] != step[:-1] + 1
        return ends

    def _get_values_bonus(self) -> bool:
        """Returns whether rounds are to carry what reward models pay in a column of its own."""
        return True
