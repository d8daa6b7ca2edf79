"""HookList: the hooks of a run, called by its pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlframe.utils.schema import DICT, NUMBER, check_state, dict_of, part
from rlframe.worker.hooks.run_hook import EVENTS, RunHook, overrides
from rlframe.worker.hooks.run_view import RunView

STATE = {'hooks': dict_of(DICT), 'metrics': dict_of(NUMBER)}
Method = Callable[[RunView], None]


class HookList:
    """Calls the hooks of a run in the order of the config, and saves their states.

    Args:
        hooks: The hooks by name.
        run: What they see.
    """

    def __init__(self, hooks: Mapping[str, RunHook], run: RunView) -> None:
        self._hooks, self.run = dict(hooks), run
        for name, hook in hooks.items():
            hook.name = name
        self._methods: dict[str, list[tuple[str, Method]]] = {
            event: [
                (name, getattr(hook, event)) for name, hook in hooks.items() if overrides(type(hook), event)
            ]
            for event in EVENTS
        }

    def __contains__(self, event: str) -> bool:
        """Whether any hook wants to be called at an event."""
        return bool(self._methods[event])

    def call(self, event: str) -> None:
        """Calls all hooks of an event; an exception gets a note that names the hook and the event."""
        for name, method in self._methods[event]:
            try:
                method(self.run)
            except Exception as error:
                at = self.run.progress.train_iter
                error.add_note(f'raised in the hook {name!r} at {event}, train_iter {at}')
                raise

    def fail(self, error: BaseException) -> None:
        """Calls the hooks of ``on_exception``; what they raise is added to the error as notes."""
        self.run.error, self.run.outcome = error, 'failed'
        for name, method in self._methods['on_exception']:
            try:
                method(self.run)
            except Exception as second:
                told = f'{type(second).__name__}: {second}'
                error.add_note(f'and then, in the hook {name!r} at on_exception: {told}')

    def state_dict(self) -> dict[str, Any]:
        """Returns the states of all hooks that have one, and the last metrics; nothing if there are no hooks."""
        if not self._hooks:
            return {}
        states = {name: state for name, hook in self._hooks.items() if (state := hook.state_dict())}
        return {'hooks': states, 'metrics': dict(self.run.state_dict())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the hooks; the state of one that this run does not have is dropped."""
        check_state(state, STATE)
        if hasattr(self.run.writer, 'latest'):
            self.run.writer.latest.update(state['metrics'])
        for name, own in state['hooks'].items():
            if name in self._hooks:
                with part(f'hooks.{name}'):
                    self._hooks[name].load_state_dict(own)
