"""What a network says of the returns of actions: their means, or distributions as atoms or quantiles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, TypeAlias

from rlframe.data.faces import Metrics
from rlframe.utils.lazy import torch

Cost: TypeAlias = 'torch.Tensor | None'


class Fit(NamedTuple):
    """How well an output agrees with its target."""

    loss: torch.Tensor
    """Mean loss of rows, float32 [...]."""
    error: torch.Tensor
    """Error of each row, whose absolute value may become its priority, float32 [..., B]."""
    value: torch.Tensor
    """Mean return by the output, without gradients, float32 [..., B]."""
    wanted: torch.Tensor
    """Mean return by the target, float32 [B]."""

    def metrics(self) -> Metrics:
        """Returns the values to log."""
        return {'q_value': self.value.mean(), 'target_q_value': self.wanted.mean()}


class Output(ABC):
    """The returns of actions by a network, [..., A] or of chosen actions [..., B], with a last axis for distributions.

    Several critics stand along the first axis. Targets have none: float32 [B], of distributions [B, M].
    """

    target_dims = 2
    """Axes of its targets."""

    def __init__(self, value: torch.Tensor) -> None:
        self.value = value

    def gather(self, action: torch.Tensor) -> Output:
        """Selects an action, int64 [B], in each row: [B, A, ...] to [B, ...]."""
        return self.like(chosen(self.value, action))

    def best(self, value: torch.Tensor) -> Output:
        """Selects the action of the highest value, float32 [B, A], in each row: [B, A, ...] to [B, ...]."""
        return self.gather(value.argmax(1))

    def like(self, value: torch.Tensor) -> Output:
        """Returns an output of this kind with other values."""
        return type(self)(value)

    @abstractmethod
    def mean(self) -> torch.Tensor:
        """Returns the mean return of each action."""

    @abstractmethod
    def smallest(self) -> Output:
        """Returns the output of the critic that promises least, [critics, B, ...] to [B, ...]."""

    @abstractmethod
    def target(self, reward: torch.Tensor, discount: torch.Tensor, cost: Cost = None) -> torch.Tensor:
        """Returns what these returns of the next state make of those of the state before.

        ``reward`` and ``discount``, the weight of the next state (0 behind a terminal one), are float32 [B]; so is
        ``cost``, what is subtracted from the return of the next state.
        """

    @abstractmethod
    def fit(self, target: torch.Tensor, weight: torch.Tensor | None = None) -> Fit:
        """Compares the output with a target. ``weight`` is the importance of each row, float32 [B]."""


class Values(Output):
    """Mean returns. ``kappa`` is the error from which the loss grows linearly; None: it is the squared error."""

    target_dims = 1

    def __init__(self, value: torch.Tensor, kappa: float | None = None) -> None:
        self.value, self._kappa = value, kappa

    def like(self, value: torch.Tensor) -> Values:
        return Values(value, self._kappa)

    def mean(self) -> torch.Tensor:
        return self.value

    def best(self, value: torch.Tensor) -> Output:
        # the highest of its own values is selected in one operation
        return self.like(value.amax(1)) if value is self.value else super().best(value)

    def smallest(self) -> Values:
        return self.like(self.value.amin(0))

    def target(self, reward: torch.Tensor, discount: torch.Tensor, cost: Cost = None) -> torch.Tensor:
        value = self.value if cost is None else self.value - cost
        return reward + discount * value

    def fit(self, target: torch.Tensor, weight: torch.Tensor | None = None) -> Fit:
        value = self.value.detach()
        if weight is None and value.dim() == 1:
            # the mean is a part of the same operation
            loss = td_loss(self.value, target, self._kappa, MEAN)
        else:
            losses = td_loss(self.value, target.expand_as(value), self._kappa, NONE)
            loss = mean_of_rows(losses, weight)
        return Fit(loss, target - value, value, target)


class Quantiles(Output):
    """Quantiles of the returns.

    They are at the fractions ``tau``, float32 [B, M], by default the midpoints (2i + 1) / 2M; each stands for the share
    ``width`` of the returns, float32 [B, M], by default the same. The loss grows linearly from the error ``kappa`` on.

    Source:
        Dabney et al., Distributional Reinforcement Learning with Quantile Regression (2018), algorithm 1.
    """

    def __init__(
        self,
        value: torch.Tensor,
        tau: torch.Tensor | None = None,
        width: torch.Tensor | None = None,
        kappa: float = 1.0,
    ) -> None:
        super().__init__(value)
        self.tau, self.width, self._kappa = tau, width, kappa

    def like(self, value: torch.Tensor) -> Quantiles:
        return Quantiles(value, self.tau, self.width, self._kappa)

    def mean(self) -> torch.Tensor:
        return self._mean_of(self.value)

    def _mean_of(self, quantiles: torch.Tensor) -> torch.Tensor:
        """Returns the mean of quantiles at these fractions, [..., M] to [...]."""
        if self.width is None:
            return quantiles.mean(-1)
        width = self.width if quantiles.dim() == 2 else self.width.unsqueeze(1)
        return (width * quantiles).sum(-1)

    def smallest(self) -> Quantiles:
        return self.truncated(0)

    def truncated(self, dropped: int) -> Quantiles:
        """Returns the quantiles of all critics together, [critics, B, M] to [B, K], without the largest ones.

        ``dropped`` are left out for each critic.

        Source:
            Kuznetsov et al., Controlling Overestimation Bias with Truncated Mixture of Continuous Distributional Quantile
            Critics (2020), section 3.
        """
        critics, _, count = self.value.shape
        mixture = self.value.transpose(0, 1).flatten(1)
        kept = mixture.topk(critics * (count - dropped), 1, largest=False, sorted=False).values
        return Quantiles(kept, kappa=self._kappa)

    def target(self, reward: torch.Tensor, discount: torch.Tensor, cost: Cost = None) -> torch.Tensor:
        value = self.value if cost is None else self.value - cost.unsqueeze(-1)
        return reward[:, None] + discount[:, None] * value

    def fit(self, target: torch.Tensor, weight: torch.Tensor | None = None) -> Fit:
        wanted = target.mean(1)
        value = self._mean_of(self.value.detach())
        if self.value.dim() == 2:
            losses = quantile_huber_loss(self.value, target, self._kappa, self.tau)
        else:
            critics = [quantile_huber_loss(own, target, self._kappa, self.tau) for own in self.value]
            losses = torch.stack(critics)
        return Fit(mean_of_rows(losses, weight), wanted - value, value, wanted)


class Atoms(Output):
    """The probabilities of fixed returns.

    ``value`` are their logits, float32 [..., A, M], and ``support`` the returns, in rising order and evenly spaced, float32
    [M].

    Source:
        Bellemare et al., A Distributional Perspective on Reinforcement Learning (2017), algorithm 1. The error is the
        Kullback-Leibler divergence as in Hessel et al., Rainbow (2018).
    """

    def __init__(self, value: torch.Tensor, support: torch.Tensor) -> None:
        super().__init__(value)
        self.support = support

    def like(self, value: torch.Tensor) -> Atoms:
        return Atoms(value, self.support)

    def mean(self) -> torch.Tensor:
        return self.value.softmax(-1) @ self.support

    def smallest(self) -> Atoms:
        least = self.mean().argmin(0)[None, :, None]  # [1, B, 1]
        return self.like(self.value.gather(0, least.expand(1, -1, len(self.support)))[0])

    def target(self, reward: torch.Tensor, discount: torch.Tensor, cost: Cost = None) -> torch.Tensor:
        reward = reward if cost is None else reward - discount * cost
        return project(self.value.softmax(1), reward, discount, self.support)

    def fit(self, target: torch.Tensor, weight: torch.Tensor | None = None) -> Fit:
        log_probability = self.value.log_softmax(-1)  # [..., B, M]
        losses = -(target * log_probability).sum(-1)
        # rounding can make it negative
        divergence = (losses.detach() + target.xlogy(target).sum(-1)).clamp(min=0)
        value = log_probability.detach().exp() @ self.support
        return Fit(mean_of_rows(losses, weight), divergence, value, target @ self.support)


def mean_of_rows(losses: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
    """Returns the mean of losses, [..., B] to [...], by the importance of each row, [B], if there is one."""
    return (losses if weight is None else losses * weight).mean(-1)


def chosen(output: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """Selects a network's output for an action in each row: [B, A, ...] to [B, ...]."""
    action = action.long()
    if output.dim() == 2:
        return output.gather(1, action.unsqueeze(1)).squeeze(1)
    return output[torch.arange(len(action), device=action.device), action]


