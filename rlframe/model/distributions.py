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
        return self.mode_tensor(torch.from_numpy(logit)).numpy()

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

        ``logit`` is the output of the network, float32 [B, S]; actions are as ``sample`` draws them, [B, ...].
        """

    def each(self, logit: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns what ``evaluate`` does for each of the K independent numbers of an action, float32 [K, B]."""
        log_prob, entropy = self.evaluate(logit, action)
        return log_prob[None], entropy[None]

    @abstractmethod
    def divergence(self, logit: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """Returns the KL divergence of ``other`` from ``logit``, E[log p - log q] over p, of each row: [B, S] each to [B]."""


class Categorical(ActionDistribution):
    """One of ``count`` classes."""

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

    def divergence(self, logit: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        log_probs = torch.log_softmax(logit, 1)
        return (log_probs.exp() * (log_probs - torch.log_softmax(other, 1))).sum(1)


class MultiCategorical(ActionDistribution):
    """One class of each of several kinds, drawn independently: actions int64 [n, K]."""

    def __init__(self, counts: list[int]) -> None:
        self.size = sum(counts)
        self._counts = counts

    def sample(self, logit: FloatArray, rng: np.random.Generator) -> Array:
        return self.mode(perturbed(logit, rng))

    def sample_tensor(self, logit: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return self.mode_tensor(perturbed_tensor(logit, generator))

    def mode_tensor(self, logit: torch.Tensor) -> torch.Tensor:
        return torch.stack([part.argmax(1) for part in logit.split(self._counts, 1)], 1)

    def each(self, logit: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        parts = [torch.log_softmax(part, 1) for part in logit.split(self._counts, 1)]
        action = action.long()
        log_prob = [part.gather(1, action[:, k : k + 1]).squeeze(1) for k, part in enumerate(parts)]
        entropy = [-(part.exp() * part).sum(1) for part in parts]
        return torch.stack(log_prob), torch.stack(entropy)

    def evaluate(self, logit: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        log_prob, entropy = self.each(logit, action)
        return log_prob.sum(0), entropy.sum(0)

    def divergence(self, logit: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        pairs = zip(logit.split(self._counts, 1), other.split(self._counts, 1), strict=True)
        return torch.stack([Categorical(p.shape[1]).divergence(p, q) for p, q in pairs]).sum(0)


class Bernoulli(ActionDistribution):
    """Independent switches: actions int8 [n, K], 1 with probability sigmoid(logit)."""

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

    def divergence(self, logit: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        log = torch.nn.functional.logsigmoid
        each = [log(sign * logit).exp() * (log(sign * logit) - log(sign * other)) for sign in (1, -1)]
        return torch.stack(each).sum((0, 2))


class DiagonalGaussian(ActionDistribution):
    """Independent normal distributions: actions float32 [n, D].

    Behind the network's D means stand D logarithms of standard deviations, which are the same for all observations and
    belong to the model: S is 2 D.
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

    def _surprise(self, logit: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns minus the log-density, and the entropy, of each number, float32 [B, D]."""
        mean, log_std = logit.split(self.size, 1)
        log_std = log_std.clamp(*LOG_STD_RANGE)
        distance = (action - mean) * (-log_std).exp()
        return 0.5 * distance.square() + log_std + HALF_LOG_TAU, log_std + 0.5 + HALF_LOG_TAU

    def each(self, logit: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        surprise, entropy = self._surprise(logit, action)
        return -surprise.T, entropy.T

    def evaluate(self, logit: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        surprise, entropy = self._surprise(logit, action)
        return -surprise.sum(1), entropy.sum(1)

    def divergence(self, logit: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        mean, log_std = logit.split(self.size, 1)
        other_mean, other_log_std = other.split(self.size, 1)
        log_std = log_std.clamp(*LOG_STD_RANGE)
        other_log_std = other_log_std.clamp(*LOG_STD_RANGE)
        distance = (log_std.exp().square() + (mean - other_mean).square()) * (-2 * other_log_std).exp()
        return (other_log_std - log_std + 0.5 * (distance - 1)).sum(1)


class Product(ActionDistribution):
    """An independent distribution of each part of a ``Composite``: actions float32 [n, K], the parts' one after the other.

    The logits that masks may forbid are the first ones, those of MultiBinary and Box parts follow, and behind all stand the
    logarithms of the Boxes' standard deviations.

    ``sizes`` are the numbers of each part's actions, and ``is_class`` says whether a part is Discrete or MultiDiscrete.
    ``choice`` is a Discrete part whose classes have parameters, and of each part the class that it parameterizes.
    Parameters count only if their class is chosen, so log-probabilities and entropies are those of what the env executes.
    """

    def __init__(
        self,
        parts: list[ActionDistribution],
        sizes: list[int],
        is_class: list[bool],
        choice: tuple[int, list[int | None]] | None = None,
    ) -> None:
        self._parts, self._sizes = parts, sizes
        self._choice, self._classes = choice or (0, [None] * len(parts))
        self.size = sum(part.size for part in parts)
        self.log_std_size = sum(part.log_std_size for part in parts)
        order = sorted(range(len(parts)), key=lambda i: not is_class[i])
        self._at: list[list[slice]] = [[] for _ in parts]  # of the logits, and of the standard deviations
        begin = 0
        for count in ('size', 'log_std_size'):
            for i in order:
                if width := getattr(parts[i], count):
                    self._at[i].append(slice(begin, begin + width))
                    begin += width

    def _logits(self, logit: Any) -> list[Any]:
        """Returns the parameters of each part, of an array or a tensor, [n, ...]."""
        join = torch.cat if isinstance(logit, torch.Tensor) else np.concatenate
        each = [[logit[:, at] for at in places] for places in self._at]
        return [of[0] if len(of) == 1 else join(of, 1) for of in each]

    def sample(self, logit: FloatArray, rng: np.random.Generator) -> Array:
        each = zip(self._parts, self._logits(logit), strict=True)
        drawn = [part.sample(own, rng) for part, own in each]
        drawn = [a.reshape(len(logit), size) for a, size in zip(drawn, self._sizes, strict=True)]
        return np.concatenate(drawn, 1, dtype=np.float32)

    def sample_tensor(self, logit: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        each = zip(self._parts, self._logits(logit), strict=True)
        return self._joined([part.sample_tensor(own, generator) for part, own in each])

    def mode_tensor(self, logit: torch.Tensor) -> torch.Tensor:
        each = zip(self._parts, self._logits(logit), strict=True)
        return self._joined([part.mode_tensor(own) for part, own in each])

    @staticmethod
    def _joined(each: list[torch.Tensor]) -> torch.Tensor:
        return torch.cat(
            [action.flatten(1) if action.dim() > 1 else action[:, None] for action in each], 1
        ).float()

    def evaluate(self, logit: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        log_probs, entropies = [], []
        logits = self._logits(logit)
        columns = action.split(self._sizes, 1)
        for part, own, column, k in zip(self._parts, logits, columns, self._classes, strict=True):
            log_prob, entropy = part.evaluate(own, column[:, 0] if isinstance(part, Categorical) else column)
            if k is not None:
                log_prob = torch.where(columns[self._choice][:, 0] == k, log_prob, 0.0)
                entropy = entropy * torch.softmax(logits[self._choice], 1)[:, k]
            log_probs.append(log_prob)
            entropies.append(entropy)
        return torch.stack(log_probs).sum(0), torch.stack(entropies).sum(0)

    def divergence(self, logit: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        each = []
        logits = self._logits(logit)
        for part, own, its, k in zip(self._parts, logits, self._logits(other), self._classes, strict=True):
            found = part.divergence(own, its)
            each.append(found if k is None else found * torch.softmax(logits[self._choice], 1)[:, k])
        return torch.stack(each).sum(0)


def perturbed(logit: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Adds Gumbel noise to logits [n, S]: the largest of a row is then a draw from the softmax of the row.

    Source:
        Gumbel, Statistical Theory of Extreme Values and Some Practical Applications (1954), the Gumbel-max trick.
    """
    noise = rng.standard_exponential(logit.shape, np.float32)
    # once in millions of draws it is 0, which would pick a forbidden action
    np.maximum(noise, SMALLEST, out=noise)
    return logit - np.log(noise, out=noise)


def perturbed_tensor(logit: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Computes ``perturbed`` on the device of logits [B, S] and generator."""
    noise = torch.empty_like(logit).exponential_(generator=generator)
    return logit - noise.clamp_(min=float(SMALLEST)).log_()


def distribution_for(space: Any, parameters_of_choice: bool = False) -> ActionDistribution:
    """Returns the distribution over the actions of a space.

    ``parameters_of_choice``: whether parts of it are parameters of a choice; see ``choice_of``.

    Raises:
        IncompatibleError: If the type of space is unsupported, or has no parameters of a choice.
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
    if kind == 'Composite':
        from rlframe.data.composite import choice_of

        parts = list(space.parts.values())
        is_class = [type(part).__name__ in ('Discrete', 'MultiDiscrete') for part in parts]
        choice = choice_of(space) if parameters_of_choice else None
        return Product([distribution_for(part) for part in parts], space.sizes, is_class, choice)
    raise IncompatibleError(
        f'there is no distribution over the actions of {space!r}',
        where='policy.type',
        got=kind,
        expected='Discrete, Box, MultiDiscrete, MultiBinary, or a Dict or Tuple of them',
    )
