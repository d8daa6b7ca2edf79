"""Checks the saved state of an env manager, and names the invalid part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.utils.schema import COUNT, TEXT, array, check_state, dict_of, list_of, maybe
from rlframe.utils.schema import part as saved_part

__all__ = ['check_manager_state', 'saved_part']


def check_manager_state(state: Any, obs: Any, counts: Mapping[str, Any]) -> None:
    """Checks that a state belongs to a manager of this many envs.

    Args:
        state: Result of a manager's ``state_dict``.
        obs: Observations of its envs, [N, ...].
        counts: The counters of each env, by name, [N].

    Raises:
        CheckpointStateError: With the part's name.
    """
    env_num = len(obs)
    ints = array('iu', (env_num,))
    own = obs.dtype
    check_state(
        state,
        {
            **dict.fromkeys(counts, ints),
            'obs': array('' if own.names else own.kind, tuple(np.shape(obs))),
            'seed': list_of(maybe(COUNT), env_num),
            'begun': list_of(maybe(COUNT), env_num),
            'restarts': ints,
            'lost': dict_of(TEXT),
            'dropped': list_of(COUNT),
            'faults': {'causes': list_of(TEXT)},
            'envs': {},
        },
    )
