"""Normalisation of observations and rewards, in front of any policy.

A policy's faces are wrapped: recorded and stored data are raw, only the inputs of networks are normalised. The
statistics belong to the policy's state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from rlframe.data.faces import Forward, GetTrainSample, Learn, ProcessTransition, Reset
from rlframe.data.observation import ACTION_MASK
from rlframe.data.timestep import Array, Batch, BoolArray, EnvSpec, FloatArray, IntArray, TimeStep
from rlframe.errors import CheckpointMismatchError, IncompatibleError
from rlframe.policy.parts.sequences import grown, real_rows
from rlframe.run.checkpoint_tree import compare_states
from rlframe.utils.field import Field
from rlframe.utils.schema import array, check_state, dict_of
from rlframe.utils.serialize import struct_dtype


class RunningMoments:
    """Mean and variance of all rows so far, element by element.

    A smaller deviation than the resolution of ``dtype``, the type of the rows, at the mean is rounding.

    Source:
        Chan, Golub & LeVeque, Updating Formulae and a Pairwise Algorithm for Computing Sample Variances (1979), eq.
        2.1.
    """

    def __init__(self, shape: tuple[int, ...] = (), dtype: npt.DTypeLike = np.float64) -> None:
        kind = np.dtype(dtype)
        self._resolution = float(np.finfo(kind if kind.kind == 'f' else np.float64).eps)
        self.count = 0
        """Rows so far."""
        self.mean = np.zeros(shape)
        """float64, 0 before the first row."""
        self.var = np.ones(shape)
        """float64, the biased variance; 1 before the first row."""

    def update(self, rows: FloatArray) -> None:
        """Takes rows [M, ...]."""
        count = len(rows)
        if count == 0:
            return
        first = rows[0].astype(np.float64)
        deviation = rows - first  # exactly 0 if nothing varies, and precise beside a large offset
        mean = np.add.reduce(deviation) / count  # for few rows, three times as fast as their method mean
        self._add(count, first + mean, np.add.reduce(np.square(deviation - mean)))

    def absorb(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Takes the rows that came between two states, of these moments or of others."""
        first, last = int(before['count']), int(after['count'])
        count = last - first
        if count <= 0:
            return
        mean = after['mean'] + (after['mean'] - before['mean']) * (first / count)
        squares = last * after['var'] - first * before['var']
        squares = squares - np.square(mean - before['mean']) * (first * count / last)
        self._add(count, mean, np.maximum(squares, 0.0))

    def _add(self, count: int, mean: FloatArray, squares: FloatArray) -> None:
        """Takes rows of which only number, mean and sum of squares around it are known."""
        total = self.count + count
        delta = mean - self.mean
        before = self.var * self.count
        self.mean = self.mean + delta * (count / total)
        self.var = (before + squares + np.square(delta) * (self.count * count / total)) / total
        self.count = total

    @property
    def std(self) -> FloatArray:
        """Standard deviation to divide by, however small: 1 if no value has varied yet."""
        least = self._resolution * np.abs(self.mean)
        return np.where(self.var > 0.0, np.maximum(np.sqrt(self.var), least), 1.0)

    def state_dict(self) -> dict[str, Any]:
        """Returns count, mean and variance."""
        return {
            'count': np.asarray(self.count, np.int64),
            'mean': np.array(self.mean),
            'var': np.array(self.var),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        self.count = int(state['count'])
        self.mean = np.asarray(state['mean']).copy()
        self.var = np.asarray(state['var']).copy()


NORMALIZE_OBS = Field(
    False,
    doc='whether networks see observations minus their mean, over their standard deviation; not masks and images',
)
NORMALIZE_REWARD = Field(
    False, doc='whether rewards are divided by the standard deviation of the discounted return'
)

OBS_CLIP = 10.0
"""Normalised observations lie between minus this and this."""


class ObsNormalizer:
    """Subtracts the mean of observations, divides by their standard deviation, and clips at 10.

    Each Box of numbers is normalised, also those inside a Dict or a Tuple; images, classes, switches, integers of
    one byte and the action mask are not changed. The arithmetic is that of float64, as the resolution of float32 at 1e8 is 8.
    Values from ``gather`` take effect only after ``refresh``.

    Raises:
        IncompatibleError: If the observation has no such Box.
    """

    def __init__(self, spec: EnvSpec) -> None:
        self.moments = {
            path: RunningMoments(box.shape, box.dtype) for path, box in _number_boxes(spec.observation_space)
        }
        """Statistics of each part, by the names that lead to it."""
        if not self.moments:
            raise IncompatibleError(
                f'the observations of {spec.name} hold no real numbers to normalise: {spec.observation_space!r}',
                where='policy.normalize_obs',
                got=True,
                expected='False',
            )
        self.refresh()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was gathered yet."""
        return not any(moments.count for moments in self.moments.values())

    def gather(self, obs: Array) -> None:
        """Takes observations [M, ...] into the statistics."""
        for path, moments in self.moments.items():
            part = obs
            for name in path:
                part = part[name]
            moments.update(part)

    def refresh(self) -> None:
        """Applies the gathered statistics."""
        self._in_use = {path: (m.mean, 1 / m.std) for path, m in self.moments.items()}

    def in_use(self) -> tuple[FloatArray, FloatArray]:
        """Returns the offset subtracted from observations without parts and the factor applied then, float64 [...]."""
        return self._in_use[()]

    def __call__(self, obs: Array, path: tuple[str, ...] = ()) -> Array:
        """Normalises observations, or a part, with any number of leading axes; normalised ones become float32."""
        if obs.dtype.names is not None:
            parts = {name: self(obs[name], (*path, name)) for name in obs.dtype.names}
            fields = {name: (part.dtype, part.shape[obs.ndim :]) for name, part in parts.items()}
            result = np.empty(obs.shape, struct_dtype(fields))
            for name, part in parts.items():
                result[name] = part
            return result
        if path not in self._in_use:
            return obs
        mean, scale = self._in_use[path]
        return np.clip((obs - mean) * scale, -OBS_CLIP, OBS_CLIP).astype(np.float32)


def _number_boxes(space: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields the place of each Box of numbers inside a space that is no action mask, and the Box."""
    if path == (ACTION_MASK,):
        return
    kind = type(space).__name__
    if kind in ('Dict', 'Tuple'):
        inner = space.spaces.items() if kind == 'Dict' else enumerate(space.spaces)
        for name, part in inner:
            yield from _number_boxes(part, (*path, str(name)))
    elif kind == 'Box' and (
        space.dtype.kind == 'f' or (space.dtype.kind in 'iu' and space.dtype.itemsize > 1)
    ):
        yield path, space


class RewardNormalizer:
    """Divides rewards by the standard deviation of the running return of the envs, discounted per env step.

    Rewards keep their sign: no mean is subtracted. Before the first one, rewards are not scaled.

    Source:
        Engstrom et al., Implementation Matters in Deep Policy Gradients (2020), algorithm 1.
    """

    def __init__(self, discount_factor: float) -> None:
        self._discount_factor = discount_factor
        self.moments = RunningMoments()
        """Statistics of the returns."""
        self.running: FloatArray = np.zeros(0)
        """Return of each env's running episode, discounted backwards, [N]."""

    def gather(self, reward: FloatArray, done: BoolArray, env_id: IntArray) -> None:
        """Takes one step of some envs into the statistics.

        Row by row: reward [n], whether the episode ended [n], and the env [n].
        """
        self.running = grown(self.running, env_id)
        self.running[env_id] = self.running[env_id] * self._discount_factor + reward
        self.moments.update(self.running[env_id])
        self.running[env_id[done]] = 0.0

    def __call__(self, reward: FloatArray) -> FloatArray:
        """Scales rewards, of any shape, to float32."""
        return (reward / self.moments.std).astype(np.float32)


class Normalizer:
    """Normalises data between a policy's faces and its networks.

    For an off-policy policy, statistics are updated at every env step and used at once, as replayed rows are normalised
    whenever they are sampled. For an on-policy policy, or with ``of_rounds``, they are gathered from the rows of a round and
    used from its first update on, so that updates see a round's observations as the network saw them when it acted: probability
    ratios start at 1. Only the first round is collected without statistics, and trained with its own. Evaluations use
    the statistics and do not change them.
    """

    def __init__(self, cfg: Mapping[str, Any], spec: EnvSpec, of_rounds: bool = False) -> None:
        self.obs = ObsNormalizer(spec) if cfg['normalize_obs'] else None
        """The normaliser of observations; None if they are not normalised."""
        self._reward = RewardNormalizer(_discount_factor(cfg)) if cfg['normalize_reward'] else None
        self._on_policy = bool(cfg['on_policy']) or of_rounds
        self._is_on = self.obs is not None or self._reward is not None
        self._moments: dict[str, RunningMoments] = {}
        if self.obs is not None:
            self._moments = {'.'.join(('obs', *path)): moments for path, moments in self.obs.moments.items()}
        if self._reward is not None:
            self._moments['reward'] = self._reward.moments

    def learning(self, forward: Learn) -> Learn:
        """Returns the ``forward`` of a learn face: it learns from normalised data."""
        return partial(self._learn, forward) if self._is_on else forward

    def acting(self, forward: Forward) -> Forward:
        """Returns the ``forward`` of a collect or eval face: it acts on normalised observations."""
        return partial(self._act, forward) if self._is_on else forward

    def recording(self, process_transition: ProcessTransition) -> ProcessTransition:
        """Returns the ``process_transition`` of a face, which gathers the statistics of an off-policy policy."""
        gathers = self._is_on and not self._on_policy
        return partial(self._transition, process_transition) if gathers else process_transition

    def sampling(self, get_train_sample: GetTrainSample) -> GetTrainSample:
        """Returns the ``get_train_sample`` of a face, which gathers the statistics of an on-policy policy."""
        gathers = self._is_on and self._on_policy
        return partial(self._train_sample, get_train_sample) if gathers else get_train_sample

    def forgetting(self, reset: Reset) -> Reset:
        """Returns the ``reset`` of a collect face: with all envs, it also forgets their running returns."""
        return partial(self._reset, reset) if self._is_on else reset

    def read(self, data: Callable[[], Iterable[Batch]]) -> None:
        """Takes the statistics of a pass over recorded data, unless there are some already; they stay."""
        if self.obs is None or not self.obs.is_empty:
            return
        for batch in data():
            self.obs.gather(np.asarray(batch['obs']))
        self.obs.refresh()

    def _act(self, forward: Forward, obs: Any, env_id: IntArray, **settings: Any) -> Batch:
        return forward(obs if self.obs is None else self.obs(np.asarray(obs)), env_id, **settings)

    def _learn(self, forward: Learn, data: Batch, **settings: Any) -> Any:
        if not self._on_policy:
            data = self._columns(data)
        elif self.obs is not None:
            self.obs.refresh()
        return forward(data, **settings)

    def _transition(
        self, process: ProcessTransition, obs: Array, output: Batch, timestep: TimeStep
    ) -> dict[str, Array]:
        if self.obs is not None:
            self.obs.gather(obs)
            self.obs.refresh()
        if self._reward is not None:
            self._reward.gather(timestep.reward, timestep.done, timestep.env_id)
        return process(obs, output, timestep)

    def _train_sample(self, get_train_sample: GetTrainSample, block: Batch) -> Batch:
        self._gather_rewards(block)
        if self.obs is None:
            return get_train_sample(self._columns(block))
        is_first = self.obs.is_empty
        rows = block['obs'][real_rows(block)]
        if is_first:
            self.obs.gather(rows)
            self.obs.refresh()
        samples = get_train_sample(self._columns(block))
        if not is_first:
            self.obs.gather(rows)
        return samples

    def _reset(self, reset: Reset, env_id: IntArray | None) -> None:
        """Resets envs; the returns of single ones begin anew with the end of an episode among their rows."""
        if self._reward is not None and env_id is None:
            self._reward.running[:] = 0.0
        reset(env_id)

    def _columns(self, data: Batch) -> Batch:
        """Returns a batch with its observations and rewards normalised, for any leading axes."""
        changed: dict[str, Any] = {}
        if self.obs is not None:
            changed = {n: self.obs(np.asarray(data[n])) for n in ('obs', 'next_obs') if n in data}
        if self._reward is not None and 'reward' in data:
            changed['reward'] = self._reward(np.asarray(data['reward']))
        return data.replace(**changed)

    def _gather_rewards(self, block: Batch) -> None:
        if self._reward is None or 'reward' not in block:
            return
        real = real_rows(block)
        done = block['terminated'] | block['truncated']
        for reward, ended, is_real in zip(block['reward'], done, real, strict=True):
            env_id = np.flatnonzero(is_real)
            self._reward.gather(reward[env_id], ended[env_id], env_id)

    def state_dict(self, running: bool = False) -> dict[str, Any]:
        """Returns the statistics under ``normalizer``; empty if nothing is normalised.

        With ``running`` it has the returns of the envs' running episodes, as an exact resume needs them.
        """
        if not self._is_on:
            return {}
        state = {
            f'{name}.{key}': value
            for name, moments in self._moments.items()
            for key, value in moments.state_dict().items()
        }
        if running and self._reward is not None:
            state['running'] = self._reward.running.copy()
        return {'normalizer': state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()`` inside a policy's state.

        Raises:
            CheckpointMismatchError: If the statistics are for other parts than those normalised here.
        """
        check_state(state, {'normalizer?': dict_of(array('iuf'))})
        saved = dict(state.get('normalizer', {}))
        running = saved.pop('running', None)
        if differing := compare_states(saved, self.state_dict().get('normalizer', {})):
            raise CheckpointMismatchError(
                'other things are normalised: ' + '; '.join(differing),
                where='policy.normalize_obs, policy.normalize_reward',
            )
        for name, moments in self._moments.items():
            moments.load_state_dict(_section(saved, name))
        self._take_into_use()
        if running is not None and self._reward is not None:
            self._reward.running = np.array(running, np.float64)

    def absorb(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Adds the statistics gathered between two results of ``state_dict``, of this object or another."""
        for name, moments in self._moments.items():
            moments.absorb(_section(before['normalizer'], name), _section(after['normalizer'], name))
        self._take_into_use()

    def _take_into_use(self) -> None:
        if self.obs is not None:
            self.obs.refresh()


def _section(state: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Returns the statistics of one part, of the flat ones of all."""
    return {key: state[f'{name}.{key}'] for key in ('count', 'mean', 'var')}


def _discount_factor(cfg: Mapping[str, Any]) -> float:
    """Returns the weight of the next reward, wherever a policy has its option."""
    for section in (cfg, cfg['collect']):
        if 'discount_factor' in section:
            return float(section['discount_factor'])
    return 0.99
