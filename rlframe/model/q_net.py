"""Q-networks: the value of every action of a discrete space, or a distribution of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from torch import nn

from rlframe.data.observation import mask_parts
from rlframe.data.timestep import EnvSpec
from rlframe.model.core import MLP, NoisyLinear, NormedMLP, RecurrentEncoder, Unroll
from rlframe.model.encoder import Obs
from rlframe.registry import MODEL_REGISTRY


@MODEL_REGISTRY.register('q_net')
class QNet(nn.Module):
    """Encoder and a head that values each action.

    With ``dueling`` value and advantage have heads of their own, and with ``noisy`` heads explore by noise in their
    weights. ``atoms`` numbers describe the return of an action: 1 is its mean, more are a distribution. ``norm`` 'layer' is
    a norm of the hidden layers, see ``NormedMLP``; ``images``: options of the encoder of images, see ``MLP``.

    Source:
        Dueling: Wang et al., Dueling Network Architectures for Deep Reinforcement Learning (2016), eq. 9; for
        distributions as in Hessel et al., Rainbow (2018), atom by atom.
    """

    has_heads = False
    """Whether the encoder ends before the outputs, even with a single linear head."""

    def __init__(
        self,
        spec: EnvSpec,
        encoder_hidden_size_list: Sequence[int] = (128, 128, 64),
        activation: str = 'relu',
        dueling: bool = True,
        atoms: int = 1,
        noisy: bool = False,
        norm: Literal[None, 'layer'] = None,
        **images: Any,
    ) -> None:
        super().__init__()
        space: Any = spec.action_space
        self._actions = int(space.n)
        self._atoms = atoms
        is_plain = not dueling and not noisy and not self.has_heads
        size = self._actions * atoms
        last = size if is_plain else None
        kind, options = (NormedMLP, images | {'norm': norm}) if norm else (MLP, images)
        self.encoder = kind(spec.observation_space, encoder_hidden_size_list, activation, last, **options)
        linear = NoisyLinear if noisy else nn.Linear
        self.advantage_head = None if is_plain else linear(self.encoder.out_size, size)
        self.value_head = linear(self.encoder.out_size, atoms) if dueling else None

    def forward(self, obs: Obs) -> torch.Tensor:
        """Maps observations [B, ...] to values float32 [B, A], or with several atoms to [B, A, atoms]."""
        features = self.encoder(obs)
        value = features if self.advantage_head is None else self.advantage_head(features)
        if self._atoms > 1:
            value = value.unflatten(1, (self._actions, self._atoms))
        if self.value_head is None:
            return value
        state_value = self.value_head(features)
        state_value = state_value if self._atoms == 1 else state_value.unsqueeze(1)
        return value - value.mean(1, keepdim=True) + state_value


@MODEL_REGISTRY.register('implicit_q_net')
class ImplicitQNet(QNet):
    """Encoder and a head that gives the quantile of each action's return at any fraction.

    ``atoms`` fractions at even distances are those at which it gives quantiles by default; a fraction is read as
    ``embedding_size`` cosines. ``options`` are further arguments of ``QNet``.

    Source:
        Dabney et al., Implicit Quantile Networks for Distributional Reinforcement Learning (2018), eq. 4.
    """

    has_heads = True
    _waves: torch.Tensor
    _midpoints: torch.Tensor

    def __init__(self, spec: EnvSpec, atoms: int = 32, embedding_size: int = 64, **options: Any) -> None:
        super().__init__(spec, **options)
        self.embedding = nn.Linear(embedding_size, self.encoder.out_size)
        self.register_buffer('_waves', math.pi * torch.arange(embedding_size), persistent=False)
        self.register_buffer('_midpoints', (torch.arange(atoms)[None] + 0.5) / atoms, persistent=False)

    def forward(self, obs: Obs, tau: torch.Tensor | None = None) -> torch.Tensor:
        """Maps observations [B, ...] to quantiles of each action's return, float32 [B, A, N].

        ``tau`` are fractions in [0, 1], float32 [B, N]; None: those at even distances.
        """
        return self.quantiles(self.encoder(obs), self._midpoints if tau is None else tau)

    def quantiles(self, features: torch.Tensor, tau: torch.Tensor) -> torch.Tensor:
        """Maps the output of the encoder, float32 [B, F], to quantiles at fractions, float32 [B, A, N]."""
        assert self.advantage_head is not None
        cosines = (tau.unsqueeze(2) * self._waves).cos()
        features = features.unsqueeze(1) * self.embedding(cosines).relu()  # [B, N, F]
        value: torch.Tensor = self.advantage_head(features)  # [B, N, A]
        if self.value_head is not None:
            value = value - value.mean(2, keepdim=True) + self.value_head(features)
        return value.transpose(1, 2)


@MODEL_REGISTRY.register('fraction_q_net')
class FractionQNet(ImplicitQNet):
    """An implicit Q-network that proposes the fractions for each state, even ones in the beginning.

    Args:
        spec: Spaces of the env.
        atoms: Fractions that it proposes.
        options: Further arguments of ``ImplicitQNet``.

    Source:
        Yang et al., Fully Parameterized Quantile Function for Distributional Reinforcement Learning (2019), section 3.3.
    """

    def __init__(self, spec: EnvSpec, atoms: int = 32, **options: Any) -> None:
        super().__init__(spec, atoms, **options)
        self.fractions = nn.Linear(self.encoder.out_size, atoms)
        nn.init.zeros_(self.fractions.weight)
        nn.init.zeros_(self.fractions.bias)

    def propose(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Divides [0, 1] into N parts, by the output of the encoder, float32 [B, F].

        Returns:
            Edges between the parts, float32 [B, N - 1], their middles and their widths, float32 [B, N].
        """
        width = self.fractions(features).softmax(1)
        edge = width.cumsum(1)
        return edge[:, :-1], edge - width / 2, width

    def forward(self, obs: Obs, tau: torch.Tensor | None = None) -> torch.Tensor:
        """Maps observations [B, ...] to quantiles of each action's return, float32 [B, A, N]; by default at its own middles."""
        features = self.encoder(obs)
        return self.quantiles(features, self.propose(features)[1] if tau is None else tau)


