"""RunHook: the base class of hooks of a whole run, with one method per event."""

from __future__ import annotations

import copy
import dataclasses
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlframe.errors import HookError
from rlframe.registry import HOOK_REGISTRY, nearest
from rlframe.run.metrics import CHANGED, write_record
from rlframe.run.progress import Progress
from rlframe.utils.field import Configurable, raw_items
from rlframe.utils.schema import DICT, NUMBER, Schema, check_state, dict_of, part

if TYPE_CHECKING:
    from rlframe.data.timestep import EnvSpec

logger = logging.getLogger('rlframe.hooks')
TIMES = 'time/'
"""Start of the tags that differ in each run, even with the same seed."""
OF_THE_MACHINE = (TIMES, 'ray/', 'process/', CHANGED)
"""Start of the tags that tell of where a run runs, or how it was resumed."""
PREFIXES = ('before_', 'after_', 'on_')
"""Beginnings of the names of methods that are events."""
OF_THE_COLLECTOR = ('before_collect', 'after_env_step', 'after_collect')
"""Events that parallel mode does not have, as its collectors are in other processes."""
SHOWN = ('folder', 'progress', 'evaluator', 'writer', 'replay_buffer')
"""Parts of every pipeline that its hooks see."""
STATE = {'hooks': dict_of(DICT), 'metrics': dict_of(NUMBER)}


@dataclasses.dataclass
class RunView:
    """A run, as its hooks see it. In parallel mode, policy, collector and learner are None: they are in other processes."""

    cfg: Any
    """The compiled config."""
    folder: Path
    """The run folder."""
    progress: Progress
    """Counters: ``envstep``, ``train_iter``, ``episodes``, ``wall_time`` (seconds, over all resumes)."""
    evaluator: Any
    """The evaluator; in parallel mode, the scores: ``best``, ``latest`` and ``stop_value``."""
    spec: EnvSpec
    """Spaces, name, time limit and reward threshold of the env."""
    writer: Any
    """Writer of the metrics."""
    policy: Any = None
    """The policy that is being trained."""
    collector: Any = None
    """The collector."""
    learner: Any = None
    """The learner; ``learner.monitor.means()`` are the training variables since they were last logged."""
    replay_buffer: Any = None
    """The replay buffer; None for an on-policy policy."""
    evaluation: Any = None
    """The last evaluation: ``score``, ``is_best``, ``info`` (a list per name with one value per episode), ``train_iter``,
    ``envstep``; None before the first."""
    is_extra: bool = False
    """Whether the last evaluation was not due, but made because training ended: a run with a larger budget does not have it."""
    collected: Any = None
    """The data of the last collection, usually a ``Batch``; only set if a hook has ``after_collect``."""
    checkpoint: Path | None = None
    """The last checkpoint; None before the first."""
    error: BaseException | None = None
    """The exception that ends the run, for ``on_exception``."""
    outcome: str = ''
    """How the run ended: ``solved``, ``done`` (budget spent), ``stopped`` (by a hook), ``interrupted`` or ``failed``."""
    stop_reason: str = ''
    """Why a hook ends training; empty if none does."""

    def metrics(self) -> dict[str, float]:
        """Returns the last value of each metric by tag; training variables that were not logged yet as their mean."""
        found: dict[str, float] = dict(getattr(self.writer, 'latest', {}))
        if self.learner is not None:
            names = {'cur_lr': 'learning_rate'}
            means = self.learner.monitor.means()
            found |= {f'train/{names.get(name, name)}': value for name, value in means.items()}
        return {tag: value for tag, value in found.items() if not tag.startswith(TIMES)}

    def log(self, name: str, value: float) -> None:
        """Writes a metric at the current env step."""
        progress = self.progress
        write_record(self.writer, {name: float(value)}, progress.envstep, train_iter=progress.train_iter)

    def log_histogram(self, name: str, values: Any) -> None:
        """Writes a histogram of an array at the current env step, to loggers that have histograms."""
        if hasattr(self.writer, 'add_histogram'):
            self.writer.add_histogram(name, values, self.progress.envstep)

    def stop(self, reason: str) -> None:
        """Ends training in order after this round: it is evaluated, saved, and the reason is shown.

        The first reason counts. A later run can resume; hooks decide again in ``before_run``.
        """
        if not self.stop_reason:
            self.stop_reason = reason
            logger.info('training ends: %s', reason)

    def state_dict(self) -> Mapping[str, float]:
        """Returns the last metrics of training, the only part of the view that is saved here."""
        found = dict(getattr(self.writer, 'latest', {}))  # a copy, as other threads may write
        return {tag: value for tag, value in found.items() if not tag.startswith(OF_THE_MACHINE)}


