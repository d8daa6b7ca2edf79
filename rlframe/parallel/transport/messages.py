"""The messages of parallel mode, the same for every transport.

A message is a frozen dataclass. Its fields are texts, numbers, flags, or dicts and lists of those; arrays travel beside
it as its payload. ``encode`` and ``decode`` convert it to and from plain JSON values, and ``decode`` accepts a message
only if it has every declared field, no other one, and each with the declared type.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from rlframe.utils import schema
from rlframe.utils.schema import COUNT, FINITE, FLAG, Kind, Schema

MAX_TEXT = 4096
"""Letters of the longest text in a message."""
REJOIN = 'Join again.'
"""Remedy of a ``Refused`` to a worker that the coordinator does not know, or no longer."""
ROLES = ('collector', 'learner')
PURPOSES = ('checkpoint', 'spare')
"""What a state is for: a checkpoint, or a learner that may have to take the place of its sender."""
TASKS = ('collect', 'collect_at_random', 'evaluate', 'learn')
_NAME = re.compile(r'[A-Za-z0-9][A-Za-z0-9_.-]{0,63}')

TEXT = Kind(f'a text of at most {MAX_TEXT} letters', lambda v: isinstance(v, str) and len(v) <= MAX_TEXT)
NAME = Kind(
    "a name of at most 64 letters, digits, '_', '-' and '.'",
    lambda v: isinstance(v, str) and _NAME.fullmatch(v) is not None,
)
MAYBE_NAME = Kind("a name, or ''", lambda v: v == '' or NAME.fits(v))
ROLE = Kind(f'one of {ROLES}', lambda v: v in ROLES)
NUMBERS = schema.dict_of(Kind('a number', schema.NUMBER.fits))
PLAIN = Kind('a dict of plain values', lambda v: isinstance(v, Mapping) and _is_plain(v))
NAMES = schema.list_of(NAME)


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


@dataclasses.dataclass(frozen=True)
class Message:
    """Base class of all messages."""

    SCHEMA: ClassVar[Mapping[str, Schema]] = {}
    """Schema of each field."""
    has_payload: ClassVar[bool] = False
    """Whether arrays may travel with the message."""


# what workers ask


@dataclasses.dataclass(frozen=True)
class Join(Message):
    """A worker introduces itself; it is answered by ``Joined``."""

    role: str
    name: str
    """Name of the worker; the same name joins again after a loss."""
    version: str
    """Version of rlframe."""
    fingerprint: str
    """Hash of the part of the config that all roles must share."""
    pid: int
    host: str
    slots: int
    """Envs of a collector, or ranks of a learner."""
    SCHEMA = {
        'role': ROLE,
        'name': NAME,
        'version': TEXT,
        'fingerprint': TEXT,
        'pid': COUNT,
        'host': TEXT,
        'slots': COUNT,
    }


@dataclasses.dataclass(frozen=True)
class Beat(Message):
    """A sign of life with the worker's progress; it is answered by ``Orders``."""

    state: str
    """What the worker does, in a word."""
    task: str
    envstep: int
    train_iter: int
    version: int
    """Version of the weights that it uses."""
    metrics: dict[str, float]
    SCHEMA = {
        'state': TEXT,
        'task': MAYBE_NAME,
        'envstep': COUNT,
        'train_iter': COUNT,
        'version': COUNT,
        'metrics': NUMBERS,
    }


@dataclasses.dataclass(frozen=True)
class AskTask(Message):
    """A worker without a task asks for one; it is answered by ``Task`` or ``Wait``."""


@dataclasses.dataclass(frozen=True)
class Collected(Message):
    """Data that a collector produced for its task, with them as payload; it is answered by ``Taken``."""

    task: str
    part: int
    """Number of this message within the task, from 0."""
    rows: int
    """Training samples or episodes in the payload."""
    envstep: int
    """Env steps taken since the previous part."""
    version: int
    """Version of the weights that acted."""
    train_iter: int
    facts: dict[str, Any]
    """Returns of ended episodes and the like."""
    SCHEMA = {
        'task': NAME,
        'part': COUNT,
        'rows': COUNT,
        'envstep': COUNT,
        'version': COUNT,
        'train_iter': COUNT,
        'facts': PLAIN,
    }
    has_payload = True


@dataclasses.dataclass(frozen=True)
class Finished(Message):
    """A worker has completed or abandoned its task; it is answered by ``Orders``."""

    task: str
    completed: bool
    reason: str
    """Why it was abandoned; empty if it was completed."""
    facts: dict[str, Any]
    """Finish information of the task."""
    SCHEMA = {'task': NAME, 'completed': FLAG, 'reason': TEXT, 'facts': PLAIN}
    has_payload = True


@dataclasses.dataclass(frozen=True)
class AskWeights(Message):
    """A collector asks for weights newer than its own; it is answered by ``Weights``."""

    policy: str
    newer_than: int
    """Version that it has; -1 if none."""
    SCHEMA = {'policy': NAME, 'newer_than': schema.INT}


@dataclasses.dataclass(frozen=True)
class PutWeights(Message):
    """A learner publishes weights, with them as payload; it is answered by ``Orders``."""

    policy: str
    version: int
    train_iter: int
    SCHEMA = {'policy': NAME, 'version': COUNT, 'train_iter': COUNT}
    has_payload = True


@dataclasses.dataclass(frozen=True)
class AskData(Message):
    """A learner asks for training data; it is answered by ``Data`` or ``Wait``."""

    task: str
    batch_size: int
    count: int
    """Number of batches, all sent in one payload."""
    train_iter: int
    SCHEMA = {'task': NAME, 'batch_size': COUNT, 'count': COUNT, 'train_iter': COUNT}


