"""Options of the section ``parallel`` that belong to no component."""

from __future__ import annotations

from typing import Any

from rlframe.utils.coordinator_options import COORDINATOR_FIELDS
from rlframe.utils.field import Field, Options

LOOPBACK = ('127.0.0.1', 'localhost', '::1')
"""Hosts that only this machine reaches."""


def _is_loopback(host: Any) -> bool:
    return isinstance(host, str) and host in LOOPBACK


PARALLEL_FIELDS: Options = {
    'collector_num': Field(
        2,
        range='[1, inf)',
        unit='collectors',
        doc='that -m parallel starts on this machine',
        may_change=True,
    ),
    'learner_num': Field(
        1,
        range='[1, inf)',
        unit='learners',
        doc='that train one policy together',
    ),
    'path_data': Field(
        None,
        type=str,
        doc='folder for arrays that all roles share (flask_fs); None: the folder data in the run folder, with -m parallel only',
        may_change=True,
        reaches='file',
    ),
    'max_restarts': Field(
        3,
        range='[0, inf)',
        unit='restarts',
        doc='of each worker that -m parallel started, within restart_window',
        may_change=True,
    ),
    'restart_window': Field(
        600.0,
        range='(0, inf)',
        unit='seconds',
        doc='in which restarts of a worker are counted',
        may_change=True,
    ),
    'close_timeout': Field(
        20.0,
        range='(0, inf)',
        unit='seconds',
        doc='that the workers have to leave at the end, before they are killed',
        may_change=True,
    ),
    'coordinator': {
        **COORDINATOR_FIELDS,
        'host': Field(
            '127.0.0.1',
            doc='address that the coordinator listens on; one that other machines reach needs a token',
            may_change=True,
            reaches='network',
            harmless=_is_loopback,
        ),
        'port': Field(
            None,
            type=int,
            range='[0, 65535]',
            doc='port that it listens on; None: a free one with -m parallel, 7235 with -m coordinator',
            may_change=True,
            reaches='network',
        ),
        'transport': Field(
            {},
            doc="further options of the transport's server, such as token",
            may_change=True,
            reaches='network',
        ),
    },
}
"""Options of the section ``parallel``, beside those of its components."""
