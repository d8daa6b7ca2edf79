"""``rlframe check-env``: the mistakes of an env with their lines, its facts, and the policies that can act in it."""

from __future__ import annotations

import contextlib
import re
import threading
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import Any

from rlframe.app import env_compare
from rlframe.app.env_compare import Finding, Played, Severity, Spy, method_at, of_error, play, running_at
from rlframe.app.explain import plain
from rlframe.app.training import starting_config
from rlframe.data.observation import ACTION_MASK, mask_parts
from rlframe.envs import contract
from rlframe.envs.base_env import spec_of
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.errors import ConfigError, EnvError, IncompatibleError, RLFrameError
from rlframe.pipeline.saying import row, space_text, wrapped
from rlframe.policy.parts.fit import fitting
from rlframe.scores import exact_text

Facts = Mapping[str, Any]


def text_of(report: Facts, width: int) -> str:
    """Returns the report of ``check_env`` as text of at most ``width`` columns."""
    counts = {
        kind: sum(finding['severity'] == kind for finding in report['findings'])
        for kind in ('error', 'warning')
    }
    told = ', '.join(f'{count} {kind}{"s" if count > 1 else ""}' for kind, count in counts.items() if count)
    lines = [f'{report["env"]}: {told or "no problems"}']
    for finding in report['findings']:
        lines += ['', *_finding(finding, width)]
    lines.append('')
    done = [name for name, result in report['checks'].items() if result == 'passed']
    lines += row('passed', ', '.join(done) or 'nothing', width)
    left = [name for name, result in report['checks'].items() if result not in ('passed', 'failed')]
    failed = [name for name, result in report['checks'].items() if result == 'failed']
    lines += row('failed', ', '.join(failed), width) if failed else []
    lines += row('skipped', f'{", ".join(left)}: they need a check that failed', width) if left else []
    lines += _facts(report['facts'], width)
    return '\n'.join([*lines, *row('next', report['next'], width)])


def _finding(finding: Facts, width: int) -> list[str]:
    lines = wrapped(f'{finding["severity"]}: {finding["seen"]}', 0, width)
    if finding['where']:
        file, _, line = finding['where'].rpartition(':')
        path = Path(file)
        shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        lines.append(f'  at {shown}:{line}')
    return lines + wrapped(finding['fix'], 2, width)


def _facts(facts: Facts, width: int) -> list[str]:
    lines = []
    for label, name in (('observes', 'observation_space'), ('acts', 'action_space')):
        if name in facts:
            lines += row(label, facts[name], width)
    if 'max_episode_steps' in facts:
        limit, threshold = facts['max_episode_steps'], facts['reward_threshold']
        text = f'at most {limit:,} steps' if limit else 'no time limit'
        lines += row(
            'episodes',
            f'{text}; '
            + ('no reward threshold' if threshold is None else f'solved at {exact_text(threshold)}'),
            width,
        )
    random = facts.get('random')
    if random and random['episodes']:
        many = f', mean of {random["episodes"]} episodes' if random['episodes'] > 1 else ''
        text = f'return {random["mean_return"]:.4g} in {random["mean_length"]:.4g} steps{many}'
        lines += row('at random', text, width)
    if speed := facts.get('speed'):
        reset = '' if speed['reset_ms'] is None else f'; a reset takes {speed["reset_ms"]:.2g} ms'
        text = f'{speed["steps_per_second"]:,.0f} steps/s in one process{reset}; '
        lines += row('speed', text + f'converting observations adds {speed["conversion_share"]:.1%}', width)
    for label in ('saving', 'autoreset'):
        if label in facts:
            lines += row(label, facts[label], width)
    if policies := facts.get('policies'):
        lines += row('policies', ', '.join(policies), width)
    return lines


STEPS = 300
"""Random env steps that are checked in full."""
CALL_SECONDS = 30.0
"""Longest time of one call of the env."""
COLOUR = re.compile(r'\x1b\[[0-9;]*m|^WARN: ')
NOISE, HINTS = ('infinity. This is probably too',), ('we recommend',)
"""Words of remarks of Gymnasium's check that say nothing here, and of those that are only recommendations."""
NUMPY_BOOL = 'truncates after 1 step'
"""What Gymnasium's check says of a flag that is a numpy bool."""


