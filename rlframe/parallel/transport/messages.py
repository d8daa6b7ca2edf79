"""The messages of parallel mode, the same for every transport.

A message is a frozen dataclass. Its fields are texts, numbers, flags, or dicts and lists of those; arrays travel beside
it as its payload. ``encode`` and ``decode`` convert it to and from plain JSON values, and ``decode`` accepts a message
only if it has every declared field, no other one, and each with the annotated type: ints count from 0, and ``Annotated``
names what else is asked of a value.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, dataclass_transform, get_args, get_origin, get_type_hints

from rlframe.utils import schema
from rlframe.utils.schema import COUNT, FINITE, FLAG, Kind, Schema

MAX_TEXT = 4096
"""Letters of the longest text in a message."""
REJOIN = 'Join again.'
"""Remedy of a ``Refused`` to a worker that the coordinator does not know, or no longer."""
ROLES = ('collector', 'learner')
PURPOSES = CHECKPOINT, SPARE = 'checkpoint', 'spare'
"""What a state is for: a checkpoint, or a learner that may have to take the place of its sender."""
TASKS = ('collect', 'collect_at_random', 'evaluate', 'learn')
_NAME = re.compile(r'[A-Za-z0-9][A-Za-z0-9_.-]{0,63}')

TEXT = Kind(f'a text of at most {MAX_TEXT} letters', lambda v: isinstance(v, str) and len(v) <= MAX_TEXT)
NAME = Kind(
    "a name of at most 64 letters, digits, '_', '-' and '.'",
    lambda v: isinstance(v, str) and _NAME.fullmatch(v) is not None,
)
MAYBE_NAME = Kind("a name, or ''", lambda v: v == '' or NAME.fits(v))

Name = Annotated[str, NAME]
MaybeName = Annotated[str, MAYBE_NAME]
Role = Annotated[str, Kind(f'one of {ROLES}', lambda v: v in ROLES)]
Purpose = Annotated[str, Kind(f'one of {PURPOSES}', lambda v: v in PURPOSES)]
TaskKind = Annotated[str, Kind(f'one of {TASKS}', lambda v: v in TASKS)]
SignedInt = Annotated[int, schema.INT]
Numbers = Annotated[dict[str, float], schema.dict_of(Kind('a number', schema.NUMBER.fits))]
Plain = Annotated[
    Mapping[str, Any], Kind('a dict of plain values', lambda v: isinstance(v, Mapping) and _is_plain(v))
]
KIND_OF: Mapping[type, Kind] = {str: TEXT, int: COUNT, float: FINITE, bool: FLAG}
"""What is asked of a field with a plain type."""


def _is_plain(value: Any, depth: int = 0) -> bool:
    if value is None or isinstance(value, bool | int | float):
        return True
    if isinstance(value, str):
        return len(value) <= MAX_TEXT
    if depth > 8 or not isinstance(value, Mapping | list | tuple):
        return False
    if isinstance(value, Mapping) and not all(isinstance(name, str) for name in value):
        return False
    below = value.values() if isinstance(value, Mapping) else value
    return all(_is_plain(item, depth + 1) for item in below)


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
@dataclasses.dataclass(frozen=True)
class Message:
    """Base class of all messages; each subclass is a frozen dataclass by itself."""

    SCHEMA: ClassVar[Mapping[str, Schema]] = {}
    """Schema of each field."""
    has_payload: ClassVar[bool] = False
    """Whether arrays may travel with the message."""

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(frozen=True)(cls)
        hints = get_type_hints(cls, include_extras=True)
        cls.SCHEMA = {name: _schema_of(hints[name]) for name in inspect.get_annotations(cls)}


def _schema_of(hint: Any) -> Schema:
    """Returns the schema of a field with an annotation."""
    if get_origin(hint) is Annotated:
        kind: Kind = hint.__metadata__[0]
        return kind
    if get_origin(hint) is Sequence:
        return schema.list_of(_schema_of(get_args(hint)[0]))
    return KIND_OF[hint]


# what workers ask


class Join(Message):
    """A worker introduces itself; it is answered by ``Joined``."""

    role: Role
    name: Name
    """Name of the worker; the same name joins again after a loss."""
    version: str
    """Version of rlframe."""
    fingerprint: str
    """Hash of the part of the config that all roles must share."""
    pid: int
    host: str
    produced: int = 0
    """Training samples or episodes that it has produced so far, sent or not."""


class Beat(Message):
    """A sign of life; it is answered by ``Orders``."""

    task: MaybeName
    """The worker's task; empty if it has none."""
    progress: int
    """What grows as it works: steps of its envs, or its train iterations."""


