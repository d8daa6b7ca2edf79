"""``rlframe check-env``: the mistakes of an env with their lines, its facts, and the policies that can act in it."""

from __future__ import annotations

import ast
import contextlib
import copy
import inspect
import io
import re
import sys
import sysconfig
import textwrap
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from rlframe.app.check_team import agents_in_words, check_team
from rlframe.app.explain import plain
from rlframe.app.starting import starting_config
from rlframe.data.observation import ACTION_MASK, pack
from rlframe.data.timestep import Array, EnvSpec, TimeStep, spec_of
from rlframe.display.text import row, space_text, wrapped
from rlframe.envs import contract
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.envs.schedule import check_scheduled
from rlframe.envs.state import EnvState, Refusal
from rlframe.envs.state_objects import MismatchError
from rlframe.envs.worlds import PETTINGZOO, TEAM, TEAM_ENV, find_world
from rlframe.errors import ConfigError, EnvError, IncompatibleError, NonFiniteError, RLFrameError
from rlframe.policy.parts.fit import fitting
from rlframe.policy.parts.random_policy import random_actions
from rlframe.scores import exact_text
from rlframe.utils.serialize import leaves

if TYPE_CHECKING:
    import gymnasium

    Env = gymnasium.Env[Any, Any]

Facts = Mapping[str, Any]
Calling = Callable[[str], None]
"""Told the name of each call of the env before it is made; an empty text if it is over."""
STEPS = 300
"""Random env steps that are checked in full."""
COMPARED, CONTINUED = 100, 20
"""Env steps that are compared between runs with the same seed, and after a saved state is restored."""
CALL_SECONDS = 30.0
"""Longest time of one call of the env."""
COLOUR = re.compile(r'\x1b\[[0-9;]*m|^WARN: ')
NOISE, HINTS = ('infinity. This is probably too',), ('we recommend',)
"""Words by which remarks of Gymnasium's check are recognised: irrelevant here, or only recommendations."""
NUMPY_BOOL = 'truncates after 1 step'
"""Gymnasium's remark about a flag that is a numpy bool."""
NOT_SAVED = 'A resumed run begins new episodes. For exact resume, give it get_state() and set_state(state).'
"""Consequence of a state that cannot be saved, and the remedy."""
KEPT = (
    'Set all that an episode changes in reset(). In place of a wrapper that learns statistics:'
    ' policy.normalize_obs=True, or normalize_reward.'
)
"""Remedy for an env that remembers earlier episodes."""
Severity = Literal['error', 'warning', 'note']
FIXES = (
    ('expected a bool', 'Return bool(...) of it.'),
    ('gave the reward', 'Return float(reward).'),
    ('gave the info', 'Return a dict; {} if there is nothing to tell.'),
    ('of shape', 'Return an array of the declared shape, or declare in observation_space what it returns.'),
    ('of dtype', 'Convert it to the declared type, or declare in observation_space what it returns.'),
    ('gave obs', 'Return what observation_space declares.'),
    ('gave an obs', 'Return what observation_space declares.'),
)
"""Words of an error about the contract, and the remedy."""
NOT_FINITE = 'Guard the division, root or logarithm that gives it, or end the episode before.'
STDLIB, OWN = (re.escape(str(path)) for path in (sysconfig.get_path('stdlib'), Path(__file__).parents[1]))
LIBRARY = re.compile(f'^{STDLIB}/(?!site-packages)|^{OWN}/|/gymnasium/')
"""Files of rlframe and Gymnasium, which are not the env's own code."""
ROW = ('obs', 'reward', 'terminated', 'truncated', 'action')
"""Parts of a transition, or of the first observation of an episode, as comparable data."""


class Finding(NamedTuple):
    """Something that a check saw."""

    severity: Severity
    """``error``: it cannot be trained in, or not repeatably; ``warning``: it costs something; ``note``: worth knowing."""
    check: str
    """The check."""
    seen: str
    """The observed fault."""
    fix: str = ''
    """The remedy."""
    where: str = ''
    """File and line."""


