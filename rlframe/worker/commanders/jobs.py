"""What a parallel commander is told and what it answers: situations, jobs and snapshots."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from rlframe.utils import schema
from rlframe.utils.schema import COUNT, FLAG, TEXT

RANDOM_PLAYER = 'random'
"""Name of the policy that chooses legal actions at random; it has no weights."""


class Situation(NamedTuple):
    """The progress of an experiment when its coordinator asks what to do next."""

    envstep: int = 0
    """Env steps whose data arrived."""
    train_iter: int = 0
    """Train iterations of which the learner reported."""
    version: int = -1
    """Newest version of the learner's weights that collectors can fetch; -1: none yet."""
    updates_due: int = 0
    """Updates that the learner still owes for the data of tasks of kind ``collect``; 0 while the buffer has too few."""
    seconds: float = 0.0
    """Duration of the experiment, interruptions excluded."""
    spent: bool = False
    """Whether a budget of the run is spent, so that no data are collected any more."""
    learn_info: Mapping[str, Any] = {}
    """Further information of the learner for the settings of the policy."""

    @property
    def is_over(self) -> bool:
        """Whether a budget is spent and the learner has used all data, so that only the last evaluation remains."""
        return self.spent and not self.updates_due


@dataclasses.dataclass(frozen=True)
class Job:
    """A task as a commander wants it; the fields are those of the message ``Task``."""

    task: str
    """Id of the task, which no other task of the run has."""
    kind: str
    """``collect``, ``collect_at_random``, ``evaluate`` or ``learn``."""
    policies: tuple[str, ...]
    """The policies that act or learn, one for each player."""
    active: tuple[bool, ...]
    """Which of these players record data; the others act as in evaluations, without exploration."""
    buffer: str = ''
    """Replay buffer of the data; empty if there are none."""
    target: int = 0
    """Training samples or episodes of each part, or updates of each round; 0: as configured."""
    parts: int = 0
    """Number of parts to collect; 0: until ``judge_collector_finish`` says so."""
    newer_than: int = -1
    """Least version of the weights to act with; -1: any."""
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Arguments of the policy, such as ``eps``."""

    SCHEMA = {
        'task': TEXT,
        'kind': TEXT,
        'policies': schema.list_of(TEXT),
        'active': schema.list_of(FLAG),
        'buffer': TEXT,
        'target': COUNT,
        'parts': COUNT,
        'newer_than': schema.INT,
        'settings': schema.DICT,
    }

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as plain values; ``messages.Task`` takes exactly these."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {
            **fields,
            'policies': list(self.policies),
            'active': list(self.active),
            'settings': dict(self.settings),
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Job:
        """Returns the job that ``to_dict`` described."""
        known = {field.name: fields[field.name] for field in dataclasses.fields(cls)}
        return cls(**{**known, 'policies': tuple(known['policies']), 'active': tuple(known['active'])})


class Snapshot(NamedTuple):
    """A request to keep a copy of the newest weights of a policy under another name."""

    policy: str
    """Name of the policy that is trained."""
    name: str
    """Name of the copy, as in ``Job.policies``."""
