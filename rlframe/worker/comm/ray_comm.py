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

    config = dict(
        num_cpus=Field(
            0.0,
            range='[0, inf)',
            unit='logical CPUs',
            doc='that Ray reserves for the actor of a worker; 0: as many workers as wanted share the cores',
            may_change=True,
        ),
        num_gpus=Field(
            0.0,
            range='[0, inf)',
            unit='logical GPUs',
            doc='that Ray reserves for the actor of a worker, which sees no others',
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
