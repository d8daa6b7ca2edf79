"""BCO: cloning of demonstrations whose actions are unknown, by a model of the action between one state and the next."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from rlframe.data.timestep import Array, Batch, IntArray
from rlframe.policy.bc import BCConfig, BCLearn, BCPolicy, BCUpdate
from rlframe.policy.parts.demos import HALF, IS_DEMO
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.network import create_network
from rlframe.policy.parts.options import UPDATE_PER_COLLECT, Schedule, learning_rate
from rlframe.policy.parts.random_policy import random_actions
from rlframe.policy.parts.sections import N_SAMPLE, CollectConfig
from rlframe.policy.parts.sequences import Rows, take
from rlframe.policy.parts.starting import Facts, Settings
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import LazyModule, torch

gymnasium = LazyModule('gymnasium')


class BCOLearn(BCLearn):
    """Section ``learn`` of BCO."""

    update_per_collect: int = option(UPDATE_PER_COLLECT)
    learning_rate_inverse: Schedule = option(learning_rate(1e-3, 'Adam for the inverse model'))


class BCOCollect(CollectConfig):
    """Section ``collect`` of BCO."""

    n_sample: int | None = option(N_SAMPLE.having(8))
    eps: float = option(
        0.2,
        range='[0, 1]',
        doc='probability of a random action, from which the inverse model learns',
        may_change=True,
    )


class BCOConfig(BCConfig):
    """Options of BCO."""

    learn: BCOLearn
    collect: BCOCollect


class BCOUpdate(BCUpdate):
    """An inverse model, by own transitions, and a policy that clones what it says of demonstrated ones."""

    losses = {'inverse_loss': 'inverse', 'cloning_loss': 'actor'}
    inputs = ('obs', 'next_obs', 'action', IS_DEMO)

    def inverse(self, rows: Rows) -> torch.Tensor:
        """Returns what the inverse model says of the action between obs and next obs, [B, S]."""
        output: torch.Tensor = self.model.inverse({'0': rows['obs'], '1': rows['next_obs']})
        return output

    def inverse_loss(self, rows: Rows) -> Loss:
        """Returns the mean distance of what the inverse model says to the actions taken; of demonstrations it knows none."""
        return self.mean_of(self.inverse(rows), rows['action'], ~rows[IS_DEMO])

    def cloning_loss(self, rows: Rows) -> Loss:
        """Returns the mean distance of the policy's actions to those that the inverse model says, over demonstrations."""
        with torch.no_grad():
            action = self.distribution.mode_tensor(self.inverse(rows))
        return self.mean_of(self.masked(self.model(rows['obs']), rows['obs']), action, rows[IS_DEMO])

    def mean_of(self, output: torch.Tensor, action: torch.Tensor, chosen: torch.Tensor) -> Loss:
        """Returns the mean over the chosen rows; 0 if there are none."""
        return Loss((self.distance(output, action) * chosen).sum() / chosen.sum().clamp(min=1))


@POLICY_REGISTRY.register('bco')
class BCOPolicy(BCPolicy):
    """Behavioural cloning from observation.

    The actions of demonstrations (``replay_buffer.init_from``) are not read: an inverse dynamics model, which learns from what
    the policy does itself, says which action leads from one observation to the next, and the policy clones that. Both learn in
    each update, in place of the paper's rounds.

    Source:
        Torabi et al., Behavioral Cloning from Observation (2018), algorithm 1.
    """

    _cfg: BCOConfig
    config: dict[str, Any] = dict(on_policy=False, collect=dict(collector=dict(type='sample')), other=HALF)
    needs_data = True
    update_class = BCOUpdate
    ding = DingNames()

    @classmethod
    def starting(cls, facts: Facts) -> Settings:
        return dict(
            random_collect_size=1000,
            model=facts.encoder([128, 128]),
            learn=dict(update_per_collect=4, batch_size=128),
            other=dict(replay_buffer=dict(replay_buffer_size=facts.buffer_size)),
        )

    def create_model(self) -> torch.nn.Module:
        model: Any = super().create_model()
        pair = gymnasium.spaces.Tuple((self.spec.observation_space,) * 2)
        spec = dataclasses.replace(self.spec, observation_space=pair)
        model.inverse = create_network(self, spec=spec)
        return model

    def init_collect(self) -> None:
        self._draw = random_actions(self.spec, self.rng)

    def forward_collect(self, obs: Array, env_id: IntArray, eps: float = 0.0, **settings: Any) -> Batch:
        action = self.forward_eval(obs, env_id)['action']
        is_random = self.rng.random(len(action)) < eps
        if is_random.any():
            action = action.copy()
            action[is_random] = self._draw(take(obs, is_random), int(is_random.sum()))
        return Batch.unchecked({'action': action}, len(action))

    def get_setting_collect(self, info: Mapping[str, Any]) -> dict[str, Any]:
        return {'eps': self._cfg.collect.eps}
