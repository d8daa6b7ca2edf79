"""Actions: bounds, masks, noise, and the map between a network's actions and those of an env."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlframe.data.faces import Forward
from rlframe.data.observation import ACTION_MASK, check_action_bounds, has_mask, mask_parts
from rlframe.data.timestep import Array, Batch, BoolArray, EnvSpec, FloatArray, IntArray
from rlframe.errors import ActionMaskError, IncompatibleError
from rlframe.policy.parts.sequences import clear, grown
from rlframe.utils.lazy import torch
from rlframe.utils.schema import array, check_state

if TYPE_CHECKING:
    from rlframe.model.distributions import ActionDistribution


class ActionMap:
    """Maps between the actions of a distribution and those of an env's action space.

    A network counts classes from 0 and means continuous actions in units of [-1, 1], [n, D]; an env has its own first
    class, bounds, shape and type.

    Raises:
        IncompatibleError: If a continuous action has no finite bounds.
    """

    def __init__(self, spec: EnvSpec) -> None:
        space: Any = spec.action_space
        self.is_continuous = type(space).__name__ == 'Box'
        """Whether actions are real numbers, of which an env takes only those within its bounds."""
        self._parts = [
            ActionMap(dataclasses.replace(spec, action_space=part, name=f'{name} of {spec.name}'))
            for name, part in getattr(space, 'parts', {}).items()
        ]
        self._space = space
        self.is_exact = not self.is_continuous and not self._parts
        """Whether ``from_env`` gives back what ``to_env`` was given."""
        self._shape: tuple[int, ...] = space.shape or ()
        self._dtype = np.dtype(space.dtype)
        self._start = np.asarray(getattr(space, 'start', 0), np.int64)
        self._has_start = not self.is_continuous and bool(self._start.any())
        self._bounds = ActionBounds(spec) if self.is_continuous else None

    def to_env(self, action: Array) -> Array:
        """Maps a network's actions [n, ...] to the env's, of its shape and type; values outside its bounds are clipped."""
        if self._parts:
            return self._joined(ActionMap.to_env, action)
        if len(self._shape) > 1 or (self.is_continuous and not self._shape):
            action = action.reshape(len(action), *self._shape)
        if self._bounds is not None:
            return self._bounds.to_env(action)
        action = action + self._start if self._has_start else action
        return action.astype(self._dtype, copy=False)

    def batch(self, action: Array, **columns: Array) -> Batch:
        """Returns a network's actions [n, ...] as the column ``action`` of the env's, beside further columns."""
        return Batch.unchecked({'action': self.to_env(action), **columns}, len(action))

    def from_env(self, action: Array) -> Array:
        """Maps actions of the env [n, ...] to those that a network would have meant."""
        if self._parts:
            return self._joined(ActionMap.from_env, action).astype(np.float32)
        if self._bounds is not None:
            return self._bounds.to_unit(action).reshape(len(action), -1)
        action = action - self._start if self._has_start else action
        return action.reshape(len(action), -1) if self._shape else action

    def _joined(self, change: Callable[[ActionMap, Array], Array], action: Array) -> Array:
        """Returns the rows of a ``Composite`` [n, K] with the columns of each part changed."""
        count = len(action)
        each = zip(self._parts, self._space.columns(action), strict=True)
        changed = [
            change(part, column.reshape(count, *part._shape)).reshape(count, -1) for part, column in each
        ]
        return np.concatenate(changed, 1, dtype=np.float64)


class Choices:
    """Several choices at once, or one: what networks say of each of them stands behind what they say of the one before, [B, S].

    Args:
        spec: Spaces of the env.
        device: Of what networks say.
    """

    def __init__(self, spec: EnvSpec, device: Any) -> None:
        self.counts: list[int] = list(mask_parts(spec.action_space))
        """Classes of each choice."""
        self._first = torch.tensor(np.cumsum([0, *self.counts[:-1]]), device=device)

    def each(self, column: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Divides a column of all choices, [B, S], into those of each."""
        return column.split(self.counts, 1)

    def taken(self, column: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Selects what belongs to an action, [B, D] or [B], in a column of all choices: [B, S] to [B, D]."""
        return column.gather(1, action.long().reshape(len(column), -1) + self._first)

    def one_hot(self, action: torch.Tensor) -> torch.Tensor:
        """Maps actions, int [B, D] or [B], to float32 [B, S]."""
        from rlframe.model.core import one_hot

        index = action.long().reshape(len(action), -1)
        return torch.cat([one_hot(index[:, i], count) for i, count in enumerate(self.counts)], 1)

    def gumbel(self, rng: np.random.Generator, count: int) -> Array:
        """Returns standard Gumbel numbers for the choices of a batch, float32 [B, S]."""
        return rng.gumbel(size=(count, sum(self.counts))).astype(np.float32)

    def drawn(self, logit: torch.Tensor, gumbel: torch.Tensor, temperature: float) -> torch.Tensor:
        """Draws choices by their logits and Gumbel numbers, float32 [B, S]: one-hot, with the gradient of a softmax.

        The smaller the ``temperature`` of that, the closer it is to the choice, and the larger are gradients.

        Source:
            Jang et al., Categorical Reparameterization with Gumbel-Softmax (2017), section 2.2: the straight-through estimator.
        """
        each = self.each(logit + gumbel)
        soft = torch.cat([(part / temperature).softmax(1) for part in each], 1)
        hard = self.one_hot(torch.stack([part.argmax(1) for part in each], 1))
        return hard + (soft - soft.detach())


class HybridActions:
    """Rows of hybrid actions as a network means them, float32 [B, K]: a choice, and its parameters in [-1, 1].

    ``space`` is a ``Composite`` of one Discrete and Boxes.
    """

    def __init__(self, space: Any) -> None:
        from rlframe.data.composite import hybrid_of

        hybrid: Any = hybrid_of(space)
        self.column: int = hybrid.column
        """Column of the choice."""
        self.choices: int = hybrid.choices
        """Classes that the choice is one of, A."""
        self.parameters: int = hybrid.parameters
        """Number of parameters, P."""

    def split(self, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Splits actions [B, K] into choices, counted from 0, int64 [B], and parameters, float32 [B, P]."""
        column = self.column
        return action[:, column].long(), torch.cat([action[:, :column], action[:, column + 1 :]], 1)

    def join(self, choice: torch.Tensor, parameters: torch.Tensor) -> torch.Tensor:
        """Joins choices, counted from 0, [B], and parameters, float32 [B, P], to actions, float32 [B, K]."""
        column = self.column
        return torch.cat([parameters[:, :column], choice.float()[:, None], parameters[:, column:]], 1)

    def drawn(self, rng: np.random.Generator, mask: BoolArray) -> FloatArray:
        """Draws uniformly random actions, float32 [n, K], of the choices that masks [n, A] allow."""
        action = rng.uniform(-1, 1, (len(mask), self.parameters + 1)).astype(np.float32)
        action[:, self.column] = random_allowed(mask, rng.random(len(mask)))
        return action

    def of_scores(self, output: torch.Tensor, obs: Any) -> torch.Tensor:
        """Returns the actions [B, K] that scores of choices and, behind them, parameters mean, float32 [B, A + P].

        Among the choices that the masks of observations allow, it takes the one with the largest score.
        """
        scores, parameters = output[:, : self.choices], output[:, self.choices :]
        return self.join(masked(scores, mask_of(obs)).argmax(1), parameters)

    def as_scores(self, action: Array) -> Array:
        """Returns outputs that mean actions [n, K], float32 [n, A + P]: 1 is the score of the choice, -1 of each other one."""
        scores = np.where(np.arange(self.choices) == action[:, [self.column]], 1, -1)
        return np.concatenate([scores, np.delete(action, self.column, 1)], 1, dtype=np.float32)


EXACT = 2**53
"""The largest number up to which float64 has all integers."""
NO_BOUND = 1e10
"""Largest number of MuJoCo, which it writes where an actuator has no bound."""


class ActionBounds:
    """Maps actions between [-1, 1] and the bounds of an env's Box, dimension by dimension.

    Every action that it returns lies in the Box: rounding does not lead beyond the upper bound, and actions for a Box of
    integers or bools are rounded to the nearest one.

    Raises:
        IncompatibleError: If a dimension has no finite bounds, no lower one below the upper one, or integers that float64 cannot
            tell apart; it is named.
    """

    def __init__(self, spec: EnvSpec) -> None:
        check_action_bounds(spec)
        space: Any = spec.action_space
        self._low, self._high = float_bounds(space)
        self._dtype = space.dtype
        self._is_integer = space.dtype.kind != 'f'
        with np.errstate(over='ignore'):
            self._half = (self._high - self._low) / 2
        is_free = ~(self._half < (np.inf if self._is_integer else NO_BOUND))
        if self._is_integer:  # smaller types may mean all of their values
            most = np.iinfo(self._dtype).max - 1 if self._dtype.itemsize == 4 else EXACT
            is_free |= (self._high > most) | (self._low < -most)
        unbounded = np.argwhere(is_free)
        if len(unbounded):
            at = tuple(unbounded[0].tolist())
            raise IncompatibleError(
                f'{spec.name} has no finite bounds for action dimension {list(at)}:'
                f' from {space.low[at]} to {space.high[at]}',
                where='policy.type',
                remedy='Give its action space finite bounds, integers of at most 2**53, in the env or by a wrapper that changes the'
                ' action_space (env.wrappers); gymnasium.wrappers.RescaleAction needs finite bounds itself.',
            )

    def to_env(self, action: Array) -> Array:
        """Maps actions in [-1, 1], [n, ...], to the env's bounds; values outside are clipped."""
        scaled = np.minimum(self._low + (np.clip(action, -1.0, 1.0) + 1.0) * self._half, self._high)
        return (np.rint(scaled) if self._is_integer else scaled).astype(self._dtype, copy=False)

    def to_unit(self, action: Array) -> Array:
        """Maps actions within the env's bounds, [n, ...], to float32 in [-1, 1]."""
        width = np.where(self._half > 0, self._half, 1.0)
        return ((action - self._low) / width - 1.0).astype(np.float32)


def float_bounds(space: Any) -> tuple[Array, Array]:
    """Returns the bounds of a Box in a type to compute with: float64 for integers."""
    dtype = np.result_type(space.dtype, np.float32) if space.dtype.kind == 'f' else np.float64
    return space.low.astype(dtype, copy=False), space.high.astype(dtype, copy=False)


IMPOSSIBLE = -1e8
"""Logit of a forbidden action: finite, as its probability 0 times an infinite logarithm would make entropies NaN."""


def mask_of(obs: Any) -> Any:
    """Returns the allowed actions, bool [B, A], or None if the observation has no mask.

    It is a tensor or an array as the observations are. The columns of a MultiDiscrete space's mask are those of its
    dimensions one after the other, and likewise of several parts.
    """
    names = obs if isinstance(obs, dict) else getattr(getattr(obs, 'dtype', None), 'names', None) or ()
    return obs[ACTION_MASK] != 0 if ACTION_MASK in names else None


def masked(value: torch.Tensor, mask: torch.Tensor | None, fill: float = -float('inf')) -> torch.Tensor:
    """Returns values or logits [B, A] with those of forbidden actions put to ``fill``.

    ``mask``, bool [B, A], or [B, C] for the first C values, is True where an action is allowed; None allows all. A row that
    allows none, as at the end of an episode, is not changed, so that no result is NaN.
    """
    if mask is None:
        return value
    forbidden = ~mask & mask.any(1, keepdim=True)
    if more := value.shape[1] - mask.shape[1]:
        forbidden = torch.nn.functional.pad(forbidden, (0, more))
    return value.masked_fill(forbidden, fill)


def without_forbidden(value: torch.Tensor, obs: Any) -> torch.Tensor:
    """Returns values of actions [B, A] with -1e8 for those that the masks of observations, tensors [B, ...], forbid."""
    return masked(value, mask_of(obs), IMPOSSIBLE)


def distribution_of(spec: EnvSpec, cfg: Any) -> ActionDistribution:
    """Returns the distribution over the actions of an env, given the options of a policy."""
    from rlframe.model.distributions import distribution_for

    return distribution_for(spec.action_space, cfg.get('parameters_of_choice', False))


def obeying(forward: Forward, policy: Any) -> Forward:
    """Returns a ``forward`` that raises an error if a policy of the user takes actions that a mask forbids."""
    is_checked = has_mask(policy.spec.observation_space) and not is_own(policy)
    return partial(_obey, forward, policy) if is_checked else forward


def is_own(part: object) -> bool:
    """Whether a policy or a network is one of rlframe."""
    return type(part).__module__.startswith('rlframe.')


def _obey(forward: Forward, policy: Any, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
    output: Batch = forward(obs, env_id, **settings)
    _check_allowed(output['action'], obs, policy.spec.action_space, type(policy).__name__)
    return output


def _check_allowed(action: Array, obs: Array, space: Any, policy: str) -> None:
    counts = mask_parts(space)
    mask = mask_of(obs)
    is_whole = hasattr(space, 'is_class')  # a Composite, whose other parts have no masks
    chosen = action[:, space.is_class] - space.first_class if is_whole else action - np.asarray(space.start)
    start = np.cumsum([0, *counts[:-1]])
    place = chosen.reshape(len(mask), -1).astype(np.int64) % counts + start
    is_forbidden = ~np.take_along_axis(mask, place, 1) & np.logical_or.reduceat(mask, start, 1)
    if is_forbidden.any():
        row = int(is_forbidden.any(1).argmax())
        raise ActionMaskError(
            'the policy took an action that the mask of its observation forbids',
            where=policy,
            got=action[row].tolist(),
            expected=f'one that is allowed by {mask[row].astype(int).tolist()}',
            remedy='self.masked(values, obs) gives forbidden actions the value -1e8: docs/how_to/own_algorithm.md.',
        )


def random_allowed(mask: BoolArray, uniform: FloatArray) -> IntArray:
    """Returns an allowed action for each row, each as likely as any other.

    ``mask`` [n, A] allows at least one action of each row; ``uniform`` are random numbers in [0, 1), [n]. Actions are
    counted from 0.

    Returns:
        Counted from 0, [n].
    """
    count = mask.sum(1)
    nth = np.minimum((uniform * count).astype(np.int64), count - 1)
    return (mask.cumsum(1) > nth[:, None]).argmax(1)


def choice_dtype(spec: EnvSpec) -> np.dtype[Any]:
    """Returns the smallest type of numbers that holds the classes of all choices of actions."""
    return np.min_scalar_type(max(mask_parts(spec.action_space)) - 1)


def explored(policy: Any, value: FloatArray, eps: float) -> Array:
    """Returns several choices for each row of their values [n, S], -inf where forbidden: each random with probability ``eps``."""
    action: Array = policy.distribution.mode(value)
    if eps > 0:
        # an allowed action of each choice, each as likely as any other
        drawn = policy.distribution.sample(np.where(np.isneginf(value), value, 0), policy.rng)
        action = np.where(policy.rng.random(action.shape) < eps, drawn, action)
    return action


class ExplorationNoise:
    """Standard normal noise for each env, correlated from one env step to the next where that is asked for.

    With correlation c, a number is c times the previous one plus sqrt(1 - c^2) times a new one: it is standard normal
    at every step for any c. An episode starts with new numbers.

    Each env has ``size`` numbers; the correlation is in [0, 1).

    Source:
        The Ornstein-Uhlenbeck process of Lillicrap et al., Continuous Control with Deep Reinforcement Learning (2016),
        in steps of one env step and with variance 1.
    """

    def __init__(self, size: int, correlation: float, rng: np.random.Generator) -> None:
        self._size, self._correlation, self._rng = size, correlation, rng
        self._last = np.zeros((0, size), np.float32)  # [N, size]
        self._kept = np.zeros((0, 1), np.float32)  # 0 for envs whose episode has just started, [N, 1]

    def draw(self, env_id: IntArray) -> NDArray[np.float32]:
        """Returns the numbers of the next step of these envs, float32 [n, size]."""
        fresh = self._rng.standard_normal((len(env_id), self._size), np.float32)
        if not self._correlation:
            return fresh
        self._last, self._kept = grown(self._last, env_id), grown(self._kept, env_id)
        kept = self._kept[env_id]
        noise = kept * self._last[env_id] + np.sqrt(1 - kept * kept) * fresh
        self._last[env_id] = noise
        self._kept[env_id] = self._correlation
        return noise

    def reset(self, env_id: IntArray | None = None) -> None:
        """Begins anew for these envs, or for all."""
        clear(self._kept, env_id)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state that the next numbers depend on, without the generator."""
        return {'last': self._last.copy(), 'kept': self._kept.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        check_state(state, {'last': array('f', (None, None)), 'kept': array('f')})
        self._last = state['last'].copy()
        self._kept = state['kept'].copy()
