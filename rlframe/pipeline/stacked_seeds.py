"""Trains several seeds of a config in one process: their updates and evaluations are made together."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlframe.config.components import section_at
from rlframe.config.schema import ROLES, ExperimentConfig
from rlframe.errors import ConfigError, ConfigWarning
from rlframe.pipeline import build
from rlframe.pipeline.serial import SerialPipeline
from rlframe.policy.parts import stacked
from rlframe.policy.parts.stacked import LEAVE, Stack, check_stacked
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.flat import flat
from rlframe.utils.lockstep import Lockstep
from rlframe.worker.evaluator import joint_evaluation
from rlframe.worker.evaluator.joint_evaluation import JointEvaluation
from rlframe.worker.evaluator.serial_evaluator import InteractionSerialEvaluator

IN_PYTHON = 'base', 'subprocess', 'async_subprocess'
"""Env managers that step envs one by one."""
SAME = 'env', 'policy'
"""Sections that are the same for all seeds."""


def check_seeds(cfg: ExperimentConfig) -> None:
    """Checks that the seeds of a config can be trained together, and warns if their envs are stepped in Python.

    Raises:
        ConfigError: If they cannot; the option, and what to do instead, are named.
    """
    for path in ROLES.values():
        got = section_at(cfg, path).get('backend', 'local')
        if got != 'local':
            message = 'stacked seeds do all of their work in one process'
            where = '.'.join((*path, 'backend'))
            raise ConfigError(message, where=where, got=got, expected="'local'", remedy=LEAVE)
    error = check_stacked(POLICY_REGISTRY.get(cfg.policy.type), cfg.policy)
    if error is not None:
        raise error
    kind = cfg.env.manager.type
    if kind in IN_PYTHON:
        text = (
            f'stacked seeds save no time of envs in Python (env.manager.type={kind!r}): the envs of ten seeds cost what they cost in'
            ' ten runs. Where there are native ones, env_manager.type=gym_vector or env_pool costs less'
        )
        warnings.warn(text, ConfigWarning, stacklevel=2)


class StackedSeeds:
    """Several runs, each a ``SerialPipeline`` in a thread of its own, of which one runs at a time.

    Each run is what it is alone: it has its folder, metrics, checkpoints and generators. Only its updates and evaluations are made
    together with those of the other runs, as soon as all of them are there.

    Args:
        cfg: A config of these runs, which differ in their seeds.
    """

    def __init__(self, cfg: ExperimentConfig) -> None:
        self._cfg = cfg
        self._updates = Stack()
        self._evaluations = JointEvaluation(self._make_envs)
        self._lockstep = Lockstep((self._evaluations, self._updates))

    def _make_envs(self, env_num: int) -> Any:
        return build.make_eval_env(self._cfg, build.make_factory(self._cfg), env_num)

    def run(self, runs: Sequence[Callable[[], None]]) -> None:
        """Calls the functions, one for each seed; each makes its pipeline, lets it ``join`` and trains it."""
        try:
            self._lockstep.run(runs)
        finally:
            self._evaluations.close()

    def join(self, pipeline: SerialPipeline) -> None:
        """Lets a pipeline make its updates and evaluations together with the others.

        Raises:
            ConfigError: If its options, perhaps those that it was once begun with, are not those of the other runs.
        """
        mine = flat({name: pipeline.cfg[name] for name in SAME})
        others = flat({name: self._cfg[name] for name in SAME})
        differing = [key for key in mine | others if mine.get(key) != others.get(key)]
        if differing:
            raise ConfigError(
                f'the options of seed {pipeline.cfg.seed} differ, and its run cannot be stacked',
                where=differing[0],
                got=mine.get(differing[0]),
                expected=f'{others.get(differing[0])!r}, as the other seeds have it',
                remedy=LEAVE,
            )
        update: Any = pipeline.policy.update

        def make(step: Any, rows: Any, turn: bool) -> Any:
            return self._lockstep.meet(self._updates, stacked.Request(update, step, rows, turn))

        def play(evaluator: Any, episodes: int, settings: Mapping[str, Any]) -> Any:
            return self._lockstep.meet(
                self._evaluations, joint_evaluation.Request(evaluator, episodes, settings)
            )

        update.together = make
        evaluator = pipeline.evaluator
        if type(evaluator) is InteractionSerialEvaluator:
            evaluator.together = play
