"""GradientHistogramHook: logs histograms of gradients and weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe.registry import HOOK_REGISTRY
from rlframe.utils.field import Field
from rlframe.utils.resolved_config import ResolvedConfig
from rlframe.utils.schema import COUNT, check_state
from rlframe.worker.hooks.run_hook import RunHook
from rlframe.worker.hooks.run_view import RunView


class GradientHistogramConfig(ResolvedConfig):
    """Options of ``GradientHistogramHook``."""

    every: int
    weights: bool


@HOOK_REGISTRY.register('gradient_histogram')
class GradientHistogramHook(RunHook):
    """Logs a histogram of the last gradient of each layer, after clipping, as ``gradient/LAYER``."""

    _cfg: GradientHistogramConfig
    config = dict(
        every=Field(
            1000, range='[1, inf)', unit='train iterations', doc='between two histograms', may_change=True
        ),
        weights=Field(False, doc='whether to log the weights, too, as weight/LAYER', may_change=True),
    )
    in_parallel = False

    def __init__(self, cfg: Mapping[str, Any] | None = None) -> None:
        super().__init__(cfg)
        self._next = 1  # train iteration from which histograms are due

    def after_round(self, run: RunView) -> None:
        if run.progress.train_iter < self._next:
            return
        self._next = run.progress.train_iter + self._cfg.every
        for name, parameter in run.policy.get_attribute('model').named_parameters():
            if parameter.grad is not None:
                run.log_histogram(f'gradient/{name}', parameter.grad.cpu().numpy())
            if self._cfg.weights:
                run.log_histogram(f'weight/{name}', parameter.detach().cpu().numpy())

    def state_dict(self) -> dict[str, Any]:
        return {'next': self._next}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(state, {'next': COUNT})
        self._next = state['next']
