"""The comm collector and the comm learner within a Ray cluster."""

from __future__ import annotations

from typing import Any

from rlframe.registry import COMM_COLLECTOR_REGISTRY, COMM_LEARNER_REGISTRY
from rlframe.utils.field import Field
from rlframe.worker.comm.comm_worker import CommWorker
from rlframe.worker.comm.transport_collector import TransportCollector
from rlframe.worker.comm.transport_learner import TransportLearner


class _InCluster(CommWorker):
    """What both have in common."""

    config: dict[str, Any] = dict(
        num_cpus=Field(
            None,
            type=float,
            range='[0, inf)',
            unit='logical CPUs',
            doc='that Ray reserves for each worker that -m parallel starts; None: 1 if all workers fit, else 0',
            may_change=True,
        ),
        num_gpus=Field(
            None,
            type=float,
            range='[0, inf)',
            unit='logical GPUs',
            doc='that Ray reserves for it, which sees no others; None: 1 for a learner on a GPU, else 0',
            may_change=True,
        ),
    )
    transport_type = 'ray'


@COMM_COLLECTOR_REGISTRY.register('ray')
class RayCommCollector(_InCluster, TransportCollector):
    """Collects for a coordinator in the same Ray cluster; arrays travel through the object store."""


@COMM_LEARNER_REGISTRY.register('ray')
class RayCommLearner(_InCluster, TransportLearner):
    """Learns for a coordinator in the same Ray cluster; arrays travel through the object store."""
