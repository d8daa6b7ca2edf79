"""QPolicy: the common base of policies that act by the values of discrete actions, and sometimes at random."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from rlframe.data.timestep import Array, Batch, IntArray, TimeStep
from rlframe.policy.base_policy import OtherConfig, Policy, PolicyConfig
from rlframe.policy.parts.actions import mask_of, masked, random_allowed
from rlframe.policy.parts.options import Schedule, check_schedule, schedule_of
from rlframe.utils.field import option
from rlframe.utils.lazy import torch

SettingsOf = Callable[[Mapping[str, Any], int, int], Mapping[str, Any]]
"""Maps the settings of collection, the place of a collector and their number to the settings of that collector."""


class QOther(OtherConfig):
    """Section ``other`` of policies that act by action values."""

    eps: Schedule = option(
        dict(type='exp', start=0.95, end=0.1, decay=10000),
        range='[0, 1]',
        doc='probability of a random action; a schedule over env steps',
        check=check_schedule,
        may_change=True,
    )
    eps_ladder: float = option(
        0.0,
        range='[0, inf)',
        doc='how far eps differs between N collectors: that of collector i is eps ** (1 + eps_ladder * i / (N - 1)); Ape-X'
        ' has 7, with a constant eps of 0.4',
        may_change=True,
    )


class QConfig(PolicyConfig):
    """Options of policies that act by action values."""

    other: QOther


class QPolicy(Policy):
    """Body of policies whose network values every action.

    They take the best action or, while they collect, with probability ``eps`` a random one. A subclass defines how the
    network learns; if its outputs are no action values, also ``expected``.
    """

    _cfg: QConfig
    supports_action_mask = True

    def default_model(self) -> str:
        return 'q_net'

    def init_eval(self) -> None:
        self._noisy = bool(self._cfg.model.get('noisy'))

    def init_collect(self) -> None:
        space = self._action_space
        self._action_num, self._first_action = int(space.n), int(space.start)
        self._action_dtype = np.min_scalar_type(max(self._action_num - 1, 0))

    def _acting_output(self, obs: Any) -> tuple[torch.Tensor, int]:
        return self.model(obs), int(self._action_space.n)

    def chosen(self, output: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Selects the network's output for an action in each row: [B, A, ...] to [B, ...]."""
        action = action.long()
        if output.dim() == 2:
            return output.gather(1, action.unsqueeze(1)).squeeze(1)
        return output[torch.arange(len(action), device=action.device), action]

    def expected(self, output: torch.Tensor) -> torch.Tensor:
        """Converts the network's output to action values, float32 [B, A]."""
        return output

    def best_action(self, obs: torch.Tensor) -> torch.Tensor:
        """Returns the action of the highest value, counted from 0, int64 [B], as a part of a torch graph."""
        return self.expected(self.model(obs)).argmax(1)

    def q_value(self, obs: Array) -> torch.Tensor:
        """Returns the value of each action, -inf if a mask forbids it, float32 [n, A]."""
        with torch.inference_mode():
            tensor = self.tensor(obs)
            value = self.expected(self.model(tensor))
            value = masked(value, mask_of(tensor)) if self._has_mask else value
            return value if self._on_cpu else value.cpu()

    def forward_collect(self, obs: Array, env_id: IntArray, eps: float = 0.0, **settings: Any) -> Batch:
        action = self.q_value(obs).numpy().argmax(1)
        if eps > 0 and self._has_mask:
            draw = self.rng.random(len(action)) / eps
            action = np.where(draw < 1, random_allowed(mask_of(obs), draw % 1), action)
        elif eps > 0:
            # A number below eps, divided by eps, is again uniform in [0, 1), so it also picks the random action. Few
            # numbers are below eps, and after a network's forward each NumPy call costs several times as much as an
            # iteration of this loop: with two vectorised draws, one that tests and one that picks, a forward takes
            # 5-7 us longer for 8 envs, and a round of collection in 8 CartPoles 3-8 %, in 64 CartPoles 0-3 %. Median
            # CPU time of 40 interleaved blocks per form, one thread, with eps 0.1 and 0.95.
            scale = self._action_num / eps
            for i, draw in enumerate(self.rng.random(len(action)).tolist()):
                if draw * scale < self._action_num:
                    action[i] = draw * scale
        return self._output(action)

    def forward_eval(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        if self._noisy:
            self.model.eval()
        action = self.q_value(obs).numpy().argmax(1)
        if self._noisy:
            self.model.train()
        return self._output(action)

    def _output(self, action: Array) -> Batch:
        """Returns actions that are counted from 0, [n], as the env counts them, and in its type."""
        if self._action_space.start:
            action = action + int(self._action_space.start)
        return Batch.unchecked({'action': action.astype(self._action_space.dtype, copy=False)}, len(action))

    def process_transition(self, obs: Array, output: Batch, timestep: TimeStep) -> dict[str, Array]:
        rows = super().process_transition(obs, output, timestep)
        action = rows['action'] - self._first_action if self._first_action else rows['action']
        rows['action'] = action.astype(self._action_dtype)
        return rows

    def get_setting_collect(self, info: Mapping[str, Any]) -> dict[str, Any]:
        return {'eps': self._eps(info['envstep'])}

    @cached_property
    def _eps(self) -> Callable[[float], float]:
        """The probability of a random action as a function of env steps."""
        return schedule_of(self._cfg.other.eps)

    def _get_settings_of(self) -> SettingsOf | None:
        return self._settings_of if self._cfg.other.eps_ladder else None

    def _settings_of(self, settings: Mapping[str, Any], place: int, count: int) -> Mapping[str, Any]:
        """Returns the settings of one of several collectors, whose eps form a ladder.

        Source:
            Horgan et al., Distributed Prioritized Experience Replay (2018), section 4.1.
        """
        share = place / (count - 1) if count > 1 else 0.0
        return {**settings, 'eps': settings['eps'] ** (1 + self._cfg.other.eps_ladder * share)}

    def _monitor_vars(self) -> list[str]:
        return [*super()._monitor_vars(), 'q_value', 'target_q_value']
