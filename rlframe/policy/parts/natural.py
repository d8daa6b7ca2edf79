"""Natural gradients: steps that a Fisher matrix scales, without the matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlframe.utils.lazy import torch


def slopes(
    value: torch.Tensor, parameters: Sequence[torch.Tensor], create_graph: bool = False, keeps: bool = False
) -> torch.Tensor:
    """Returns the derivatives of a number by all parameters, one behind the other, [P].

    ``create_graph``: whether they have derivatives, too; ``keeps``: whether the graph of the number is used again.
    """
    keeps = keeps or create_graph
    each = torch.autograd.grad(
        value, parameters, retain_graph=keeps, create_graph=create_graph, materialize_grads=True
    )
    return torch.cat([gradient.flatten() for gradient in each])


def move(parameters: Sequence[torch.Tensor], place: torch.Tensor) -> None:
    """Sets all parameters to numbers that stand one behind the other, [P]."""
    for parameter, part in zip(parameters, place.split([p.numel() for p in parameters]), strict=True):
        parameter.copy_(part.view_as(parameter))


def conjugate_gradients(product: Callable[[Any], Any], wanted: torch.Tensor, steps: int) -> torch.Tensor:
    """Returns an x [P] whose product with a symmetric, positive matrix is about ``wanted``.

    Source:
        Hestenes & Stiefel, Methods of Conjugate Gradients for Solving Linear Systems (1952), section 3.
    """
    found = torch.zeros_like(wanted)
    rest = wanted
    direction = wanted
    square = wanted @ wanted
    for _ in range(steps):
        image = product(direction)
        share = square / (direction @ image).clamp(min=1e-30)  # 0 when nothing is left
        found, rest = found + share * direction, rest - share * image
        last = square
        square = rest @ rest
        direction = rest + square / last.clamp(min=1e-30) * direction
    return found


def natural_step(
    loss: torch.Tensor,
    divergence: torch.Tensor,
    parameters: Sequence[torch.Tensor],
    limit: float,
    steps: int,
    damping: float,
) -> torch.Tensor:
    """Returns the step down the natural gradient of a loss, [P], that is as long as a divergence may be.

    Args:
        loss: The loss, with its graph, [].
        divergence: KL divergence of the parameters' distribution from its present self, 0, with its graph, []. Its second
            derivatives are the Fisher matrix.
        parameters: What all derivatives are by.
        limit: Of the divergence, by its second derivatives.
        steps: Of conjugate gradients.
        damping: What is added to the diagonal of the matrix.

    Source:
        Schulman et al., Trust Region Policy Optimization (2015), appendix C.
    """
    gradient = slopes(loss, parameters)
    slope = slopes(divergence, parameters, create_graph=True)

    def product(vector: torch.Tensor) -> torch.Tensor:
        return slopes(slope @ vector, parameters, keeps=True) + damping * vector

    direction = conjugate_gradients(product, -gradient, steps)
    return direction * (2 * limit / (direction @ product(direction))).sqrt()
