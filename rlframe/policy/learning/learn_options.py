"""Options of training that several policies share, each declared once."""

from __future__ import annotations

from rlframe.policy.learning.schedule import check_positive_schedule
from rlframe.utils.field import Field

BATCH_SIZE = Field(64, range='[1, inf)', unit='transitions', doc='of one update', may_change=True)
DISCOUNT_FACTOR = Field(0.99, range='[0, 1]', unit='per env step', doc='weight of the next reward')
UPDATE_PER_COLLECT = Field(
    3, range='[1, inf)', unit='train iterations', doc='updates per round of collection', may_change=True
)


def learning_rate(default: float, of: str = 'the optimizer', over: str = 'env steps') -> Field:
    """Returns the option for a learning rate.

    Args:
        default: Its default.
        of: Name of its owner.
        over: Unit of a schedule.
    """
    return Field(
        default,
        type=(float, dict),
        doc=f'of {of}; a schedule over {over}',
        check=check_positive_schedule,
        may_change=True,
    )
