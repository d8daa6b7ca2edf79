"""Options of checkpoints and of the coordinator of parallel mode, so that configs are checked without either."""

from __future__ import annotations

from typing import Literal

from rlframe.utils.every import seconds
from rlframe.utils.field import Section, fields_of, option


class CheckpointConfig(Section):
    """Section ``checkpoint`` of a run."""

    keep_last: int = option(
        2,
        range='[1, inf)',
        unit='checkpoints',
        doc='number of states of the whole training that are kept, the newest',
        may_change=True,
    )
    keep_best: int = option(
        1,
        range='[1, inf)',
        unit='checkpoints',
        doc='number of policies that are kept, those with the best scores',
        may_change=True,
    )
    replay_buffer: Literal['every', 'incremental', 'none'] = option(
        'every',
        doc='checkpoints that contain the replay buffer: every one, every one with unchanged rows written once'
        ' (incremental), or none, so that a resume is not exact',
        may_change=True,
    )


CHECKPOINT_FIELDS = fields_of(CheckpointConfig)


class DeadlinesConfig(Section):
    """How long those wait for workers that answer them, in seconds."""

    beat_interval: float = seconds(1.0, 'interval between two signs of life of a worker')
    worker_deadline: float = seconds(15.0, 'time of silence after which a worker counts as lost')
    role_deadline: float = seconds(
        120.0,
        'time without any collector, or without any learner, after which the run ends; workers that -m parallel started are'
        ' waited for while they run',
    )
    wait: float = seconds(0.05, 'pause before a worker asks again if there is nothing to do or no data yet')
    stall_deadline: float = seconds(
        120.0, 'time of a task without a step or an update after which its worker counts as lost'
    )


class CoordinatorConfig(DeadlinesConfig):
    """Options of ``Coordinator``."""

    state_interval: float = seconds(
        30.0,
        'interval between two states of the learner that are kept for one that may have to take its place',
    )
    max_updates_due: int | None = option(
        None,
        range='[0, inf)',
        unit='updates',
        doc='updates that the learner may be behind before collectors wait; None: those of four parts',
        may_change=True,
    )
    max_staleness: int | None = option(
        None,
        range='[0, inf)',
        unit='train iterations',
        doc='greatest age of the weights of fresh data when the learner gets them; older parts are discarded and counted; None: any.'
        ' Rows in a replay buffer have replay_buffer.max_staleness',
        may_change=True,
    )
