"""A custom hook of a run: it ends training when training episodes are good enough."""

from rlframe.registry import HOOK_REGISTRY
from rlframe.utils.field import Field
from rlframe.worker.hooks import RunHook, RunView


@HOOK_REGISTRY.register('stop_at_return')
class StopAtReturn(RunHook):
    """Ends training when the mean return of the last training episodes reaches a value."""

    config = dict(value=Field(100.0, doc='mean return'))

    def after_round(self, run: RunView) -> None:
        if run.collector.mean_return() >= self._cfg.value:
            run.stop(f'the training return reached {self._cfg.value:g}')