class Checks:
    """The checks of one env, in order; they run in a thread, as an env may hang.

    Args:
        section: Options of the ``env`` section of a config.
        steps: Random env steps to check.
        seed: Seed of the first episode.
    """

    def __init__(self, section: Mapping[str, Any], steps: int, seed: int) -> None:
        self.section, self.steps, self.seed = dict(section), steps, seed
        self.factory = GymEnvFactory(self.section)
        self.findings: list[Finding] = []
        self.results: dict[str, str] = {}
        """Names of checks to ``passed``, ``failed`` or the reason why it was skipped."""
        self.facts: dict[str, Any] = {}
        self.refused: RLFrameError | None = None
        """The error that ends the command: there is no such env."""
        self.env: Any = None
        """The env that was created last."""
        self.check, self.call, self.since = 'constructor', 'its constructor', monotonic()

    def calling(self, call: str) -> None:
        """Records a call of the env before it is made; an empty text if it is over."""
        self.call, self.since = call, monotonic()

    def run(self) -> None:
        """Runs all checks; those that need an earlier one to pass are skipped if it failed."""
        if not self._passes('constructor', self._create):
            return
        checks: tuple[tuple[str, Callable[[], None], tuple[str, ...]], ...] = (
            ('spaces', self._spaces, ()),
            ('steps', self._steps, ('spaces',)),
            ('gymnasium', self._gymnasium, ('steps',)),
            ('determinism', lambda: env_compare.determinism(self), ('steps',)),
            ('autoreset', lambda: env_compare.autoreset(self), ('steps', 'determinism')),
            ('saving', lambda: env_compare.saving(self), ('steps', 'determinism')),
            ('speed', lambda: env_compare.speed(self), ('steps',)),
        )
        for name, check, needed in checks:
            failed = [other for other in needed if self.results.get(other) != 'passed']
            if failed:
                self.results[name] = f'skipped: {failed[0]} failed'
            else:
                self._passes(name, check)

    def create(self) -> Any:
        """Returns a new env."""
        self.calling('its constructor')
        self.env = self.factory.create(note=self._noting)
        self.calling('')
        return self.env

    def _noting(self, call: str) -> None:
        """Records a call that creating an env makes, to find out if it has action masks."""
        self.calling(call or 'its constructor')

    def found(self, finding: Finding) -> None:
        """Adds a finding, unless it is known."""
        if finding not in self.findings:
            self.findings.append(finding)

    def _passes(self, name: str, check: Callable[[], None]) -> bool:
        """Runs a check and returns whether it found no error."""
        self.check = name
        try:
            with warnings.catch_warnings():
                warnings.simplefilter('ignore')
                check()
        except (Exception, SystemExit) as error:
            if self.env is None and isinstance(error, ConfigError):
                self.refused = error
            self.found(of_error(error, name, self.env, self.call))  # type: ignore[arg-type]  # or that it ends Python
        self.calling('')
        errors = [each for each in self.findings if each.check == name and each.severity == 'error']
        self.results[name] = 'failed' if errors else 'passed'
        return not errors

    def _create(self) -> None:
        if self.factory.only_vector:
            raise EnvError(
                'it is a vector env, which is checked while it trains',
                where='env.env_id',
                remedy='Name the class of one env.',
            )
        env = self.create()
        self.spec = spec_of(env)
        if self.factory.remark:
            self.found(Finding('warning', 'constructor', self.factory.remark))
        self.facts.update(
            observation_space=space_text(self.spec.observation_space),
            action_space=space_text(self.spec.action_space),
            max_episode_steps=self.spec.max_episode_steps,
            reward_threshold=self.spec.reward_threshold,
        )
        env.close()

    def _spaces(self) -> None:
        try:
            contract.check_spaces([], self.spec)
        except IncompatibleError:
            self._drop_unreadable()
        self.facts['policies'] = fitting(self.spec)
        if not self.facts['policies']:
            seen = 'no policy of rlframe can act in these spaces'
            self.found(
                Finding('error', 'spaces', seen, 'docs/support.md has a table of spaces and policies.')
            )

    def _drop_unreadable(self) -> None:
        """Continues without the parts of observations that no network reads, as ``rlframe train --env`` does.

        Raises:
            IncompatibleError: If that is impossible.
        """
        own = {name: value for name, value in self.section.items() if name != 'env_id'}
        kept = starting_config(self.section['env_id'], None, own)[0].env
        self.section['wrappers'] = [dict(wrapper) for wrapper in kept.get('wrappers', ())]
        self.factory = GymEnvFactory(self.section)
        self.spec = self.factory.spec
        contract.check_spaces([], self.spec)
        self.facts['observation_space'] = space_text(self.spec.observation_space)
        seen = 'no network reads all parts of its observations; rlframe train --env leaves those parts out'
        self.found(Finding('note', 'spaces', seen, f'In a config: env.wrappers={self.section["wrappers"]}.'))

    def _steps(self) -> None:
        env, remarks = self.create(), contract.Remarks(hold=True)
        try:
            played = play(env, self.spec, self.steps, self.seed, self.calling, remarks)
        finally:
            for kind, text in remarks.take():
                where = method_at(env, 'reset' if 'reset()' in text else 'step')
                self.found(Finding('warning', f'steps: {kind}', text, where=where))
        env.close()
        self._describe(played)

    def _describe(self, played: Played) -> None:
        """Records the returns of random actions, and notes obstacles to learning."""
        returns, lengths = played.returns, played.lengths
        self.facts['random'] = {
            'episodes': len(returns),
            'mean_return': sum(returns) / len(returns) if returns else None,
            'mean_length': sum(lengths) / len(lengths) if lengths else None,
        }
        if played.gives_mask and self.factory.cfg.action_mask is None:
            can_be = bool(mask_parts(self.spec.action_space))
            reason = 'the first reset() gave none' if can_be else f'no mask fits {self.facts["action_space"]}'
            fix = (
                'Give one from reset(), too.'
                if can_be
                else 'Masks are for Discrete and MultiDiscrete actions.'
            )
            seen = f"info['{ACTION_MASK}'] is ignored: {reason}"
            self.found(
                Finding(
                    'warning', 'mask', seen, f'{fix} env.action_mask=False ignores it without this warning.'
                )
            )
        limit = self.spec.max_episode_steps
        if not returns and limit is None:
            seen = f'no episode ended within {self.steps} random steps, and it has no time limit'
            fix = "If an episode may last forever, limit it: env.wrappers=[dict(type='TimeLimit', max_episode_steps=1000)]."
            self.found(Finding('warning', 'length', seen, fix))
        if not any(row.reward for row in played.rows):
            self.found(
                Finding(
                    'note',
                    'rewards',
                    f'every reward of {self.steps} random steps was 0: exploring will be hard',
                )
            )

    def _gymnasium(self) -> None:
        from gymnasium.utils.env_checker import check_env

        env = self.create().unwrapped
        self.calling("Gymnasium's check_env()")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter('always')
            try:
                check_env(env, skip_render_check=True)
            except Exception as error:
                fix = (
                    'Return bool(truncated): Gymnasium takes no numpy bool.'
                    if NUMPY_BOOL in str(error)
                    else ''
                )
                where = method_at(env, 'reset' if 'reset' in str(error) else 'step')
                seen = f"Gymnasium's check: {type(error).__name__}: {_short(str(error))}"
                self.found(Finding('warning', 'gymnasium', seen, fix, where))
        for text in dict.fromkeys(COLOUR.sub('', COLOUR.sub('', str(one.message))) for one in caught):
            if not any(words in text for words in NOISE):
                severity: Severity = 'note' if any(words in text for words in HINTS) else 'warning'
                self.found(Finding(severity, 'gymnasium', f"Gymnasium's check: {_short(text)}"))


