"""ActorPolicy: the common base of policies whose network outputs a distribution over actions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from easydict import EasyDict

from rlframe.data.timestep import EnvSpec
from rlframe.model.distributions import ActionDistribution, distribution_for
from rlframe.policy.acting.actions import ActionMap
from rlframe.policy.base_policy import Policy
from rlframe.policy.learning.optim import NAN_POLICY, OPTIMIZER, Optimizer
from rlframe.utils.field import Field
from rlframe.utils.schema import DICT, check_state, part


class ActorPolicy(Policy):
    """Body of policies that act by a distribution, over actions of any kind, and have one optimizer."""

    config = dict(
        learn=dict(
            grad_clip_norm=Field(
                None,
                type=(float, type(None)),
                range='(0, inf)',
                doc='largest norm of the gradient; None: unlimited',
                may_change=True,
            ),
            optimizer=OPTIMIZER,
            nan_policy=NAN_POLICY,
        )
    )
    supported_actions = 'Discrete, Box, MultiDiscrete, MultiBinary'
    supports_action_mask = True

    @classmethod
    def check_spec(cls, spec: EnvSpec, cfg: EasyDict) -> None:
        super().check_spec(spec, cfg)
        ActionMap(spec)

    @cached_property
    def _distribution(self) -> ActionDistribution:
        return distribution_for(self._spec.action_space)

    @cached_property
    def _actions(self) -> ActionMap:
        return ActionMap(self._spec)

    def _init_learn(self) -> None:
        self._optimizer = Optimizer(self._model, self._cfg.learn)

    def get_setting_learn(self, info: Mapping[str, Any]) -> dict[str, Any]:
        self._optimizer.set_envstep(info['envstep'])
        return {}

    def _state_dict_learn(self) -> dict[str, Any]:
        return super()._state_dict_learn() | {'optimizer': self._optimizer.state_dict()}

    def _load_state_dict_learn(self, state: Mapping[str, Any]) -> None:
        super()._load_state_dict_learn(state)
        check_state(state, {'optimizer': DICT})
        with part('optimizer'):
            self._optimizer.load_state_dict(state['optimizer'])
