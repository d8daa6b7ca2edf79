"""Checkpoints of a pipeline: everything that the next round depends on, saved between two rounds and put back."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlframe import build, config
from rlframe.errors import CheckpointMismatchError
from rlframe.utils import checkpoint
from rlframe.utils.crash_report import write_crash_report
from rlframe.utils.seed import forked, global_rng_state, set_global_rng_state

if TYPE_CHECKING:
    from rlframe.pipeline import SerialPipeline

logger = logging.getLogger('rlframe.checkpoint')


class Checkpoints:
    """Saves and restores a pipeline, and keeps as many checkpoints as its config says.

    A checkpoint that is asked for during a round is saved when the round is over, where another process can take over.

    Args:
        pipeline: Whose state it is; its workers are looked up when a checkpoint is saved or loaded.
    """

    def __init__(self, pipeline: SerialPipeline) -> None:
        self._pipeline = pipeline
        self._requested: list[str] = []
        self._held: list[dict[str, Any]] = []  # what may be the best: policies whose evaluation is under way

    @property
    def folder(self) -> Path:
        """Where checkpoints are kept."""
        return self._pipeline.folder / 'ckpt'

    def request(self, name: str) -> None:
        """Asks for a checkpoint of this name at the end of the round."""
        self._requested.append(name)

    def finish_round(self) -> None:
        """Saves what was asked for during the round, as ``latest``."""
        for name in dict.fromkeys(self._requested):
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
        return checkpoint.save_checkpoint(path, self._policy_state(), self._facts())

    def save_emergency(self) -> Path:
        """Saves everything where it stands, in the middle of a round maybe; no resume takes it by itself."""
        name = f'emergency_iteration_{self._pipeline.progress.train_iter}'
        return checkpoint.save_checkpoint(
            self.folder / name, self._state(), self._facts(), buffer=self._buffer_state()
        )

    def leave_crash_report(self, error: BaseException) -> None:
        """Saves what explains an error, and the state as it is; what fails on the way is noted at the error."""
        pipeline = self._pipeline
        facts = {
            'counters': pipeline.progress.state_dict(),
            'last metrics': pipeline.writer.last_record(),
            'config': config.config_data(*config.split_config(pipeline.cfg)),
        }
        name = f'crash_iteration_{pipeline.progress.train_iter}'
        try:
            error.add_note(f'crash report: {write_crash_report(pipeline.folder, name, error, facts)}')
            error.add_note(f'emergency checkpoint: {self.save_emergency()}')
        except Exception as second:
            error.add_note(f'and then: {type(second).__name__}: {second}')

    def save(self, path: Path) -> Path:
        """Writes everything that the next round depends on.

        Envs whose state cannot be had begin a new episode, here as well as where the checkpoint is loaded, so that the run
        that goes on and the one that is resumed stay the same.
        """
        state, facts = self._settled(path.name)
        return checkpoint.save_checkpoint(path, state, facts, buffer=self._buffer_state())

    def _settled(self, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Brings everything to where a resumed run can take over and returns the state and the facts about it."""
        pipeline = self._pipeline
        pipeline.learner.ckpt_name = name
        pipeline.collector.settle()
        return self._state(), self._facts() | {'logs': pipeline.writer.state_dict()}

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
        options = self._pipeline.cfg.checkpoint
        checkpoint.publish_checkpoint(
            self.folder / name, state, facts, name=link, buffer=buffer, options=options
        )

    def _facts(self) -> dict[str, Any]:
        pipeline = self._pipeline
        return {
            'policy': pipeline.cfg.policy.type,
            'env': pipeline.factory.spec.name,
            'progress': pipeline.progress.state_dict(),
            'score': _number(pipeline.evaluator.score),
            'exact': pipeline.exact,
            'config': config.config_data(*config.split_config(pipeline.cfg)),
        }

    def _state(self) -> dict[str, Any]:
        pipeline = self._pipeline
        return {
            'progress': pipeline.progress.state_dict(),
            'policy': pipeline.policy.learn_mode.state_dict(),
            'monitor': pipeline.learner.monitor.state_dict(),
            'collector': pipeline.collector.state_dict(),
            'evaluator': pipeline.evaluator.state_dict(),
            'rng': global_rng_state(),
            'round': pipeline.round_state(),
            **({'held': self._held} if self._held else {}),
        }

    def load(self, path: Path) -> None:
        """Reads a checkpoint and restores it.

        Raises:
            CheckpointError: If it is missing or damaged, or was made by another policy or for another env.
        """
        self.restore(*checkpoint.load_checkpoint(Path(path)), path)

    def restore(
        self,
        state: Mapping[str, Any],
        manifest: Mapping[str, Any],
        path: Path,
        clone_key: int | None = None,
    ) -> None:
        """Puts the pipeline where it was when ``save`` wrote this.

        Args:
            state: State of the checkpoint.
            manifest: Its manifest.
            path: Where it is.
            clone_key: By which number generators become others, where the run that saved it goes on as well.

        Raises:
            CheckpointMismatchError: If it was made by another policy or for another env, or holds a policy only.
        """
        pipeline = self._pipeline
        here = {'policy': pipeline.cfg.policy.type, 'env': pipeline.factory.spec.name}
        check_same(manifest, here, path)
        if clone_key is not None:
            state = forked(state, clone_key)
        pipeline.progress.load_state_dict(state['progress'])
        with build.named_mismatch(manifest, pipeline.cfg, str(path)):
            pipeline.policy.learn_mode.load_state_dict(state['policy'])
        pipeline.learner.monitor.load_state_dict(state['monitor'])
        pipeline.learner.ckpt_name = path.name
        pipeline.collector.load_state_dict(state['collector'])
        pipeline.exact = manifest.get('exact', True) and clone_key is None
        if pipeline.replay_buffer is not None:
            if state.get('replay_buffer') is None:
                pipeline.exact = False
                logger.warning(
                    '%s was saved without the replay buffer: the resumed run begins with an empty one and is not exact',
                    path,
                )
            else:
                pipeline.replay_buffer.load_state_dict(state['replay_buffer'])
        pipeline.evaluator.load_state_dict(state['evaluator'])
        self._held = list(state.get('held', ()))
        set_global_rng_state(state['rng'])
        pipeline.load_round_state(state['round'])


def _number(score: float) -> float | None:
    return score if score == score else None


def check_same(manifest: Mapping[str, Any], here: Mapping[str, Any], path: Path) -> None:
    """Makes sure that a checkpoint can be resumed by this policy in this env.

    Raises:
        CheckpointMismatchError: If it was made by another policy or for another env, or holds a policy only.
    """
    if differing := [f'{k}: {manifest[k]!r} there, {v!r} here' for k, v in here.items() if manifest[k] != v]:
        raise CheckpointMismatchError('; '.join(differing), where=str(path))
    if 'logs' not in manifest:
        raise CheckpointMismatchError(
            'this checkpoint holds a policy only',
            where=str(path),
            remedy='policy.init_from begins with its weights.',
        )
