"""Updates of policies to measure: their batches and the functions that do them, for updates.py and gpu.py."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces

from rlframe.data import Batch, EnvSpec
from rlframe.policy import create_policy

VECTOR, IMAGES = (4,), (4, 84, 84)
CONTINUOUS = 'sac', 'td3', 'ddpg'
ON_POLICY = 'ppo', 'a2c'


class Case(NamedTuple):
    """An update to measure."""

    policy: str
    batch_size: int
    hidden: tuple[int, ...]
    obs: tuple[int, ...] = VECTOR
    actions: int = 4
    """Number of actions, or of their dimensions."""
    epochs: int = 1
    """Passes over the rows of a round, of a policy that learns from fresh data."""
    minibatches: int = 1
    """Minibatches of a pass."""
    steps: int = 0
    """Steps of a sequence, of a policy that learns from sequences; a quarter of them is the burn-in."""
    policy_options: dict[str, Any] = {}
    """Further options of the policy; its section ``model`` is added to the sizes."""

    @property
    def title(self) -> str:
        """What is measured, in words."""
        network = 'Nature CNN' if self.obs == IMAGES else 'MLP ' + '-'.join(map(str, self.hidden))
        what = 'sequences' if self.steps else 'samples'
        return f'{self.policy}, {network}, {self.batch_size} {what}'

    @property
    def burn_in(self) -> int:
        """Steps of a sequence that only compute the recurrent state."""
        return self.steps // 4


def batch_of(case: Case, seed: int = 0) -> Batch:
    """Returns the random rows of a round, or of a batch."""
    rng = np.random.default_rng(seed)
    size = (case.batch_size * case.minibatches, *([case.steps] if case.steps else []))

    def obs() -> np.ndarray:
        shape = (*size, *case.obs)
        if case.obs == IMAGES:
            return rng.integers(0, 256, shape, np.uint8)
        return rng.standard_normal(shape, np.float32)

    if case.policy in CONTINUOUS:
        action = rng.uniform(-1, 1, (*size, case.actions)).astype(np.float32)
    else:
        action = rng.integers(0, case.actions, size)
    numbers = {name: rng.standard_normal(size, np.float32) for name in ('reward', 'advantage', 'return_')}
    columns = dict(obs=obs(), action=action, log_prob=np.full(size, -1.4, np.float32), **numbers)
    if case.policy not in ON_POLICY:
        columns |= dict(next_obs=obs(), terminated=rng.random(size) < 0.05)
    if case.steps:
        state = np.zeros((*size, 2, case.hidden[-1]), np.float32)
        columns |= dict(mask=np.ones(size, bool), state=state)
    return Batch(columns)


def policy_of(case: Case, device: str, **options: Any) -> Any:
    """Returns a new policy with the networks of a case.

    Args:
        case: The case.
        device: Device of the policy.
        options: Further options, such as ``compile=True``.
    """
    images = case.obs == IMAGES
    obs = spaces.Box(0, 255, case.obs, np.uint8) if images else spaces.Box(-1, 1, case.obs)
    action = (
        spaces.Box(-1, 1, (case.actions,)) if case.policy in CONTINUOUS else spaces.Discrete(case.actions)
    )
    learn: dict[str, Any] = dict(batch_size=case.batch_size)
    if case.policy in ON_POLICY:
        learn |= dict(epoch_per_collect=case.epochs)
    hidden = case.hidden[:-1] if case.steps else case.hidden
    model = dict(encoder_hidden_size_list=list(hidden)) | (dict(encoder='nature') if images else {})
    if case.steps:
        learn, model = learn | dict(burn_in=case.burn_in), model | dict(lstm_hidden_size=case.hidden[-1])
    own = {**case.policy_options}
    model |= own.pop('model', {})
    cfg = dict(type=case.policy, device=device, model=model, learn=learn) | own | options
    return create_policy(cfg, EnvSpec(obs, action), seed=0)


def update_of(case: Case, device: str = 'cpu', batches: int = 1, **options: Any) -> Callable[[], int]:
    """Returns a function that updates a new policy from one of several batches, and returns how many updates that took.

    Batches of transitions lie on the device, as a replay buffer there would give them. The rounds of on-policy policies and
    the sequences of recurrent ones lie on the host.
    """
    policy = policy_of(case, device, **options)
    rows = [batch_of(case, seed) for seed in range(batches)]
    if device != 'cpu' and case.policy not in ON_POLICY and not case.steps:
        rows = [batch.to(device) for batch in rows]
    forward, stream = policy.learn_mode.forward, cycle(rows)

    def update() -> int:
        result = forward(next(stream))
        return 1 if isinstance(result, dict) else sum(1 for one in result if one())

    return update


def settle(device: str) -> None:
    """Waits until the device has done what it was asked for."""
    if device != 'cpu':
        torch.cuda.synchronize()
