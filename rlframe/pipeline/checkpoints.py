"""Checkpoints of a run: saves and restores the states of named parts between two rounds."""

from __future__ import annotations

import copy
import dataclasses
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rlframe import config
from rlframe.config.schema import ExperimentConfig
from rlframe.data.timestep import EnvSpec
from rlframe.errors import CheckpointMismatchError
from rlframe.pipeline import build
from rlframe.pipeline.build import ROUND, Inexactness, Stateful
from rlframe.run.machine import arithmetic, machine
from rlframe.run.manifest import naming_version
from rlframe.run.metric_writer import MetricWriter
from rlframe.run.progress import SCHEMA as PROGRESS_SCHEMA
from rlframe.run.read_checkpoint import CKPT, EMERGENCY, RESUMABLE
from rlframe.run.write_checkpoint import publish_checkpoint, save_checkpoint
from rlframe.utils import schema
from rlframe.utils.seed import RNG_STATE, forked

if TYPE_CHECKING:
    from rlframe.worker import IBuffer

logger = logging.getLogger('rlframe.pipeline')

POLICY, PROGRESS, BUFFER = 'policy', 'progress', 'replay_buffer'
"""Names of the parts in a checkpoint of the policy alone, and of the part that is saved in separate files."""
OF_AN_ERROR = 'an error ended the run that saved the checkpoint, perhaps in the middle of a round'
"""Why a run is not exact that resumes from an emergency checkpoint."""
OPTIONAL = '?'
"""Last letter of the name of a part, as in a schema, whose state may be empty or missing."""
POLICY_ONLY: dict[str, schema.Schema] = {POLICY: schema.DICT, PROGRESS: PROGRESS_SCHEMA}
SCHEMAS: dict[str, schema.Schema] = {
    **POLICY_ONLY,
    'rng': RNG_STATE,
    'round': ROUND,
    BUFFER: schema.maybe(schema.DICT),
}
"""Schemas of parts that do not check their own states; all others only have to be a dict."""


@dataclasses.dataclass(frozen=True)
class RunFacts:
    """The facts about a run in its manifests, apart from its progress."""

    cfg: ExperimentConfig
    """The config."""
    spec: EnvSpec
    """Name and spaces of the env."""
    score: Callable[[], float]
    """Returns the score of the last evaluation, NaN if there was none."""
    seconds: Callable[[], Mapping[str, float]] = dict
    """Returns the seconds spent on each kind of work, empty if they are not measured."""

    @property
    def policy(self) -> str:
        """Type of the policy."""
        return str(self.cfg.policy.type)

    @property
    def spaces(self) -> dict[str, str]:
        """The spaces of the env as text of one line."""
        names = ('observation_space', 'action_space')
        return {name: ' '.join(repr(getattr(self.spec, name)).split()) for name in names}

    def config(self) -> dict[str, Any]:
        """Returns the config as plain data."""
        return config.config_data(*config.split_config(self.cfg))

    def check_same(self, manifest: Mapping[str, Any], path: Path) -> None:
        """Checks that this run can resume from a checkpoint.

        Args:
            manifest: Manifest of the checkpoint.
            path: Path of the checkpoint.

        Raises:
            CheckpointMismatchError: If it was made by another policy or for another env, whose spaces may be what differs, or
                contains only a policy.
        """
        here = {'policy': self.policy, 'env': self.spec.name}
        here |= {name: text for name, text in self.spaces.items() if name in manifest}
        if differing := [
            f'{k}: {manifest.get(k)!r} there, {v!r} here' for k, v in here.items() if manifest.get(k) != v
        ]:
            raise CheckpointMismatchError('; '.join(differing), where=str(path))
        if 'logs' not in manifest:
            raise CheckpointMismatchError(
                'this checkpoint contains only a policy',
                where=str(path),
                remedy='To begin with its weights, set policy.init_from.',
            )


