"""The resources of a trial, and the error if the cluster can never provide them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ray.tune import Callback

from rlframe.config.sections import ExperimentConfig
from rlframe.errors import ResourceError
from rlframe.pipeline.build import get_backend_cls
from rlframe.utils.lazy import LazyModule

ray = LazyModule('ray')


def bundles_of(cfg: ExperimentConfig, learner: Mapping[str, float] | None = None) -> list[dict[str, float]]:
    """Returns the resources of a trial: first the learning process, then each of its actors.

    Args:
        cfg: The compiled config of the trial.
        learner: Resources of the process that learns; by default 1 CPU and, for a policy on CUDA, 1 GPU.
    """
    own = {'CPU': 1.0, **({'GPU': 1.0} if _on_cuda(cfg) else {}), **(learner or {})}
    bundles = [{name: float(size) for name, size in own.items()}]
    collector, evaluator = cfg.policy.collect.collector, cfg.policy.eval.evaluator
    bundles += get_backend_cls(collector).collector_resources(collector)
    bundles += get_backend_cls(evaluator).evaluator_resources(evaluator)
    return [bundle for i, bundle in enumerate(bundles) if bundle or i == 0]


def _on_cuda(cfg: ExperimentConfig) -> bool:
    """Whether the policy uses CUDA, even if this machine, which only schedules trials, has none."""
    import torch

    if cfg.policy.cuda is not None:
        return bool(cfg.policy.cuda)
    return str(cfg.policy.device).startswith('cuda') or (
        cfg.policy.device == 'auto' and torch.cuda.is_available()
    )


class ResourceCheck(Callback):  # type: ignore[misc]  # Ray is untyped
    """Ends a search whose trials can never start; Tune itself would wait forever."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def on_step_begin(self, iteration: int, trials: Sequence[Any], **info: Any) -> None:
        """Looks at the trials that wait.

        Raises:
            ResourceError: With the needed and the available amounts.
        """
        for trial in trials:
            is_new = trial.status == 'PENDING' and trial.trial_id not in self._seen
            if is_new and trial.placement_group_factory is not None:
                self._seen.add(trial.trial_id)
                check_fits(trial.placement_group_factory.bundles, str(trial))


def check_fits(bundles: Sequence[Mapping[str, float]], who: str) -> None:
    """Checks that the cluster, if empty, has room for the bundles.

    Raises:
        ResourceError: With the numbers.
    """
    total = ray.cluster_resources()
    nodes = [node['Resources'] for node in ray.nodes() if node['Alive']]
    for name in sorted({name for bundle in bundles for name in bundle}):
        needed, largest = sum(b.get(name, 0) for b in bundles), max(b.get(name, 0) for b in bundles)
        if needed > total.get(name, 0) or largest > max((n.get(name, 0) for n in nodes), default=0):
            raise ResourceError(
                f'{who} needs {needed:g} {name} in {len(bundles)} bundle(s), the largest of {largest:g};'
                f' the cluster has {total.get(name, 0):g} on {len(nodes)} node(s)',
                where='resources',
                remedy='Ask for fewer collectors (policy.collect.collector.num_collectors), for less for each'
                " (remote_configs), or for less for the process that learns (resources={'CPU': 0.5}).",
            )