@dataclasses.dataclass(frozen=True)
class LearnInfo(Message):
    """Results of a learner's updates, with priorities as payload if there are any; it is answered by ``Orders``."""

    task: str
    train_iter: int
    info: dict[str, float]
    batches: int = 1
    """Batches that were used since the last report."""
    SCHEMA = {'task': NAME, 'train_iter': COUNT, 'info': NUMBERS, 'batches': COUNT}
    has_payload = True


@dataclasses.dataclass(frozen=True)
class PutState(Message):
    """The state of a learner, as payload; it is answered by ``Orders``."""

    purpose: str
    """One of ``PURPOSES``."""
    train_iter: int
    SCHEMA = {'purpose': Kind(f'one of {PURPOSES}', lambda v: v in PURPOSES), 'train_iter': COUNT}
    has_payload = True


@dataclasses.dataclass(frozen=True)
class Farewell(Message):
    """A worker leaves; it is answered by ``Orders``."""

    reason: str
    produced: int
    """Training samples or episodes that it produced since it joined, sent or not."""
    SCHEMA = {'reason': TEXT, 'produced': COUNT}


# what the coordinator answers


@dataclasses.dataclass(frozen=True)
class Joined(Message):
    """The coordinator accepts a worker."""

    worker: str
    """The worker's id, for all further messages."""
    run: str
    """Id of the run."""
    beat_interval: float
    """Seconds between two signs of life."""
    deadline: float
    """Seconds of silence after which a worker counts as lost."""
    rank: int = 0
    """Number among the workers of its role, which derives its random generators; a name keeps its number."""
    incarnation: int = 0
    """How often a worker of this name joined before and was lost."""
    SCHEMA = {
        'worker': NAME,
        'run': NAME,
        'beat_interval': FINITE,
        'deadline': FINITE,
        'rank': COUNT,
        'incarnation': COUNT,
    }


@dataclasses.dataclass(frozen=True)
class Task(Message):
    """Work for a worker."""

    task: str
    kind: str
    """One of ``TASKS``."""
    policies: list[str]
    """The policies that act or learn, one for each player."""
    active: list[bool]
    """Which of these players record data."""
    buffer: str
    target: int
    """Training samples or episodes of each part, or updates of each round; 0: as configured."""
    parts: int
    """Number of parts to collect; 0: until ``Taken.stop``."""
    newer_than: int
    """Least version of the weights to act with; -1: any."""
    settings: dict[str, Any]
    """Arguments of the policy, such as ``eps``, and options of the task."""
    SCHEMA = {
        'task': NAME,
        'kind': Kind(f'one of {TASKS}', lambda v: v in TASKS),
        'policies': NAMES,
        'active': schema.list_of(FLAG),
        'buffer': MAYBE_NAME,
        'target': COUNT,
        'parts': COUNT,
        'newer_than': schema.INT,
        'settings': PLAIN,
    }


@dataclasses.dataclass(frozen=True)
class Wait(Message):
    """There is nothing to do or to give yet; ask again after some seconds."""

    seconds: float
    stop: bool
    """Whether to end instead."""
    reason: str
    SCHEMA = {'seconds': FINITE, 'stop': FLAG, 'reason': TEXT}


@dataclasses.dataclass(frozen=True)
class Taken(Message):
    """What became of collected data."""

    pushed: int
    dropped: int
    reason: str
    """Why rows were dropped; empty if none were."""
    stop: bool
    """Whether the task is over."""
    version: int
    """Newest version of the weights; -1 if there are none."""
    settings: dict[str, Any]
    """Arguments of the policy for the next part."""
    SCHEMA = {
        'pushed': COUNT,
        'dropped': COUNT,
        'reason': TEXT,
        'stop': FLAG,
        'version': schema.INT,
        'settings': PLAIN,
    }


@dataclasses.dataclass(frozen=True)
class Weights(Message):
    """Weights as payload; without one, the version asked for is the newest."""

    policy: str
    version: int
    train_iter: int
    SCHEMA = {'policy': NAME, 'version': schema.INT, 'train_iter': COUNT}
    has_payload = True


@dataclasses.dataclass(frozen=True)
class Data(Message):
    """Training data as payload."""

    rows: int
    envstep: int
    """Env steps of the experiment so far."""
    settings: dict[str, Any]
    """Arguments of the learner's policy."""
    SCHEMA = {'rows': COUNT, 'envstep': COUNT, 'settings': PLAIN}
    has_payload = True


@dataclasses.dataclass(frozen=True)
class Orders(Message):
    """What a worker has to do next."""

    stop: bool
    """Whether to leave; the reason says why."""
    abandon: bool
    """Whether to give up the current task."""
    save: int
    """Train iteration at which a learner has to send its state; -1: it is not asked for."""
    reason: str
    SCHEMA = {'stop': FLAG, 'abandon': FLAG, 'save': schema.INT, 'reason': TEXT}


@dataclasses.dataclass(frozen=True)
class Refused(Message):
    """The coordinator refuses a request, and says what to do."""

    message: str
    remedy: str
    fatal: bool
    """Whether the worker has to end, as repeating the request cannot help."""
    SCHEMA = {'message': TEXT, 'remedy': TEXT, 'fatal': FLAG}


KINDS: dict[str, type[Message]] = {
    cls.__name__: cls
    for cls in (
        Join, Beat, AskTask, Collected, Finished, AskWeights, PutWeights, AskData, LearnInfo, PutState, Farewell,
        Joined, Task, Wait, Taken, Weights, Data, Orders, Refused,
    )
}  # fmt: skip
"""All messages by the name on the wire."""
