"""Checks that compare runs of one env: of the same seed, with each autoreset mode, from a saved state; and its speed."""

from __future__ import annotations

import ast
import copy
import inspect
import io
import sys
import sysconfig
import textwrap
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from time import perf_counter
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from rlframe.data.observation import ACTION_MASK, has_mask, mask_parts, pack, pack_rows, zero_obs
from rlframe.data.timestep import EnvSpec, TimeStep
from rlframe.envs import contract
from rlframe.envs.env_manager import BaseEnvManager, IEnvManager
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.envs.state import EnvState, Refusal
from rlframe.envs.state_objects import MismatchError
from rlframe.envs.vector_env import GymVectorEnvManager
from rlframe.envs.wrappers import CheckedEnv
from rlframe.errors import NonFiniteError, RLFrameError
from rlframe.utils.serialize import leaves

if TYPE_CHECKING:
    import gymnasium

    from rlframe.app.check_env import Checks

    Env = gymnasium.Env[Any, Any]

Severity = Literal['error', 'warning', 'note']
FIXES = (
    ('expected a bool', 'Return bool(...) of it.'),
    ('gave the reward', 'Return float(reward).'),
    ('gave the info', 'Return a dict; {} if there is nothing to tell.'),
    ('of shape', 'Return an array of the declared shape, or declare in observation_space what it returns.'),
    (
        'of dtype',
        'Convert it to the declared type with astype, or declare in observation_space what it returns.',
    ),
    ('gave an obs=', 'Return what observation_space declares.'),
    ('gave obs', 'Return what observation_space declares.'),
    ('gave an obs', 'Return a numpy array of what observation_space declares.'),
)
"""Words of an error about the contract, and the remedy."""
NOT_FINITE = 'Guard the division, root or logarithm that gives it, or end the episode before.'
LIBRARIES = (sysconfig.get_path('stdlib'), str(Path(__file__).parents[1]))
"""Folders whose code is not that of an env."""


class Finding(NamedTuple):
    """Something that a check saw."""

    severity: Severity
    """``error``: it cannot be trained in, or not repeatably; ``warning``: it costs something; ``note``: worth knowing."""
    check: str
    """The check."""
    seen: str
    """What was seen."""
    fix: str = ''
    """How to mend it."""
    where: str = ''
    """File and line."""


def of_error(error: Exception, check: str, env: Any, call: str) -> Finding:
    """Returns the finding about an exception: of the contract checks, or of the env itself."""
    if not isinstance(error, RLFrameError):
        seen = f'{call} raised {type(error).__name__}: {error}'
        return Finding('error', check, seen, 'Mend what raises it.', raised_at(error, env))
    fix = NOT_FINITE if isinstance(error, NonFiniteError) else error.remedy
    fix = fix or next((fix for words, fix in FIXES if words in error.message), '')
    seen = (
        error.message
        if not error.expected
        else f'{error.message}; got {error.got!r}, expected {error.expected}'
    )
    method = '__init__' if check == 'spaces' else 'reset' if call.startswith('reset') else 'step'
    return Finding('error', check, seen, fix, method_at(env, method))


def raised_at(error: BaseException, env: Any) -> str:
    """Returns the file and the line of an env that raised, directly or in what it called."""
    frames = traceback.extract_tb(error.__traceback__)
    return _place([(frame.filename, frame.lineno or 0) for frame in reversed(frames)], env)


def _place(frames: Sequence[tuple[str, int]], env: Any) -> str:
    """Returns the innermost frame in the file of the env, or else outside of libraries; innermost frames first."""
    own = [frame for frame in frames if frame[0] == _file_of(env)]
    users = [frame for frame in frames if not frame[0].startswith(LIBRARIES) or 'site-packages' in frame[0]]
    found = own or [frame for frame in users if '/gymnasium/' not in frame[0]] or frames
    return f'{found[0][0]}:{found[0][1]}' if found else ''


def method_at(env: Any, method: str) -> str:
    """Returns the file and the line of a method of an env: of its ``return``, if it has one only."""
    try:
        function = getattr(type(env.unwrapped), method)
        file, (lines, start) = inspect.getsourcefile(function), inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent(''.join(lines)))
    except (AttributeError, OSError, TypeError, SyntaxError):
        return ''
    returns = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Return)]
    return f'{file}:{start + returns[0] - 1 if len(returns) == 1 else start}'


