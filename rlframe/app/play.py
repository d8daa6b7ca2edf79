"""``rlframe play``: shows a trained policy in its env: in a window, as text in the terminal, or as a film."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from time import sleep
from typing import Any, NamedTuple

import numpy as np

from rlframe.app.scoring import Request, played_config, played_policy
from rlframe.envs.env_manager import BaseEnvManager
from rlframe.errors import ConfigError, EnvStartError, MissingDependencyError
from rlframe.pipeline import build
from rlframe.run.film import DEFAULT_FPS, check_encoder, is_installed, write_film, write_gif
from rlframe.run.read_checkpoint import OpenCheckpoint
from rlframe.scores import exact_text
from rlframe.utils.seed import SCORE, env_seed, set_seed
from rlframe.worker.collector.rollout import EpisodeLimit

WINDOW, TEXT, FILM = 'human', 'ansi', 'rgb_array'
"""Render modes of Gymnasium, by what they are used for here."""
DISPLAYS = ('DISPLAY', 'WAYLAND_DISPLAY', 'SDL_VIDEODRIVER')
"""Environment variables of which one is set where windows can be opened on Linux."""


class Wish(NamedTuple):
    """What the user wants to see."""

    episodes: int = 1
    seed: int = 0
    fps: float | None = None
    """Env steps per second; None: as the env does it, and as fast as possible in text."""
    human: bool = False
    """Whether it has to be a window."""
    save: str | None = None
    """The file of a film."""
    overrides: Sequence[str] = ()
    """Options that replace those of the run."""
    trust: bool = False
    """Whether the config of a foreign run may reach beyond the run."""

    def check(self) -> None:
        """Checks the arguments.

        Raises:
            ConfigError: If one is invalid.
        """
        Request(self.episodes, self.seed, flag='--').check()
        if self.fps is not None and not 0 < self.fps < float('inf'):
            raise ConfigError('bad value', where='--fps', got=self.fps, expected='a number > 0')
        if self.save is not None:
            _check_file(Path(self.save))


class Episode(NamedTuple):
    """A played episode."""

    return_: float
    length: int
    """Env steps."""
    ending: str
    """``terminated``, ``truncated`` or, by the limit of evaluations, ``cut``."""


def _check_file(file: Path) -> None:
    """Checks that a film can be written."""
    if file.suffix not in ('.mp4', '.gif'):
        raise ConfigError(
            'bad value', where='--save', got=str(file), expected='a path that ends with .mp4 or .gif'
        )
    if file.exists():
        raise ConfigError(f'{file} exists already', where='--save', remedy='Choose another name.')
    if not file.parent.is_dir():
        raise ConfigError(f'the folder {file.parent} does not exist', where='--save')
    check_encoder('--save')
    needed = {'.mp4': 'moviepy', '.gif': 'PIL'}[file.suffix]
    if not is_installed(needed):
        raise MissingDependencyError(
            f'{file.suffix} files need {needed}', where='--save', remedy='pip install "rlframe[video]"'
        )


def play_run(opened: OpenCheckpoint, wish: Wish, say: Callable[[str], None]) -> list[Episode]:
    """Plays episodes with the policy of a checkpoint.

    Args:
        opened: The checkpoint.
        wish: What the user wants to see.
        say: Takes lines of text.

    Returns:
        The episodes.

    Raises:
        ConfigError: If the checkpoint cannot be used, or the env cannot be shown as wished.
        EnvCrashedError: If the env fails.
    """
    wish.check()
    state = opened.state(buffer=False)  # verified before its config is used
    cfg = played_config(opened, wish.overrides, wish.trust)
    set_seed(wish.seed)
    build.set_threads(cfg)
    factory = build.make_factory(cfg)
    _check_env(factory)
    with closing(factory.create()) as probe:
        modes = (probe.metadata or {}).get('render_modes') or []
    mode = _mode_for(modes, wish, factory.spec.name)
    if mode == FILM:
        os.environ.setdefault('SDL_VIDEODRIVER', 'dummy')  # pygame draws into memory; no display is needed
    policy = played_policy(opened, state, cfg, factory.spec)
    try:
        env = factory.create(mode)
    except Exception as error:
        raise EnvStartError(
            f'the env cannot be shown: {type(error).__name__}: {error}', where=f'render mode {mode!r}'
        ) from error
    stage = Stage(env, mode, wish, say)
    limit = EpisodeLimit(factory.spec, 1, cfg.policy.eval.evaluator.max_episode_len).max_episode_len
    with closing(BaseEnvManager([lambda: env])) as manager:
        episodes = [_play(manager, policy.eval_mode, stage, number, limit) for number in range(wish.episodes)]
    stage.finish()
    return episodes


def _check_env(factory: Any) -> None:
    """Refuses envs that are not played by one policy, one at a time."""
    if factory.only_vector:
        raise ConfigError('it exists in vector form only, which cannot be shown', where='env.env_id')
    if factory.spec.player_num > 1:
        raise ConfigError(
            f'{factory.spec.name} has {factory.spec.player_num} players, and play shows one policy alone',
            where='env.env_id',
            remedy='rlframe eval plays against the opponents of the config.',
        )


def _mode_for(modes: Sequence[str], wish: Wish, name: str) -> str | None:
    """Returns the render mode that shows an env best here; None: it cannot be drawn.

    Raises:
        ConfigError: If it lacks the wished one.
    """
    if wish.human and not has_display():
        remedy = 'Without --human it is shown as text; --save FILE.mp4 makes a film.'
        raise ConfigError('there is no display to open a window on', where='--human', remedy=remedy)
    if wish.human or wish.save:
        flag, mode = ('--human', WINDOW) if wish.human else ('--save', FILM)
        if mode not in modes:
            raise ConfigError(
                f'{name} has no render mode {mode!r}',
                where=flag,
                got=list(modes),
                expected=f'one with {mode!r}',
            )
        return mode
    if WINDOW in modes and has_display():
        return WINDOW
    return TEXT if TEXT in modes else None


def has_display() -> bool:
    """Whether this process can open windows."""
    return sys.platform in ('win32', 'darwin') or any(os.environ.get(name) for name in DISPLAYS)


class Stage:
    """Shows each step of an env.

    Args:
        env: The env.
        mode: Its render mode.
        wish: What the user wants to see.
        say: Takes lines of text.
    """

    def __init__(self, env: Any, mode: str | None, wish: Wish, say: Callable[[str], None]) -> None:
        self._env, self._mode, self._wish, self._say = env, mode, wish, say
        self._frames: list[Any] = []

    @property
    def seed(self) -> int:
        """Seed of the episodes."""
        return self._wish.seed

    def show(self, line: str) -> None:
        """Shows the env after a reset or a step, which a line describes."""
        if self._mode == FILM:
            self._frames.append(self._env.render())
        elif self._mode == TEXT:
            self._say(f'{str(self._env.render()).rstrip()}\n{line}')
        elif self._mode is None:
            self._say(line)
        if self._wish.fps is not None and self._mode != FILM:
            sleep(1 / self._wish.fps)

    def tell(self, line: str) -> None:
        """Shows a line in every mode."""
        self._say(line)

    def finish(self) -> None:
        """Writes the film, if one is wanted."""
        if self._mode != FILM:
            return
        file = Path(str(self._wish.save))
        fps = self._wish.fps or (self._env.metadata or {}).get('render_fps') or DEFAULT_FPS
        if file.suffix == '.gif':
            write_gif(file, self._frames, fps)
        else:
            write_film(file.with_suffix(''), self._frames, fps)
        self._say(f'film: {file}')


def _play(manager: BaseEnvManager, mode: Any, stage: Stage, number: int, limit: int | None) -> Episode:
    """Plays one episode and tells its return."""
    manager.reset(seed=[env_seed(stage.seed, 0, number, SCORE)])
    mode.reset(None)
    stage.show(f'episode {number + 1} begins: obs {_shown(manager.obs[0])}')
    return_, length, ending = 0.0, 0, ''
    while not ending:
        action = mode.forward(manager.obs, manager.ready)['action']
        step = manager.step(action, manager.ready)
        return_, length = return_ + float(step.reward[0]), length + 1
        ending = 'terminated' if step.terminated[0] else 'truncated' if step.truncated[0] else ''
        ending = ending or ('cut' if limit is not None and length >= limit else '')
        parts = f'action {_shown(action[0])}, reward {step.reward[0]:g}, obs {_shown(step.obs[0])}'
        stage.show(f'step {length}: {parts}')
    stage.tell(f'episode {number + 1}: return {exact_text(return_)} in {length} steps, {ending}')
    return Episode(return_, length, ending)


def _shown(value: Any) -> str:
    """Returns an observation or an action in one short line."""
    if getattr(value, 'dtype', None) is not None and value.dtype.names:
        return ', '.join(f'{name} {_shown(value[name])}' for name in value.dtype.names)
    array = np.asarray(value)
    if array.size > 16:
        return f'{"x".join(map(str, array.shape))} in [{array.min():g}, {array.max():g}]'
    return np.array2string(array, precision=3, suppress_small=True, max_line_width=200).replace('\n', '')