class RunHook(Configurable):
    """Called with a view of the run at each event whose method it overrides; the others cost nothing.

    A hook may read everything in the view, log metrics (``run.log``) and end training (``run.stop``). Hooks are called in the
    order of the config. An exception ends the run; its notes name the hook and the event.
    """

    _cfg: Any
    config: dict[str, Any] = {}
    name = ''
    """Name of its section below ``hooks``; set when a run creates it."""
    in_parallel: bool | None = None
    """Whether it works in parallel mode, where this process has no policy, collector or learner; None: unless it overrides an
    event of the collector."""

    saved: Mapping[str, Schema] = {}
    """The attributes in ``state_dict``: names that begin with an underscore, and the schemas of their values."""

    def __init__(self, cfg: Mapping[str, Any] | None = None) -> None:
        self._cfg = self.resolve_config(cfg)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Checks that every method named like an event handler handles an event that exists.

        Raises:
            HookError: If one is named like an event but is none; the nearest event is named.
        """
        super().__init_subclass__(**kwargs)
        for name, member in vars(cls).items():
            if callable(member) and name.startswith(PREFIXES) and name not in EVENTS:
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
        """Called after each step of the training envs, which step together."""

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
        """Called when an exception ends the run, after the state was saved; ``run.error`` is the exception."""

    def state_dict(self) -> dict[str, Any]:
        """Returns the hook's state, as plain values and arrays; saved in every checkpoint."""
        return {name: copy.copy(getattr(self, f'_{name}')) for name in self.saved}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        if self.saved:
            check_state(state, self.saved)
        for name in self.saved:
            setattr(self, f'_{name}', copy.copy(state[name]))

    @classmethod
    def why_not(cls, is_parallel: bool, backend: str) -> str:
        """Returns why the hook cannot work in parallel mode, or with a backend of the collector; empty if it can."""
        used = [event for event in OF_THE_COLLECTOR if overrides(cls, event)]
        if is_parallel and not (not used if cls.in_parallel is None else cls.in_parallel):
            what = f'uses {", ".join(used)}' if used else 'needs the policy or the learner'
            return f'it {what}, which parallel mode has in other processes'
        if backend != 'local' and 'after_env_step' in used:
            return f'it uses after_env_step, and the backend {backend!r} steps envs in other processes'
        return ''


EVENTS = tuple(name for name in vars(RunHook) if name.startswith(PREFIXES))
"""Names of the events, which are the names of the methods, in the order of a run."""


def overrides(cls: type[RunHook], event: str) -> bool:
    """Whether a class overrides the method of an event."""
    return getattr(cls, event) is not getattr(RunHook, event)


Method = Callable[[RunView], None]


class HookList:
    """Calls the hooks of a run, by name, in the order of the config, and saves their states."""

    def __init__(self, hooks: Mapping[str, RunHook], run: RunView) -> None:
        self._hooks = dict(hooks)
        self.run = run
        for name, hook in hooks.items():
            hook.name = name
        self.methods: dict[str, list[tuple[str, Method]]] = {
            event: [
                (name, getattr(hook, event)) for name, hook in hooks.items() if overrides(type(hook), event)
            ]
            for event in EVENTS
        }
        """Of each event, the hooks' names and methods; most runs have none for the events of a round."""

    @classmethod
    def of(cls, pipeline: Any, given: Mapping[str, RunHook], *more: str) -> HookList:
        """Creates the hooks of a pipeline's config; ``False`` in place of a section is no hook.

        Hooks that the program has ``given`` are called behind those of the config. ``more`` names further parts that they see.
        """
        cfg = pipeline.cfg
        sections = [(name, section) for name, section in raw_items(cfg.hooks) if isinstance(section, Mapping)]
        shown = {name: getattr(pipeline, name) for name in (*SHOWN, *more)}
        view = RunView(cfg, spec=pipeline.factory.spec, **shown)
        own = {name: HOOK_REGISTRY.build(section, section) for name, section in sections}
        return cls({**own, **given}, view)

    @property
    def stop_reason(self) -> str:
        """Why a hook ends training; empty if none does."""
        return self.run.stop_reason

    def on_step(self, beat: Callable[[], None]) -> Callable[[], None]:
        """Returns the function that a collector calls after each step of its envs, with ``beat`` of the stall detector."""

        def after_env_step() -> None:
            beat()
            self.call('after_env_step')

        return after_env_step if self.methods['after_env_step'] else beat

    def evaluated(self, result: Any) -> None:
        """Calls the hooks after an evaluation."""
        due = getattr(self.run.evaluator, 'last_eval_iter', result.train_iter)
        self.run.evaluation = result
        self.run.is_extra = result.train_iter > due
        self.call('after_eval')

    def saved(self, path: Path) -> None:
        """Calls the hooks after a checkpoint."""
        self.run.checkpoint = path
        self.call('after_checkpoint')

    def end(self, solved: bool, finished: bool) -> None:
        """Calls the hooks at the end of training, which reached the goal (``solved``), or is complete (``finished``)."""
        ended = 'done' if finished else 'interrupted'
        ended = 'stopped' if self.stop_reason else ended
        self.run.outcome = 'solved' if solved else ended
        self.call('after_run')

    def call(self, event: str) -> None:
        """Calls all hooks of an event; an exception gets a note that names the hook and the event."""
        for name, method in self.methods[event]:
            try:
                method(self.run)
            except BaseException as error:
                at = self.run.progress.train_iter
                error.add_note(f'raised in the hook {name!r} at {event}, train_iter {at}')
                raise

    def fail(self, error: BaseException) -> None:
        """Calls the hooks of ``on_exception``; exceptions of theirs are added to the error as notes."""
        self.run.error = error
        self.run.outcome = 'failed'
        for name, method in self.methods['on_exception']:
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
