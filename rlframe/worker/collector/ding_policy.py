"""Accepts policies in DI-engine's form: functions of dicts from env id to observation, one env at a time."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from rlframe.data.timestep import Array, Batch, EnvSpec, IntArray, TimeStep, to_array

SETTINGS = ('eps', 'epsilon', 'sigma', 'temperature', 'action_mask')
"""Second parameters of a ``forward`` of DI-engine's form, whose first one holds the env ids already."""


class DingTimestep(NamedTuple):
    """One step of one env, as DI-engine's policies read it."""

    obs: Any
    reward: Array
    """float32 [1]."""
    done: bool
    info: Mapping[str, Any]


class DingPolicy:
    """A collect or eval face of DI-engine's form, with the functions of rlframe's faces.

    Its rows are its own transitions, with ``terminated`` and ``truncated`` of the env. As in DI-engine, the policy makes
    training samples itself, of the steps of one env and one episode at a time. ``spec`` returns the spec of the env, or of one
    player.
    """

    def __init__(self, mode: Any, spec: Callable[[], EnvSpec]) -> None:
        self._mode, self._spec = mode, spec
        self._outputs: dict[int, Mapping[str, Any]] = {}  # last output for each env

    def forward(self, obs: Any, env_id: IntArray | None = None, **settings: Any) -> Any:
        """Returns the actions as rows, [n, ...]; for a dict of observations, what the policy returns."""
        if env_id is None:
            return self._mode.forward(obs, **settings)
        ids = env_id.tolist()
        outputs = self._mode.forward({env: _floats(obs[i]) for i, env in enumerate(ids)}, **settings)
        self._outputs.update(outputs)
        space: Any = self._spec().action_space
        action = np.stack([to_array(outputs[env]['action']) for env in ids])
        return Batch(action=action.reshape(len(ids), *space.shape).astype(space.dtype, copy=False))

    def process_transition(self, obs: Array, output: Batch, timestep: TimeStep) -> dict[str, Any]:
        rows = []
        for i, env in enumerate(timestep.env_id.tolist()):
            reward = np.asarray(timestep.reward[i : i + 1], np.float32)
            step = DingTimestep(timestep.obs[i], reward, bool(timestep.done[i]), timestep.info[i])
            rows.append(dict(self._mode.process_transition(obs[i], self._outputs[env], step)))
        columns = dict(Batch.from_rows(rows).map(to_array).items())
        return columns | {'terminated': timestep.terminated, 'truncated': timestep.truncated}

    def get_train_sample(self, block: Batch) -> Batch:
        done = block['terminated'] | block['truncated']
        real = block['mask'] if 'mask' in block else np.ones_like(done)
        columns = {name: column for name, column in block.items() if name != 'mask'}
        samples: list[Mapping[str, Any]] = []
        for env in range(done.shape[1]):
            count = int(real[:, env].sum())
            ends = [0, *(np.flatnonzero(done[:count, env]) + 1).tolist(), count]
            for start, stop in pairwise(ends):
                rows = [
                    {name: _value(column[t, env]) for name, column in columns.items()}
                    for t in range(start, stop)
                ]
                samples += self._mode.get_train_sample(rows) if rows else []
        return Batch.from_rows(samples).map(to_array)

    def reset(self, env_id: IntArray | None = None) -> None:
        self._mode.reset(None if env_id is None else np.asarray(env_id).tolist())

    def get_attribute(self, name: str) -> Any:
        """Returns an attribute of the policy, which makes its n-step rows and samples itself."""
        own = {'on_policy': True, 'nstep': 1}
        if name in own:
            return own[name]
        try:
            return self._mode.get_attribute(name)
        except (NotImplementedError, KeyError) as error:
            raise AttributeError(f'the policy has no attribute {name!r}') from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__['_mode'], name)


def as_rows(policy: Any, spec: Callable[[], EnvSpec]) -> Any:
    """Returns a face whose functions take rows; a policy of DI-engine's form is adapted, any other one is returned."""
    return DingPolicy(policy, spec) if _is_dings(policy) else policy


def _is_dings(policy: Any) -> bool:
    """Whether ``forward`` takes a dict of observations alone, not rows and their env ids."""
    forward = getattr(policy, 'forward', None)
    if forward is None or hasattr(forward, 'on_rows') or isinstance(policy, DingPolicy):
        return False
    try:
        parameters = list(inspect.signature(forward).parameters.values())
    except (TypeError, ValueError):
        return False
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return False
    own = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(own) == 1 or (len(own) > 1 and own[1] in SETTINGS)


def _floats(obs: Any) -> Any:
    """Returns an observation as a float32 tensor, or as a dict of such."""
    if isinstance(seen := _value(obs), dict):
        return {name: _floats(obs[name]) for name in seen}
    return seen.float()


def _value(value: Any) -> Any:
    """Returns a value of a row as a tensor, a dict of tensors or, if it is a flag, a bool; floats are float32."""
    import torch

    if value.dtype.names is not None:
        return {name: _value(value[name]) for name in value.dtype.names}
    if value.dtype == np.bool_ and not value.ndim:
        return bool(value)
    tensor = torch.tensor(value)
    return tensor.float() if tensor.dtype == torch.float64 else tensor
