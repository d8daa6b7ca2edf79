"""Recorded transitions: how a policy that replays transitions learns from data instead."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.recording import STEP
from rlframe.data.timestep import Batch, TimeStep
from rlframe.policy.parts.sequences import real_rows

FROM_DATA: dict[str, Any] = dict(collector=dict(type='dataset'), n_sample=None)
"""Section ``collect`` of policies that learn from data, one batch a round."""


def transitions_of(policy: Any, block: Batch) -> Batch:
    """Returns recorded rows of envs, [T, N, ...], as the rows that the policy would have collected, [M, ...].

    Actions get the units of its network, and recurrent states are those at the beginning of an episode. Rows that lack a
    column of an env step stay as they are.
    """
    rows = block.map(lambda column: column[real_rows(block)])
    if any(name not in rows for name in STEP):
        return rows
    ends = (rows['terminated'], rows['truncated'])
    step = TimeStep(rows['next_obs'], rows['reward'], *ends, (), np.arange(len(rows)))
    output = Batch.unchecked({'action': rows['action'], **_states(policy, len(rows))}, len(rows))
    return rows.replace(**policy.process_transition(rows['obs'], output, step))


def _states(policy: Any, count: int) -> dict[str, Any]:
    """Returns the recurrent states of recorded rows, of a policy with a core: zeros, [n, ...]."""
    if policy._memory is None:
        return {}
    return {'state': np.zeros((count, *policy.model.state_shape), np.float32)}