def running_at(thread: int | None, env: Any) -> str:
    """Returns the file and the line at which a thread is, in the file of the env if it is there."""
    frame: FrameType | None = sys._current_frames().get(thread or 0)
    places = []
    while frame is not None:
        places.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return _place(places, env)


def _file_of(env: Any) -> str:
    try:
        return inspect.getsourcefile(type(env.unwrapped)) or ''
    except (AttributeError, TypeError):
        return ''


class Spy(io.TextIOBase):
    """Takes what is printed in place of stdout, and remembers the first line and the code that printed it."""

    def __init__(self) -> None:
        self.first, self.where, self.lines = '', '', 0

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if text.strip() and not self.first:
            frame = sys._getframe(1)
            self.first, self.where = (
                text.strip().splitlines()[0],
                f'{frame.f_code.co_filename}:{frame.f_lineno}',
            )
        self.lines += text.count('\n')
        return len(text)

    def finding(self) -> Finding | None:
        """Returns the finding about printed text, if there was any."""
        if not self.first:
            return None
        seen = f'it printed {self.lines or 1} lines to stdout, the first of them: {self.first[:60]!r}'
        fix = 'Use logging: what it prints mixes with the progress of a run and with --json.'
        return Finding('warning', 'output', seen, fix, self.where)


Calling = Callable[[str], None]
"""Told the name of each call of the env before it is made."""


class Row(NamedTuple):
    """A transition, or the first observation of an episode, as comparable data."""

    obs: bytes
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    action: str = ''

    def differs_in(self, other: Row) -> str:
        """Names the first part in which two rows differ."""
        names = ('obs', 'reward', 'terminated', 'truncated', 'action')
        return next(name for name in names if getattr(self, name) != getattr(other, name))


