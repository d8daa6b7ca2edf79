"""Networks for hybrid actions: a choice and its continuous parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import torch
from torch import nn

from rlframe.data.composite import hybrid_of, parameters_by_choice
from rlframe.data.timestep import EnvSpec
from rlframe.model.core import MLP
from rlframe.model.encoder import Obs, vector_space
from rlframe.model.q_net import QNet
from rlframe.registry import MODEL_REGISTRY


class ChoiceCritic(nn.Module):
    """Values each choice, given the parameters of all of them.

    Args:
        spec: Spaces of the env.
        hidden_sizes: Widths of the hidden layers.
        activation: Nonlinearity behind each.
        by_choice: Which parameters belong to which choice, [A, P]: each choice is valued in a pass of its own, in which
            all other parameters are 0. None: one pass with all parameters values all choices.
        heads: ``dueling`` and ``noisy`` of ``QNet``.
        images: Options of the encoder of images, see ``MLP``.

    Source:
        Bester et al., Multi-Pass Q-Networks for Deep Reinforcement Learning with Parameterised Action Spaces (2019),
        section 4.
    """

    _own: torch.Tensor | None

    def __init__(
        self,
        spec: EnvSpec,
        hidden_sizes: Sequence[int],
        activation: str,
        by_choice: list[list[int]] | None,
        heads: dict[str, bool],
        **images: Any,
    ) -> None:
        super().__init__()
        hybrid: Any = hybrid_of(spec.action_space)
        self.encoder = MLP(spec.observation_space, [], activation, None, **images)
        read = vector_space(self.encoder.out_size + hybrid.parameters)
        inner = EnvSpec(read, gymnasium.spaces.Discrete(hybrid.choices), name=spec.name)
        self.net = QNet(inner, hidden_sizes, activation, **heads)
        own = None if by_choice is None else torch.tensor(by_choice, dtype=torch.float32)
        self.register_buffer('_own', own, persistent=False)

    def forward(self, obs: Obs, parameters: torch.Tensor) -> torch.Tensor:
        """Maps observations [B, ...] and parameters in [-1, 1], float32 [B, P], to values of choices, float32 [B, A]."""
        features = self.encoder(obs)
        if self._own is None:
            value: torch.Tensor = self.net(torch.cat([features, parameters], 1))
            return value
        choices = len(self._own)
        each = parameters.unsqueeze(1) * self._own  # [B, A, P]
        passes = torch.cat([features.unsqueeze(1).expand(-1, choices, -1), each], 2)
        return self.net(passes.flatten(0, 1)).unflatten(0, (-1, choices)).diagonal(dim1=1, dim2=2)


@MODEL_REGISTRY.register('parametrized_q_net')
class ParametrizedQNet(nn.Module):
    """Proposes the parameters of all choices, and values the choices with them.

    ``actor`` maps observations to parameters in [-1, 1], and ``critic`` is a ``ChoiceCritic``; they share nothing.

    With ``multi_pass`` the critic has a pass for each choice, and ``action_mask`` says which parameters belong to which
    choice, see ``parameters_by_choice``; ``dueling`` and ``noisy``: see ``QNet``, ``images``: see ``MLP``.

    Source:
        Xiong et al., Parametrized Deep Q-Networks Learning (2018), section 4.
    """

    def __init__(
        self,
        spec: EnvSpec,
        encoder_hidden_size_list: Sequence[int] = (128, 128, 64),
        activation: str = 'relu',
        dueling: bool = True,
        noisy: bool = False,
        multi_pass: bool = False,
        action_mask: Sequence[Sequence[int]] | None = None,
        **images: Any,
    ) -> None:
        super().__init__()
        space = spec.action_space
        layers = (encoder_hidden_size_list, activation)
        hybrid: Any = hybrid_of(space)
        outputs = hybrid.parameters
        self.actor = MLP(spec.observation_space, *layers, outputs, head=torch.tanh, **images)
        by_choice = parameters_by_choice(space, action_mask) if multi_pass else None
        heads = {'dueling': dueling, 'noisy': noisy}
        self.critic = ChoiceCritic(spec, *layers, by_choice, heads, **images)

    def forward(self, obs: Obs) -> torch.Tensor:
        """Maps observations [B, ...] to the values of choices with the parameters that the actor proposes, float32 [B, A]."""
        value: torch.Tensor = self.critic(obs, self.actor(obs))
        return value
