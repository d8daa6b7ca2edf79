"""TDPolicy: the common base of policies that learn values from a replay buffer by temporal differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from easydict import EasyDict

from rlframe.data.faces import Metrics
from rlframe.data.timestep import Batch
from rlframe.errors import ConfigError
from rlframe.policy.base_policy import Policy, PolicyConfig
from rlframe.policy.parts.optim import NAN_POLICY
from rlframe.policy.parts.options import DISCOUNT_FACTOR
from rlframe.policy.parts.sequences import Rows
from rlframe.utils.field import Field, ResolvedConfig
from rlframe.utils.lazy import LazyModule
from rlframe.utils.schema import COUNT, NETWORK, check_state, part

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule('torch')


INPUTS = 'obs', 'next_obs', 'action', 'reward', 'terminated', 'value_gamma', 'IS'
"""Columns of transitions that an update reads, where there are such."""


class TDLearn(ResolvedConfig):
    """Section ``learn`` of every policy with a target network."""

    nan_policy: Literal['raise', 'skip', 'ignore']


class TDConfig(PolicyConfig):
    """Options of every policy with a target network."""

    priority: bool
    priority_IS_weight: bool  # noqa: N815  # DI-engine's name of the option
    discount_factor: float
    nstep: int
    learn: TDLearn


class TDPolicy(Policy):
    """Body of policies with a target network that are taught by one-step or n-step targets.

    A subclass sets its target network in ``_init_learn`` (``_set_target``), does an update in ``_update_tensors``, and passes
    its TD errors to ``_with_priority``. All that is drawn or rearranged by NumPy is done before it, in ``_columns``.

    Source:
        Sutton & Barto, Reinforcement Learning (2018), section 6.1; target networks: Mnih et al. (2015).
    """

    _cfg: TDConfig
    config = dict(
        priority=Field(False, doc='whether TD errors become the priorities of the replay buffer'),
        priority_IS_weight=Field(False, doc='whether losses are weighted by importance sampling'),
        discount_factor=DISCOUNT_FACTOR,
        nstep=Field(1, range='[1, inf)', unit='env steps', doc='rewards summed before bootstrapping'),
        learn=dict(nan_policy=NAN_POLICY),
    )
    captured_part = '_update_tensors'

    @classmethod
    def check_config(cls, cfg: EasyDict) -> list[ConfigError]:
        """Rejects importance weights if there are no priorities."""
        errors = super().check_config(cfg)
        own: TDConfig = cfg
        if own.priority_IS_weight and not own.priority:
            message, where = 'needs policy.priority=True', 'priority_IS_weight'
            errors.append(ConfigError(message, where=where, got=True, expected='False'))
        return errors

    def _init_learn(self) -> None:
        self._discount_factor = self._cfg.discount_factor
        # tensors, because torch.where would convert numbers anew in each update
        self._end, self._going_on = torch.tensor([0.0, self._discount_factor], device=self._device).unbind()
        self._priority, self._weighted = self._cfg.priority, self._cfg.priority_IS_weight
        self._skips = self._cfg.learn.nan_policy == 'skip'
        self._updates = 0

    def _set_target(self, target: torch.nn.Module, online: Sequence[torch.nn.Module]) -> None:
        """Takes a copy of some modules as the target network that follows them."""
        for module in target.modules():
            if isinstance(module, torch.nn.RNNBase):
                module.flatten_parameters()  # copied one by one, they are in no single chunk as cuDNN wants them
        self._target_model: Any = target.requires_grad_(False)
        self._weights = (
            [p.detach() for p in target.parameters()],
            [p.detach() for part in online for p in part.parameters()],
        )
        self._states = (
            list(target.state_dict().values()),
            [value for part in online for value in part.state_dict().values()],
        )

    def _forward_learn(self, data: Batch) -> Metrics:
        return self._update(self._columns(data))

    def _columns(self, data: Batch) -> Rows:
        """Returns what an update reads, as tensors on the device."""
        return {name: self._tensor(data[name]) for name in INPUTS if name in data}

    def _update(self, rows: Rows) -> Metrics:
        """Updates the networks once, and returns the values to log, which stay on the device."""
        metrics = self._update_tensors(rows, self._is_turn)
        self._updates += 1
        return metrics | self._optimizer_metrics()

    @property
    def _is_turn(self) -> bool:
        """Whether the next update includes the part that only some updates have, such as the target network."""
        raise NotImplementedError

    def _update_tensors(self, rows: Rows, is_turn: bool) -> Metrics:
        """Does the part of an update that is a function of tensors: it changes nothing else, and waits for nothing."""
        raise NotImplementedError

    def _optimizer_metrics(self) -> Metrics:
        """Returns the values to log of the optimizers."""
        raise NotImplementedError

    def reset_targets(self) -> None:
        torch._foreach_copy_(*self._states)

    def _discount(self, rows: Rows) -> torch.Tensor:
        """Returns the weight of the bootstrap value of each transition, float32 [B]: 0 after a terminal state."""
        if 'value_gamma' in rows:
            return rows['value_gamma'].masked_fill(rows['terminated'], 0.0)
        return torch.where(rows['terminated'], self._end, self._going_on)

    def _with_priority(self, metrics: Metrics, error: torch.Tensor) -> Metrics:
        """Adds the absolute value of each transition's error, float32 [B], as its priority, if there are priorities."""
        if not self._priority:
            return metrics
        priority = error.abs()
        # rows that spoilt a skipped update should not be drawn again
        return metrics | {'priority': priority.nan_to_num(0.0, 0.0, 0.0) if self._skips else priority}

    def _get_networks(self) -> tuple[str, ...]:
        return (*super()._get_networks(), 'target_model')

    def _state_dict_learn(self) -> dict[str, Any]:
        return super()._state_dict_learn() | {
            'target_model': self._target_model.state_dict(),
            'updates': self._updates,
        }

    def _load_state_dict_learn(self, state: Mapping[str, Any]) -> None:
        super()._load_state_dict_learn(state)
        check_state(state, {'target_model': NETWORK, 'updates': COUNT})
        with part('target_model'):
            self._target_model.load_state_dict(state['target_model'])
        self._updates = state['updates']
