"""PDEIL: a row earns the density of demonstrations at it, by that of the states that demonstrations and agent visit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from rlframe.data.timestep import Array, Batch, EnvSpec, FloatArray
from rlframe.errors import ConfigError
from rlframe.registry import REWARD_MODEL_REGISTRY
from rlframe.reward_model.base import RewardModel, RewardModelConfig
from rlframe.reward_model.demonstrations import DATA, demonstrations
from rlframe.utils.field import option
from rlframe.utils.schema import array, check_state

RIDGE = 1e-3
"""Variance that is added to each number, in units of the demonstrations, so that no density is without bound."""
LARGEST = 20.0
"""Largest logarithm of a reward."""


class PDEILConfig(RewardModelConfig):
    """Options of ``pdeil``."""

    data: Any = option(DATA)
    alpha: float = option(0.5, range='(0, 1]', doc='share of demonstrations in the divisor', may_change=True)
    memory: int = option(
        10_000, range='[1, inf)', unit='rows', doc='rows of the agent that its density is of, the newest ones'
    )


class Gaussian(NamedTuple):
    """A multivariate normal density."""

    mean: FloatArray
    """Float64 [D]."""
    inverse_root: FloatArray
    """Inverse of the Cholesky factor of the covariance, float64 [D, D]."""

    @classmethod
    def of(cls, vectors: FloatArray, ridge: float = RIDGE) -> Gaussian:
        """Returns the density with the mean and the covariance of vectors, [n, D]."""
        vectors = vectors.astype(np.float64)
        mean = vectors.mean(0)
        apart = vectors - mean
        covariance = apart.T @ apart / len(vectors) + ridge * np.eye(len(mean))
        return cls(mean, np.linalg.inv(np.linalg.cholesky(covariance)))

    def log_density(self, vectors: FloatArray) -> FloatArray:
        """Returns the logarithm of the density at vectors, float64 [n, D] to [n]."""
        white = (vectors - self.mean) @ self.inverse_root.T
        log_scale = (np.log(np.diag(self.inverse_root)) - 0.5 * np.log(2 * np.pi)).sum()
        found: FloatArray = log_scale - 0.5 * np.square(white).sum(1)
        return found


class JointDensity:
    """The density of states and actions: one Gaussian of both, or one of the states of each discrete action."""

    def __init__(self, obs: FloatArray, action: Array) -> None:
        self._classes: dict[int, tuple[float, Gaussian]] = {}
        if action.ndim > 1:
            self._whole = Gaussian.of(np.concatenate([obs, action], 1))
            return
        for each in np.unique(action).tolist():
            own = obs[action == each]
            self._classes[each] = np.log(len(own) / len(obs)), Gaussian.of(own)

    def log_density(self, obs: FloatArray, action: Array) -> FloatArray:
        """Returns the logarithm of the density at states [n, S] and actions, [n] or [n, A]; -inf for actions never seen."""
        if not self._classes:
            return self._whole.log_density(np.concatenate([obs, action], 1))
        found = np.full(len(obs), -np.inf)
        for each, (log_share, density) in self._classes.items():
            own = action == each
            found[own] = log_share + density.log_density(obs[own])
        return found


@REWARD_MODEL_REGISTRY.register('pdeil')
class PDEIL(RewardModel):
    """Probability density estimation based imitation learning.

        r(s, a) = p_E(s, a) / (alpha p_E(s) + (1 - alpha) p_agent(s))

    with Gaussian densities, of demonstrations (E) and of the newest rows of the agent. Until it has collected, alpha is 1.

    Source:
        Liu et al., Probability Density Estimation Based Imitation Learning (2021).
    """

    _cfg: PDEILConfig
    replaces_reward = True

    def __init__(self, *args: Any, **options: Any) -> None:
        from rlframe.reward_model.reward_net import Features

        super().__init__(*args, **options)
        rows = demonstrations(self._cfg.data, self.spec)
        self._features = Features(self.spec, rows, ('obs',))
        obs = self._features.vectors(rows)
        self._of_states = Gaussian.of(obs)
        self._of_both = JointDensity(obs, self._actions(rows))
        self._kept: FloatArray = obs[:0]  # states of the newest rows of the agent, [n, S]
        self._of_agent: Gaussian | None = None

    @classmethod
    def check_spec(cls, cfg: Any, spec: EnvSpec) -> list[ConfigError]:
        if type(spec.action_space).__name__ in ('Discrete', 'Box'):
            return []
        message = f'no density of the actions of {spec.name}'
        return [ConfigError(message, where='type', got='pdeil', expected='Discrete or Box actions')]

    @staticmethod
    def _actions(rows: Batch) -> Array:
        """Returns discrete actions [n], or continuous ones within the bounds of the env, [n, A]."""
        action = np.asarray(rows['action'])
        return action if action.ndim == 1 else np.clip(action, -1, 1)

    def collected(self, rows: Batch) -> None:
        self._kept = np.concatenate([self._kept, self._features.vectors(rows)])[-self._cfg.memory :]

    def learn(self) -> dict[str, float]:
        self._of_agent = Gaussian.of(self._kept)
        return {}

    def reward(self, rows: Batch) -> FloatArray:
        obs = self._features.vectors(rows)
        divisor = self._of_states.log_density(obs)
        if self._of_agent is not None:
            alpha = self._cfg.alpha
            agent = self._of_agent.log_density(obs)
            with np.errstate(divide='ignore'):
                divisor = np.logaddexp(np.log(alpha) + divisor, np.log(1 - alpha) + agent)
        paid: FloatArray = np.exp(
            np.minimum(self._of_both.log_density(obs, self._actions(rows)) - divisor, LARGEST)
        )
        return paid

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {'kept': self._kept}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(state, {'kept': array('f', (None, self._features.size))})
        super().load_state_dict(state)
        self._kept = state['kept']
        if len(self._kept):
            self.learn()
