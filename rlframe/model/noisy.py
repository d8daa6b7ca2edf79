"""Linear layers that explore by noise in their weights."""

from __future__ import annotations

import math

import torch
from torch import nn

SIGMA = 0.5
"""Noise of a new layer, times the square root of its inputs."""


class NoisyLinear(nn.Module):
    """A linear layer whose weights are sampled at every training pass, and are their means otherwise.

    The noise comes from torch's global generator, which is part of every checkpoint.

    Args:
        in_features: Inputs.
        out_features: Outputs.

    Source:
        Fortunato et al., Noisy Networks for Exploration (2018), factorised Gaussian noise, eq. 10 and 11.
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        bound, sigma = 1 / math.sqrt(in_features), SIGMA / math.sqrt(in_features)
        self.weight_mean = nn.Parameter(torch.empty(out_features, in_features).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((out_features, in_features), sigma))
        self.bias_mean = nn.Parameter(torch.empty(out_features).uniform_(-bound, bound))
        self.bias_sigma = nn.Parameter(torch.full((out_features,), sigma))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Maps [B, in_features] to [B, out_features]; one draw for the whole batch."""
        if not self.training:
            return nn.functional.linear(features, self.weight_mean, self.bias_mean)
        out_size, in_size = self.weight_mean.shape
        noise = torch.randn(in_size + out_size, device=features.device)
        noise = noise.sign() * noise.abs().sqrt()
        of_in, of_out = noise[:in_size], noise[in_size:]
        weight = torch.addcmul(self.weight_mean, self.weight_sigma, torch.outer(of_out, of_in))
        return nn.functional.linear(features, weight, torch.addcmul(self.bias_mean, self.bias_sigma, of_out))
