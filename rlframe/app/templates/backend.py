"""A custom backend: it collects in this process, with a pause after each call.

    rlframe train -c cartpole_dqn "import_names=['new_backend']" collector.backend=new_backend

A backend may run collection and evaluation anywhere; docs/backends.md has one that collects in a thread, and says what
each method has to do.
"""

from time import sleep
from typing import Any

from rlframe.backend import LocalBackend
from rlframe.registry import BACKEND_REGISTRY
from rlframe.utils.field import Field
from rlframe.worker import ISerialCollector


@BACKEND_REGISTRY.register('new_backend')
class NewBackend(LocalBackend):
    """Steps the envs in this process and leaves time to others."""

    # an option: collector.pause=0.01
    config = dict(
        collector=dict(pause=Field(0.0, range='[0, inf)', unit='seconds', doc='after each call of collect'))
    )

    def make_collector(self, cfg: Any, policy: Any, **common: Any) -> ISerialCollector:
        made: Any = super().make_collector(cfg, policy, **common)
        collect, pause = made.collect, cfg.policy.collect.collector.pause

        def collect_and_pause(*args: Any, **kwargs: Any) -> Any:
            rows = collect(*args, **kwargs)
            sleep(pause)
            return rows

        made.collect = collect_and_pause
        collector: ISerialCollector = made
        return collector