@MODEL_REGISTRY.register('twin_q_net')
class TwinQNet(nn.Module):
    """Two Q-networks with weights of their own, the lower of whose values counts.

    Args:
        spec: Spaces of the env.
        options: Further arguments of each ``QNet``.
    """

    def __init__(self, spec: EnvSpec, **options: Any) -> None:
        super().__init__()
        self.critics = nn.ModuleList(QNet(spec, **options) for _ in range(2))

    def forward(self, obs: Obs) -> torch.Tensor:
        """Maps observations [B, ...] to the lower values of actions, float32 [B, A]."""
        return self.both(obs).amin(0)

    def both(self, obs: Obs) -> torch.Tensor:
        """Maps observations [B, ...] to the values by both, float32 [2, B, A]."""
        return torch.stack([critic(obs) for critic in self.critics])


@MODEL_REGISTRY.register('branching_q_net')
class BranchingQNet(QNet):
    """A Q-network for several choices: one shared encoder, a head for each choice, and a head for the state value.

    With ``dueling`` the values of a choice have the mean that the state's head gives. The gradient that reaches the encoder
    is divided by the number of heads.

    Args:
        spec: Spaces of the env; its actions are Discrete or MultiDiscrete.
        options: Further arguments of ``QNet``.

    Source:
        Tavakoli et al., Action Branching Architectures for Deep Reinforcement Learning (2018), figure 2, eq. 1, section
        'Gradient Rescaling'.
    """

    has_heads = True

    def __init__(self, spec: EnvSpec, **options: Any) -> None:
        counts = mask_parts(spec.action_space)
        together = gymnasium.spaces.Discrete(sum(counts))
        super().__init__(dataclasses.replace(spec, action_space=together), **options)
        self._counts = counts

    def forward(self, obs: Obs) -> torch.Tensor:
        """Maps observations [B, ...] to the values of each choice's actions, one choice after the other: float32 [B, S]."""
        assert self.advantage_head is not None
        features = self.encoder(obs)
        features = features.detach().lerp(features, 1 / (1 + len(self._counts)))
        value: torch.Tensor = self.advantage_head(features)
        if self.value_head is None:
            return value
        each = [part - part.mean(1, keepdim=True) for part in value.split(self._counts, 1)]
        return torch.cat(each, 1) + self.value_head(features)


@MODEL_REGISTRY.register('recurrent_q_net')
class RecurrentQNet(nn.Module):
    """Computes the values of each step's actions from the memory of the previous steps.

    ``core`` is 'lstm' or 'gru'; ``dueling``, ``noisy`` and ``images``: see ``QNet``.

    Source:
        Kapturowski et al., Recurrent Experience Replay in Distributed Reinforcement Learning (2019), section 2.3.
    """

    def __init__(
        self,
        spec: EnvSpec,
        encoder_hidden_size_list: Sequence[int] = (128, 64),
        activation: str = 'relu',
        lstm_hidden_size: int = 64,
        dueling: bool = True,
        noisy: bool = False,
        core: str = 'lstm',
        **images: Any,
    ) -> None:
        super().__init__()
        sizes = encoder_hidden_size_list
        self.memory = RecurrentEncoder(spec, sizes, activation, core, lstm_hidden_size, **images)
        output = gymnasium.spaces.Box(-1, 1, (lstm_hidden_size,), np.float32)
        self.head = QNet(
            EnvSpec(output, spec.action_space, name=spec.name), [], activation, dueling, 1, noisy
        )
        self.state_shape = self.memory.core.state_shape
        """Shape of the recurrent state of an episode."""

    def step(self, obs: Obs, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Maps observations [B, ...] and recurrent states to values, float32 [B, A], and the states after the step."""
        output, after = self.memory.step(obs, state)
        return self.head(output), after

    act = step

    def forward(self, obs: Obs, unroll: Unroll) -> torch.Tensor:
        """Maps the observations of sequences, [R, ...], to values, float32 [R, A]; see ``Core``."""
        values: torch.Tensor = self.head(self.memory(obs, unroll, unroll.state))
        return values
