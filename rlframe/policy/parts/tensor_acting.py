"""Acting on a policy's device: observations, actions and training samples are tensors there, and none is copied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlframe.data.faces import TensorMode
from rlframe.data.returns import gae_of_tensors
from rlframe.data.timestep import Batch, EnvSpec
from rlframe.errors import IncompatibleError
from rlframe.policy.parts.actions import float_bounds
from rlframe.policy.parts.normalize import RunningMoments
from rlframe.policy.parts.sequences import apart_rows, flat
from rlframe.utils.lazy import torch

REPLACED = 'forward_collect', 'process_transition', 'get_train_sample', 'sample_columns'
"""Methods and parts for arrays whose place ``TensorActing`` takes."""


def changed_methods(kind: type) -> list[str]:
    """Returns the methods for arrays that a policy changes although it acts by tensors as the class that it derives from."""
    own = next(cls for cls in kind.__mro__ if '_get_tensor_mode' in vars(cls))
    return [name for name in REPLACED if getattr(kind, name, None) is not getattr(own, name, None)]


class TensorActing:
    """Acts and makes training samples on the device of a policy that learns from fresh data.

    It does the same as the policy's methods for arrays, without a recurrent core, normalisation and action masks. A subclass
    of the policy that changes one of those methods has to define ``_get_tensor_mode`` as well.

    ``lambda_`` is the weight of later steps in a return.

    Raises:
        IncompatibleError: If an option or the env needs arrays.
    """

    def __init__(self, policy: Any, discount_factor: float, lambda_: float) -> None:
        self._cfg, self._spec, self._device = policy._cfg, policy.spec, policy.device
        self._model = policy.model
        self._weights = (discount_factor, lambda_)
        self._inputs: tuple[str, ...] = policy.update.inputs
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
            ('model.core', self._cfg.model.get('core') is not None),
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
        if changed := changed_methods(kind):
            raise IncompatibleError(
                f'{name} defines {", ".join(changed)}, which rows that stay on a device do not go through',
                where='policy.collect.collector.type',
                got='tensor',
                expected="'sample', or a policy that defines _get_tensor_mode",
            )

    def _forward_tensors(
        self, obs: torch.Tensor, generator: torch.Generator, **settings: Any
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Draws actions for observations [N, ...]; returns them as the env takes them, and columns to record."""
        raise NotImplementedError

    def _value(self, obs: torch.Tensor) -> torch.Tensor:
        """Returns the values of observations [n, ...] in the env's own units, float32 [n]."""
        raise NotImplementedError

    def _columns(self, block: Batch, advantage: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns the columns that an update reads beside those that all policies read, [T * N, ...]."""
        return {}

    def _tensor_samples(self, block: Batch) -> Batch:
        """Turns a block of columns [T, N, ...] into training samples [T * N, ...]."""
        apart = apart_rows(block)
        with torch.no_grad():
            value = self._value(flat(block['obs'])).reshape(apart.shape)
            next_value = torch.cat([value[1:], value[-1:]])
            rows = apart.nonzero(as_tuple=True)  # waits for the device, which alone knows their number
            next_value[rows] = self._value(block['next_obs'][rows])
            next_value.masked_fill_(block['terminated'], 0.0)
            advantage = gae_of_tensors(block['reward'], value, next_value, apart, *self._weights)
            columns = {name: flat(block[name]) for name in self._inputs if name in block}
            columns |= self._columns(block, advantage)
        return Batch(columns, return_=flat(advantage + value))


class ActorTensorActing(TensorActing):
    """Acts by the distribution of an actor, and values by a critic."""

    def __init__(self, policy: Any) -> None:
        cfg = policy._cfg.collect
        super().__init__(policy, cfg.discount_factor, cfg.gae_lambda)
        self._distribution = policy.distribution
        self._returns: RunningMoments | None = policy._returns

    def _forward_tensors(
        self, obs: torch.Tensor, generator: torch.Generator, **settings: Any
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        with torch.no_grad():
            logit = self._model.logit(obs)
            action = self._distribution.sample_tensor(logit, generator)
            return self._to_env(action), {'action': action, 'logit': logit}

    def _value(self, obs: torch.Tensor) -> torch.Tensor:
        value: torch.Tensor = self._model.value(obs)
        if self._returns is None:
            return value
        return value * float(self._returns.std) + float(self._returns.mean)

    def _columns(self, block: Batch, advantage: torch.Tensor) -> dict[str, torch.Tensor]:
        log_prob, _ = self._distribution.evaluate(flat(block['logit']), flat(block['action']))
        return {'log_prob': log_prob, 'advantage': flat(advantage)}


class GreedyTensorActing(TensorActing):
    """Acts by the action of the highest value, or with probability ``eps`` by a random one."""

    def __init__(self, policy: Any) -> None:
        super().__init__(policy, policy._cfg.discount_factor, policy._cfg.collect.q_lambda)

    def _forward_tensors(
        self, obs: torch.Tensor, generator: torch.Generator, eps: float = 0.0, **settings: Any
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        with torch.no_grad():
            value = self._model(obs)
            is_random = torch.rand(len(value), generator=generator, device=value.device) < eps
            drawn = torch.randint(value.shape[1], (len(value),), generator=generator, device=value.device)
            action = torch.where(is_random, drawn, value.argmax(1))
            return self._to_env(action), {'action': action}

    def _value(self, obs: torch.Tensor) -> torch.Tensor:
        return self._model(obs).amax(1)


def action_map(spec: EnvSpec, device: torch.device) -> Callable[[torch.Tensor], torch.Tensor]:
    """Returns the function that turns actions of a network into actions of an env, as ``ActionMap`` does."""
    space: Any = spec.action_space
    shape = tuple(space.shape or ())
    dtype: torch.dtype = getattr(torch, str(space.dtype))
    if type(space).__name__ != 'Box':
        start = torch.as_tensor(getattr(space, 'start', 0), dtype=dtype, device=device)
        return lambda action: action.reshape(-1, *shape).to(dtype) + start
    low, high = (torch.as_tensor(bound, device=device) for bound in float_bounds(space))
    half = (high - low) / 2
    is_integer = not dtype.is_floating_point

    def to_env(action: torch.Tensor) -> torch.Tensor:
        unit = action.reshape(-1, *shape).to(low.dtype).clamp(-1.0, 1.0)
        scaled = torch.minimum(low + (unit + 1.0) * half, high)
        return (scaled.round() if is_integer else scaled).to(dtype)

    return to_env
