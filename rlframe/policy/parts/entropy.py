"""EntropyWeight: what the entropy of an actor is worth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe.data.faces import Metrics
from rlframe.policy.parts.optim import Optimizer
from rlframe.utils.lazy import torch
from rlframe.utils.schema import check_state, tensor_like


class EntropyWeight:
    """The weight of an actor's entropy, alpha: a constant, or learned so that the entropy is near a target.

    ``cfg`` is the section ``learn`` of the policy, ``target`` the entropy to aim at, in nats, if the section sets none.

    Source:
        Haarnoja et al. (2018), eq. 18; it is learned by its logarithm, as the authors' code does.
    """

    def __init__(self, cfg: Any, target: float, device: torch.device) -> None:
        self.is_learned = cfg.alpha == 'auto'
        alpha = cfg.init_alpha if self.is_learned else cfg.alpha
        self.value = torch.tensor(float(alpha), device=device)
        """Alpha, float32 []."""
        self.target = target if cfg.target_entropy is None else cfg.target_entropy
        """Entropy to aim at, in nats."""
        self._log = torch.nn.Parameter(self.value.log())
        options = {name: cfg[name] for name in ('learning_rate_alpha', 'nan_policy')}
        self.optimizer = Optimizer(
            torch.nn.ParameterDict({'log_alpha': self._log}),
            options | {'grad_clip_norm': None},
            'learning_rate_alpha',
        )

    def update(self, metrics: Metrics) -> Metrics:
        """Moves alpha by the entropy of a batch, a value to log of the actor; returns the alpha that it was.

        A ``target_entropy`` among the values takes the place of the common one, and is not logged.
        """
        alpha = self.value.clone()
        target = metrics.pop('target_entropy', self.target)
        if self.is_learned:
            self.optimizer.step(self._log * (metrics['entropy'] - target))
            self.value.copy_(self._log.detach().exp())
        return {'alpha': alpha}

    def state_dict(self) -> dict[str, Any]:
        """Returns its logarithm, if it is learned."""
        return {'log_alpha': self._log.detach().clone()} if self.is_learned else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        if self.is_learned:
            check_state(state, {'log_alpha': tensor_like(self._log)})
            self._log.detach().copy_(state['log_alpha'])
            self.value.copy_(self._log.detach().exp())
