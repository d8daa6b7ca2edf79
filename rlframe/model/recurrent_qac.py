"""Actors and Q-critics with a memory each, for discrete actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from rlframe.data.timestep import EnvSpec
from rlframe.model.core import STATES_OF_CORE, RecurrentEncoder, Unroll
from rlframe.model.encoder import Obs
from rlframe.registry import MODEL_REGISTRY


class RecurrentNet(nn.Module):
    """A network with a memory: encoder, core and a linear head.

    Args:
        spec: Spaces of the env; the head has an output for each action.
        options: Further arguments of ``RecurrentEncoder``, in its order.
        images: Options of the encoder of images; see ``MLP``.
    """

    def __init__(self, spec: EnvSpec, *options: Any, **images: Any) -> None:
        super().__init__()
        actions: Any = spec.action_space
        self.memory = RecurrentEncoder(spec, *options, **images)
        self.head = nn.Linear(self.memory.core.state_shape[1], int(actions.n))

    def step(self, obs: Obs, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Maps observations [B, ...] and recurrent states to float32 [B, A], and the states after the step."""
        output, after = self.memory.step(obs, state)
        return self.head(output), after

    def forward(self, obs: Obs, unroll: Unroll, state: torch.Tensor) -> torch.Tensor:
        """Maps the observations of sequences, [R, ...], to float32 [R, A]; see ``Core``."""
        output: torch.Tensor = self.head(self.memory(obs, unroll, state))
        return output


class RecurrentCritics(nn.Module):
    """Several Q-functions with a memory, which share nothing."""

    def __init__(self, nets: Sequence[RecurrentNet]) -> None:
        super().__init__()
        self.nets = nn.ModuleList(nets)

    def forward(self, obs: Obs, unroll: Unroll) -> torch.Tensor:
        """Values the actions of all steps of sequences: observations [R, ...] to float32 [critics, R, A]."""
        own = unroll.state.chunk(len(self.nets) + 1, 1)[1:]  # behind that of the actor
        return torch.stack([net(obs, unroll, state) for net, state in zip(self.nets, own, strict=True)])


@MODEL_REGISTRY.register('recurrent_qac')
class RecurrentQAC(nn.Module):
    """An actor and Q-critics for discrete actions, each with a memory.

    Args:
        spec: Spaces of the env.
        core: 'gru' or 'lstm'.
        core_hidden_size: Units of each core.
        actor: 'categorical': the actor gives logits.
        encoder_hidden_size_list: Widths of the hidden layers in front of each core.
        activation: Nonlinearity behind each.
        critic_num: Critics.
        images: Options of the encoder of images; see ``MLP``.
    """

    def __init__(
        self,
        spec: EnvSpec,
        core: str = 'lstm',
        core_hidden_size: int = 64,
        actor: str = 'categorical',
        encoder_hidden_size_list: Sequence[int] = (256, 256),
        activation: str = 'relu',
        critic_num: int = 2,
        **images: Any,
    ) -> None:
        super().__init__()
        assert actor == 'categorical', actor
        options = encoder_hidden_size_list, activation, core, core_hidden_size
        self.actor = RecurrentNet(spec, *options, **images)
        self.critic = RecurrentCritics([RecurrentNet(spec, *options, **images) for _ in range(critic_num)])
        self.state_shape = (STATES_OF_CORE[core] * (1 + critic_num), core_hidden_size)
        """Shape of the recurrent state of an episode: that of the actor, then those of the critics."""

    def act(self, obs: Obs, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Acts one step; of the recurrent state, only the actor's part is read and changed.

        Args:
            obs: Observations, [B, ...].
            state: Recurrent state before the step, float32 [B, P, H].

        Returns:
            Logits, float32 [B, A], and the recurrent state after the step.
        """
        own, *others = self._split(state)
        logit, after = self.actor.step(obs, own)
        return logit, torch.cat([after, *others], 1)

    def step(self, obs: Obs, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Acts one step, like ``act``, and lets the critics see it."""
        own, *others = self._split(state)
        logit, after = self.actor.step(obs, own)
        critics: Any = self.critic.nets
        seen = [net.memory.step(obs, part)[1] for net, part in zip(critics, others, strict=True)]
        return logit, torch.cat([after, *seen], 1)

    def logit(self, obs: Obs, unroll: Unroll) -> torch.Tensor:
        """Maps the observations of sequences, [R, ...], to logits float32 [R, A]."""
        output: torch.Tensor = self.actor(obs, unroll, self._split(unroll.state)[0])
        return output

    def _split(self, state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Returns the state of each core."""
        return state.chunk(1 + len(self.critic.nets), 1)
