"""A custom run hook: it ends training when training episodes are good enough.

    rlframe train -c cartpole_dqn "import_names=['new_run_hook']" "hooks.new_run_hook=dict(goal=100)"

A run hook sees the whole run at the events of its methods, such as after_round, after_eval and after_run.
"""

from rlframe.registry import HOOK_REGISTRY
from rlframe.utils.field import Field
from rlframe.worker.hooks import RunHook, RunView


@HOOK_REGISTRY.register('new_run_hook')
class NewRunHook(RunHook):
    """Ends training when the mean return of the last training episodes reaches ``goal``."""

    config = dict(goal=Field(100.0, doc='mean return'))

    def after_round(self, run: RunView) -> None:
        if run.collector.mean_return() >= self._cfg.goal:
            run.stop(f'the training return reached {self._cfg.goal:g}')