NONE, MEAN = 0, 1
"""What torch's operations make of losses: leave each, or return their mean."""


def td_loss(value: torch.Tensor, target: torch.Tensor, kappa: float | None, reduction: int) -> torch.Tensor:
    """Returns the squared errors of values, or their Huber losses, half as large at first and linear from kappa on."""
    # torch.nn.functional would broadcast first, which takes as long as the loss
    losses = torch._C._nn
    if kappa is None:
        return losses.mse_loss(value, target, reduction)
    return losses.huber_loss(value, target, reduction, kappa)


def quantile_huber_loss(
    quantiles: torch.Tensor, target: torch.Tensor, kappa: float = 1.0, tau: torch.Tensor | None = None
) -> torch.Tensor:
    """Returns the loss of estimated quantiles against samples of the distribution they are of.

    ``quantiles`` are estimates, float32 [B, M], at the fractions ``tau``, float32 [B, M], by default the midpoints (2i + 1)
    / 2M, and ``target`` samples, float32 [B, K]. The loss grows linearly from the error ``kappa`` on.

    Returns:
        The loss of each row, summed over estimates and averaged over samples, float32 [B].

    Source:
        Dabney et al. (2018), eq. 9 and 10.
    """
    if tau is None:
        count = quantiles.shape[1]
        tau = ((torch.arange(count, device=quantiles.device) + 0.5) / count)[None]  # [1, M]
    # the derivative is known, and autograd would fill a dozen tensors of this size to find it
    with torch.no_grad():
        error = target[:, None, :] - quantiles[:, :, None]  # [B, M, K]
        slope = error.clamp(-kappa, kappa)  # of the Huber loss
        # times |tau - [error < 0]|, which is tau, and 1 - 2 tau more where the slope is negative
        pull = slope.clamp(max=0).mul_(1 - 2 * tau[:, :, None]).addcmul_(slope, tau[:, :, None])
        loss = error.sub_(slope, alpha=0.5).mul_(pull).mean(2) / kappa
        derivative = pull.mean(2) / -kappa
    return (loss + derivative * (quantiles - quantiles.detach())).sum(1)


