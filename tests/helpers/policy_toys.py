"""What tests of updates need: specs, small policies, random transitions, and target networks that differ from the online ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from rlframe.data import Batch, EnvSpec
from rlframe.policy import create_policy

OBS = spaces.Box(-1, 1, (3,), np.float32)
PLAIN: Any = EnvSpec(OBS, spaces.Discrete(4), name='Toy-v0')
BOX: Any = EnvSpec(OBS, spaces.Box(-1, 1, (2,), np.float32), name='Toy-v0')
MASKED: Any = EnvSpec(
    spaces.Dict(observation=OBS, action_mask=spaces.MultiBinary(4)), spaces.Discrete(4), name='Toy-v0'
)


def small(
    kind: str, spec: Any = PLAIN, *, seed: int = 0, model: Mapping[str, Any] | None = None, **options: Any
) -> Any:
    """Creates a policy on the CPU, with a hidden layer of 8.

    Args:
        kind: Its name.
        spec: Of its env.
        seed: Of its weights, and of what is drawn from torch afterwards.
        model: Options of its network, beside or in place of that layer.
        options: Of the policy.
    """
    torch.manual_seed(seed)
    sizes = {'encoder_hidden_size_list': [8]} | dict(model or {})
    return create_policy({'type': kind, 'cuda': False, 'model': sizes} | options, spec, seed=seed)


def random_rows(size: int = 6, seed: int = 0, actions: int | None = 4, **more: Any) -> Batch:
    """Returns transitions with observations of three numbers, some of which end an episode.

    Args:
        size: Number of rows.
        seed: Of all numbers.
        actions: Number of actions; None: an action is two numbers in [-1, 1].
        more: Further columns.
    """
    rng = np.random.default_rng(seed)
    return Batch(
        obs=rng.normal(size=(size, 3)).astype(np.float32),
        next_obs=rng.normal(size=(size, 3)).astype(np.float32),
        action=rng.integers(actions, size=size).astype(np.uint8)
        if actions
        else rng.uniform(-1, 1, (size, 2)).astype(np.float32),
        reward=rng.normal(size=size).astype(np.float32),
        terminated=np.arange(size) % 3 == 0,
        truncated=np.arange(size) % 3 == 1,
        **more,
    )


def random_sequences(
    lengths: Sequence[tuple[int, int, str]],
    burn_in: int,
    steps: int,
    state_shape: tuple[int, ...],
    actions: int | None = 4,
    seed: int = 1,
    **more: Any,
) -> Batch:
    """Returns sequences of transitions, each with the recurrent state that it was acted in, and 7 where there is padding.

    Args:
        lengths: Of each sequence: real steps of its burn-in, its own real steps, and the column of its last one that is True.
        burn_in: Columns of the burn-in.
        steps: Columns behind it.
        state_shape: Of a recurrent state.
        actions: Number of actions; None: an action is two numbers in [-1, 1].
        seed: Of all numbers.
        more: Further columns.
    """
    rng, shape = np.random.default_rng(seed), (len(lengths), burn_in + steps)
    walk = rng.normal(size=(shape[0], shape[1] + 1, 3)).astype(np.float32)
    columns = dict(
        obs=walk[:, :-1].copy(),
        next_obs=walk[:, 1:].copy(),
        action=rng.integers(actions, size=shape).astype(np.uint8)
        if actions
        else rng.uniform(-1, 1, (*shape, 2)).astype(np.float32),
        reward=rng.normal(size=shape).astype(np.float32),
        terminated=np.zeros(shape, bool),
        truncated=np.zeros(shape, bool),
        state=rng.normal(size=(*shape, *state_shape)).astype(np.float32),
    )
    mask = np.zeros(shape, bool)
    for i, (early, own, ending) in enumerate(lengths):
        mask[i, burn_in - early : burn_in + own] = True
        if ending in columns:
            columns[ending][i, burn_in + own - 1] = True
    for column in columns.values():
        column[~mask] = 7 if column.dtype == np.float32 else 0
    return Batch(columns, mask=mask, **more)


def random_block(
    steps: int = 7, envs: int = 3, seed: int = 0, ragged: bool = False, actions: int = 4
) -> Batch:
    """Returns the rows of a round, [steps, envs, ...], in which episodes end.

    Args:
        steps: Rows of an env.
        envs: Number of envs.
        seed: Of all numbers.
        ragged: Whether later envs have fewer rows, and a column ``mask`` says which.
        actions: Number of actions.
    """
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(steps + 1, envs, 3)).astype(np.float32)
    terminated = rng.random((steps, envs)) < 0.2
    truncated = ~terminated & (rng.random((steps, envs)) < 0.2)
    next_obs = obs[1:].copy()
    ended = terminated | truncated
    next_obs[ended] = rng.normal(size=(int(ended.sum()), 3))  # the true last obs, not the next first one
    columns = {
        'obs': obs[:-1],
        'next_obs': next_obs,
        'action': rng.integers(actions, size=(steps, envs)),
        'logit': rng.normal(size=(steps, envs, actions)).astype(np.float32),
        'reward': rng.normal(size=(steps, envs)).astype(np.float32),
        'terminated': terminated,
        'truncated': truncated,
        'collect_iter': np.full((steps, envs), 3, np.int32),
    }
    if ragged:
        mask = np.arange(steps)[:, None] < np.array([steps, steps - 2, steps - 5])[:envs]
        for column in columns.values():
            column[~mask] = 0
        columns['mask'] = mask
    return Batch(columns)


def apart(policy: Any, distance: float = 1.0) -> Any:
    """Moves the target networks of a policy away from the online ones, and returns the policy."""
    with torch.no_grad():
        for parameter in policy.update.targets.network.parameters():
            parameter.add_(distance * torch.randn_like(parameter))
    return policy
