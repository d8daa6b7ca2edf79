"""FiniteGuard: rejects parameter updates that are not finite, at the cost of one fused pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlframe.utils.field import Field
from rlframe.utils.lazy import LazyModule

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule('torch')

READ_EVERY = 100
"""Number of updates between two checks of a GPU's results; each check waits for the GPU."""

NAN_POLICY = Field(
    'raise',
    doc=(
        "what to do if the loss or gradient of an update is not finite: 'raise' ends the run, 'skip' keeps the"
        " parameters and continues, 'ignore' does not check"
    ),
    choices=('raise', 'skip', 'ignore'),
    may_change=True,
)
"""Option ``learn.nan_policy`` of every policy with an optimizer."""


class FiniteGuard:
    """Tells whether loss and gradients are finite.

    On a CPU the result is available at once. On a GPU nothing waits for it: the optimizer step gets it as ``found_inf``
    and is skipped if it is 1; the host reads the number of skipped updates only every ``READ_EVERY`` updates.

    Args:
        device: Device of the parameters.
    """

    def __init__(self, device: torch.device) -> None:
        self._answers_at_once = device.type == 'cpu'
        self._found, self._one = torch.zeros((), device=device), torch.ones((), device=device)
        self._sum = torch.zeros((), device=device)
        self._calls = 0

    def look(self, loss: torch.Tensor, gradients: Sequence[torch.Tensor]) -> int:
        """Looks at an update.

        Returns:
            Number of non-finite updates since the last available result.
        """
        self._found.zero_()
        tensors = [*gradients, loss.detach().view(1)]
        torch._amp_foreach_non_finite_check_and_unscale_(
            tensors, self._found, self._one
        )  # division by 1 changes nothing
        if self._answers_at_once:
            return int(self._found)
        self._sum += self._found
        self._calls += 1
        if self._calls % READ_EVERY:
            return 0
        count = int(self._sum)
        self._sum.zero_()
        return count

    def found(self) -> torch.Tensor:
        """Returns 1 if the update that was last looked at is not finite, else 0."""
        return self._found.clone()

    @property
    def found_inf(self) -> torch.Tensor | None:
        """Flag for the optimizer step: 1 makes it skip the update; None if ``look`` has already decided."""
        return None if self._answers_at_once else self._found
