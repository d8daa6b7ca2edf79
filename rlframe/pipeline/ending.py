"""Decides when a run ends, also under the changed config of a resumed run, and how to train it further."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from rlframe import config
from rlframe.run.budgets import BUDGETS, set_budgets, spent_budgets

if TYPE_CHECKING:
    from rlframe.config.sections import ExperimentConfig
    from rlframe.pipeline.parts import LoopState
    from rlframe.pipeline.serial import SerialPipeline
    from rlframe.run.progress import Progress


class Scores(Protocol):
    """The scores of a run."""

    @property
    def best(self) -> Any:
        """The best one so far."""

    def reached(self, score: Any, /) -> bool:
        """Whether a score ends training."""


class TrainingRun(Protocol):
    """A run, serial or parallel."""

    cfg: ExperimentConfig
    progress: Progress
    loop: LoopState

    @property
    def evaluator(self) -> Scores:
        """Knows the scores."""

    @property
    def stopped(self) -> bool:
        """Whether training ended because the goal was reached."""

    @property
    def solved(self) -> bool:
        """Whether the goal was reached."""


def judge_again(pipeline: TrainingRun, saved: Mapping[str, Any]) -> None:
    """Decides whether a restored run is over under the config that it continues with.

    If the goal has changed, the best score so far decides. If a solved run gets a new budget above what it has used, it
    trains to that budget, past its goal.

    Args:
        pipeline: The run.
        saved: ``main_config`` of the checkpoint.
    """
    now = config.config_data(*config.split_config(pipeline.cfg))['main_config']
    if _goal(now) != _goal(saved):
        best = pipeline.evaluator.best
        pipeline.loop.stopped = pipeline.progress.train_iter > 0 and pipeline.evaluator.reached(best)
        pipeline.loop.past_goal = False
    elif pipeline.solved:
        budgets = set_budgets(now)
        if pipeline.stopped:
            budgets = [key for key in budgets if now[key] != saved[key] and _has_room(pipeline, key)]
        pipeline.loop.past_goal = bool(budgets)
        pipeline.loop.stopped = not budgets


def _has_room(pipeline: TrainingRun, key: str) -> bool:
    """Whether part of a budget is left."""
    return bool(getattr(pipeline.progress, BUDGETS[key][0]) < pipeline.cfg[key])


def _goal(main: Mapping[str, Any]) -> tuple[Any, Any]:
    """Returns the scores at which training ends: the return, and the evaluator's own score."""
    evaluator = main['policy'].get('eval', {}).get('evaluator', {})
    return main['env'].get('stop_value'), evaluator.get('stop_value')


def nothing_left(pipeline: TrainingRun) -> str:
    """Returns the reason why a run has ended, and the option to set to train further."""
    progress = pipeline.progress
    if pipeline.stopped:
        reached = ' or '.join(
            f'{flag} above {getattr(progress, counter):,} {name}' for counter, name, flag in BUDGETS.values()
        )
        return (
            f'solved: nothing is left to do. To train further, set another budget ({reached}), or an'
            ' env.stop_value that was not reached yet'
        )
    spent = {key: BUDGETS[key] for key in spent_budgets(pipeline.cfg, progress)}
    budgets = ' and of '.join(f'{pipeline.cfg[key]:,} {name}' for key, (_, name, _) in spent.items())
    flags = ' and '.join(flag for *_, flag in spent.values())
    return f'the budget of {budgets} is spent: nothing is left to do. To train further, raise {flags}'


def unused(pipeline: SerialPipeline, may_go_on: bool) -> Iterator[str]:
    """Yields warnings about a finished run: too little data for an update, unread options.

    Args:
        pipeline: The run.
        may_go_on: Whether a later call may continue training, so that options may still be read.
    """
    if not pipeline.progress.train_iter:
        if pipeline.finished and pipeline.replay_buffer is not None:
            yield f'no update was made: {_why_no_update(pipeline, pipeline.replay_buffer.count())}'
    elif not may_go_on:
        for key in config.unread_user_keys(pipeline.cfg):
            yield f'{key} was set but nothing read it'


def _why_no_update(pipeline: SerialPipeline, held: int) -> str:
    """Returns the reason why a finished run whose replay buffer holds so many items made no update."""
    size = pipeline.cfg.policy.learn.batch_size
    if held < size:
        return f'the replay buffer has {held} of the {size} items that an update needs'
    return pipeline.hooks.stop_reason or (
        f'the replay buffer has {held} items, and the commander asked for no update'
    )