class AskTask(Message):
    """A worker without a task asks for one; it is answered by ``Task`` or ``Wait``."""


class Collected(Message):
    """Data that a collector produced for its task, with them as payload; it is answered by ``Taken``."""

    task: Name
    part: int
    """Number of this message within the task, from 0."""
    rows: int
    """Training samples or episodes in the payload."""
    envstep: int
    """Env steps taken since the previous part."""
    version: int
    """Version of the weights that acted."""
    train_iter: int
    facts: Plain
    """Returns of ended episodes and the like."""
    has_payload = True


class Finished(Message):
    """A worker has completed or abandoned its task; it is answered by ``Orders``."""

    task: Name
    completed: bool
    reason: str
    """Why it was abandoned; empty if it was completed."""
    facts: Plain
    """Finish information of the task."""


class AskWeights(Message):
    """A collector asks for weights newer than its own; it is answered by ``Weights``."""

    policy: Name
    newer_than: SignedInt
    """Version that it has; -1 if none."""


class PutWeights(Message):
    """A learner publishes weights, with them as payload; it is answered by ``Orders``."""

    policy: Name
    version: int
    train_iter: int
    has_payload = True


class AskData(Message):
    """A learner asks for training data; it is answered by ``Data`` or ``Wait``."""

    task: Name
    train_iter: int


class LearnInfo(Message):
    """Results of a learner's updates, with priorities as payload if there are any; it is answered by ``Orders``."""

    task: Name
    train_iter: int
    info: Numbers
    batches: int = 1
    """Batches that were used since the last report."""
    has_payload = True


class PutState(Message):
    """The state of a learner, as payload; it is answered by ``Orders``."""

    purpose: Purpose
    """One of ``PURPOSES``."""
    train_iter: int
    has_payload = True


class Farewell(Message):
    """A worker leaves; it is answered by ``Orders``."""

    reason: str
    produced: int
    """Training samples or episodes that it has produced so far, sent or not."""


# what the coordinator answers


class Joined(Message):
    """The coordinator accepts a worker."""

    worker: Name
    """The worker's id, for all further messages."""
    beat_interval: float
    """Seconds between two signs of life."""
    rank: int = 0
    """Number among the workers of its role, which derives its random generators; a name keeps its number."""
    incarnation: int = 0
    """How often a worker of this name joined before and was lost."""


class Task(Message):
    """Work for a worker."""

    task: Name
    """Id of the task, which no other task of the run has."""
    kind: TaskKind
    """One of ``TASKS``."""
    policies: Sequence[Name]
    """The policies that act or learn, one for each player."""
    active: Sequence[bool]
    """Which of these players record data; the others act as in evaluations, without exploration."""
    buffer: MaybeName = ''
    """Replay buffer of the data; empty if there are none."""
    target: int = 0
    """Training samples or episodes of each part; 0: as configured."""
    parts: int = 0
    """Number of parts to collect; 0: until ``Taken.stop``."""
    newer_than: SignedInt = -1
    """Least version of the weights to act with; -1: any."""
    settings: Plain = dataclasses.field(default_factory=dict)
    """Arguments of the policy, such as ``eps``, and options of the task."""


class Wait(Message):
    """There is nothing to do or to give yet; ask again after some seconds."""

    seconds: float
    stop: bool
    """Whether to end instead."""
    reason: str


class Taken(Message):
    """What became of collected data."""

    pushed: int
    """Rows that were taken; the others were dropped."""
    stop: bool
    """Whether the task is over."""
    version: SignedInt
    """Newest version of the weights; -1 if there are none."""
    settings: Plain
    """Arguments of the policy for the next part."""


class Weights(Message):
    """Weights as payload; without one, the version asked for is the newest."""

    version: SignedInt
    train_iter: int
    has_payload = True


class Data(Message):
    """Training data as payload."""

    rows: int
    envstep: int
    """Env steps of the experiment so far."""
    has_payload = True


class Orders(Message):
    """What a worker has to do next."""

    stop: bool
    """Whether to leave; the reason says why."""
    abandon: bool
    """Whether to give up the current task."""
    save: SignedInt
    """Train iteration at which a learner has to send its state; -1: it is not asked for."""
    reason: str


class Refused(Message):
    """The coordinator refuses a request, and says what to do."""

    message: str
    remedy: str
    fatal: bool
    """Whether the worker has to end, as repeating the request cannot help."""


KINDS: dict[str, type[Message]] = {cls.__name__: cls for cls in Message.__subclasses__()}
"""All messages by the name on the wire."""
