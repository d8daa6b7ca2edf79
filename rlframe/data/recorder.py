"""EpisodeRecorder: writes the whole episodes of interleaved env steps to files."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlframe.data.columns import ColumnFiles, Columns, blocks
from rlframe.data.recording import Recording
from rlframe.data.timestep import Array, Batch, BoolArray, IntArray, TimeStep
from rlframe.errors import CheckpointMismatchError
from rlframe.utils.schema import COUNT, array, check_state, dict_of, rows

PENDING = 16_384
"""Rows that are held in memory before whole episodes are written."""


def step_columns(obs: Array, action: Array, timestep: TimeStep) -> dict[str, Array]:
    """Returns a step of n envs as the rows of recorded data: actions and rewards are the env's own."""
    return {
        'obs': obs,
        'next_obs': timestep.obs,
        'action': action,
        'reward': timestep.reward.astype(np.float32),
        'terminated': timestep.terminated,
        'truncated': timestep.truncated,
    }


class EpisodeRecorder:
    """Writes env steps of several envs to a folder, one whole episode after the other, in the order in which they end.

    Steps of running episodes wait in memory, and are saved in checkpoints: a resumed run writes what an uninterrupted one
    would have written.

    Args:
        folder: Folder of the files, one for each column; what is in it already is kept.
    """

    def __init__(self, folder: Path) -> None:
        self._files = ColumnFiles(folder)
        self.episodes = 0
        """Episodes written."""
        self._steps: list[dict[str, Array]] = []
        self._owner: list[IntArray] = []  # env of each row
        self._done: list[BoolArray] = []
        self._held = 0
        if self._files.rows:
            self.episodes = int(self._files.columns()['episode'][-1:][0]) + 1

    @property
    def rows(self) -> int:
        """Env steps written, those of whole episodes."""
        return self._files.rows

    def add(self, columns: Mapping[str, Array], env_id: IntArray, done: BoolArray) -> None:
        """Copies the rows of one step, [n, ...], of the envs [n]."""
        self._steps.append({name: np.array(column) for name, column in columns.items()})
        self._owner.append(np.array(env_id))
        self._done.append(np.array(done))
        self._held += len(env_id)
        if self._held >= PENDING:
            self.write()

    def discard(self, env_id: IntArray) -> None:
        """Forgets the running episodes of some envs."""
        if not self._steps:
            return
        columns, owner, done = self._joined()
        kept = np.ones(len(owner), np.bool_)
        for env in env_id.tolist():
            own = np.flatnonzero(owner == env)
            ends = np.flatnonzero(done[own])
            kept[own[ends[-1] + 1 if len(ends) else 0 :]] = False
        self._hold({name: column[kept] for name, column in columns.items()}, owner[kept], done[kept])

    def write(self) -> None:
        """Writes the episodes that have ended."""
        if not self._steps:
            return
        columns, owner, done = self._joined()
        order = np.argsort(owner, kind='stable')  # rows by env, in time order
        ends = np.flatnonzero(done[order])
        first = np.searchsorted(owner[order], owner[order][ends])  # row at which the env begins
        starts = np.maximum(np.concatenate([[0], ends[:-1] + 1]), first)
        by_end = np.argsort(order[ends], kind='stable')
        parts = [order[starts[i] : ends[i] + 1] for i in by_end.tolist()]
        if parts:
            index = np.concatenate(parts)
            lengths = [len(part) for part in parts]
            number = np.repeat(np.arange(self.episodes, self.episodes + len(parts)), lengths)
            whole = Batch({name: column[index] for name, column in columns.items()})
            self._files.append(whole.replace(episode=number.astype(np.int64)))
            self.episodes += len(parts)
            running = np.setdiff1d(np.arange(len(owner)), index, assume_unique=True)
            columns = {name: column[running] for name, column in columns.items()}
            owner = owner[running]
            done = done[running]
        self._hold(columns, owner, done)

    def take(self, columns: Columns) -> None:
        """Takes over whole episodes that were recorded before."""
        for block in blocks(columns):
            self._files.append(Batch(block.columns))
            self.episodes = int(block['episode'][-1]) + 1

    def recording(self, facts: Mapping[str, Any]) -> Recording:
        """Returns all whole episodes, to read.

        Args:
            facts: Facts about them, as JSON values.
        """
        self.write()
        return Recording(self._files.columns(), facts, str(self._files.folder), 'columns')

    def _joined(self) -> tuple[dict[str, Array], IntArray, BoolArray]:
        """Returns all held rows."""
        names = self._steps[0]
        columns = {name: np.concatenate([step[name] for step in self._steps]) for name in names}
        return columns, np.concatenate(self._owner), np.concatenate(self._done)

    def _hold(self, columns: dict[str, Array], owner: IntArray, done: BoolArray) -> None:
        self._held = 0
        self._steps, self._owner, self._done = [columns], [owner], [done]

    def close(self) -> None:
        """Closes the files."""
        self._files.close()

    def remove(self) -> None:
        """Closes and deletes the files."""
        self.close()
        shutil.rmtree(self._files.folder, ignore_errors=True)

    # checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Returns the rows of running episodes, and how many rows are written."""
        self.write()
        columns, owner, done = (
            self._joined() if self._steps else ({}, np.zeros(0, np.int64), np.zeros(0, np.bool_))
        )
        self._files.truncate(self.rows)
        return {
            'rows': self.rows,
            'episodes': self.episodes,
            'columns': columns,
            'owner': owner,
            'done': done,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from ``state_dict()``: rows that were written later are dropped.

        Raises:
            CheckpointMismatchError: If rows that were written are missing.
        """
        check_state(
            state,
            {'rows': COUNT, 'episodes': COUNT, 'owner': array('iu', (None,)), 'done': array('b', (None,))},
        )
        check_state(state, {'columns': dict_of(rows(len(state['owner'])))})
        if state['rows'] > self.rows:
            raise CheckpointMismatchError(
                f'{self._files.folder} has {self.rows:,} recorded env steps, and there were {state["rows"]:,} at the checkpoint',
                remedy='Restore that folder of the run, or resume with policy.collect.record=None.',
            )
        self._files.truncate(state['rows'])
        self.episodes = state['episodes']
        self._steps, self._owner, self._done = [], [], []
        self._held = 0
        if len(state['owner']):
            self._hold(dict(state['columns']), state['owner'], state['done'])
