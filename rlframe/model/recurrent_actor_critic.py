"""Actor-critic networks with a memory: encoder, recurrent core and linear heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from rlframe.data.timestep import EnvSpec
from rlframe.model.actor_critic import initialise, weight_layers
from rlframe.model.core import STATES_OF_CORE, RecurrentEncoder, Unroll
from rlframe.model.distributions import distribution_for
from rlframe.model.encoder import Obs
from rlframe.registry import MODEL_REGISTRY


@MODEL_REGISTRY.register('recurrent_actor_critic')
class RecurrentActorCritic(nn.Module):
    """An actor and a critic with a memory each, or with a common one.

    ``act`` and ``step`` act, ``value_step`` values one step; calling the network does both for sequences.

    Args:
        spec: Spaces of the env.
        core: 'gru' or 'lstm'.
        core_hidden_size: Units of a core.
        encoder_hidden_size_list: Widths of the hidden layers in front of a core.
        activation: Nonlinearity behind each.
        share_encoder: Whether actor and critic are two linear layers on one encoder and one core.
        log_std_init: Logarithm of the standard deviations of continuous actions in the beginning, in units of [-1, 1].
        images: Options of the encoder of images; see ``MLP``.
    """

    def __init__(
        self,
        spec: EnvSpec,
        core: str = 'lstm',
        core_hidden_size: int = 64,
        encoder_hidden_size_list: Sequence[int] = (64, 64),
        activation: str = 'tanh',
        share_encoder: bool = False,
        log_std_init: float = 0.0,
        **images: Any,
    ) -> None:
        super().__init__()
        options = encoder_hidden_size_list, activation, core, core_hidden_size
        self.memories = nn.ModuleList(
            RecurrentEncoder(spec, *options, **images) for _ in range(1 if share_encoder else 2)
        )
        for memory in self.memories:
            initialise(weight_layers(memory))
        distribution = distribution_for(spec.action_space)
        self.actor = nn.Linear(core_hidden_size, distribution.size)
        self.critic = nn.Linear(core_hidden_size, 1)
        initialise([self.actor], 0.01)
        initialise([self.critic], 1.0)
        self.log_std: nn.Parameter | None = None
        if distribution.log_std_size:
            self.log_std = nn.Parameter(torch.full((distribution.log_std_size,), log_std_init))
        self._parts = STATES_OF_CORE[core]
        self.state_shape = (self._parts * len(self.memories), core_hidden_size)
        """Shape of the recurrent state of an episode: that of the actor's core, then that of the critic's."""

    def act(self, obs: Obs, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Acts one step; of the recurrent state, only the part of the actor's core is read and changed.

        Args:
            obs: Observations, [B, ...].
            state: Recurrent state before the step, float32 [B, P, H].

        Returns:
            The parameters of the action distribution, float32 [B, S], and the recurrent state after the step.
        """
        parts = list(self._split(state))
        output, parts[0] = self.memories[0].step(obs, parts[0])
        return self._complete(self.actor(output)), torch.cat(parts, 1)

    def step(self, obs: Obs, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Acts one step, like ``act``, and lets all cores see it."""
        steps = [
            memory.step(obs, part) for memory, part in zip(self.memories, self._split(state), strict=True)
        ]
        return self._complete(self.actor(steps[0][0])), torch.cat([after for _, after in steps], 1)

    def value_step(self, obs: Obs, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Values single steps; of the recurrent state, only the part of the critic's core is read and changed.

        Args:
            obs: Observations, [B, ...].
            state: Recurrent state before the step, float32 [B, P, H].

        Returns:
            Values, float32 [B], and the recurrent state after the step.
        """
        parts = list(self._split(state))
        output, parts[-1] = self.memories[-1].step(obs, parts[-1])
        return self.critic(output).squeeze(1), torch.cat(parts, 1)

    def forward(self, obs: Obs, unroll: Unroll) -> tuple[torch.Tensor, torch.Tensor]:
        """Maps the observations of sequences, [R, ...], to action parameters float32 [R, S] and values float32 [R]."""
        parts = self._split(unroll.state)
        outputs = [memory(obs, unroll, part) for memory, part in zip(self.memories, parts, strict=True)]
        return self._complete(self.actor(outputs[0])), self.critic(outputs[-1]).squeeze(1)

    def _split(self, state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Returns the state of each core."""
        return state.split(self._parts, 1)

    def _complete(self, output: torch.Tensor) -> torch.Tensor:
        return output if self.log_std is None else torch.cat([output, self.log_std.expand_as(output)], 1)
