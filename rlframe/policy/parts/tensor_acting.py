"""Acting on a policy's device: observations, actions and training samples are tensors there, and none is copied."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlframe.data.faces import TensorMode
from rlframe.data.returns import gae_of_tensors
from rlframe.data.timestep import Batch, EnvSpec
from rlframe.errors import IncompatibleError
from rlframe.policy.parts.actions import float_bounds
from rlframe.policy.parts.normalize import RunningMoments
from rlframe.policy.parts.sequences import flat
from rlframe.utils.lazy import LazyModule

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule('torch')

REPLACED = '_forward_collect', '_process_transition', '_get_train_sample'
"""Methods for arrays whose place ``TensorActing`` takes."""


class TensorActing:
    """Acts and makes training samples on the device of an on-policy policy with an actor and a critic.

    It does the same as the policy's methods for arrays, without a recurrent core, normalisation and action masks. A subclass
    of the policy that changes one of those methods has to define ``_get_tensor_mode`` as well.

    Args:
        policy: Its network, distribution and statistics of returns are used.

    Raises:
        IncompatibleError: If an option or the env needs arrays.
    """

    def __init__(self, policy: Any) -> None:
        self._cfg, self._spec, self._device = policy._cfg, policy._spec, policy._device
        self._model, self._distribution = policy._model, policy._distribution
        self._returns: RunningMoments | None = policy._returns
        self._check(type(policy))
        self._to_env = action_map(self._spec, self._device)

    def mode(self) -> TensorMode:
        """Returns the interface for a collector of tensors."""
        return TensorMode(self._device, self._forward_tensors, self._tensor_samples)

    def _check(self, kind: type) -> None:
        name = kind.__name__
        for key, is_set in (
            ('normalize_obs', self._cfg.normalize_obs),
            ('normalize_reward', self._cfg.normalize_reward),
            ('model.core', self._cfg.model.core is not None),
        ):
            if is_set:
                raise IncompatibleError(
                    f'{name} cannot do it with rows that stay on a device (collector.type=tensor)',
                    where=f'policy.{key}',
                    remedy="collector.type='sample' can.",
                )
        if type(self._spec.observation_space).__name__ != 'Box':
            raise IncompatibleError(
                f'{self._spec.name}: rows that stay on a device (collector.type=tensor) have observations of a Box',
                where='env.env_id',
                got=self._spec.observation_space,
                expected='a Box',
            )
        own = next(cls for cls in kind.__mro__ if '_get_tensor_mode' in vars(cls))
        changed = [method for method in REPLACED if getattr(kind, method) is not getattr(own, method)]
        if changed:
            raise IncompatibleError(
                f'{name} defines {", ".join(changed)}, which rows that stay on a device do not go through',
                where='policy.collect.collector.type',
                got='tensor',
                expected="'sample', or a policy that defines _get_tensor_mode",
            )

    def _forward_tensors(
        self, obs: torch.Tensor, generator: torch.Generator, **settings: Any
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Draws actions for observations [N, ...]."""
        with torch.no_grad():
            logit = self._model.logit(obs)
            action = self._distribution.sample_tensor(logit, generator)
            return self._to_env(action), {'action': action, 'logit': logit}

    def _tensor_samples(self, block: Batch) -> Batch:
        """Turns a block of columns [T, N, ...] into training samples [T * N, ...]."""
        cfg, done = self._cfg.collect, block['terminated'] | block['truncated']
        apart = done.clone()  # rows whose next obs is not the obs of the row below
        apart[-1] = True
        with torch.no_grad():
            value, next_value = self._tensor_values(block, apart)
            next_value.masked_fill_(block['terminated'], 0.0)
            advantage = gae_of_tensors(
                block['reward'], value, next_value, apart, cfg.discount_factor, cfg.gae_lambda
            )
            log_prob, _ = self._distribution.evaluate(flat(block['logit']), flat(block['action']))
        columns = {name: flat(block[name]) for name in ('obs', 'action')}
        return Batch(
            columns,
            log_prob=log_prob,
            advantage=flat(advantage),
            return_=flat(advantage + value),
        )

    def _tensor_values(self, block: Batch, apart: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the values of the obs of each row and of its next obs, in the env's own units, float32 [T, N].

        Args:
            block: The rows.
            apart: True where the next obs of a row is not the obs of the row below, bool [T, N].
        """
        value = self._in_units(self._model.value(flat(block['obs']))).reshape(apart.shape)
        next_value = torch.cat([value[1:], value[-1:]])
        rows = apart.nonzero(as_tuple=True)  # waits for the device, which alone knows their number
        next_value[rows] = self._in_units(self._model.value(block['next_obs'][rows]))
        return value, next_value

    def _in_units(self, value: torch.Tensor) -> torch.Tensor:
        if self._returns is None:
            return value
        return value * float(self._returns.std) + float(self._returns.mean)


def action_map(spec: EnvSpec, device: torch.device) -> Callable[[torch.Tensor], torch.Tensor]:
    """Returns the map from actions as a network means them to those of an env, as that of ``ActionMap``.

    Args:
        spec: Spaces of the env, to which ``ActionMap`` can map.
        device: Device of the actions.
    """
    space: Any = spec.action_space
    shape = tuple(space.shape or ())
    dtype: torch.dtype = getattr(torch, str(space.dtype))
    if type(space).__name__ != 'Box':
        start = torch.as_tensor(getattr(space, 'start', 0), dtype=dtype, device=device)
        return lambda action: action.reshape(-1, *shape).to(dtype) + start
    low, high = (torch.as_tensor(bound, device=device) for bound in float_bounds(space))
    half, is_integer = (high - low) / 2, not dtype.is_floating_point

    def to_env(action: torch.Tensor) -> torch.Tensor:
        unit = action.reshape(-1, *shape).to(low.dtype).clamp(-1.0, 1.0)
        scaled = torch.minimum(low + (unit + 1.0) * half, high)
        return (scaled.round() if is_integer else scaled).to(dtype)

    return to_env
