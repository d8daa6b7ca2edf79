"""MR.Q's networks: features of states and actions that predict what follows, and an actor and critics that read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from rlframe.data.timestep import EnvSpec
from rlframe.model.core import MLP, NormedMLP
from rlframe.model.encoder import Obs, images_of, vector_space
from rlframe.model.qac import action_size
from rlframe.registry import MODEL_REGISTRY

BINS = 65
"""Rewards that a prediction tells apart."""
LARGEST = 10.0
"""Logarithm of the largest of them, about 22,000."""


def reward_bins() -> torch.Tensor:
    """Returns rewards whose symmetric logarithms are equally far apart, float32 [BINS]: sign(x) (exp |x| - 1)."""
    x = torch.linspace(-LARGEST, LARGEST, BINS)
    return x.sign() * x.abs().expm1()


class Representation(nn.Module):
    """Features of states, and of states with actions, from which a linear layer predicts reward, next features and end.

    ``widths`` are those of the layers that read states; the last one is the number of features, F.
    """

    _bins: torch.Tensor

    def __init__(self, spec: EnvSpec, widths: Sequence[int], activation: str, **images: Any) -> None:
        super().__init__()
        size = widths[-1]
        self.register_buffer('_bins', reward_bins(), persistent=False)
        self.state = NormedMLP(spec.observation_space, widths, activation, norm='layer', **images)
        self.action = MLP(vector_space(action_size(spec)), [size // 2], activation)
        self.pair = NormedMLP(
            vector_space(size + self.action.out_size), [size, size], activation, size, norm='layer'
        )
        self.outcome = nn.Linear(size, BINS + size + 1)

    def forward(self, obs: Obs) -> torch.Tensor:
        """Returns the features of states, float32 [B, F]."""
        features: torch.Tensor = self.state(obs)
        return features

    def paired(self, features: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Returns the features of states, by their features, with actions in [-1, 1], [B, A]: float32 [B, F]."""
        pair: torch.Tensor = self.pair(torch.cat([features, self.action(action)], 1))
        return pair

    def predicted(self, pair: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns what follows: logits of the reward [B, BINS], features of the next state [B, F], whether it ends [B]."""
        sizes = [BINS, pair.shape[1], 1]
        reward, features, end = self.outcome(pair).split(sizes, 1)
        return reward, features, end.squeeze(1)

    def reward_loss(self, logit: torch.Tensor, reward: torch.Tensor) -> torch.Tensor:
        """Returns the cross entropy of rewards [B] by logits [B, BINS], which is shared between the two nearest bins: [B]."""
        above = torch.searchsorted(self._bins, reward.contiguous()).clamp_(1, BINS - 1)
        low, high = self._bins[above - 1], self._bins[above]
        share = ((reward - low) / (high - low)).clamp_(0, 1)
        each = -logit.log_softmax(1).gather(1, torch.stack([above - 1, above], 1))
        return (1 - share) * each[:, 0] + share * each[:, 1]


class ValuesOfPairs(nn.Module):
    """Several values of the same features of states with actions."""

    def __init__(self, size: int, activation: str, count: int) -> None:
        super().__init__()
        self.nets = nn.ModuleList(
            NormedMLP(vector_space(size), [size] * 3, activation, 1, norm='layer') for _ in range(count)
        )

    def forward(self, pair: torch.Tensor) -> torch.Tensor:
        """Maps [B, F] to [critics, B]."""
        return torch.stack([net(pair) for net in self.nets]).squeeze(2)


@MODEL_REGISTRY.register('mrq')
class RepresentationQAC(nn.Module):
    """A ``Representation``, the ``encoder``, and an actor and two critics of its features, which are all as wide.

    ``actor`` maps features of states [B, F] to numbers [B, A], which are not squashed yet.

    Source:
        Fujimoto et al., Towards General-Purpose Model-Free Reinforcement Learning (2025), section 4.2 and appendix B.
    """

    def __init__(
        self,
        spec: EnvSpec,
        encoder_hidden_size_list: Sequence[int] = (256, 256, 256),
        activation: str = 'elu',
        **options: Any,
    ) -> None:
        super().__init__()
        images = images_of(options)
        size = encoder_hidden_size_list[-1]
        self.encoder = Representation(spec, encoder_hidden_size_list, activation, **images)
        self.actor = NormedMLP(vector_space(size), [size] * 2, 'relu', action_size(spec), norm='layer')
        self.critic = ValuesOfPairs(size, activation, 2)
        for layer in self.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)  # type: ignore[arg-type]  # each of these has one