class Checkpoints:
    """Saves and restores the parts of a run, and retains as many checkpoints as its config says.

    A checkpoint requested during a round is saved at its end, when another process can take over.

    Args:
        parts: The parts by their names in the state, in the order in which they are restored; None: the run has no such
            part. ``'policy'`` and ``'progress'`` are required: they are what a checkpoint of the best policy contains.
            A name that ends in ``?`` is saved only if its state is not empty, and restored only if it was saved.
            ``'replay_buffer?'`` is an ``IBuffer``, locked while its rows are saved in separate files.
        facts: Facts for the manifests.
        folder: The run folder.
        writer: The metrics of the run; their sizes are saved, so that a resumed run continues them.
        options: The section ``checkpoint`` of the config.
        inexact: Reasons why the run is not exact, shared with the parts.
        settle: Called with the name of a complete checkpoint before it is saved: brings the parts to a state that a run
            can resume from.
    """

    def __init__(
        self,
        parts: Mapping[str, Stateful | None],
        facts: RunFacts,
        *,
        folder: Path,
        writer: MetricWriter,
        options: Mapping[str, Any],
        inexact: Inexactness,
        settle: Callable[[str], object],
    ) -> None:
        self._parts = {name: part for name, part in parts.items() if part is not None}
        self._buffer = cast('IBuffer | None', parts.get(BUFFER + OPTIONAL))
        self._schema = {name: SCHEMAS.get(name.removesuffix(OPTIONAL), schema.DICT) for name in self._parts}
        self._schema['held?'] = schema.list_of(POLICY_ONLY)
        self._facts, self._folder, self._writer = facts, folder, writer
        self._options, self._inexact, self._settle = options, inexact, settle
        self.on_saved: Callable[[Path], object] | None = None
        """Called with the path of each complete checkpoint and of each best policy."""
        self.requested: list[str] = []
        """Names of the checkpoints to save at the end of the round."""
        self._newest = ''  # name of the last complete checkpoint
        # candidates for the best: policies whose evaluation is running
        self._unscored: list[dict[str, Any]] = []

    @property
    def folder(self) -> Path:
        """The folder of the checkpoints."""
        return self._folder / CKPT

    @property
    def inexact(self) -> list[str]:
        """Why the run may differ from one with the same seed that was never interrupted; empty if it cannot."""
        return self._inexact.reasons

    # saving

    def request(self, name: str) -> None:
        """Asks for a checkpoint of this name at the end of the round."""
        self.requested.append(name)

    def finish_round(self) -> None:
        """Saves the checkpoints requested during the round, as ``latest``."""
        for name in dict.fromkeys(self.requested):
            with self._buffer_locked():
                state, facts = self._settled(name)
                self._publish(name, 'latest', state, facts, self._buffer_state())
        self.requested = []

    def save_latest(self, again: bool = False) -> None:
        """Saves everything now; between two rounds only.

        Args:
            again: Whether to replace an earlier checkpoint of the same train iteration, else that is enough.
        """
        if again or self._newest != self._name():
            self.request(self._name())
        self.finish_round()

    def _name(self) -> str:
        return f'{RESUMABLE}{self._progress()["train_iter"]}'

    def save_best(self, name: str) -> None:
        """Saves the policy alone, as ``best``."""
        self.publish_best(self._policy_state(), self._facts.score())

    def keep_until_scored(self) -> None:
        """Keeps a copy of the current policy until its evaluation is available."""
        self._unscored.append(copy.deepcopy(self._policy_state()))

    def forget_unscored(self) -> int:
        """Forgets the policies whose evaluation was running, and returns their number."""
        count = len(self._unscored)
        self._unscored.clear()
        return count

    def save_if_best(self, score: float, is_best: bool) -> None:
        """Saves the oldest policy without a score as ``best``, or drops it."""
        state = self._unscored.pop(0)
        if is_best:
            self.publish_best(state, score)

    def publish_best(self, state: Mapping[str, Any], score: float) -> None:
        """Saves a policy as ``best``.

        Args:
            state: The parts ``policy`` and ``progress``.
            score: Its score.
        """
        facts = self._manifest() | {'progress': state[PROGRESS], 'score': _number(score)}
        self._publish(f'best_iteration_{state[PROGRESS]["train_iter"]}', 'best', state, facts)

    def save_policy(self, path: Path) -> Path:
        """Writes the current policy alone."""
        return save_checkpoint(path, self._policy_state(), self._manifest())

    def save_emergency(self) -> Path:
        """Saves the current state, possibly in the middle of a round; it is never resumed from automatically."""
        name = f'{EMERGENCY}iteration_{self._progress()["train_iter"]}'
        with self._buffer_locked():
            path = self.folder / name
            buffer = self._buffer_state()
            state = self._state()
            facts = self._manifest(OF_AN_ERROR) | {'logs': self._writer.state_dict()}
            return save_checkpoint(path, state, facts, buffer=buffer)

    def leave_after(self, error: BaseException) -> None:
        """Writes an error to the log, and saves the current state; failures meanwhile are added to the error as notes."""
        logger.info('an error ended the run at %s', dict(self._progress()), exc_info=error)
        try:
            error.add_note(f'emergency checkpoint, for --resume or open_run: {self.save_emergency()}')
        except Exception as second:
            error.add_note(f'and then: {type(second).__name__}: {second}')

    def save(self, path: Path) -> Path:
        """Writes everything that the next round depends on.

        Envs whose state cannot be saved start a new episode, both here and in the resumed run, so that the two stay
        identical.
        """
        with self._buffer_locked():
            state, facts = self._settled(path.name)
            return save_checkpoint(path, state, facts, buffer=self._buffer_state())

    def _settled(self, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Brings all parts to a state that a run can resume from, and returns the state and its facts."""
        self._settle(name)
        self._newest = name
        state = self._state()
        unsaved = unsaved_envs(state.get('collector', {}))
        return state, self._manifest() | {'unsaved': unsaved, 'logs': self._writer.state_dict()}

    def _state(self) -> dict[str, Any]:
        """Returns the states of all parts except the replay buffer."""
        states: dict[str, Any] = {
            name: part.state_dict() for name, part in self._parts.items() if part is not self._buffer
        }
        states['held?'] = self._unscored
        return {
            name.removesuffix(OPTIONAL): state
            for name, state in states.items()
            if state or not name.endswith(OPTIONAL)
        }

    def _policy_state(self) -> dict[str, Any]:
        return {name: self._parts[name].state_dict() for name in POLICY_ONLY}

    def _progress(self) -> Mapping[str, Any]:
        return self._parts[PROGRESS].state_dict()

    def _buffer_locked(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._buffer is None else self._buffer.locked()

    def _buffer_state(self) -> Mapping[str, Any] | None:
        """Returns the state of the replay buffer, whose rows can be saved incrementally."""
        return None if self._buffer is None else self._buffer.checkpoint_state()

    def _manifest(self, *more_inexact: str) -> dict[str, Any]:
        inexact = [*self.inexact, *more_inexact]
        return {
            'policy': self._facts.policy,
            'env': self._facts.spec.name,
            **self._facts.spaces,
            'progress': self._progress(),
            'score': _number(self._facts.score()),
            'exact': not inexact,
            'inexact': inexact,
            'arithmetic': arithmetic(),
            'machine': machine(),
            'seconds': self._facts.seconds(),
            'config': self._facts.config(),
        }

    def _publish(
        self,
        name: str,
        link: str,
        state: Mapping[str, Any],
        facts: Mapping[str, Any],
        buffer: Mapping[str, Any] | None = None,
    ) -> None:
        path = self.folder / name
        publish_checkpoint(path, state, facts, name=link, buffer=buffer, options=self._options)
        if self.on_saved is not None:
            self.on_saved(path)

    # restoring

    def restore(
        self,
        state: Mapping[str, Any],
        manifest: Mapping[str, Any],
        path: Path,
        clone_key: int | None = None,
    ) -> None:
        """Restores all parts from a checkpoint of ``save``.

        Args:
            state: State of the checkpoint.
            manifest: Its manifest.
            path: Path of the checkpoint.
            clone_key: Number from which different random generators are derived, if the run that saved the checkpoint
                continues too.

        Raises:
            CheckpointMismatchError: If it was made by another policy or for another env, or contains only a policy.
            CheckpointStateError: If the state of a part is missing or invalid.
        """
        self._facts.check_same(manifest, path)
        with naming_version(manifest), schema.loading(path):
            schema.check_state(state, self._schema)
            if clone_key is not None:
                with schema.part(''):
                    state = forked(state, clone_key)
            with build.named_mismatch(manifest, self._facts.cfg, str(path)):
                self._load(POLICY, state)
            for name in self._parts:
                if name != POLICY:
                    self._load(name, state)
        self._note_reasons(state, manifest, clone_key is not None)
        self._newest = path.name
        self._unscored = list(state.get('held', ()))

    def _load(self, name: str, state: Mapping[str, Any]) -> None:
        key = name.removesuffix(OPTIONAL)
        if key == name or state.get(key) is not None:
            with schema.part(key):
                self._parts[name].load_state_dict(state[key])

    def _note_reasons(self, state: Mapping[str, Any], manifest: Mapping[str, Any], is_clone: bool) -> None:
        """Records why a resumed run may differ from an uninterrupted one."""
        note = self._inexact.note
        before = manifest.get('inexact') or ['an earlier resume was not exact']
        for reason in before if not manifest.get('exact', True) else ():
            note(reason)
        if is_clone:  # without a warning, as the user asked for it
            self.inexact.append('it is a clone of another run, with its own random generators')
        here = arithmetic()
        there = manifest.get('arithmetic')
        if there is not None and there != here:
            note(f'{there} saved the checkpoint and this is {here}, which may round differently')
        if self._buffer is not None and state.get(BUFFER) is None:
            note('the checkpoint was saved without the replay buffer, so the run begins with an empty one')


def unsaved_envs(state: Mapping[str, Any]) -> dict[str, str]:
    """Returns the envs without a saved state in a collector's state, and why; envs of Ray actors as ``rank.env``."""
    found: dict[str, str] = dict(state.get('unsaved', {}))
    for rank, actor in zip(state.get('ranks', ()), state.get('actors', ()), strict=True):
        found |= {f'{rank}.{env}': why for env, why in unsaved_envs(actor['collector']).items()}
    return found


def _number(score: float) -> float | None:
    return score if score == score else None
