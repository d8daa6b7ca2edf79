"""Checkpoints of a pipeline: saves and restores all state that the next round depends on, between two rounds."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlframe import checkpoint, config
from rlframe.errors import CheckpointMismatchError
from rlframe.pipeline import build
from rlframe.pipeline.ending import judge_again
from rlframe.run.crash_report import write_crash_report
from rlframe.run.progress import SCHEMA as PROGRESS
from rlframe.utils import schema
from rlframe.utils.arithmetic import arithmetic
from rlframe.utils.seed import RNG_STATE, forked, global_rng_state, set_global_rng_state

if TYPE_CHECKING:
    from rlframe.config.sections import ExperimentConfig
    from rlframe.data.timestep import EnvSpec
    from rlframe.pipeline.serial import SerialPipeline
    from rlframe.worker import IBuffer

POLICY_ONLY: dict[str, schema.Schema] = {'policy': schema.DICT, 'progress': PROGRESS}
STATE: schema.Schema = {
    **POLICY_ONLY,
    'monitor': schema.DICT,
    'collector': schema.DICT,
    'evaluator': schema.DICT,
    'rng': RNG_STATE,
    'round': {
        'warm': schema.FLAG,
        'evaluated_at': schema.INT,
        'idle_rounds': schema.COUNT,
        'stopped': schema.FLAG,
        'past_goal?': schema.FLAG,
    },
    'held?': schema.list_of(POLICY_ONLY),
    'replay_buffer?': schema.maybe(schema.DICT),
    'commander?': schema.DICT,
}
"""Schema of a pipeline's checkpoint; each worker has the schema of its own part."""

logger = logging.getLogger('rlframe.checkpoint')


