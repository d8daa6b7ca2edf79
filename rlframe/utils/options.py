"""Options of the coordinator of parallel mode, in their own file so that configs are checked without it."""

from __future__ import annotations

from rlframe.utils.field import Field, Options, ResolvedConfig

CHECKPOINT_FIELDS: Options = dict(
    keep_last=Field(
        2,
        range='[1, inf)',
        unit='checkpoints',
        doc='of the whole training state that are kept, the newest',
        may_change=True,
    ),
    keep_best=Field(
        1,
        range='[1, inf)',
        unit='checkpoints',
        doc='of the policy that are kept, those with the best scores',
        may_change=True,
    ),
    replay_buffer=Field(
        'every',
        choices=('every', 'latest', 'incremental', 'none'),
        doc='which checkpoints contain the replay buffer: every one, only the latest, every one with unchanged rows written'
        ' once (incremental), or none, so that a resume is not exact',
        may_change=True,
    ),
)
"""Options of the section ``checkpoint`` of a run."""


COORDINATOR_FIELDS: Options = dict(
    beat_interval=Field(
        1.0,
        range='(0, inf)',
        unit='seconds',
        doc='between two signs of life of a worker',
        may_change=True,
    ),
    worker_deadline=Field(
        15.0,
        range='(0, inf)',
        unit='seconds',
        doc='of silence after which a worker counts as lost',
        may_change=True,
    ),
    role_deadline=Field(
        120.0,
        range='(0, inf)',
        unit='seconds',
        doc='without any collector, or without any learner, after which the run ends',
        may_change=True,
    ),
    wait=Field(
        0.05,
        range='(0, inf)',
        unit='seconds',
        doc='after which a worker asks again if there is nothing to do or no data yet',
        may_change=True,
    ),
    stall_deadline=Field(
        120.0,
        range='(0, inf)',
        unit='seconds',
        doc='of a task without a step or an update, after which its worker counts as lost',
        may_change=True,
    ),
    state_interval=Field(
        30.0,
        range='(0, inf)',
        unit='seconds',
        doc='between two states of the learner that are kept for one that may have to take its place',
        may_change=True,
    ),
    max_updates_due=Field(
        None,
        type=int,
        range='[0, inf)',
        unit='updates',
        doc='that the learner may be behind before collectors wait; None: those of four parts',
        may_change=True,
    ),
)
"""Options of ``Coordinator``."""


class CoordinatorConfig(ResolvedConfig):
    """Options of ``Coordinator``."""

    beat_interval: float
    worker_deadline: float
    role_deadline: float
    wait: float
    stall_deadline: float
    state_interval: float
    max_updates_due: int | None
