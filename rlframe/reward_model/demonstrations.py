"""Demonstrations, read from recorded data."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.dataset import DATA_FORMS, check_source, open_data
from rlframe.data.sources import DataSource, joined
from rlframe.data.timestep import Batch, EnvSpec
from rlframe.errors import ConfigError
from rlframe.policy.parts.actions import ActionMap
from rlframe.utils.field import Field

READ = 'obs', 'action', 'next_obs', 'reward', 'terminated', 'truncated', 'episode'
"""Columns of demonstrations that reward models may read."""
RECORD = 'rlframe collect RUN --steps 10000 --out expert.npz records the policy of a run.'
"""How demonstrations are made."""
DATA = Field(None, doc='demonstrations, as policy.collect.collector.data', reaches='code')
"""Option for recorded data that a reward model learns from."""


def demonstrations(data: Any, spec: EnvSpec) -> Batch:
    """Returns recorded rows in order of time, with the actions that a network would have meant; see ``recorded_rows``."""
    rows = recorded_rows(data, spec)
    return rows.replace(action=ActionMap(spec).from_env(np.asarray(rows['action'])))


def recorded_rows(data: Any, spec: EnvSpec) -> Batch:
    """Returns recorded rows in order of time.

    Args:
        data: What ``open_data`` accepts.
        spec: Spec of the env.

    Raises:
        ConfigError: If there are none, they are of another env, or they come row by row.
    """
    if data is None:
        message = 'a reward model that learns from demonstrations has none'
        raise ConfigError(message, where='data', got=None, expected=DATA_FORMS, remedy=RECORD)
    source = open_data(data, 'data')
    check_source(source, spec, 'data')
    rows = joined([_columns(each) for each in getattr(source, 'sources', [source])])
    source.close()
    return rows


def _columns(source: DataSource) -> Batch:
    """Returns the columns of one of the data that demonstrations consist of."""
    rows = getattr(source, 'rows', None)
    if not isinstance(rows, Batch):
        raise ConfigError(
            'demonstrations lie in memory, in order of time',
            where='data',
            got=type(source).__name__,
            expected='columns, such as those of an .npz file',
        )
    return Batch({name: rows[name] for name in READ if name in rows})