def _short(text: str) -> str:
    first = ' '.join(text.split())
    return first if len(first) <= 300 else first[:297] + '...'


def check_env(
    section: Mapping[str, Any], steps: int = STEPS, seed: int = 0, call_seconds: float = CALL_SECONDS
) -> dict[str, Any]:
    """Checks an env.

    Args:
        section: Options of the ``env`` section of a config: ``env_id``, ``kwargs``, ``wrappers`` and others.
        steps: Random env steps that are checked in full.
        seed: Seed of the first episode.
        call_seconds: Longest time of one call of the env; an env that takes longer is reported and abandoned.

    Returns:
        ``findings``, ``checks``, ``facts`` and what to run ``next``, as JSON-able data.

    Raises:
        ConfigError: If there is no such env.
    """
    checks, spy = Checks(section, steps, seed), Spy()
    thread = threading.Thread(target=checks.run, name='check-env', daemon=True)
    with contextlib.redirect_stdout(spy):
        thread.start()
        while thread.is_alive():
            thread.join(min(0.5, call_seconds))
            if thread.is_alive() and checks.call and monotonic() - checks.since > call_seconds:
                seen = f'{checks.call} did not return within {call_seconds:g} s'
                where = running_at(thread.ident, checks.env)
                fix = 'It waits or loops there forever, or --timeout is too short for it.'
                checks.found(Finding('error', checks.check, seen, fix, where))
                checks.results[checks.check] = 'failed'
                break
    if checks.refused is not None:
        raise checks.refused
    if (printed := spy.finding()) is not None:
        checks.found(printed)
    return _report(checks)


def _report(checks: Checks) -> dict[str, Any]:
    order = {'error': 0, 'warning': 1, 'note': 2}
    findings = sorted(checks.findings, key=lambda finding: order[finding.severity])
    env_id = checks.section['env_id']
    name = env_id if isinstance(env_id, str) else getattr(env_id, '__name__', repr(env_id))
    is_good = not any(finding.severity == 'error' for finding in findings)
    policies = checks.facts.get('policies', [])
    policy = 'ppo' if 'ppo' in policies else policies[0] if policies else None
    again = f'rlframe check-env {name}'
    return {
        'env': name,
        'good': is_good,
        'findings': [finding._asdict() for finding in findings],
        'checks': checks.results,
        'facts': plain(checks.facts),
        'next': f'rlframe train --env {name} --policy {policy}'
        if is_good
        else f'{again}, once the errors are mended',
    }
