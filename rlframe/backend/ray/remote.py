"""Creates the parts of a config in other processes."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlframe.backend.base import LocalBackend
from rlframe.backend.ray.evaluator import EvaluatorParts, Recorder
from rlframe.backend.ray.options import remote_config_of
from rlframe.pipeline import build
from rlframe.utils.seed import incarnation_seed
from rlframe.worker.collector.rollout import Parts

if TYPE_CHECKING:
    from rlframe.config.schema import ExperimentConfig


class MakeCollector:
    """Creates the collector in an actor from a config; that of rank 0 equals the collector of a run without actors.

    Args:
        cfg: A compiled config.
        factory: Creates its envs; an env registered only in this process works in actors too.
    """

    def __init__(self, cfg: ExperimentConfig, factory: Any) -> None:
        self._cfg, self._factory = cfg, factory
        self.model: Any = None
        """A custom network, if given; it is copied."""

    def __call__(self, rank: int, incarnation: int) -> Parts:
        """Creates envs, policy and collector."""
        cfg = actor_config(self._cfg, rank, incarnation)
        # without sync, the policy that is trained would draw the same numbers
        policy_rank = rank if cfg.policy.collect.collector.sync else rank + 1
        build.prepare(cfg)
        return build.make_collector_parts(cfg, self._factory, rank, policy_rank, self.model)


class MakeEvaluator:
    """Creates the evaluator in an actor; it plays the same episodes as an evaluator in the process of the run.

    Args:
        cfg: A compiled config.
        factory: Creates its envs; an env registered only in the process of the run works in the actor too.
    """

    def __init__(self, cfg: ExperimentConfig, factory: Any) -> None:
        self._cfg, self._factory = cfg, factory
        self.given: Mapping[str, Any] = {}
        """Further arguments of the evaluator."""
        self.model: Any = None
        """A custom network, if given; it is copied."""

    def __call__(self, rank: int, incarnation: int) -> EvaluatorParts:
        """Creates envs, policy and evaluator."""
        cfg = copy.deepcopy(self._cfg)
        section = cfg.policy.eval.evaluator
        if not section.remote_config.get('num_gpus'):
            cfg.policy.device, cfg.policy.cuda = 'cpu', None
        section.backend, cfg.policy.init_from = 'local', None
        build.prepare(cfg)
        factory = self._factory
        policy = build.make_policy(cfg, factory.spec, self.model, ('eval',), rank)
        backend, recorder = LocalBackend(factory), Recorder()
        backend.open_evaluator(cfg)
        evaluator = build.make_evaluator(cfg, backend, policy, factory.spec, tb_logger=recorder, **self.given)
        return EvaluatorParts(evaluator, backend.env, policy.eval_mode, recorder)


def actor_config(cfg: ExperimentConfig, rank: int, incarnation: int) -> ExperimentConfig:
    """Returns the config for an actor, in which nothing is logged or passed on to further actors.

    Args:
        cfg: The config of the run.
        rank: Rank of the actor.
        incarnation: Number of actors lost in its place before.
    """
    cfg = copy.deepcopy(cfg)
    section = cfg.policy.collect.collector
    if not remote_config_of(section, rank)['num_gpus']:
        cfg.policy.device, cfg.policy.cuda = 'cpu', None
    section.backend, section.collect_print_freq = 'local', None
    cfg.policy.init_from = None  # weights come from the driver
    cfg.seed = incarnation_seed(cfg.seed, rank, incarnation)
    return cfg
