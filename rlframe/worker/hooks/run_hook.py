"""RunHook: the base class of hooks of a whole run, with one method per event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlframe.errors import HookError
from rlframe.registry import nearest
from rlframe.utils.field import Configurable

if TYPE_CHECKING:
    from rlframe.worker.hooks.run_view import RunView

EVENTS = (
    'before_run',
    'before_collect',
    'after_env_step',
    'after_collect',
    'after_round',
    'after_eval',
    'after_checkpoint',
    'after_run',
    'on_exception',
)
"""Names of the events, which are the names of the methods, in the order of a run."""
OF_THE_COLLECTOR = ('before_collect', 'after_env_step', 'after_collect')
"""Events that parallel mode does not have, as its collectors are in other processes."""


class RunHook(Configurable):
    """Called with a view of the run at each event whose method it overrides; the others cost nothing.

    A hook may read everything in the view, log metrics (``run.log``) and end training (``run.stop``). Hooks are called in the
    order of the config. An exception ends the run; its notes name the hook and the event.

    Args:
        cfg: Options of the hook.
    """

    _cfg: Any
    config: dict[str, Any] = {}
    name = ''
    """Name of its section below ``hooks``; set when a run creates it."""
    in_parallel: bool | None = None
    """Whether it works in parallel mode, where this process has no policy, collector or learner; None: unless it overrides an
    event of the collector."""

    def __init__(self, cfg: Mapping[str, Any] | None = None) -> None:
        self._cfg = self.resolve_config(cfg)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Checks that methods which look like those of events are those of events.

        Raises:
            HookError: If one is named like an event but is none; the nearest event is named.
        """
        super().__init_subclass__(**kwargs)
        for name, member in vars(cls).items():
            if callable(member) and name.startswith(('before_', 'after_', 'on_')) and name not in EVENTS:
                raise HookError(
                    f'a hook has no event {name!r}.{nearest(name, EVENTS)}',
                    where=cls.__qualname__,
                    remedy=f'Events: {", ".join(EVENTS)}. Another method of yours needs another name, such as _{name}.',
                )

    def before_run(self, run: RunView) -> None:
        """Called once, before the first round; in a resumed run, too, after the state was loaded."""

    def before_collect(self, run: RunView) -> None:
        """Called before each collection."""

    def after_env_step(self, run: RunView) -> None:
        """Called after each step of the training envs, all of which step together."""

    def after_collect(self, run: RunView) -> None:
        """Called after each collection; ``run.collected`` has the new data."""

    def after_round(self, run: RunView) -> None:
        """Called after each round: data were collected, and updates made. In parallel mode: about once a second."""

    def after_eval(self, run: RunView) -> None:
        """Called after each evaluation; ``run.evaluation`` has the result."""

    def after_checkpoint(self, run: RunView) -> None:
        """Called after each checkpoint; ``run.checkpoint`` is its path."""

    def after_run(self, run: RunView) -> None:
        """Called at the end of training, also if the user interrupted it; ``run.outcome`` says how it ended."""

    def on_exception(self, run: RunView) -> None:
        """Called when an exception ends the run, after the crash report was written; ``run.error`` is the exception."""

    def state_dict(self) -> dict[str, Any]:
        """Returns what the hook needs to continue, as plain values and arrays; saved in every checkpoint."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""

    @classmethod
    def why_not(cls, is_parallel: bool, backend: str) -> str:
        """Returns the reason why the hook cannot work in a run; empty if it can.

        Args:
            is_parallel: Whether the run is one of parallel mode.
            backend: Backend of the collector.
        """
        used = [event for event in OF_THE_COLLECTOR if overrides(cls, event)]
        if is_parallel and not (not used if cls.in_parallel is None else cls.in_parallel):
            what = f'uses {", ".join(used)}' if used else 'needs the policy or the learner'
            return f'it {what}, which parallel mode has in other processes'
        if backend != 'local' and 'after_env_step' in used:
            return f'it uses after_env_step, and the backend {backend!r} steps envs in other processes'
        return ''


def overrides(cls: type[RunHook], event: str) -> bool:
    """Whether a class has a method of its own for an event."""
    return getattr(cls, event) is not getattr(RunHook, event)
