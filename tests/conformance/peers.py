"""Lets a learner of another library train, and ours learn from the same weights, transitions and draws.

The other library runs its own ``learn`` in envs that write down each step. What it draws at random inside an update
(batches, permutations, normal numbers) is written down, too, and our policy gets it in place of its own draws. Both
calculate with float64.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from pairs import ENVS, OBS_SIZE, Pair, Weights

from rlframe.data import Batch, EnvSpec
from rlframe.policy import create_policy


class Scripted(gymnasium.Env[Any, Any]):
    """Draws everything but the actions, and writes down each step.

    Args:
        action_space: Its actions.
        seed: Of what it draws.
        has_mask: Whether it forbids actions of a MultiDiscrete.
    """

    def __init__(self, action_space: Any, seed: int, has_mask: bool) -> None:
        self.observation_space = gymnasium.spaces.Box(-9, 9, (OBS_SIZE,), np.float32)
        self.action_space, self.steps = action_space, []
        self._rng, self._counts = np.random.default_rng(seed), action_space.nvec if has_mask else []

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        self._observe()
        return self._obs, {}

    def step(self, action: Any) -> tuple[Any, ...]:
        row = {'obs': self._obs, 'mask': self._mask}
        self._observe()
        terminated, truncated = (bool(end) for end in self._rng.random(2) < 0.1)
        row |= {
            'next_obs': self._obs,
            'next_mask': self._mask,
            'terminated': terminated,
            'truncated': truncated,
        }
        self.steps.append(row | {'reward': float(np.float32(self._rng.normal()))})
        return self._obs, self.steps[-1]['reward'], terminated, truncated, {}

    def action_masks(self) -> np.ndarray:
        return self._mask

    def _observe(self) -> None:
        self._obs = self._rng.normal(size=OBS_SIZE).astype(np.float32)
        allowed = [self._rng.permutation(count) <= self._rng.integers(count) for count in self._counts]
        self._mask = np.concatenate([*allowed, np.zeros(0, bool)])


class Draws(np.random.Generator):
    """Gives the draws that another library made inside its updates, in the order in which our policy asks for them."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(0))
        self.permutations: list[np.ndarray] = []
        self.normal: list[np.ndarray] = []

    def permutation(self, x: Any, axis: int = 0) -> Any:
        order = self.permutations.pop(0) if self.permutations else np.arange(x)
        assert len(order) == x
        return order

    def standard_normal(self, size: Any = None, dtype: Any = None, out: Any = None) -> Any:
        drawn = self.normal.pop(0)
        assert drawn.shape == size
        return drawn


