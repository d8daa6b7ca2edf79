"""Options of every parallel collector."""

from __future__ import annotations

from rlframe.utils.field import Field, Options, ResolvedConfig

FIELDS: Options = dict(
    print_freq=Field(
        5,
        range='[1, inf)',
        unit='parts of a task',
        doc='between two messages in the log',
        may_change=True,
    ),
    compressor=Field('lz4', ignored='arrays are sent as they are'),
    update_policy_second=Field(
        0.0,
        range='[0, inf)',
        unit='seconds',
        doc='minimum time between two fetches of newer weights',
        may_change=True,
    ),
    weights_timeout=Field(
        60.0,
        range='(0, inf)',
        unit='seconds',
        doc='to wait for the weights that a task requires, before it is abandoned',
        may_change=True,
    ),
    close_timeout=Field(
        10.0,
        range='[0, inf)',
        unit='seconds',
        doc='that close() waits for the running step before it closes the envs',
        may_change=True,
    ),
)
"""Options of ``BaseParallelCollector``."""


class ParallelCollectorConfig(ResolvedConfig):
    """Options of every parallel collector."""

    print_freq: int
    update_policy_second: float
    weights_timeout: float
    close_timeout: float
