"""Options of the section ``checkpoint`` of a run, in their own file so that configs are checked without numpy."""

from __future__ import annotations

from rlframe.utils.field import Field, Options

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
