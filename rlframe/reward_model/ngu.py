"""NGU: states are worth more the less they resemble others of the episode, in features that actions depend on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.data.timestep import Batch, EnvSpec, FloatArray
from rlframe.policy.parts.normalize import RunningMoments
from rlframe.registry import REWARD_MODEL_REGISTRY
from rlframe.reward_model.icm import InverseModel
from rlframe.reward_model.network import NetworkConfig
from rlframe.reward_model.rnd import RND
from rlframe.utils.field import option, raw_items
from rlframe.utils.lazy import torch
from rlframe.utils.schema import NUMBER, array, check_state, dict_of

EPSILON, CLUSTER, CONSTANT, MOST_SIMILAR = 1e-3, 8e-3, 1e-3, 8.0
"""ε of the kernel, the distance within which states are one, the constant c, and the similarity from which on nothing is paid.
Source: Badia et al. (2020), table 6."""
DECAY = 0.99
"""Weight of the mean of distances before, in the running mean."""


class NGUConfig(NetworkConfig):
    """Options of ``ngu``."""

    neighbours: int = option(
        10, range='[1, inf)', unit='states', doc='nearest states of the episode that count'
    )
    most_lifelong: float | None = option(
        5.0,
        range='[1, inf)',
        doc='largest factor of states that are new to the run, by RND; None: there is no such factor',
    )


@REWARD_MODEL_REGISTRY.register('ngu')
class NGU(InverseModel):
    """Never Give Up: an episodic bonus, times a factor of states that are new to the run.

        r(s') = clip(1 + (e - mean(e)) / std(e), 1, L) / (sqrt(sum over the k nearest of K(f(s'), f_i)) + c)
        K(x, y) = ε / (d²(x, y) / d_m² + ε)

    e is the error of RND, L ``most_lifelong``; d_m² is a running mean of the squared distances to the k nearest; f are features
    by which actions are found.

    Source:
        Badia et al., Never Give Up: Learning Directed Exploration Strategies (2020), eq. 1 to 3 and algorithm 1.
    """

    _cfg: NGUConfig
    is_stored = True

    def __init__(self, cfg: Mapping[str, Any] | None, spec: EnvSpec, **options: Any) -> None:
        super().__init__(cfg, spec, **options)
        names = RND.config_fields().keys()
        own = {name: value for name, value in raw_items(self._cfg) if name in names}
        self._lifelong = None if self._cfg.most_lifelong is None else RND(own, spec, **options)
        self._errors = RunningMoments()
        self._episodes: dict[int, FloatArray] = {}  # features of the running episode of each env, [n, F]
        self._distance = 0.0  # running mean

    def loss(self, rows: Mapping[str, Any]) -> torch.Tensor:
        before, after = (self.network['encoder'](rows[name]) for name in ('obs', 'next_obs'))
        return self.inverse_loss(before, after, rows['action'])

    def collected(self, rows: Batch) -> None:
        super().collected(rows)
        if self._lifelong is not None:
            self._lifelong.collected(rows)

    def learn(self) -> dict[str, float]:
        if self._lifelong is None:
            return super().learn()
        return super().learn() | {f'lifelong_{name}': value for name, value in self._lifelong.learn().items()}

    def reward(self, rows: Batch) -> FloatArray:
        return self._episodic(rows) * self._factor(rows)

    def _factor(self, rows: Batch) -> FloatArray:
        """Returns how new the states are to the run that rows led to, [M]."""
        if self._lifelong is None:
            return np.ones(len(rows))
        error = self._lifelong.reward(rows).astype(np.float64)
        self._errors.update(error)
        relative = (error - self._errors.mean) / self._errors.std
        return np.clip(1 + relative, 1.0, self._cfg.most_lifelong)

    def _episodic(self, rows: Batch) -> FloatArray:
        """Returns how little the states resemble others of their episode that rows led to, [M]."""
        features = self.by_pieces(rows, lambda columns: self.network['encoder'](columns['next_obs']))
        paid = np.zeros(len(rows))
        marks = zip(rows['env_id'].tolist(), rows['episode_step'].tolist(), strict=True)
        for row, (env, step) in enumerate(marks):
            seen = self._episodes.get(env)
            if seen is None or step == 0:
                seen = np.zeros((0, features.shape[1]), np.float32)
            paid[row] = self._unlike(features[row], seen)
            self._episodes[env] = np.concatenate([seen, features[row : row + 1]])
        return paid

    def _unlike(self, feature: FloatArray, seen: FloatArray) -> float:
        """Returns what a state is paid, by its features [F] and those of the states before it in the episode, [n, F]."""
        distance = np.square(seen - feature).sum(1)
        nearest = np.sort(distance)[: self._cfg.neighbours]
        if len(nearest):
            self._distance = DECAY * self._distance + (1 - DECAY) * float(nearest.mean())
        relative = nearest / max(self._distance, 1e-12)
        kernel = EPSILON / (np.maximum(relative - CLUSTER, 0.0) + EPSILON)
        similarity = np.sqrt(kernel.sum()) + CONSTANT
        return 0.0 if similarity > MOST_SIMILAR else float(1 / similarity)

    def state_dict(self) -> dict[str, Any]:
        episodes = {str(env): features for env, features in self._episodes.items()}
        found = super().state_dict() | {'episodes': episodes, 'distance': self._distance}
        if self._lifelong is not None:
            found |= {'lifelong': self._lifelong.state_dict(), 'errors': self._errors.state_dict()}
        return found

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(state, {'episodes': dict_of(array('f', (None, None))), 'distance': NUMBER})
        super().load_state_dict(state)
        self._episodes = {int(env): features.copy() for env, features in state['episodes'].items()}
        self._distance = state['distance']
        if self._lifelong is not None:
            self._lifelong.load_state_dict(state['lifelong'])
            self._errors.load_state_dict(state['errors'])