class Checkpoints:
    """Saves and restores a pipeline, and retains as many checkpoints as its config says.

    A checkpoint requested during a round is saved at its end, when another process can take over.

    Args:
        pipeline: Pipeline whose state is saved; its workers are looked up when a checkpoint is saved or loaded.
    """

    def __init__(self, pipeline: SerialPipeline) -> None:
        self._pipeline = pipeline
        self._requested: list[str] = []
        self.inexact: list[str] = []
        """Why the run may differ from one with the same seed that was never interrupted; empty if it cannot."""
        self._held: list[dict[str, Any]] = []  # candidates for the best: policies whose evaluation is running

    @property
    def folder(self) -> Path:
        """The folder of the checkpoints."""
        return self._pipeline.folder / 'ckpt'

    def request(self, name: str) -> None:
        """Asks for a checkpoint of this name at the end of the round."""
        self._requested.append(name)

    def finish_round(self) -> None:
        """Saves the checkpoints requested during the round, as ``latest``."""
        for name in dict.fromkeys(self._requested):
            with self._buffer_held():
                state, facts = self._settled(name)
                self._publish(name, 'latest', state, facts, self._buffer_state())
        self._requested = []

    def save_latest(self) -> None:
        """Saves everything now, unless that has just been done; between two rounds only."""
        name = f'iteration_{self._pipeline.progress.train_iter}'
        if self._pipeline.learner.ckpt_name != name:
            self.request(name)
        self.finish_round()

    def save_best(self, name: str) -> None:
        """Saves the policy alone, as ``best``."""
        self._save_policy(self._policy_state(), self._pipeline.evaluator.score)

    def hold_policy(self) -> None:
        """Keeps the policy as it is now until its evaluation is there."""
        self._held.append(copy.deepcopy(self._policy_state()))

    def let_go(self, score: float, is_best: bool) -> None:
        """Saves the policy that has been held for the longest time, as ``best``, or forgets it."""
        state = self._held.pop(0)
        if is_best:
            self._save_policy(state, score)

    def _policy_state(self) -> dict[str, Any]:
        pipeline = self._pipeline
        return {
            'policy': pipeline.policy.learn_mode.state_dict(),
            'progress': pipeline.progress.state_dict(),
        }

    def _save_policy(self, state: dict[str, Any], score: float) -> None:
        facts = self._facts() | {'progress': state['progress'], 'score': _number(score)}
        self._publish(f'best_iteration_{state["progress"]["train_iter"]}', 'best', state, facts)

    def save_policy(self, path: Path) -> Path:
        """Writes the policy alone, as it is now."""
        return self._write(path, self._policy_state(), self._facts())

    def save_emergency(self) -> Path:
        """Saves the current state, possibly in the middle of a round; it is never resumed from automatically."""
        name = f'emergency_iteration_{self._pipeline.progress.train_iter}'
        with self._buffer_held():
            return self._write(self.folder / name, self._state(), self._facts(), self._buffer_state())

    def leave_crash_report(self, error: BaseException) -> None:
        """Saves a report about an error and the current state; failures meanwhile are added to the error as notes."""
        pipeline = self._pipeline
        facts = {
            'counters': pipeline.progress.state_dict(),
            'last metrics': pipeline.writer.last_record(),
            'config': config.config_data(*config.split_config(pipeline.cfg)),
        }
        name = f'crash_iteration_{pipeline.progress.train_iter}'
        try:
            report = write_crash_report(pipeline.folder, name, error, facts, pipeline.secrets)
            error.add_note(f'crash report: {report}')
            error.add_note(f'emergency checkpoint: {self.save_emergency()}')
        except Exception as second:
            error.add_note(f'and then: {type(second).__name__}: {second}')

    def save(self, path: Path) -> Path:
        """Writes everything that the next round depends on.

        Envs whose state cannot be saved start a new episode, both here and in the resumed run, so that the two stay
        identical.
        """
        with self._buffer_held():
            state, facts = self._settled(path.name)
            return self._write(path, state, facts, self._buffer_state())

    def _write(
        self, path: Path, state: dict[str, Any], facts: dict[str, Any], buffer: dict[str, Any] | None = None
    ) -> Path:
        secrets = self._pipeline.secrets
        return checkpoint.save_checkpoint(path, state, facts, buffer=buffer, secrets=secrets)

    def _settled(self, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Brings all parts to a state that a run can resume from, and returns the state and its facts."""
        pipeline = self._pipeline
        pipeline.learner.ckpt_name = name
        pipeline.collector.settle()
        state = self._state()
        unsaved = unsaved_envs(state['collector'])
        return state, self._facts() | {'unsaved': unsaved, 'logs': pipeline.writer.state_dict()}

    def _buffer_held(self) -> AbstractContextManager[Any]:
        """Locks the replay buffer while its rows are being saved."""
        buffer = self._pipeline.replay_buffer
        return nullcontext() if buffer is None else buffer.locked()

    def _buffer_state(self) -> dict[str, Any] | None:
        buffer = self._pipeline.replay_buffer
        return None if buffer is None else buffer.checkpoint_state()

    def _publish(
        self,
        name: str,
        link: str,
        state: Mapping[str, Any],
        facts: Mapping[str, Any],
        buffer: Mapping[str, Any] | None = None,
    ) -> None:
        given: Any = {'options': self._pipeline.cfg.checkpoint, 'secrets': self._pipeline.secrets}
        checkpoint.publish_checkpoint(self.folder / name, state, facts, name=link, buffer=buffer, **given)

    def _facts(self) -> dict[str, Any]:
        pipeline = self._pipeline
        return {
            'policy': pipeline.cfg.policy.type,
            'env': pipeline.factory.spec.name,
            'progress': pipeline.progress.state_dict(),
            'score': _number(pipeline.evaluator.score),
            'exact': pipeline.exact,
            'inexact': list(self.inexact),
            'arithmetic': arithmetic(),
            'config': config.config_data(*config.split_config(pipeline.cfg)),
        }

    def _state(self) -> dict[str, Any]:
        pipeline = self._pipeline
        commander = pipeline.commander.state_dict()
        return {
            'progress': pipeline.progress.state_dict(),
            'policy': pipeline.policy.learn_mode.state_dict(),
            'monitor': pipeline.learner.monitor.state_dict(),
            'collector': pipeline.collector.state_dict(),
            'evaluator': pipeline.evaluator.state_dict(),
            'rng': global_rng_state(),
            'round': pipeline.round_state(),
            **({'held': self._held} if self._held else {}),
            **({'commander': commander} if commander else {}),
        }

    def load(self, path: Path) -> None:
        """Reads a checkpoint and restores it.

        Raises:
            CheckpointError: If it is missing or damaged, or was made by another policy or for another env.
        """
        self.restore(*checkpoint.load_checkpoint(Path(path), secrets=self._pipeline.secrets), path)

    def restore(
        self,
        state: Mapping[str, Any],
        manifest: Mapping[str, Any],
        path: Path,
        clone_key: int | None = None,
    ) -> None:
        """Restores the pipeline from a checkpoint of ``save``.

        Args:
            state: State of the checkpoint.
            manifest: Its manifest.
            path: Path of the checkpoint.
            clone_key: Number from which different random generators are derived, if the run that saved the checkpoint
                continues too.

        Raises:
            CheckpointMismatchError: If it was made by another policy or for another env, or contains only a policy.
        """
        pipeline = self._pipeline
        check_same(manifest, pipeline.cfg, pipeline.factory.spec, path)
        with schema.loading(path):
            schema.check_state(state, STATE)
            if clone_key is not None:
                with schema.part(''):
                    state = forked(state, clone_key)
            with build.named_mismatch(manifest, pipeline.cfg, str(path)):
                self._load('policy', pipeline.policy.learn_mode.load_state_dict, state)
            self._load('progress', pipeline.progress.load_state_dict, state)
            self._load('monitor', pipeline.learner.monitor.load_state_dict, state)
            self._load('collector', self._load_collector, state)
            self._add_reasons(manifest, clone_key is not None)
            if pipeline.replay_buffer is not None:
                self._load_buffer(pipeline.replay_buffer, state, path)
            self._load('evaluator', pipeline.evaluator.load_state_dict, state)
            self._load('rng', set_global_rng_state, state)
            self._load('round', pipeline.load_round_state, state)
            if 'commander' in state:
                self._load('commander', pipeline.commander.load_state_dict, state)
        pipeline.learner.ckpt_name = path.name
        self._held = list(state.get('held', ()))
        if 'config' in manifest:
            judge_again(pipeline, manifest['config']['main_config'])

    def _load(self, name: str, load: Callable[[Any], object], state: Mapping[str, Any]) -> None:
        with schema.part(name):
            load(state[name])

    def _load_collector(self, state: Mapping[str, Any]) -> None:
        self._pipeline.collector.load_state_dict(build.collector_state(self._pipeline.cfg, state))

    def _load_buffer(self, buffer: IBuffer, state: Mapping[str, Any], path: Path) -> None:
        if state.get('replay_buffer') is None:
            self.note_inexact(
                'the checkpoint was saved without the replay buffer, so it begins with an empty one'
            )
        else:
            self._load('replay_buffer', buffer.load_state_dict, state)

    def _add_reasons(self, manifest: Mapping[str, Any], is_clone: bool) -> None:
        """Records why a resumed run may differ from an uninterrupted one."""
        unsaved = getattr(self._pipeline.collector, 'unsaved', None) or {}
        for env, why in unsaved.items():
            self.note_inexact(f'the state of env {env} could not be restored: {why}')
        before = manifest.get('inexact') or ['an earlier resume was not exact']
        for reason in before if not manifest.get('exact', True) else ():
            self.note_inexact(reason)
        if is_clone:
            self.inexact.append('it is a clone of another run, with its own random generators')
        here, there = arithmetic(), manifest.get('arithmetic')
        if there is not None and there != here:
            self.note_inexact(f'{there} saved the checkpoint and this is {here}, which may round differently')

    def note_inexact(self, reason: str) -> None:
        """Warns once why the run may differ from an uninterrupted one with the same seed; '' is no reason."""
        if reason and reason not in self.inexact:
            self.inexact.append(reason)
            logger.warning('this run cannot be repeated or resumed bit for bit: %s', reason)


def unsaved_envs(state: Mapping[str, Any]) -> dict[str, str]:
    """Returns the envs without a saved state in a collector's state, and why; envs of Ray actors as ``rank.env``."""
    found: dict[str, str] = dict(state.get('unsaved', {}))
    for rank, actor in zip(state.get('ranks', ()), state.get('actors', ()), strict=True):
        found |= {f'{rank}.{env}': why for env, why in unsaved_envs(actor['collector']).items()}
    return found


def _number(score: float) -> float | None:
    return score if score == score else None


def check_same(manifest: Mapping[str, Any], cfg: ExperimentConfig, spec: EnvSpec, path: Path) -> None:
    """Checks that this policy and env can resume from a checkpoint.

    Raises:
        CheckpointMismatchError: If it was made by another policy or for another env, or contains only a policy.
    """
    here = {'policy': cfg.policy.type, 'env': spec.name}
    if differing := [
        f'{k}: {manifest.get(k)!r} there, {v!r} here' for k, v in here.items() if manifest.get(k) != v
    ]:
        raise CheckpointMismatchError('; '.join(differing), where=str(path))
    if 'logs' not in manifest:
        raise CheckpointMismatchError(
            'this checkpoint holds a policy only',
            where=str(path),
            remedy='policy.init_from begins with its weights.',
        )


def check_fits(
    saved: tuple[Mapping[str, Any], Mapping[str, Any]] | None,
    cfg: ExperimentConfig,
    spec: EnvSpec,
    path: Path | None,
    model: Any,
) -> None:
    """Checks, before anything is built, that a run can continue from a checkpoint, if there is one.

    Args:
        saved: Its state and its manifest.
        cfg: The config to continue with.
        spec: Spaces of the env.
        path: Path of the checkpoint.
        model: A custom network; None: the one named in the config, whose sizes are compared first.

    Raises:
        CheckpointMismatchError: If it was made with another policy, env or network.
    """
    if saved is None or path is None:
        return
    check_same(saved[1], cfg, spec, path)
    if model is None:
        build.check_network(cfg, spec, *saved, str(path))
