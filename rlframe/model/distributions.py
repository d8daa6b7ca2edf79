"""Distributions over actions: the number of network outputs for an action space, and their interpretation.

Actions are those of the network: classes counted from 0, and real numbers in units of [-1, 1] that are not clipped.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from rlframe.data.timestep import Array, FloatArray
from rlframe.errors import IncompatibleError
from rlframe.utils.lazy import torch

LOG_STD_RANGE = -20.0, 2.0
"""Logarithms of standard deviations are kept in here, so that neither they nor log-probabilities overflow."""
SMALLEST = np.finfo(np.float32).tiny
HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


class ActionDistribution(ABC):
    """Interprets the ``S`` outputs of a network as a distribution over actions.

    Collection uses numpy and the given generator, or torch and one of its generators where envs are on a device; everything
    with a gradient uses torch. A forbidden action has a very negative, finite logit.
    """

    size: int
    """Outputs that the network has to give."""
    log_std_size = 0
    """Logarithms of standard deviations that stand behind them, the same for every observation."""

    @abstractmethod
    def sample(self, logit: FloatArray, rng: np.random.Generator) -> Array:
        """Draws an action of each row: [n, S] to [n, ...]."""

    @abstractmethod
    def sample_tensor(self, logit: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Draws an action of each row on the device of logits and generator: [B, S] to [B, ...]."""

    def mode(self, logit: FloatArray) -> Array:
        """Returns the most probable action of each row: [n, S] to [n, ...]."""
        action: Array = self.mode_tensor(torch.from_numpy(logit)).numpy()
        return action

    @abstractmethod
    def mode_tensor(self, logit: torch.Tensor) -> torch.Tensor:
        """Computes ``mode`` as a part of a torch graph: [B, S] to [B, ...]."""

    def log_prob(self, logit: FloatArray, action: Array) -> FloatArray:
        """Returns the log-probability (or log-density) of each row's action, float32 [n]."""
        with torch.inference_mode():
            return self.evaluate(torch.from_numpy(logit), torch.from_numpy(action))[0].numpy()

    @abstractmethod
    def evaluate(self, logit: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the log-probability (or log-density) of each row's action, and each row's entropy, float32 [B].

        Args:
            logit: Output of the network, float32 [B, S].
            action: Actions as ``sample`` draws them, [B, ...].
        """


class Categorical(ActionDistribution):
    """One of ``count`` classes.

    Args:
        count: Number of classes.
    """

    def __init__(self, count: int) -> None:
        self.size = count

    def sample(self, logit: FloatArray, rng: np.random.Generator) -> Array:
        """Draws by the Gumbel-max trick: int64 [n]."""
        return perturbed(logit, rng).argmax(1)

    def sample_tensor(self, logit: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return self.mode_tensor(perturbed_tensor(logit, generator))

    def mode_tensor(self, logit: torch.Tensor) -> torch.Tensor:
        return logit.argmax(1)

    def log_prob(self, logit: FloatArray, action: Array) -> FloatArray:
        logit = logit - logit.max(1, keepdims=True)
        log_probs = logit - np.log(np.exp(logit).sum(1, keepdims=True))
        return np.take_along_axis(log_probs, action[:, None], 1)[:, 0]

    def evaluate(self, logit: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        log_probs = torch.log_softmax(logit, 1)  # [B, A]
        log_prob = log_probs.gather(1, action.long().unsqueeze(1)).squeeze(1)
        return log_prob, -(log_probs.exp() * log_probs).sum(1)


class MultiCategorical(ActionDistribution):
    """One class of each of several kinds, drawn independently: actions int64 [n, K].

    Args:
        counts: Number of classes of each kind, [K].
    """

    def __init__(self, counts: list[int]) -> None:
        self.size, self._counts = sum(counts), counts

    def sample(self, logit: FloatArray, rng: np.random.Generator) -> Array:
        return self.mode(perturbed(logit, rng))

    def sample_tensor(self, logit: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return self.mode_tensor(perturbed_tensor(logit, generator))

    def mode_tensor(self, logit: torch.Tensor) -> torch.Tensor:
        return torch.stack([part.argmax(1) for part in logit.split(self._counts, 1)], 1)

    def evaluate(self, logit: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        parts = [torch.log_softmax(part, 1) for part in logit.split(self._counts, 1)]
        action = action.long()
        log_prob = [part.gather(1, action[:, k : k + 1]).squeeze(1) for k, part in enumerate(parts)]
        entropy = [-(part.exp() * part).sum(1) for part in parts]
        return torch.stack(log_prob).sum(0), torch.stack(entropy).sum(0)


class Bernoulli(ActionDistribution):
    """Independent switches: actions int8 [n, K], 1 with probability sigmoid(logit).

    Args:
        count: Number of switches, K.
    """

    def __init__(self, count: int) -> None:
        self.size = count

    def sample(self, logit: FloatArray, rng: np.random.Generator) -> Array:
        """Draws by comparing logits with logistic noise."""
        uniform = rng.random(logit.shape)
        return (logit > np.log(uniform) - np.log1p(-uniform)).astype(np.int8)

    def sample_tensor(self, logit: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        uniform = torch.rand(logit.shape, generator=generator, device=logit.device, dtype=logit.dtype)
        return self.mode_tensor(logit - uniform.log() + (-uniform).log1p())

    def mode_tensor(self, logit: torch.Tensor) -> torch.Tensor:
        return (logit > 0).to(torch.int8)

    def evaluate(self, logit: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        log_on, log_off = torch.nn.functional.logsigmoid(logit), torch.nn.functional.logsigmoid(-logit)
        log_prob = torch.where(action > 0, log_on, log_off).sum(1)
        return log_prob, -(log_on.exp() * log_on + log_off.exp() * log_off).sum(1)


class DiagonalGaussian(ActionDistribution):
    """Independent normal distributions: actions float32 [n, D].

    Behind the network's D means stand D logarithms of standard deviations, which are the same for all observations and
    belong to the model: S is 2 D.

    Args:
        count: Number of dimensions, D.
    """

    def __init__(self, count: int) -> None:
        self.size = self.log_std_size = count

    def sample(self, logit: FloatArray, rng: np.random.Generator) -> Array:
        noise = rng.standard_normal((len(logit), self.size), np.float32)
        return logit[:, : self.size] + np.exp(logit[:, self.size :].clip(*LOG_STD_RANGE)) * noise

    def sample_tensor(self, logit: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        mean, log_std = logit.split(self.size, 1)
        noise = torch.randn(mean.shape, generator=generator, device=logit.device, dtype=logit.dtype)
        return mean + log_std.clamp(*LOG_STD_RANGE).exp() * noise

    def mode_tensor(self, logit: torch.Tensor) -> torch.Tensor:
        return logit[:, : self.size]

    def evaluate(self, logit: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_std = logit.split(self.size, 1)
        log_std = log_std.clamp(*LOG_STD_RANGE)
        distance = (action - mean) * (-log_std).exp()
        log_prob = -(0.5 * distance.square() + log_std + HALF_LOG_TAU).sum(1)
        return log_prob, (log_std + 0.5 + HALF_LOG_TAU).sum(1)


def perturbed(logit: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Adds Gumbel noise to logits [n, S]: the largest of a row is then a draw from the softmax of the row.

    Source:
        Gumbel, Statistical Theory of Extreme Values and Some Practical Applications (1954), the Gumbel-max trick.
    """
    noise = rng.standard_exponential(logit.shape, np.float32)
    # once in millions of draws it is 0, which would pick a forbidden action
    np.maximum(noise, SMALLEST, out=noise)
    noisy: FloatArray = logit - np.log(noise, out=noise)
    return noisy


def perturbed_tensor(logit: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Computes ``perturbed`` on the device of logits [B, S] and generator."""
    noise = torch.empty_like(logit).exponential_(generator=generator)
    return logit - noise.clamp_(min=float(SMALLEST)).log_()


def distribution_for(space: Any) -> ActionDistribution:
    """Returns the distribution over the actions of a space.

    Raises:
        IncompatibleError: If the type of space is unsupported.
    """
    kind = type(space).__name__
    if kind == 'Discrete':
        return Categorical(int(space.n))
    if kind == 'MultiDiscrete':
        return MultiCategorical([int(count) for count in space.nvec.flat])
    if kind == 'MultiBinary':
        return Bernoulli(math.prod(space.shape))
    if kind == 'Box':
        return DiagonalGaussian(math.prod(space.shape))
    raise IncompatibleError(
        f'there is no distribution over the actions of {space!r}',
        where='policy.type',
        got=kind,
        expected='Discrete, Box, MultiDiscrete or MultiBinary',
    )
