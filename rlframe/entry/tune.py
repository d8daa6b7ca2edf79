"""``rlframe tune``: searches over the options of a config, shows the trials, and reports the best result."""

from __future__ import annotations

import logging
import os
import shlex
import signal
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rlframe.config import compile_config, parse_overrides, parse_value
from rlframe.display.text import count_of, larger_budget, program, say, say_warnings, short_path
from rlframe.entry.arguments import Args, refuse_twice
from rlframe.entry.train import config_of
from rlframe.errors import ConfigError, ConfigWarning
from rlframe.run.exit_guard import StopSignal
from rlframe.run.progress import BUDGETS, Progress, set_budgets, spent_budgets

if TYPE_CHECKING:
    from rlframe.pipeline.resume import Pair
    from rlframe.tune import Report
    from rlframe.tune.report import Row

ENVIRONMENT = {
    'RAY_AIR_NEW_OUTPUT': '0',  # the table is ours
    'TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S': '0',
    'TUNE_FORCE_TRIAL_CLEANUP_S': '30',  # seconds after which a trial that does not end is killed
}
"""Environment variables set for Tune, unless the user sets them."""
QUIET = {'log_to_driver': False}
"""Arguments of ``ray.init``: output of trials would break the table."""


def _check(args: Args) -> None:
    """Refuses flags that do not go together."""
    parser = args.parser
    if args.resume is None and args.config is None and args.env is None:
        parser.error('one of the arguments --env and -c/--config is required')
    if args.env and args.config:
        parser.error('--env starts without a config, and -c names one; leave out one of them')
    if args.policy and not args.env:
        parser.error('--policy goes with --env; a config names its policy itself (policy.type=...)')
    if args.resume is not None:
        kept = ('resume', 'restart_errored', 'debug', 'verb', 'parser')
        given = [
            name for name in vars(args) if name not in kept and vars(args)[name] != parser.get_default(name)
        ]
        if [name for name in given if vars(args)[name]]:
            parser.error(f'--resume DIR continues the search unchanged; leave out: {", ".join(given)}')
    elif args.restart_errored:
        parser.error('--restart-errored goes with --resume DIR')
    if args.resume is None and not (args.env or args.search) and args.num_samples in (None, 1):
        parser.error(
            "what to search over? Give --search, for example 'policy.learn.learning_rate=loguniform(1e-4,1e-2)', or"
            ' --search default'
        )
    refuse_twice(args, ('env_step', 'train_iter'))


def run(args: Args) -> int:
    """Runs the verb and returns the exit code."""
    _check(args)
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from rlframe.backend.ray.session import check_installed, disconnect

    check_installed('tune', 'ray.tune', 'rlframe[tune]')
    if not args.debug:
        logging.getLogger('ray.tune').setLevel(logging.CRITICAL)  # failures are reported at the end
    from rlframe.tune import write_report

    try:
        tuner = _restored(args) if args.resume else _new(args)
        with _interruptible() as stop:
            results = tuner.fit()
        report = write_report(results)
    finally:
        disconnect()
    say(_last_lines(report, stop.received is not None))
    return stop.exit_code or int(report.best is None or bool(report.errors))


def _new(args: Args) -> Any:
    from rlframe.tune import make_tuner
    from rlframe.tune.default_space import SAMPLES, SCHEDULER
    from rlframe.utils.seed import set_seed

    if args.seed is not None:
        set_seed(args.seed)  # of what searches draw from the global generators
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always', ConfigWarning)
        pair = config_of(args)
        assert pair is not None  # the command line was checked
        space, fixed, source = _space(args, pair)
        if source:
            args.num_samples = args.num_samples or SAMPLES
            args.scheduler = args.scheduler or SCHEDULER
        args.num_samples, args.scheduler = args.num_samples or 1, args.scheduler or 'none'
        tuner = make_tuner(
            pair,
            space,
            overrides=[*args.overrides, *fixed],
            metric=args.metric,
            mode=args.mode,
            num_samples=args.num_samples,
            scheduler=args.scheduler,
            interval=args.interval,
            search=args.algorithm,
            seed=args.seed,
            stop=dict(_assignments(args.stop, '--stop')),
            max_concurrent_trials=args.max_concurrent,
            time_budget_s=args.time_budget,
            max_env_step=args.env_step,
            max_train_iter=args.train_iter,
            folder=args.out,
            max_failures=args.max_failures,
            progress=True,
            ray_init_config=QUIET,
        )
    say_warnings(warning.message for warning in caught)
    say(_first_lines(args, space, source))
    return tuner