def of_error(error: Exception, check: str, env: Any, call: str) -> Finding:
    """Returns the finding about an exception: of the contract checks, or of the env itself."""
    if not isinstance(error, RLFrameError):
        seen = f'{call} raised {type(error).__name__}: {error}'
        where = place_in(traceback.extract_tb(error.__traceback__), env)
        return Finding('error', check, seen, 'Mend what raises it.', where)
    fix = NOT_FINITE if isinstance(error, NonFiniteError) else error.remedy
    fix = fix or next((fix for words, fix in FIXES if words in error.message), '')
    seen = error.message + (f'; got {error.got!r}, expected {error.expected}' if error.expected else '')
    method = 'reset' if call.startswith('reset') else 'step'
    if check == 'spaces':
        method = '__init__'
    return Finding('error', check, seen, fix, method_at(env, method))


def method_at(env: Any, method: str) -> str:
    """Returns the file and the line of a method of an env: of its ``return``, if it has one only."""
    try:
        function = getattr(type(env.unwrapped), method)
        file = inspect.getsourcefile(function)
        lines, start = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent(''.join(lines)))
    except (AttributeError, OSError, TypeError, SyntaxError):
        return ''
    returns = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Return)]
    return f'{file}:{start + returns[0] - 1 if len(returns) == 1 else start}'


def place_in(frames: traceback.StackSummary, env: Any) -> str:
    """Returns the file and the line of the innermost frame in the file of the env, or else outside of libraries."""
    try:
        file = inspect.getsourcefile(type(env.unwrapped))
    except (AttributeError, TypeError):
        file = None
    inner = list(reversed(frames))
    found = [each for each in inner if each.filename == file]
    found = found or [each for each in inner if not LIBRARY.search(each.filename)] or inner
    return f'{found[0].filename}:{found[0].lineno}' if found else ''


class FirstLine(io.TextIOBase):
    """Stands in for stdout: remembers the first printed line and the code that printed it."""

    seen, where = '', ''

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if text.strip() and not self.seen:
            frame = sys._getframe(1)
            self.seen = f'it printed to stdout: {text.strip().splitlines()[0][:60]!r}'
            self.where = f'{frame.f_code.co_filename}:{frame.f_lineno}'
        return len(text)


class Played:
    """The episode that random actions played."""

    def __init__(self, last: Any = None) -> None:
        self.last = last
        """The observation for the next action, packed."""
        self.rows: list[tuple[Any, ...]] = []
        """First observations of episodes, and transitions, with the parts ``ROW``."""
        self.returns: list[float] = []
        """Returns of the episodes that ended."""
        self.lengths: list[int] = []
        """Env steps of the episodes that ended."""
        self.seconds: dict[str, list[float]] = {'reset()': [], 'step()': []}
        """Duration of each call."""

    def speed(self) -> dict[str, Any]:
        """Returns env steps per second, and milliseconds of a reset."""
        steps, resets = self.seconds['step()'], self.seconds['reset()']
        return {'steps_per_second': len(steps) / sum(steps), 'reset_ms': 1000 * sum(resets) / len(resets)}


def first_difference(one: Played, other: Played) -> str:
    """Returns the first difference between two episodes of the same actions, in words; empty if there is none."""
    for number, (left, right) in enumerate(zip(one.rows, other.rows, strict=True)):
        for name, mine, others in zip(ROW, left, right, strict=True):
            if mine != others:
                return f'{name} of row {number}'
    return ''