class Played:
    """What random actions led to."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        """First observations of episodes, and transitions."""
        self.returns: list[float] = []
        """Returns of the episodes that ended."""
        self.lengths: list[int] = []
        """Env steps of the episodes that ended."""
        self.gives_mask = False
        """Whether an info has an action mask, which is then no part of the observations."""
        self.last: Any = None
        """The observation for the next action, packed."""


class RandomActions:
    """Draws allowed actions of one env; the same ones for the same seed and observations."""

    def __init__(self, spec: EnvSpec, seed: int) -> None:
        self._space: Any = copy.deepcopy(spec.action_space)
        self._space.seed(seed)
        self._parts = mask_parts(spec.action_space) if has_mask(spec.observation_space) else ()

    def draw(self, obs: Any) -> Any:
        """Returns an action for an observation, packed."""
        if not self._parts:
            return self._space.sample()  # without a mask
        mask = (np.asarray(obs[ACTION_MASK]) != 0).astype(np.int8)
        if len(self._parts) == 1:
            return self._space.sample(mask=mask)
        return self._space.sample(mask=tuple(np.split(mask, np.cumsum(self._parts)[:-1])))


def play(
    env: Env, spec: EnvSpec, steps: int, seed: int, calling: Calling, remarks: contract.Remarks | None = None
) -> Played:
    """Plays random actions, with every step checked in full if ``remarks`` are collected.

    Raises:
        RLFrameError: If the env violates the contract. What the env itself raises passes unchanged.
    """
    checked: Any = env if remarks is None else CheckedEnv(env, 0, remarks, steps + 1)
    actions, played = RandomActions(spec, seed), Played()
    total, length = 0.0, 0

    def begin(**seeded: int) -> None:
        calling('reset()')
        obs, info = checked.reset(**seeded)
        played.last, played.gives_mask = packed(obs, spec), played.gives_mask or ACTION_MASK in info
        played.rows.append(Row(content(played.last)))

    begin(seed=seed)
    for _ in range(steps):
        action = actions.draw(played.last)
        calling('step()')
        obs, reward, terminated, truncated, info = checked.step(action)
        played.gives_mask = played.gives_mask or ACTION_MASK in info
        played.last = obs = packed(obs, spec)
        total, length = total + float(reward), length + 1
        if remarks is not None:
            _check_values(obs, reward, terminated, truncated, spec, (len(played.returns) + 1, length))
        played.rows.append(Row(content(obs), float(reward), bool(terminated), bool(truncated), repr(action)))
        if terminated or truncated:
            played.returns.append(total)
            played.lengths.append(length)
            total, length = 0.0, 0
            begin()
    return played


def packed(obs: Any, spec: EnvSpec) -> Any:
    """Returns an observation as an array of its space."""
    return np.asarray(pack(spec.observation_space, obs, 'unsafe'))


def content(obs: Any) -> bytes:
    """Returns the numbers of an observation, without the gaps between the fields of a structured one."""
    return b''.join(np.ascontiguousarray(part).tobytes() for _, part in leaves(np.asarray(obs)))


def _check_values(
    obs: Any, reward: float, terminated: Any, truncated: Any, spec: EnvSpec, place: tuple[int, int]
) -> None:
    ended, cut = (np.array([bool(flag)]) for flag in (terminated, truncated))
    step = TimeStep(obs[None], np.array([reward], np.float64), ended, cut, ({},), np.array([0]))
    contract.check_values(step, spec, lambda env: place)


def transitions(manager: IEnvManager, steps: int, seed: int, calling: Calling) -> list[list[Row]]:
    """Returns the first ``steps`` transitions of each env of a manager, with the observations before and after them."""
    calling('reset() of the vector env')
    manager.reset(seed=[seed + i for i in range(manager.env_num)])
    actions = [RandomActions(manager.spec, seed + i) for i in range(manager.env_num)]
    rows: list[list[Row]] = [[] for _ in actions]
    while min(map(len, rows)) < steps:
        ids, before = manager.ready, manager.obs.copy()
        chosen = [actions[i].draw(before[i]) for i in ids.tolist()]
        calling('step() of the vector env')
        step = manager.step(np.array(chosen, manager.spec.action_space.dtype), ids)
        for k, i in enumerate(step.env_id.tolist()):
            flags = bool(step.terminated[k]), bool(step.truncated[k])
            obs = content(before[i]) + content(step.obs[k])
            rows[i].append(Row(obs, float(step.reward[k]), *flags, repr(chosen[k])))
        if step.done.any():
            calling('reset() of the vector env')
            manager.reset(step.env_id[step.done])
    return [own[:steps] for own in rows]


def first_difference(one: list[Row], other: list[Row]) -> str:
    """Returns the first difference of two lists of rows in words; empty if the shorter one is a start of the other."""
    for number, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return f'{left.differs_in(right)} of row {number}'
    return ''


COMPARED = 100
"""Env steps that are compared."""
MODES = ('next_step', 'same_step', 'disabled')
AUTORESET_STEPS, AUTORESET_LIMIT = 24, 7
"""Transitions of each env that are compared, and the limit of their episodes, so that several begin."""
NOT_SAVED = 'A resumed run begins new episodes. For exact resume, give it get_state() and set_state(state).'
"""What follows if a state cannot be saved, and the remedy."""
SPEED_SECONDS = 0.5
"""Time of the measurement of speed."""


def determinism(checks: Checks) -> None:
    """Compares runs with the same seed and actions: in one env twice, and in another one."""
    env, steps = checks.create(), min(checks.steps, COMPARED)
    first = play(env, checks.spec, steps, checks.seed, checks.calling).rows
    again = play(env, checks.spec, steps, checks.seed, checks.calling).rows
    other = play(checks.create(), checks.spec, steps, checks.seed, checks.calling).rows
    for rows, who in (
        (again, 'the same env, reset with the same seed'),
        (other, 'another env with the same seed'),
    ):
        if where := first_difference(first, rows):
            seen = f'{who}, gave other data for the same actions: {where}'
            fix = (
                'Draw from self.np_random, which super().reset(seed=seed) seeds, and set all that an episode changes in'
                ' reset().'
            )
            checks.found(Finding('error', 'determinism', seen, fix, method_at(env, 'reset')))
            return


def autoreset(checks: Checks) -> None:
    """Compares the transitions of the three autoreset modes with those of envs that are reset one by one."""
    limit = dict(type='TimeLimit', max_episode_steps=AUTORESET_LIMIT)
    wrappers = [*checks.section.get('wrappers', ()), limit]
    factory = GymEnvFactory({**checks.section, 'wrappers': wrappers})
    rows = {}
    for mode in ('', *MODES):
        checks.calling('its constructor')
        options: Any = {'mode': 'sync', 'autoreset': mode}
        manager = (
            GymVectorEnvManager.from_factory(factory, 2, options)
            if mode
            else BaseEnvManager.from_factory(factory, 2)
        )
        with closing(manager):
            rows[mode] = transitions(manager, AUTORESET_STEPS, checks.seed, checks.calling)
    for mode in MODES:
        for number, (one, other) in enumerate(zip(rows[''], rows[mode], strict=True)):
            if where := first_difference(one, other):
                seen = f'with the autoreset mode {mode}, env {number} of a vector env gave other transitions: {where}'
                fix = "Use env_manager.type='base', or let reset() without a seed depend on self.np_random only."
                checks.found(Finding('error', 'autoreset', seen, fix, method_at(checks.env, 'reset')))
                return
    checks.facts['autoreset'] = f'{", ".join(MODES)}: the same {AUTORESET_STEPS} transitions'


def saving(checks: Checks) -> None:
    """Saves the state of an env in an episode, and compares how it and a restored env continue."""
    env, spec, steps = checks.create(), checks.spec, 20
    state = EnvState(env)
    last = play(env, spec, steps, checks.seed, checks.calling).last
    checks.calling('saving its state')
    saved = state.capture()
    if isinstance(saved, Refusal):
        seen = f'its state cannot be saved: {saved.reason}'
        checks.found(Finding('warning', 'saving', seen, NOT_SAVED))
        checks.facts['saving'] = 'not possible'
        return
    other = checks.create()
    other_state = EnvState(other)
    checks.calling('reset()')
    other.reset(seed=checks.seed + 1)
    checks.calling('restoring its state')
    try:
        other_state.restore(saved)
    except (MismatchError, RLFrameError) as error:
        checks.found(Finding('warning', 'saving', f'its saved state cannot be restored: {error}', NOT_SAVED))
        checks.facts['saving'] = 'not possible'
        return
    one, two = (_continue(each, last, checks, steps) for each in (env, other))
    checks.facts['saving'] = 'exact'
    if where := first_difference(one, two):
        seen = f'restored from its saved state, it continues differently: {where}'
        fix = 'It keeps state outside of its attributes. Give it get_state() and set_state(state).'
        checks.found(Finding('error', 'saving', seen, fix, method_at(env, 'step')))
        checks.facts['saving'] = 'not exact'


def _continue(env: Any, last: Any, checks: Checks, steps: int) -> list[Row]:
    """Returns what the next random steps of an env give, until its episode ends."""
    spec, rows = checks.spec, []
    actions, obs = RandomActions(spec, checks.seed + 2), last
    for _ in range(steps):
        action = actions.draw(obs)
        checks.calling('step()')
        answer, reward, terminated, truncated, _ = env.step(action)
        obs = packed(answer, spec)
        rows.append(Row(content(obs), float(reward), bool(terminated), bool(truncated)))
        if terminated or truncated:
            break
    return rows


def speed(checks: Checks) -> None:
    """Measures the speed of an env."""
    checks.facts['speed'] = measure(checks.create(), checks.spec, checks.seed, checks.calling)


def measure(env: Any, spec: EnvSpec, seed: int, calling: Calling) -> dict[str, Any]:
    """Measures env steps per second, the time of a reset, and the share of converting observations; closes the env."""
    actions, rows = RandomActions(spec, seed), zero_obs(spec.observation_space, 1)
    calling('reset()')
    obs, _ = env.reset(seed=seed)
    resets, stepping, converting, count = [], 0.0, 0.0, 0
    begin = perf_counter()
    while perf_counter() - begin < SPEED_SECONDS:
        action = actions.draw(packed(obs, spec))
        calling('step()')
        start = perf_counter()
        obs, _, terminated, truncated, _ = env.step(action)
        between = perf_counter()
        pack_rows([obs], rows, 'unsafe')
        stepping, converting, count = (
            stepping + between - start,
            converting + perf_counter() - between,
            count + 1,
        )
        if terminated or truncated:
            calling('reset()')
            start = perf_counter()
            obs, _ = env.reset()
            resets.append(perf_counter() - start)
    env.close()
    return {
        'steps_per_second': count / stepping,
        'reset_ms': 1000 * sum(resets) / len(resets) if resets else None,
        'conversion_share': converting / (converting + stepping),
    }