def _space(args: Args, pair: Pair) -> tuple[dict[str, Any], list[str], str]:
    """Returns the search space, the options in ``--search`` that are not searched, and the source of a default space."""
    from rlframe.tune import parse_domain
    from rlframe.tune.default_space import DEFAULT, default_space
    from rlframe.tune.space import EXAMPLES

    words = dict(_split([text for text in args.search if text != DEFAULT], '--search'))
    space = {key: parse_domain(value, f'--search {key}') for key, value in words.items() if '(' in value}
    fixed = [f'{key}={value}' for key, value in words.items() if key not in space]
    if DEFAULT in args.search or (not args.search and args.env):
        given = [*args.overrides, *fixed]
        cfg = compile_config(*pair, overrides=given, max_env_step=args.env_step)
        domains, source = default_space(cfg, {*parse_overrides(given), *space})
        return {**domains, **space}, fixed, source
    if args.search and not space:
        raise ConfigError(
            'no domain to search', where='--search', got=' '.join(args.search), expected=EXAMPLES
        )
    return space, fixed, ''


def _first_lines(args: Args, space: Mapping[str, Any], source: str) -> str:
    """Returns the search space and the search method in words; for a default space also its source, one option per line."""
    from rlframe.tune.space import described

    searched = [f'{key} {described(domain)}' for key, domain in space.items()]
    what = 'the default space' if source else ', '.join(searched) or 'nothing'
    samples = f'{count_of(args.num_samples, "sample")} of {what}, drawn by {args.algorithm} search'
    how = f'scheduler {args.scheduler}; compared by {args.metric} ({args.mode})'
    default = [f'default space: {source}', *(f'  {line}' for line in searched)] if source else []
    return '\n'.join([f'{samples}; {how}', *default])


def _restored(args: Args) -> Any:
    from rlframe.tune import restore_tuner

    return restore_tuner(args.resume, restart_errored=args.restart_errored, ray_init_config=QUIET)


def _split(texts: list[str], flag: str) -> Iterator[tuple[str, str]]:
    for text in texts:
        key, equals, value = text.partition('=')
        if not equals or not key.strip():
            raise ConfigError('malformed', where=flag, got=text, expected='KEY=VALUE')
        yield key.strip(), value.strip()


def _assignments(texts: list[str], flag: str) -> Iterator[tuple[str, float]]:
    for key, text in _split(texts, flag):
        value = parse_value(text)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError('bad value', where=f'{flag} {key}', got=text, expected='a number')
        yield key, value


@contextmanager
def _interruptible() -> Iterator[StopSignal]:
    """Ends a search in order by Ctrl-C or SIGTERM, a second one at once.

    Tune itself ends in order by SIGUSR1 and by SIGINT; by SIGTERM it would leave its trials behind.
    """
    os.environ['TUNE_DISABLE_SIGINT_HANDLER'] = '1'
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)  # until Tune takes it
    notice = b'\nstopping the search; a second signal ends the process at once\n'
    try:
        with StopSignal(lambda: signal.raise_signal(signal.SIGUSR1), notice) as stop:
            yield stop
    finally:
        signal.signal(signal.SIGUSR1, before)


def _last_lines(report: Report, interrupted: bool) -> str:
    """Returns the outcome of the search, the best result, and the commands that use it."""
    from rlframe.tune.report import CONFIG, POLICY
    from rlframe.tune.trial import short_value

    folder = short_path(report.folder)
    best = report.best
    written = report.written
    lines = [f'{row.name} failed: {row.error}' for row in report.errors]
    lines += report.notes
    state = 'done' if best is not None else 'no trial has a score'
    state = 'interrupted and saved' if interrupted else state
    reached = ''
    if best is not None:
        options = ', '.join(f'{key}={short_value(value)}' for key, value in best.options.items())
        lines.append(f'best of {len(report.rows)} trials: {best.name}: {options or "no options of its own"}')
        reached = f': {report.metric} {short_value(best.score)} after {best.env_steps:,} env steps'
    lines.append(f'{state}{reached}. Results: {folder} ({", ".join(written)})')
    if interrupted:
        lines.append(f'resume: {program()} tune --resume {folder}')
    if CONFIG in written:
        lines.append(f'train: {program()} -c {folder}/{CONFIG}')
    if POLICY in written:
        lines.append(f"use it: rlframe.load('{folder}/{POLICY}').act(obs)")
    if best is not None and best.result.checkpoint is not None:
        trial = shlex.quote(f'{folder}/{best.name}')
        lines.append(f'continue the best trial: {program()} --resume {trial}{_further(best)}')
    return '\n'.join(lines)


def _further(best: Row) -> str:
    """Returns the flags with which the best trial trains further: larger budgets, if it is at its end."""
    from rlframe.tune.trial import compile_trial

    cfg = compile_trial(best.config)
    last = best.result.metrics or {}
    progress = Progress(envstep=last.get('envstep', 0), train_iter=last.get('train_iter', 0))
    keys = spent_budgets(cfg, progress)
    if last.get('stopped') and not keys:  # solved: another budget lets it go on
        keys = set_budgets(cfg)[:1] or ['max_env_step']
    larger = {key: larger_budget(cfg, progress, key) for key in keys}
    return ''.join(f' {BUDGETS[key][2]} {number}' for key, number in larger.items())
