"""Estimates of a policy's return from recorded data alone: fitted Q evaluation and importance sampling."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlframe.data.recording import Episodes, Recording
from rlframe.data.timestep import Array, EnvSpec, FloatArray, IntArray
from rlframe.errors import ConfigError
from rlframe.utils.lazy import torch
from rlframe.worker.evaluator.eval_metric import IMetric

ESTIMATES = ('fqe', 'pdis', 'wis', 'dr')
"""Fitted Q evaluation; importance sampling per decision, weighted, and doubly robust."""
CHUNK = 4096
"""Observations that a policy answers at a time."""
SIZES = 128
"""Width of the two layers of a network."""
SIZE = 256
"""Rows of an update."""
SYNC = 100
"""Updates between two copies of the target network."""
SOFTNESS = 0.1
"""Share of uniform actions that is added to a policy whose actions are known only as its best ones, so that every recorded action has
a probability."""
RESAMPLES = 500
"""Samples of a bootstrap interval."""
Act = Callable[[Array], Array]
"""Returns the actions of a policy for observations [n, ...]."""


class EstimateSettings(NamedTuple):
    """Options of an estimate."""

    kind: str
    """One of ``ESTIMATES``."""
    discount_factor: float
    updates: int
    """Updates of the networks of one evaluation."""


class Rows(NamedTuple):
    """Recorded env steps as an estimate reads them."""

    obs: Array
    action: Array
    reward: FloatArray
    terminated: Array
    next_obs: Array
    episodes: Episodes


class OffPolicyMetric(IMetric):
    """Estimates the discounted return of a policy from the first observations of recorded episodes.

    Its score has the estimate under its own name, and a 95 % bootstrap interval over episodes under ``low`` and ``high``. Importance
    sampling takes the policy for its best action with a share ``SOFTNESS`` of uniform ones, and the behaviour for the column
    ``action_prob``, or for a network that imitates it if there is none.

    Source:
        Le et al., Batch Policy Learning under Constraints (2019), algorithm 3 (fitted Q evaluation). Precup et al., Eligibility
        Traces for Off-Policy Policy Evaluation (2000), section 3 (per decision, weighted). Jiang and Li, Doubly Robust Off-policy
        Value Evaluation (2016), eq. 10.
    """

    def __init__(self, recording: Recording, spec: EnvSpec, settings: EstimateSettings, where: str) -> None:
        needed = {'obs', 'action', 'reward', 'terminated', 'next_obs'}
        if missing := needed - recording.columns.keys():
            raise ConfigError(
                f'an estimate needs {sorted(missing)}', where=where, got=sorted(recording.columns)
            )
        space: Any = spec.action_space
        self._is_discrete = type(space).__name__ == 'Discrete'
        if not self._is_discrete and settings.kind != 'fqe':
            message = 'importance sampling needs discrete actions'
            option = f'{where.rpartition(".")[0]}.estimate'  # beside the data
            raise ConfigError(message, where=option, got=settings.kind, expected="'fqe'")
        if recording.columns['obs'].dtype.names is not None or not hasattr(spec.action_space, 'sample'):
            raise ConfigError('an estimate needs observations without parts', where=where)
        self.settings = settings
        columns: dict[str, Any] = {name: column[:] for name, column in recording.columns.items()}
        self._count = int(space.n) if self._is_discrete else 0
        self._start = int(space.start) if self._is_discrete else 0
        read: dict[str, Any] = {name: columns[name] for name in Rows._fields if name in columns}
        self._rows = Rows(**read, episodes=recording.episodes())
        self._given_prob: FloatArray | None = columns.get('action_prob')
        self._scale = _Scale(self._rows.obs)

    def score(self, act: Act) -> dict[str, float]:
        """Returns the estimate of a policy, with its interval."""
        rows, episodes = self._rows, self._rows.episodes
        generator = torch.Generator().manual_seed(0)
        kind = self.settings.kind
        if kind in ('fqe', 'dr'):
            value = self._fitted(act, generator)
        if kind == 'fqe':
            first = rows.obs[episodes.start]
            each = value(self._features(first), self._coded(answers(act, first)))
            return _with_interval(kind, each)
        best = answers(act, rows.obs)
        ratio = self._probability(best) / self._behaviour(generator)
        if kind == 'dr':
            each = self._doubly_robust(value, act, best, ratio)
            return _with_interval(kind, each)
        returns, weights = self._weighted(ratio)
        return _with_interval(kind, _per_decision(returns, weights, kind == 'wis'))

    # probabilities

    def _probability(self, best: Array) -> FloatArray:
        """Returns the probability of each recorded action under a policy that is soft around its best one, [n]."""
        share = SOFTNESS / self._count
        return np.where(best == self._rows.action, 1 - SOFTNESS + share, share)

    def _behaviour(self, generator: Any) -> FloatArray:
        """Returns the probability with which each action was recorded, [n]."""
        if self._given_prob is not None:
            return np.asarray(self._given_prob, np.float64)
        features = self._features(self._rows.obs)
        labels = torch.as_tensor(self._rows.action.astype(np.int64) - self._start)
        network, optimizer = _network(features.shape[1], self._count)
        for index in _batches(len(labels), self.settings.updates, generator):
            loss = torch.nn.functional.cross_entropy(network(features[index]), labels[index])
            _descend(optimizer, loss)
        with torch.no_grad():
            chances = torch.softmax(network(features), 1)
        found: FloatArray = chances[torch.arange(len(labels)), labels].double().clamp(min=1e-3).numpy()
        return found

    # fitted Q evaluation

    def _features(self, obs: Array) -> torch.Tensor:
        return torch.as_tensor(self._scale(obs))

    def _coded(self, action: Array) -> torch.Tensor:
        """Returns actions as numbers for a network: classes one-hot."""
        if not self._is_discrete:
            return torch.as_tensor(np.reshape(action, (len(action), -1)).astype(np.float32))
        return torch.nn.functional.one_hot(
            torch.as_tensor(action.astype(np.int64) - self._start), self._count
        ).float()

    def _fitted(self, act: Act, generator: Any) -> Callable[[torch.Tensor, torch.Tensor], FloatArray]:
        """Fits the value of actions under a policy, and returns a function of observations and actions."""
        rows = self._rows
        now = torch.cat([self._features(rows.obs), self._coded(rows.action)], 1)
        later = torch.cat([self._features(rows.next_obs), self._coded(answers(act, rows.next_obs))], 1)
        unit = max(float(np.abs(rows.reward).mean()), 1e-6) / (1 - min(self.settings.discount_factor, 0.999))
        reward = torch.as_tensor(rows.reward / unit).float()
        going_on = torch.as_tensor(~rows.terminated.astype(bool)).float() * self.settings.discount_factor
        network, optimizer = _network(now.shape[1], 1)
        target, _ = _network(now.shape[1], 1)
        for number, index in enumerate(_batches(len(reward), self.settings.updates, generator)):
            if number % SYNC == 0:
                target.load_state_dict(network.state_dict())
            with torch.no_grad():
                goal = reward[index] + going_on[index] * target(later[index])[:, 0]
            _descend(optimizer, torch.nn.functional.smooth_l1_loss(network(now[index])[:, 0], goal))

        def value(obs: torch.Tensor, action: torch.Tensor) -> FloatArray:
            with torch.no_grad():
                found: FloatArray = network(torch.cat([obs, action], 1))[:, 0].double().numpy() * unit
            return found

        return value

    # importance sampling

    def _expected(self, value: Any, obs: Array, best: Array) -> FloatArray:
        """Returns the value of observations under the soft policy, [n]."""
        features = self._features(obs)
        choices = np.arange(self._count) + self._start
        of_all = np.stack([value(features, self._coded(np.full(len(best), each))) for each in choices], 1)
        share = SOFTNESS / self._count
        chance = np.where(choices == best[:, None], 1 - SOFTNESS + share, share)
        found: FloatArray = (chance * of_all).sum(1)
        return found

    def _doubly_robust(self, value: Any, act: Act, best: Array, ratio: FloatArray) -> FloatArray:
        """Returns the doubly robust estimate of each episode, [E]."""
        rows, episodes = self._rows, self._rows.episodes
        taken = value(self._features(rows.obs), self._coded(rows.action))
        expected = self._expected(value, rows.obs, best)
        last = episodes.start + episodes.length - 1
        after = self._expected(value, rows.next_obs[last], answers(act, rows.next_obs[last]))
        after = np.where(rows.terminated[last], 0.0, after)
        estimates = np.zeros(len(last))
        for number, (start, stop) in enumerate(zip(episodes.start.tolist(), last.tolist(), strict=True)):
            total = float(after[number])
            for t in range(stop, start - 1, -1):
                error = rows.reward[t] + self.settings.discount_factor * total - taken[t]
                total = float(expected[t] + ratio[t] * error)
            estimates[number] = total
        return estimates

    def _weighted(self, ratio: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Returns discounted rewards and cumulative ratios by episode and step, padded, [E, T]."""
        episodes = self._rows.episodes
        longest = int(episodes.length.max())
        rewards = np.zeros((len(episodes.start), longest))
        weights = np.zeros((len(episodes.start), longest))
        discount = self.settings.discount_factor ** np.arange(longest)
        for number, (start, length) in enumerate(zip(*episodes[:2], strict=True)):
            own = slice(int(start), int(start + length))
            rewards[number, :length] = self._rows.reward[own] * discount[:length]
            weights[number, :length] = np.exp(np.minimum(np.cumsum(np.log(ratio[own])), 50.0))
            weights[number, length:] = weights[number, length - 1]
        return rewards, weights

    # the interface of a metric

    def eval(self, inputs: Any, label: Any) -> Mapping[str, Any]:  # DI-engine's name; runs no code
        """Raises ``TypeError``: an estimate needs whole episodes, and not batches."""
        raise TypeError('an estimate is made of all rows at once: score(act)')

    def reduce_mean(self, inputs: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Returns the only score."""
        return inputs[0]

    def gt(self, metric1: Mapping[str, Any], metric2: Any) -> bool:
        """Whether the first estimate is at least as high."""
        if metric2 is None:
            return True
        other = metric2[self.settings.kind] if isinstance(metric2, Mapping) else metric2
        return bool(metric1[self.settings.kind] >= float(other))

    def number(self, metric: Mapping[str, Any]) -> float:
        """Returns the estimate."""
        return float(metric[self.settings.kind])


class _Scale:
    """Turns observations into rows of numbers of about unit size."""

    def __init__(self, obs: Array) -> None:
        rows = self._flat(obs[: 16 * CHUNK])
        self._mean = rows.mean(0)
        self._std = np.maximum(rows.std(0), 1e-3)

    def _flat(self, obs: Array) -> FloatArray:
        flat: FloatArray = obs.reshape(len(obs), -1).astype(np.float32)
        return flat

    def __call__(self, obs: Array) -> FloatArray:
        scaled: FloatArray = ((self._flat(obs) - self._mean) / self._std).astype(np.float32)
        return scaled


def answers(act: Act, obs: Array) -> Array:
    """Returns the actions of a policy for many observations, some at a time."""
    return np.concatenate([act(obs[start : start + CHUNK]) for start in range(0, len(obs), CHUNK)])


def _network(inputs: int, outputs: int) -> tuple[Any, Any]:
    """Returns a network of two layers and its optimizer; the caller keeps the global generators as they were."""
    torch.manual_seed(0)
    nn = torch.nn
    layers = [
        nn.Linear(inputs, SIZES),
        nn.ReLU(),
        nn.Linear(SIZES, SIZES),
        nn.ReLU(),
        nn.Linear(SIZES, outputs),
    ]
    network = nn.Sequential(*layers)
    return network, torch.optim.Adam(network.parameters(), 1e-3)


def _batches(count: int, updates: int, generator: Any) -> Iterator[Any]:
    return (torch.randint(count, (min(SIZE, count),), generator=generator) for _ in range(updates))


def _descend(optimizer: Any, loss: torch.Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]  # torch has no types
    optimizer.step()


def _per_decision(rewards: FloatArray, weights: FloatArray, is_weighted: bool) -> FloatArray:
    """Returns what each episode adds to the estimate, [E]; weighted: with ratios whose mean is 1 at each step."""
    share = weights / np.maximum(weights.mean(0), 1e-300) if is_weighted else weights
    each: FloatArray = (share * rewards).sum(1)
    return each


def _with_interval(name: str, each: FloatArray) -> dict[str, float]:
    """Returns the mean over episodes, and its bootstrap interval."""
    index: IntArray = np.random.default_rng(0).integers(len(each), size=(RESAMPLES, len(each)))
    low, high = np.percentile(each[index].mean(1), [2.5, 97.5]).tolist()
    return {name: float(np.mean(each)), 'low': low, 'high': high}
