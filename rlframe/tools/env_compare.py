"""Checks that compare runs of one env: of the same seed, with each autoreset mode, from a saved state; and its speed."""

from __future__ import annotations

from contextlib import closing
from time import perf_counter
from typing import TYPE_CHECKING, Any

from rlframe.data.observation import pack_rows, zero_obs
from rlframe.data.timestep import EnvSpec
from rlframe.envs.env_manager import BaseEnvManager
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.envs.state import EnvState, MismatchError, Refusal
from rlframe.envs.vector_env import GymVectorEnvManager
from rlframe.errors import RLFrameError
from rlframe.tools.env_findings import Finding, method_at
from rlframe.tools.env_play import (
    Calling,
    RandomActions,
    Row,
    content,
    first_difference,
    packed,
    play,
    transitions,
)

if TYPE_CHECKING:
    from rlframe.tools.check_env import Checks

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