@contextmanager
def float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets both libraries calculate with float64, also where they convert observations to float32."""
    monkeypatch.setattr(torch.Tensor, 'float', torch.Tensor.double)
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def copied(weights: Weights) -> Weights:
    """Returns a copy of weights."""
    return {
        name: copied(value) if isinstance(value, dict) else value.detach().clone()
        for name, value in weights.items()
    }


class Peer:
    """A learner of another library that trains, and what it did.

    Args:
        pair: What it is to train.
        monkeypatch: Lets it write down what it draws.
    """

    def __init__(self, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
        from stable_baselines3.common.logger import Logger
        from stable_baselines3.common.vec_env import DummyVecEnv

        self._pair, self._patch = pair, monkeypatch
        count = ENVS if pair.on_policy else 1
        self.envs = [Scripted(pair.actions, seed, pair.has_mask) for seed in range(count)]
        vector = DummyVecEnv([lambda env=env: env for env in self.envs])
        vector.buf_rews = vector.buf_rews.astype(np.float64)
        module, _, name = pair.peer.partition(':')
        kind, arguments = (
            getattr(importlib.import_module(module), name),
            copy.deepcopy({**pair.their_sizes, **pair.theirs}),
        )
        self.model = kind(pair.network, vector, seed=0, device='cpu', **arguments)
        self.model.set_logger(Logger(None, []))
        self.model.policy.double()  # also parameters that were made as float32
        pair.adjust(self.model, monkeypatch)
        self.weights: list[Weights] = []
        """Before each call of ``train``, and at the end."""
        self.trainings: list[dict[str, Any]] = []
        """What each call of ``train`` read, drew and logged."""
        self._now: dict[str, Any] = {}
        self.model.train = self._writing(self.model.train)
        if pair.on_policy:
            self.buffer = self.model.rollout_buffer
            self.buffer.reset = self._in_float64(self.buffer.reset)
        else:
            self.buffer = self.model.replay_buffer
            self.buffer._get_samples = self._noting('batches', self.buffer._get_samples)
        self.model.learn(pair.steps)
        self.weights.append(copied(pair.weights(self.model)))

    def _in_float64(self, reset: Callable[[], None]) -> Callable[[], None]:
        def both() -> None:
            reset()
            for name, value in vars(self.buffer).items():
                if isinstance(value, np.ndarray) and value.dtype == np.float32:
                    setattr(self.buffer, name, value.astype(np.float64))

        return both

    def _noting(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def noting(first: Any, *others: Any, **named: Any) -> Any:
            self._now[name].append(np.array(first))
            return function(first, *others, **named)

        return noting

    def _writing(self, train: Callable[..., None]) -> Callable[..., None]:
        def writing(*arguments: Any, **named: Any) -> None:
            self.weights.append(copied(self._pair.weights(self.model)))
            self._now = {name: [] for name in ('batches', 'permutations', 'normal')}
            for name in ('actions', 'advantages', 'returns', 'log_probs') if self._pair.on_policy else ():
                self._now[name] = getattr(self.buffer, name).copy()
            with self._patch.context() as patch:
                self._write_draws(patch)
                train(*arguments, **named)
            self.trainings.append(self._now | {'log': dict(self.model.logger.name_to_value)})

        return writing

    def _write_draws(self, patch: pytest.MonkeyPatch) -> None:
        """Replaces the functions that updates draw by: of permutations and normal numbers."""
        now, permutation, normal_ = self._now, np.random.permutation, torch.Tensor.normal_

        def permuted(count: int) -> np.ndarray:
            now['permutations'].append(permutation(count))
            return now['permutations'][-1]

        def drawn(tensor: torch.Tensor, mean: float = 0.0, std: float = 1.0) -> torch.Tensor:
            noise = normal_(tensor, mean, std)
            now['normal'] += [noise.double().numpy() / std] if std else []
            return noise

        patch.setattr(np.random, 'permutation', permuted)
        patch.setattr(torch.Tensor, 'normal_', drawn)
        if self._pair.is_recurrent:
            patch.setattr(np.random, 'randint', lambda count: 0)  # where the first minibatch begins


def section(options: Any) -> dict[str, Any]:
    """Returns nested dicts of dotted keys."""
    tree: dict[str, Any] = {}
    for key, value in options.items():
        *path, name = key.split('.')
        inner = tree
        for part in path:
            inner = inner.setdefault(part, {})
        inner[name] = value
    return tree


class Ours:
    """Our policy, which learns what another library's learner did.

    Args:
        pair: What it is to train.
        peer: The other learner, after its training.
    """

    def __init__(self, pair: Pair, peer: Peer) -> None:
        self._pair, self._peer, env = pair, peer, peer.envs[0]
        space = env.observation_space
        if pair.has_mask:
            mask = gymnasium.spaces.MultiBinary(int(env.action_space.nvec.sum()))
            space = gymnasium.spaces.Dict({'observation': space, 'action_mask': mask})
        options = section({**pair.sizes, **pair.ours}) | {'type': pair.policy, 'device': 'cpu'}
        self.policy = create_policy(options, EnvSpec(space, env.action_space, name='Scripted'))
        self._draws = self.policy.rng = Draws()
        mode = self.policy.learn_mode
        state = mode.state_dict() | peer.weights[0]
        mode.load_state_dict(state | ({'updates': pair.counted} if 'updates' in state else {}))
        if pair.is_recurrent:
            self._state = torch.zeros(ENVS, *self.policy.model.state_shape)

    def weights(self) -> Weights:
        """Returns all weights that learning changes."""
        state = self.policy.learn_mode.state_dict()
        return {name: state[name] for name in ('model', 'log_alpha') if name in state} | (
            {'target_model': state['target_model']} if state.get('target_model') else {}
        )

    def learn(self, number: int) -> tuple[list[dict[str, Any]], Batch | None]:
        """Learns what a call of the other learner's ``train`` did; returns what each update logs, and a round's samples."""
        training = self._peer.trainings[number]
        if not self._pair.on_policy:
            drawn = training['normal']
            if self._pair.draws_next_last:
                drawn = [noise for i in range(0, len(drawn), 2) for noise in (drawn[i + 1], drawn[i])]
            self._draws.normal = drawn
            return [self._update(index) for index in training['batches']], None
        data = self.policy.collect_mode.get_train_sample(self._block(number))
        env, step = np.divmod(np.arange(len(data)), len(data) // ENVS)
        rows = step * ENVS + env  # where rows that stand env by env are among those that stand step by step
        self._draws.permutations = [rows[order] for order in training['permutations']]
        return [update() for update in self.policy.learn_mode.forward(data)], data

    def _update(self, index: np.ndarray) -> dict[str, Any]:
        rows, action = (
            self._columns([self._peer.envs[0].steps[i] for i in index]),
            self._peer.buffer.actions[index, 0],
        )
        rows['action'] = action[:, 0] if action.dtype.kind == 'i' else action
        return self.policy.learn_mode.forward(Batch(rows))

    def _columns(self, steps: list[dict[str, Any]]) -> dict[str, np.ndarray]:
        rows = {name: np.array([step[name] for step in steps]) for name in steps[0]}
        for name, mask in (('obs', rows.pop('mask')), ('next_obs', rows.pop('next_mask'))):
            rows[name] = rows[name].astype(np.float64)
            if self._pair.has_mask:
                fields = [('observation', 'f8', OBS_SIZE), ('action_mask', 'i1', mask.shape[1])]
                both = np.zeros(len(mask), np.dtype(fields, align=True))
                both['observation'], both['action_mask'] = rows[name], mask
                rows[name] = both
        return rows

    def _block(self, number: int) -> Batch:
        """Returns the columns of a round, [T, N, ...], with those that our policy adds while it acts."""
        actions = self._peer.trainings[number]['actions']
        length = len(actions)
        steps = slice(number * length, (number + 1) * length)
        each = [self._columns(env.steps[steps]) for env in self._peer.envs]
        block = {name: np.stack([rows[name] for rows in each], 1) for name in each[0]}
        block['action'] = actions[..., 0] if self.policy.distribution.size == 3 else actions
        block['collect_iter'] = np.zeros(block['reward'].shape, np.int32)
        return Batch(block | self._acted(block))

    def _acted(self, block: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns logits and, of a policy with a memory, the states before them."""
        if not self._pair.is_recurrent:
            logits = [self.policy._logit(obs) for obs in block['obs']]
            return {'logit': np.stack(logits)}
        logits, states = [], []
        for obs, terminated, truncated in zip(
            *(block[name] for name in ('obs', 'terminated', 'truncated')), strict=True
        ):
            states.append(self._state)
            with torch.no_grad():
                logit, after = self.policy.model.step(torch.as_tensor(obs), self._state)
            logits.append(logit)
            self._state = after * torch.as_tensor(~(terminated | truncated))[:, None, None]
        return {'logit': torch.stack(logits).numpy(), 'state': torch.stack(states).numpy()}
