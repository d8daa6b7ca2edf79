"""The lines at the start and at the end of a training run, serial or parallel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlframe.display.saying import short_path
from rlframe.run.budgets import BUDGETS, set_budgets
from rlframe.run.evaluations import evaluation_of
from rlframe.scores import clock_text


def start_lines(pipeline: Any) -> str:
    """Returns two lines: policy, env, seed and goal, then the budgets and the run folder.

    Args:
        pipeline: The run, serial or parallel.
    """
    goal = pipeline.evaluator.goal
    verb = 'averages' if pipeline.evaluator.scores_returns else 'reaches'
    until = f'until an evaluation {verb} {goal}' if goal else 'until a budget is spent'
    if pipeline.past_goal:
        until = f'until a budget is spent (the goal of {goal} was reached)'
    cfg = pipeline.cfg
    budgets = ' and '.join(f'{cfg[key]:,} {BUDGETS[key][1]}' for key in set_budgets(cfg))
    limit = f'at most {budgets}; ' if budgets else ''
    folder = short_path(pipeline.folder)
    return f'{pipeline.title}, seed {cfg.seed}, {until}\n{limit}results and log.txt in {folder}'


def resume_line(pipeline: Any, checkpoint: Path) -> str:
    """Returns a line with the point from which a run is resumed.

    Args:
        pipeline: The run, serial or parallel.
        checkpoint: Path of the checkpoint.
    """
    progress, exact = pipeline.progress, '' if pipeline.exact else ' (not exact)'
    return (
        f'resumes{exact} from {short_path(checkpoint)}: {progress.envstep:,} env steps,'
        f' {progress.train_iter:,} updates'
    )


def last_lines(pipeline: Any, seconds: float, interrupted: bool) -> str:
    """Returns two lines: outcome and score of the run, then its length and its folder.

    Args:
        pipeline: The run, serial or parallel.
        seconds: Duration.
        interrupted: Whether it was stopped before its end.
    """
    progress, evaluator = pipeline.progress, pipeline.evaluator
    score, goal = evaluator.describe(evaluator.best), evaluator.goal
    state = 'solved' if pipeline.solved else 'not solved' if goal else 'done'
    state = 'interrupted and saved' if interrupted else state
    if pipeline.hooks.stop_reason and not pipeline.solved:
        state = f'stopped: {pipeline.hooks.stop_reason}\nsaved'
    best = f'best evaluation {score}' if score else 'never evaluated'
    goal = f' (goal {goal})' if goal else ''
    took = f'{seconds:.1f} s' if seconds < 60 else clock_text(seconds)
    return (
        f'{state}: {best}{goal}{_interval(pipeline)}\n'
        f'{progress.envstep:,} env steps, {progress.train_iter:,} updates, {took}. Results: {short_path(pipeline.folder)}'
    )


def _interval(pipeline: Any) -> str:
    """Returns the 95 % interval of the best evaluation; empty if it has none."""
    best = pipeline.evaluator.best
    found = evaluation_of(pipeline.folder, best) if isinstance(best, float) else None
    if found is None or found.interval is None:
        return ''
    return f', 95 % interval {found.interval} over {found.episodes} episodes'
