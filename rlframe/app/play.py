"""``rlframe play``: shows a trained policy in its env, in a window or as text, or plays a game against a person."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import closing
from time import sleep
from typing import Any, NamedTuple

import numpy as np

from rlframe.app.play_game import Ask, Say, chosen, play_game
from rlframe.app.scoring import Request, Score, played_config
from rlframe.data.faces import EvalMode
from rlframe.data.team import OWN, PRESENT
from rlframe.data.timestep import Array, Batch, IntArray
from rlframe.envs.env_manager import BaseEnvManager
from rlframe.envs.team_env import Team
from rlframe.errors import ConfigError, EnvStartError
from rlframe.export.artifact import played_policy
from rlframe.pipeline import build
from rlframe.policy.parts.actions import mask_of
from rlframe.registry import nearest
from rlframe.run.read_checkpoint import OpenCheckpoint
from rlframe.scores import exact_text
from rlframe.utils.seed import SCORE, env_seed, set_seed
from rlframe.worker.collector.rollout import EpisodeLimit

WINDOW, TEXT = 'human', 'ansi'
"""Render modes of Gymnasium: one for a window, one for text."""
DISPLAYS = ('DISPLAY', 'WAYLAND_DISPLAY', 'SDL_VIDEODRIVER')
"""Environment variables of displays: Linux can open windows if one of them is set."""


class Episode(NamedTuple):
    """A played episode."""

    return_: float
    length: int
    """Env steps."""
    ending: str
    """``terminated``, ``truncated`` or, by the limit of evaluations, ``cut``; of a game ``win``, ``draw`` or ``loss`` of the policy."""
    of_agents: dict[str, float] = {}
    """The return of each agent of a team."""


def play_run(
    opened: OpenCheckpoint,
    request: Request,
    say: Callable[[str], None],
    fps: float | None = None,
    human: bool = False,
    ask: Callable[[str], str] = input,
    seat: str | None = None,
) -> list[Episode]:
    """Plays episodes with the policy of a checkpoint, and says lines of text.

    It plays ``fps`` env steps per second; None: as the env does it, and as fast as possible in text. An env that can neither
    open a window here nor draw text is summed up; of a team, without a window, a line says what each agent did and earned. In a
    game of two players, a person plays the other side and types the moves; see ``play_game``. In a team, a person may act for the
    agent ``seat``; see ``seated``.

    Raises:
        ConfigError: If the checkpoint cannot be used, or the env cannot be shown as wished.
        EnvCrashedError: If the env fails.
    """
    # check
    request.check()
    if fps is not None and not 0 < fps < float('inf'):
        raise ConfigError('bad value', where='--fps', got=fps, expected='a number > 0')
    if human and not has_display():
        say('there is no display to open a window on; rlframe eval --video makes films')
        human = False
    # create policy and env
    state = opened.state(buffer=False)  # verified before its config is used
    cfg = played_config(opened, request)
    set_seed(request.seed)
    build.set_threads(cfg)
    factory = build.make_factory(cfg)
    is_game = factory.spec.player_num > 1
    mode = None if is_game and not human else _mode_for(factory, human)
    policy = played_policy(opened, state, cfg, factory.spec)
    try:
        env = factory.create(mode)
    except Exception as error:
        raise EnvStartError(
            f'the env cannot be shown: {type(error).__name__}: {error}', where=f'render mode {mode!r}'
        ) from error
    acting = policy.eval_mode if seat is None else seated(policy.eval_mode, env, seat, say, ask)
    # play a game against a person
    if is_game:
        games = play_game(env, factory.spec, policy.eval_mode, request.episodes, request.seed, say, ask)
        return [Episode(*game) for game in games]
    # play episodes
    limit = EpisodeLimit(factory.spec, 1, cfg.policy.eval.evaluator.max_episode_len).max_episode_len

    show = _shown_by(env, mode, fps, say)
    with closing(BaseEnvManager([lambda: env])) as manager:
        episodes = []
        for number in range(request.episodes):
            seed = env_seed(request.seed, 0, number, SCORE)
            name = f'episode {number + 1}'
            try:
                found = _play(manager, acting, seed, limit, show, name)
            except EOFError:
                say('ended before the episode was over')
                break
            if isinstance(env.unwrapped, Team):
                found = found._replace(of_agents=env.unwrapped.returns())
            episodes.append(found)
            say(f'{name}: {_summary(found)}')
    if mode is None and episodes:
        returns, lengths = [each.return_ for each in episodes], [each.length for each in episodes]
        say(repr(Score(returns, lengths, 0, opened.path)))
    return episodes


def _mode_for(factory: Any, human: bool) -> str | None:
    """Returns the render mode that shows an env best here; None: it cannot be drawn.

    Raises:
        ConfigError: If it lacks the wished one, or is not played by one policy, one at a time.
    """
    if factory.only_vector:
        raise ConfigError('it exists in vector form only, which cannot be shown', where='env.env_id')
    if factory.spec.player_num > 1:
        raise ConfigError(
            f'{factory.spec.name} has {factory.spec.player_num} players: it is played in the terminal',
            where='--human',
            remedy='Leave it out.',
        )
    with closing(factory.create()) as probe:
        modes = list((probe.metadata or {}).get('render_modes') or [])
    if human and WINDOW not in modes:
        what = f'{factory.spec.name} has no render mode {WINDOW!r}'
        raise ConfigError(what, where='--human', got=modes, expected=f'one with {WINDOW!r}')
    if WINDOW in modes and has_display():
        return WINDOW
    return TEXT if TEXT in modes else None


def has_display() -> bool:
    """Whether this process can open windows."""
    return sys.platform in ('win32', 'darwin') or any(os.environ.get(name) for name in DISPLAYS)


def _shown_by(
    env: Any, mode: str | None, fps: float | None, say: Callable[[str], None]
) -> Callable[[str], None]:
    """Returns a function that shows an env after a reset or a step, which a line describes; of a team, what each agent did."""
    team = env.unwrapped if isinstance(env.unwrapped, Team) else None

    def show(line: str) -> None:
        if team is not None:
            line = f'{line.partition(":")[0]}: {"; ".join(team.lines())}'
        if mode == TEXT:
            line = f'{str(env.render()).rstrip()}\n{line}'
        if mode == TEXT or (team is not None and mode != WINDOW):
            say(line)
        if fps is not None:
            sleep(1 / fps)

    return show


def _summary(episode: Episode) -> str:
    """Returns the return, the length and the end of an episode, and the return of each agent of a team, in words."""
    own = ', '.join(f'{agent} {exact_text(each)}' for agent, each in episode.of_agents.items())
    text = f'return {exact_text(episode.return_)} in {episode.length} steps, {episode.ending}'
    return f'{text}; {own}' if own else text


def _play(
    manager: BaseEnvManager, mode: Any, seed: int, limit: int | None, show: Callable[[str], None], name: str
) -> Episode:
    """Plays one episode, of at most ``limit`` env steps, and shows each step."""
    manager.reset(seed=[seed])
    mode.reset(None)
    show(f'{name} begins: obs {_shown(manager.obs[0])}')
    return_, length, ending = 0.0, 0, ''
    while not ending:
        action = mode.forward(manager.obs, manager.ready)['action']
        step = manager.step(action, manager.ready)
        return_, length = return_ + float(step.reward[0]), length + 1
        ends = {
            'terminated': step.terminated[0],
            'truncated': step.truncated[0],
            'cut': limit is not None and length >= limit,
        }
        ending = next((name for name, is_true in ends.items() if is_true), '')
        show(
            f'step {length}: action {_shown(action[0])}, reward {step.reward[0]:g}, obs {_shown(step.obs[0])}'
        )
    return Episode(return_, length, ending)


def _shown(value: Any) -> str:
    """Returns an observation or an action in one short line."""
    if getattr(value, 'dtype', None) is not None and value.dtype.names:
        return ', '.join(f'{name} {_shown(value[name])}' for name in value.dtype.names)
    array = np.asarray(value)
    if array.size > 16:
        return f'{"x".join(map(str, array.shape))} in [{array.min():g}, {array.max():g}]'
    return np.array2string(array, precision=3, suppress_small=True, max_line_width=200).replace('\n', '')


def seated(mode: EvalMode, env: Any, agent: str, say: Say, ask: Ask) -> EvalMode:
    """Returns a policy for one env in which a person acts for one agent.

    Args:
        mode: Acts for all others.
        env: The env, with its wrappers.
        agent: Name or number of the agent.
        say: Shows lines of text.
        ask: Returns the answer of the person to a prompt.

    Raises:
        ConfigError: If the env is no team, has no such agent, or its actions have no numbers.
    """
    seat = _seat_of(env, agent)
    space = env.action_space
    count = int(space.nvec[seat])
    first = int(space.start[seat])
    name = env.unwrapped.agents[seat]

    def forward(obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        found: Batch = mode.forward(obs, env_id, **settings)
        if not obs[PRESENT][0, seat]:
            return found
        masks = mask_of(obs)
        mask = np.ones(count, np.bool_) if masks is None else masks[0].reshape(len(space.nvec), -1)[seat]
        action = found['action'].copy()
        action[0, seat] = chosen(obs[OWN][0, seat], mask, first, say, ask, f'{name} sees ')
        return found.replace(action=action)

    return mode._replace(forward=forward)


def _seat_of(env: Any, agent: str) -> int:
    """Returns the number of an agent."""
    where = '--seat'
    if not isinstance(env.unwrapped, Team):
        raise ConfigError('a person takes the seat of an agent of a team', where=where, got=agent)
    names = env.unwrapped.agents
    if not hasattr(env.action_space, 'nvec'):
        raise ConfigError(
            'a person types actions that have numbers',
            where=where,
            got=repr(env.action_space),
            expected='Discrete ones',
        )
    if agent.isdecimal() and int(agent) < len(names):
        return int(agent)
    if agent not in names:
        raise ConfigError(
            'the team has no such agent',
            where=where,
            got=agent,
            expected=f'{", ".join(names)}, or 0 to {len(names) - 1}',
            remedy=nearest(agent, names).strip(),
        )
    return int(names.index(agent))
