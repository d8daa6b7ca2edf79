"""ActorPool: a supervisor of Ray actors, with the options of a config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlframe.backend.base import COLLECTOR
from rlframe.backend.ray.place import RayPlace
from rlframe.backend.worker import CollectorWorker
from rlframe.remote.supervisor import Limits, Supervisor
from rlframe.remote.worker import Worker


class ActorPool(Supervisor):
    """Supervises Ray actors.

    Args:
        cfg: Options of a collector, of which those of ``RAY_OPTIONS`` are used.
        kind: Class of the workers.
        section: Config key of the options.
        make: Creates the parts in an actor, like ``MakeParts``.

    Raises:
        ResourceError: If no Ray answers at the given address, or it lacks the resources that the actors need.
    """

    place_cls = RayPlace
    names: Sequence[str] = ()
    """Names of the workers; see ``Place``."""

    def __init__(
        self,
        cfg: Mapping[str, Any],
        kind: type[Worker] = CollectorWorker,
        section: str = COLLECTOR,
        make: Any = None,
    ) -> None:
        place = self.place_cls(kind, cfg, section, self.names)
        limits = Limits.of(cfg, cfg['collect_timeout'], section)
        remedy = 'Is there enough memory? Do the envs answer? The log files of the Ray session say more.'
        super().__init__(place, make, cfg['num_collectors'], limits, remedy)