def play(
    env: Env,
    spec: EnvSpec,
    steps: int,
    seed: int,
    calling: Calling,
    *,
    remarks: contract.Remarks | None = None,
    last: Any = None,
) -> Played:
    """Plays random actions, with every step checked in full if ``remarks`` are collected.

    A running episode continues with its observation ``last``, packed; None: one begins. The seed is that of the actions
    and of the first episode.

    Raises:
        RLFrameError: If the env violates the contract. What the env itself raises passes unchanged.
    """
    draw = _random_actions(spec, seed)
    played = Played(last)
    total, length = 0.0, 0

    def timed(call: str, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        calling(call)
        start = perf_counter()
        whole = method(*args, **kwargs)
        played.seconds[call].append(perf_counter() - start)
        if remarks is not None and call == 'reset()':
            contract.first_obs(whole, spec, 0, len(played.returns) + 1, remarks)
        elif remarks is not None:
            contract.check_step(whole, spec, 0, len(played.returns) + 1, length + 1, remarks)
        played.last = _packed(spec, whole[0])
        return whole[1:-1]

    def begin(**seeded: int) -> None:
        timed('reset()', env.reset, **seeded)
        played.rows.append((_content(played.last), 0.0, False, False, ''))

    # play
    if last is None:
        begin(seed=seed)
    for _ in range(steps):
        action = draw(played.last)
        reward, terminated, truncated = timed('step()', env.step, action)
        if remarks is not None:
            columns = np.array([reward], float), np.array([terminated]), np.array([truncated])
            step = TimeStep(played.last[None], *columns, ({},), np.array([0]))
            contract.check_values(step, spec, [(len(played.returns) + 1, length + 1)].__getitem__)
        total, length = total + float(reward), length + 1
        row = _content(played.last), float(reward), bool(terminated), bool(truncated), repr(action)
        played.rows.append(row)
        if terminated or truncated:
            played.returns.append(total)
            played.lengths.append(length)
            total, length = 0.0, 0
            begin()
    return played


def _packed(spec: EnvSpec, obs: Any) -> Array:
    return np.asarray(pack(spec.observation_space, obs, 'unsafe'))


def _random_actions(spec: EnvSpec, seed: int) -> Callable[[Any], Any]:
    """Returns a function that draws an allowed action for a packed observation; the same ones for the same seed."""
    spec = copy.deepcopy(spec)  # drawing advances the generator of the action space
    draw = random_actions(spec, np.random.default_rng(seed))
    return lambda obs: draw(np.asarray(obs)[None], 1)[0]


def _content(obs: Any) -> bytes:
    """Returns the numbers of an observation, without the gaps between the fields of a structured one."""
    return b''.join(np.ascontiguousarray(part).tobytes() for _, part in leaves(obs))


class Checks:
    """The checks of one env, in order; they run in a thread, as an env may hang."""

    def __init__(self, section: Mapping[str, Any], steps: int, seed: int) -> None:
        self.section = dict(section)
        self.steps = steps
        self.seed = seed
        self.factory = GymEnvFactory(self.section)
        self.findings: list[Finding] = []
        self.results: dict[str, str] = {}
        """Names of checks to ``passed``, ``failed`` or ``skipped``."""
        self.facts: dict[str, Any] = {}
        self.refused: RLFrameError | None = None
        """The error that ends the command: there is no such env."""
        self.env: Any = None
        """The env that was created last."""
        self.check = 'constructor'
        self.call = 'creating it'
        self.since = monotonic()

    def calling(self, call: str) -> None:
        """Records a call of the env before it is made; an empty text if it is over."""
        self.call = call
        self.since = monotonic()

    def run(self) -> None:
        """Runs the checks until one fails: each needs what those before it have established."""
        team = ('team',) if self.section['env_id'] == TEAM_ENV else ()
        names = ('constructor', 'spaces', 'steps', *team, 'gymnasium', 'determinism', 'saving')
        self.results = dict.fromkeys(names, 'skipped')
        all(self._passes(name, getattr(self, f'_{name}')) for name in names)

    def create(self) -> Any:
        """Returns a new env."""
        self.calling('creating it')
        self.env = self.factory.create()
        check_scheduled(self.env, self.factory.cfg.schedule)
        self.calling('')
        return self.env

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

    def _constructor(self) -> None:
        if self.factory.only_vector:
            seen = 'it is a vector env, which is checked while it trains'
            raise EnvError(seen, where='env.env_id', remedy='Name the class of one env.')
        env = self.create()
        self.spec = spec_of(env)
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
            fix = 'docs/support.md has a table of spaces and policies.'
            self.found(Finding('error', 'spaces', seen, fix))

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
        env = self.create()
        remarks = contract.Remarks(hold=True)
        if self.factory.cfg.action_mask is False:
            remarks.leave_out(ACTION_MASK)
        try:
            played = play(env, self.spec, self.steps, self.seed, self.calling, remarks=remarks)
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
        if not returns and self.spec.max_episode_steps is None:
            seen = f'no episode ended within {self.steps} random steps, and it has no time limit'
            fix = "If an episode may last forever, limit it: env.wrappers=[dict(type='TimeLimit', max_episode_steps=1000)]."
            self.found(Finding('warning', 'length', seen, fix))
        if not any(row[1] for row in played.rows):
            seen = f'every reward of {self.steps} random steps was 0: exploring will be hard'
            self.found(Finding('note', 'rewards', seen))

    def _team(self) -> None:
        """Looks at who of a team acts, and what each is paid."""
        env = self.create()
        remarks, facts = check_team(
            env.unwrapped, lambda: play(env, self.spec, self.steps, self.seed, self.calling)
        )
        env.close()
        self.facts.update(facts)
        for severity, seen, fix in remarks:
            self.found(Finding(severity, 'team', seen, fix))

    def _gymnasium(self) -> None:
        from gymnasium.utils.env_checker import check_env

        env = self.create().unwrapped
        self.calling("Gymnasium's check_env()")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter('always')
            try:
                check_env(env, skip_render_check=True)
            except Exception as error:
                text = f'{type(error).__name__}: {error}'
                fix = 'Return bool(truncated): Gymnasium takes no numpy bool.' if NUMPY_BOOL in text else ''
                self._add_remark('warning', text, fix, method_at(env, 'reset' if 'reset' in text else 'step'))
        for text in dict.fromkeys(COLOUR.sub('', COLOUR.sub('', str(one.message))) for one in caught):
            if not any(words in text for words in NOISE):
                self._add_remark('note' if any(words in text for words in HINTS) else 'warning', text)

    def _add_remark(self, severity: Severity, text: str, fix: str = '', where: str = '') -> None:
        short = textwrap.shorten(text, 300, placeholder='...')
        self.found(Finding(severity, 'gymnasium', f"Gymnasium's check: {short}", fix, where))

    def _determinism(self) -> None:
        """Compares runs with the same seed and actions: in one env twice, and in another one."""
        env = self.create()
        steps = min(self.steps, COMPARED)
        first, again = (play(env, self.spec, steps, self.seed, self.calling) for _ in range(2))
        other = play(self.create(), self.spec, steps, self.seed, self.calling)
        self.facts['speed'] = other.speed()
        where = first_difference(first, other)
        who = 'another env with the same seed'
        fix = 'Draw from self.np_random, which super().reset(seed=seed) seeds.'
        if not where:
            where = first_difference(first, again)
            fix = KEPT
            who = 'the same env, used before and reset with the same seed'
        if where:
            seen = f'{who}, gave other data for the same actions: {where}'
            self.found(Finding('error', 'determinism', seen, fix, method_at(env, 'reset')))

    def _saving(self) -> None:
        """Saves the state of an env in an episode, and compares how it and a restored env continue."""
        # save
        env, other = self.create(), self.create()
        last = play(env, self.spec, CONTINUED, self.seed, self.calling).last
        self.facts['saving'] = 'not possible'
        self.calling('saving its state')
        saved = EnvState(env).capture()
        problem = f'its state cannot be saved: {saved.reason}' if isinstance(saved, Refusal) else ''
        # restore
        if not isinstance(saved, Refusal):
            self.calling('reset()')
            other.reset(seed=self.seed + 1)
            self.calling('restoring its state')
            try:
                EnvState(other).restore(saved)
            except (MismatchError, RLFrameError) as error:
                problem = f'its saved state cannot be restored: {error}'
        if problem:
            self.found(Finding('warning', 'saving', problem, NOT_SAVED))
            return
        # compare
        one, two = (
            play(each, self.spec, CONTINUED, self.seed + 2, self.calling, last=last) for each in (env, other)
        )
        self.facts['saving'] = 'exact'
        if where := first_difference(one, two):
            seen = f'restored from its saved state, it continues differently: {where}'
            fix = 'It keeps state outside of its attributes. Give it get_state() and set_state(state).'
            self.found(Finding('error', 'saving', seen, fix, method_at(env, 'step')))
            self.facts['saving'] = 'not exact'


def section_of(env: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the section ``env`` of an id, with more options of it.

    Raises:
        EnvError: If it is a game of several players.
    """
    world = find_world(env)
    if world.env == PETTINGZOO:
        remedy = f'A run checks it: rlframe train --env {env}'
        raise EnvError(
            'it is a game of several players', where='ENV', got=env, expected='one agent', remedy=remedy
        )
    name = env if world.manager == 'env_pool' else world.env_id
    return world.with_options({'env_id': name, **options})


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
    checks = Checks(section, steps, seed)
    output = FirstLine()
    thread = threading.Thread(target=checks.run, name='check-env', daemon=True)
    with contextlib.redirect_stdout(output):
        thread.start()
        while thread.is_alive():
            thread.join(min(0.5, call_seconds))
            if thread.is_alive() and checks.call and monotonic() - checks.since > call_seconds:
                seen = f'{checks.call} did not return within {call_seconds:g} s'
                frame = sys._current_frames().get(thread.ident or 0)
                where = place_in(traceback.extract_stack(frame), checks.env)
                fix = 'It waits or loops there forever, or --timeout is too short for it.'
                checks.found(Finding('error', checks.check, seen, fix, where))
                checks.results[checks.check] = 'failed'
                break
    if checks.refused is not None:
        raise checks.refused
    if output.seen:
        fix = 'Use logging: what it prints mixes with the progress of a run and with --json.'
        checks.found(Finding('warning', 'output', output.seen, fix, output.where))
    return _report(checks)


def _report(checks: Checks) -> dict[str, Any]:
    order = ('error', 'warning', 'note')
    findings = sorted(checks.findings, key=lambda finding: order.index(finding.severity))
    env_id = checks.section['env_id']
    name = env_id if isinstance(env_id, str) else getattr(env_id, '__name__', repr(env_id))
    is_team = env_id == TEAM_ENV
    if is_team:
        name = f'{TEAM}:{checks.section["kwargs"]["game"]}'
    is_good = not any(finding.severity == 'error' for finding in findings)
    policies = checks.facts.get('policies', [])
    usual = 'mappo' if is_team else 'ppo'
    policy = usual if usual in policies else next(iter(policies), None)
    train = f'rlframe train --env {name} --policy {policy}'
    return {
        'env': name,
        'good': is_good,
        'findings': [finding._asdict() for finding in findings],
        'checks': checks.results,
        'facts': plain(checks.facts),
        'next': train if is_good else f'rlframe check-env {name}, once the errors are mended',
    }


def text_of(report: Facts, width: int) -> str:
    """Returns the report of ``check_env`` as text of at most ``width`` columns."""
    severities = [finding['severity'] for finding in report['findings']]
    counts = [(severities.count(kind), kind) for kind in ('error', 'warning')]
    said = ', '.join(f'{count} {kind}{"s" if count > 1 else ""}' for count, kind in counts if count)
    lines = [f'{report["env"]}: {said or "no problems"}']
    for finding in report['findings']:
        lines += ['', *wrapped(f'{finding["severity"]}: {finding["seen"]}', 0, width)]
        lines += [f'  at {finding["where"].removeprefix(f"{Path.cwd()}/")}'] if finding['where'] else []
        lines += wrapped(finding['fix'], 2, width)
    results: dict[str, list[str]] = {'passed': [], 'failed': [], 'skipped': []}
    for name, result in report['checks'].items():
        results[result].append(name)
    facts = {'passed': ', '.join(results['passed']) or 'nothing', 'failed': ', '.join(results['failed'])}
    if results['skipped']:
        facts['skipped'] = f'{", ".join(results["skipped"])}, until it is mended'
    facts |= {**_facts(report['facts']), 'next': report['next']}
    return '\n'.join(
        [*lines, '', *(line for label, text in facts.items() if text for line in row(label, text, width))]
    )


def _facts(facts: Facts) -> dict[str, str]:
    """Returns the facts about an env in words, by their labels."""
    said = {'observes': facts.get('observation_space', ''), 'acts': facts.get('action_space', '')}
    if 'max_episode_steps' in facts:
        limit, goal = facts['max_episode_steps'], facts['reward_threshold']
        length = f'at most {limit:,} steps' if limit else 'no time limit'
        said['episodes'] = f'{length}; ' + (
            'no reward threshold' if goal is None else f'solved at {exact_text(goal)}'
        )
    played = facts.get('random')
    if played and played['episodes']:
        many = f', mean of {played["episodes"]} episodes' if played['episodes'] > 1 else ''
        said['at random'] = f'return {played["mean_return"]:.4g} in {played["mean_length"]:.4g} steps{many}'
    if speed := facts.get('speed'):
        reset = f'; a reset takes {speed["reset_ms"]:.2g} ms'
        said['speed'] = f'{speed["steps_per_second"]:,.0f} steps/s in one process{reset}'
    if 'agents' in facts:
        said['agents'] = agents_in_words(facts)
    return {**said, 'saving': facts.get('saving', ''), 'policies': ', '.join(facts.get('policies', ()))}