def project(
    probability: torch.Tensor, reward: torch.Tensor, discount: torch.Tensor, support: torch.Tensor
) -> torch.Tensor:
    """Moves a distribution over ``support`` by reward and discount and distributes it over ``support`` again.

    Each moved value gives its probability to its two neighbours, to the nearer one more; beyond the ends it is clipped.

    Given are the probability of each value in the next state, float32 [B, M], reward and discount, the weight of the next
    state, float32 [B], and the values in rising order, evenly spaced, float32 [M].

    Returns:
        float32 [B, M]; each row sums to 1.

    Source:
        Bellemare et al. (2017), eq. 7.
    """
    # moved values, in units of the distance of atoms; in float64, as float32 rounds atoms far from 0 by a large share of it
    low = support[0].double()
    high = support[-1].double()
    gap = (high - low) / (len(support) - 1)
    first = (reward.double() + (discount.double() - 1) * low) / gap  # [B]
    number = torch.arange(len(support), device=support.device)
    place = (first[:, None] + discount.double()[:, None] * number).clamp(0, len(support) - 1)  # [B, M]
    # the mean of max(x - place, 0) at each atom x, and at one more beyond each end, by sums over the values below
    x = torch.arange(-1, len(support) + 1, dtype=place.dtype, device=place.device)
    below = torch.searchsorted(place, x.repeat(len(place), 1), right=True)  # [B, M + 2]
    share = probability.double()
    pad = torch.nn.functional.pad
    mass = pad(share.cumsum(1), (1, 0)).gather(1, below)
    moment = pad((share * place).cumsum(1), (1, 0)).gather(1, below)
    # its bend at an atom is what the neighbours of that atom give it
    return (x * mass - moment).diff(n=2, dim=1).clamp(min=0).to(probability.dtype)


SPREAD = 0.75
"""Standard deviation of a smoothed return, in units of the distance of atoms."""


def smoothed(value: torch.Tensor, support: torch.Tensor) -> torch.Tensor:
    """Returns a Gaussian around each of some returns as a distribution over ``support``.

    Returns, float32 [B], are clipped at the ends of the support, which are in rising order and evenly spaced, float32 [M]; each
    row of the answer, float32 [B, M], sums to 1.

    Source:
        Farebrother et al., Stop Regressing: Training Value Functions via Classification for Scalable Deep RL (2024), HL-Gauss.
    """
    gap = (support[-1] - support[0]) / (len(support) - 1)
    edges = torch.cat([support - gap / 2, support[-1:] + gap / 2])
    value = value.clamp(support[0], support[-1])
    below = torch.special.erf((edges - value[:, None]) / (SPREAD * gap * 2**0.5))
    share = below.diff(dim=1)
    return share / share.sum(1, keepdim=True)
