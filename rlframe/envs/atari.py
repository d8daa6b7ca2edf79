"""AtariFactory: creates Atari games for training and for evaluation."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Self

from rlframe.envs.atari_protocol import AtariConfig, AtariSettings, settings_of
from rlframe.envs.base_env import EnvFactory, PoolTask
from rlframe.envs.gym_env import import_needed
from rlframe.errors import EnvError
from rlframe.registry import ENV_REGISTRY, nearest

if TYPE_CHECKING:
    import gymnasium

NEEDED = ('ale_py', 'cv2')
"""Modules that games in this process need."""
NOT_RESTORED = frozenset(f'ALE/{name}-v5' for name in ('Qbert', 'Tetris', 'TicTacToe3D', 'YarsRevenge'))
"""Games that do not continue exactly where ALE 0.12 restores their state; the other 100 do."""


@ENV_REGISTRY.register('atari')
class AtariFactory(EnvFactory):
    """Creates Atari games.

    The games of ``for_training()`` end episodes with a life and clip rewards, if the options say so; others are whole.
    """

    cfg: AtariConfig
    _is_training = False

    def for_training(self) -> Self:
        own = copy.copy(self)
        own._is_training = True
        return own

    @property
    def settings(self) -> AtariSettings:
        """How the games are played."""
        return settings_of(self.cfg, self._is_training)

    def make(self, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
        """Returns a new game.

        Raises:
            EnvError: If ALE does not know the game, its ROM is missing, or it has no such mode.
            MissingDependencyError: If ALE or OpenCV is not installed.
        """
        import_packages(self.cfg.env_id)
        from rlframe.envs.atari_game import AtariGame, SavedAtariGame

        kind = AtariGame if self.cfg.env_id in NOT_RESTORED else SavedAtariGame
        return kind(make_emulator(self.settings, render_mode), self.settings)

    def create_vector(self, env_num: int, render_mode: str | None = None) -> Any:
        """Returns N games in ALE's threads; None if they must be drawn or have a mode, which ALE's threads do not support."""
        settings = self.settings
        if render_mode is not None or (settings.mode, settings.difficulty) != (None, None):
            return None
        import_packages(settings.env_id)
        from rlframe.envs.atari_vector import AtariVector

        emulator = make_emulator(settings, None)
        return AtariVector(env_num, emulator.spec.kwargs['game'], settings, emulator)

    def pool_task(self, render_mode: str | None = None) -> PoolTask:
        from rlframe.envs.atari_vector import GameRows

        settings = self.settings
        flavour = {'mode': settings.mode, 'difficulty': settings.difficulty}
        kwargs = dict(
            stack_num=1,
            frame_skip=settings.frame_skip,
            noop_max=settings.noop_max,
            repeat_action_probability=settings.sticky_actions,
            full_action_space=settings.full_action_space,
            use_fire_reset=settings.fires,
            img_height=settings.screen_size,
            img_width=settings.screen_size,
            gray_scale=settings.grayscale,
            max_episode_steps=-(-settings.max_frames // settings.frame_skip),
            **{name: value for name, value in flavour.items() if value is not None},
            **({} if render_mode is None else {'render_mode': render_mode}),
        )
        task_id = settings.env_id.removeprefix('ALE/')
        return PoolTask(task_id, kwargs, lambda env_num: GameRows(env_num, settings))

    def _stacked(self, env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
        return env  # a game stacks its own frames


def import_packages(env_id: str) -> None:
    """Imports the packages of games in this process.

    Raises:
        MissingDependencyError: If one is not installed.
    """
    for module in NEEDED:
        import_needed(module, env_id)
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no greeting


def make_emulator(settings: AtariSettings, render_mode: str | None) -> Any:
    """Returns ALE's own env of a game, which knows nothing of frame skips and sticky actions.

    Raises:
        EnvError: If it cannot be made.
    """
    import gymnasium

    try:
        env = gymnasium.make(
            settings.env_id,
            disable_env_checker=True,
            obs_type='grayscale',
            frameskip=1,
            repeat_action_probability=0.0,
            full_action_space=settings.full_action_space,
            max_num_frames_per_episode=settings.max_frames,
            mode=settings.mode,
            difficulty=settings.difficulty,
            render_mode=render_mode,
        )
    except gymnasium.error.UnregisteredEnv as error:
        games = [name for name in gymnasium.registry if name.startswith('ALE/')]
        raise EnvError(
            f'ALE has no game {settings.env_id!r}.{nearest(settings.env_id, games)}', where='env.env_id'
        ) from error
    except (TypeError, OSError) as error:
        raise EnvError(
            f'the ROM of {settings.env_id!r} is missing or damaged',
            where='env.env_id',
            remedy='ale-py contains all ROMs: is the environment variable ALE_ROMS_DIR set, or ale-py incomplete?',
        ) from error
    except RuntimeError as error:
        name = 'difficulty' if 'difficulty' in str(error) else 'mode'
        raise EnvError(
            f'{settings.env_id!r} has no {name} {getattr(settings, name)}', where=f'env.{name}'
        ) from error
    return env.unwrapped
