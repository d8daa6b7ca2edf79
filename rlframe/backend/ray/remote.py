"""Creates the parts of a config in other processes."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlframe.backend.local import LocalBackend
from rlframe.backend.ray.actors.options import remote_config_of
from rlframe.backend.ray.evaluator import EvaluatorParts, Recorder
from rlframe.pipeline import build
from rlframe.registry import import_modules
from rlframe.run.progress import Progress
from rlframe.utils.seed import incarnation_seed, set_seed
from rlframe.worker.collector.counted import Parts

if TYPE_CHECKING:
    from rlframe.config.sections import ExperimentConfig


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
        from rlframe.worker import create_serial_collector

        cfg = actor_config(self._cfg, rank, incarnation)
        section, factory = cfg.policy.collect.collector, self._factory
        own = rank if section.sync else rank + 1  # else the policy that is trained draws the same numbers
        prepare(cfg)
        env, progress = build.make_env(cfg, factory, cfg.env.collector_env_num), Progress()
        policy = build.make_policy(cfg, factory.spec, self.model, ('collect',), own)
        collector = create_serial_collector(
            section, env=env, policy=policy.collect_mode, seed=cfg.seed, rank=rank, progress=progress
        )
        random = build.random_actor(cfg, policy, rank)
        return Parts(collector, env, progress, policy.collect_mode, random)


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
        prepare(cfg)
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


def prepare(cfg: ExperimentConfig) -> None:
    """Prepares an actor's process for a config: imports, global generators, threads."""
    import_modules(cfg.import_names)
    set_seed(cfg.seed)
    build.set_threads(cfg)
