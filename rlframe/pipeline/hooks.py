"""Hooks that a program passes to a run; LaterHooks: the hooks of a parallel run, called from its main thread."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import monotonic
from typing import Any

from rlframe.errors import HookError
from rlframe.worker.hooks.run_hook import PREFIXES, HookList, RunHook
from rlframe.worker.learner.learner_hook import LearnerHook

ROUND_SECONDS = 1.0
"""Seconds between two calls of ``after_round``."""


class LaterHooks:
    """Calls the hooks of a parallel run from its main thread: evaluations and checkpoints come from threads that must not wait.

    As a part of checkpoints, it has the state of the hooks after their last call.

    Args:
        pipeline: The run, whose parts exist.
        given: Hooks that the program has passed.
    """

    def __init__(self, pipeline: Any, given: Mapping[str, RunHook]) -> None:
        self.hooks = HookList.of(pipeline, given)
        """The hooks."""
        self._state = self.hooks.state_dict()
        self.results: deque[Any] = deque()
        """Results of evaluations."""
        self.saved: deque[Path] = deque()
        """Paths of checkpoints."""
        self._last_round = monotonic()

    def call(self) -> None:
        """Calls the hooks for all that happened since the last call."""
        while self.results:
            self.hooks.evaluated(self.results.popleft())
        while self.saved:
            self.hooks.saved(self.saved.popleft())
        if monotonic() - self._last_round >= ROUND_SECONDS:
            self._last_round = monotonic()
            self.hooks.call('after_round')
        self._state = self.hooks.state_dict()

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of the hooks after their last call."""
        return self._state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the hooks."""
        self.hooks.load_state_dict(state)
        self._state = self.hooks.state_dict()


def given_hooks(hooks: Any, is_parallel: bool, backend: str) -> dict[str, RunHook]:
    """Returns the hooks that a program passes as objects, by their names.

    A name is that of the class or function; a second one of the same name gets a number, so their order matters.

    Args:
        hooks: Hooks and functions, or a single one. A function is called with the view of the run at the event that it is
            named like, or else after each round.
        is_parallel: Whether the run is one of parallel mode.
        backend: Backend of the collector.

    Raises:
        HookError: If something else is among them, or a hook that cannot work in the run.
    """
    if isinstance(hooks, str | Mapping):
        raise HookError(
            'hooks takes objects and functions',
            where='hooks',
            remedy="Sections of the config are overrides: overrides={'hooks.early_stop.patience': 10}.",
        )
    found: dict[str, RunHook] = {}
    if not isinstance(hooks, Iterable):
        hooks = [hooks] if hooks else []
    for i, given in enumerate(hooks):
        hook = _hook_of(given, f'hooks[{i}]')
        if why := hook.why_not(is_parallel, backend):
            raise HookError(why, where=f'hooks[{i}]')
        name = getattr(given, '__qualname__', type(given).__qualname__)
        count = sum(other.partition('()')[0] == name for other in found)
        found[f'{name}()#{count + 1}' if count else f'{name}()'] = hook  # no section of a config is named so
    return found


def _hook_of(given: Any, where: str) -> RunHook:
    if isinstance(given, RunHook):
        return given
    if isinstance(given, type | LearnerHook) or not callable(given):
        remedy = 'docs/hooks.md has both.'
        if isinstance(given, type) and issubclass(given, RunHook):
            remedy = f'Pass an object: {given.__name__}().'
        if isinstance(given, LearnerHook):
            remedy = 'A hook of the learner belongs to policy.learn.learner.hook.'
        raise HookError(f'{given!r} is neither a hook of a run nor a function', where=where, remedy=remedy)
    name = getattr(given, '__name__', '')
    if inspect.iscoroutinefunction(given):
        raise HookError(f'{name} is a coroutine, which nobody would await', where=where)
    members = {name if name.startswith(PREFIXES) else 'after_round': lambda self, run: given(run)}
    kind: type[RunHook] = type(
        name or 'FunctionHook', (RunHook,), members
    )  # which checks the name of an event
    return kind()
