"""Common bases of policies whose network outputs a distribution over actions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from easydict import EasyDict

from rlframe.data.faces import Metrics
from rlframe.data.timestep import EnvSpec, IntArray
from rlframe.model.distributions import ActionDistribution, distribution_for
from rlframe.policy.base_policy import Policy, PolicyConfig
from rlframe.policy.parts.actions import ActionMap
from rlframe.policy.parts.optim import NAN_POLICY, OPTIMIZER, Optimizer
from rlframe.policy.parts.sequences import Rows
from rlframe.utils.field import Field, ResolvedConfig
from rlframe.utils.schema import DICT, check_state, part
from rlframe.utils.seed import component_rng

if TYPE_CHECKING:
    import torch


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
    compiled_parts = ('_losses',)

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
        self._scheduled: Rows = {}  # numbers that losses read, on the device
        self._optimizer = Optimizer(self._model, self._cfg.learn)

    def _update_tensors(self, rows: Rows) -> Metrics:
        """Does the part of an update that is a function of tensors: it changes nothing else, and waits for nothing."""
        loss, parts, metrics = self._losses(rows | self._scheduled)
        self._optimizer.step(loss, **parts)
        return metrics

    def _losses(self, rows: Rows) -> tuple[torch.Tensor, Rows, Metrics]:
        """Returns the loss of a batch, its parts by name, and the values to log."""
        raise NotImplementedError

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


class StochasticEval(ResolvedConfig):
    """Section ``eval`` of policies that may be evaluated by drawn actions."""

    deterministic: bool


class StochasticConfig(PolicyConfig):
    """Options of policies that may be evaluated by drawn actions."""

    eval: StochasticEval


class StochasticPolicy(Policy):
    """Body of policies that are evaluated by their best actions or by actions drawn from their distribution.

    Draws start anew whenever all episodes do, so that an evaluation depends on nothing but the weights. The action of an
    exported function is always the best one.
    """

    _cfg: StochasticConfig
    config = dict(
        eval=dict(
            deterministic=Field(
                True,
                doc='whether evaluation takes the best action; False: it draws one, as collection does. Policies that'
                ' see only a part of the state can get stuck if they always do the same',
                may_change=True,
            ),
        )
    )

    def __init__(self, *given: Any, seed: int = 0, rank: int = 0, **options: Any) -> None:
        self._drawing = seed, 'evaluation', rank
        self._eval_rng = component_rng(*self._drawing)
        super().__init__(*given, seed=seed, rank=rank, **options)

    @property
    def _draws_in_eval(self) -> bool:
        return not self._cfg.eval.deterministic

    def _reset_eval(self, env_id: IntArray | None = None) -> None:
        super()._reset_eval(env_id)
        if env_id is None:
            self._eval_rng = component_rng(*self._drawing)
