"""Scores a checkpoint on episodes that training never saw."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from rlframe import config
from rlframe.config.compile import user_tree
from rlframe.config.schema import ExperimentConfig
from rlframe.display.text import count_of
from rlframe.errors import ConfigError
from rlframe.export.artifact import compiled_again, played_policy, saved_config
from rlframe.pipeline import build
from rlframe.registry import SERIAL_EVALUATOR_REGISTRY, import_named
from rlframe.run.film import FilmFolder, check_encoder
from rlframe.run.read_checkpoint import OpenCheckpoint, open_checkpoint
from rlframe.scores import Interval, interval_of, number_text
from rlframe.utils.seed import SCORE, set_seed

PROGRESS_SECONDS = 5.0
"""Seconds between two lines about a long evaluation."""


class Score(NamedTuple):
    """The result of an evaluation."""

    returns: list[float]
    """Return of each episode."""
    lengths: list[int]
    """Env steps of each episode."""
    cut: int
    """Number of episodes that a limit ended."""
    checkpoint: Path
    """The checkpoint that was scored."""

    @property
    def episodes(self) -> int:
        """Number of episodes."""
        return len(self.returns)

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        """Standard deviation of the returns."""
        return float(np.std(self.returns))

    @property
    def interval(self) -> Interval | None:
        """95 % interval of the mean return; None if there is one episode only."""
        return interval_of(self.returns)

    def facts(self) -> dict[str, Any]:
        """Returns the result as values for a JSON file."""
        return {
            'checkpoint': str(self.checkpoint),
            'episodes': self.episodes,
            'mean': self.mean,
            'std': self.std,
            'interval': self.interval,
            'min': float(np.min(self.returns)),
            'max': float(np.max(self.returns)),
            'mean_length': float(np.mean(self.lengths)),
            'cut': self.cut,
        }

    def __repr__(self) -> str:
        interval = f' (95 % interval {self.interval})' if self.interval is not None else ''
        played = count_of(self.episodes, 'episode')
        low, high = number_text(min(self.returns)), number_text(max(self.returns))
        return (
            f'return {number_text(self.mean)}{interval} over {played} (min {low}, max {high}),'
            f' {number_text(float(np.mean(self.lengths)))} env steps each'
        )


class Request(NamedTuple):
    """The episodes that a user asks for."""

    episodes: int
    """Number of episodes."""
    seed: int = 0
    """Selects the episodes: episode k has the seed f(seed, k), which training never uses."""
    video: str | None = None
    """Folder for films of the worst, the median and the best episode."""
    overrides: Sequence[str] = ()
    """Overrides of the run's options."""
    trust: bool = False
    """Whether the config of a foreign run may reach beyond the run."""
    model: Any = None
    """A network to load the weights into, in place of the one named in the config."""
    env: Any = None
    """Id, class or factory of the env, in place of the one named in the config."""
    flag: str = ''
    """Start of the arguments' names in errors: ``--`` on the command line."""

    def check(self) -> None:
        """Checks the arguments, before a checkpoint is opened.

        Raises:
            ConfigError: If one of them is invalid.
        """
        if self.episodes < 1:
            raise self._bad('episodes', self.episodes, 'an int >= 1')
        if not 0 <= self.seed < 2**32:
            raise self._bad('seed', self.seed, 'an int in [0, 4294967296)')
        if self.video is not None and Path(self.video).exists() and not Path(self.video).is_dir():
            raise self._bad('video', self.video, 'a folder, not a file')

    def _bad(self, name: str, got: Any, expected: str) -> ConfigError:
        return ConfigError('bad value', where=f'{self.flag}{name}', got=got, expected=expected)


def score(
    path: str | Path | OpenCheckpoint, request: Request, show_progress: Callable[[str], object] | None = None
) -> Score:
    """Plays episodes with the policy of a checkpoint, and reports the progress of a long evaluation from time to time.

    Raises:
        ConfigError: If the request is invalid.
        CheckpointError: If the checkpoint is damaged, or of another network.
    """
    # open the checkpoint
    request.check()
    opened = open_checkpoint(path)
    state = opened.state(buffer=False)  # verified before its config is used
    cfg = played_config(opened, request)
    cfg.policy.eval.evaluator.backend = 'local'
    _film_or_not(cfg, request)
    # create envs and policy
    set_seed(request.seed)
    build.set_threads(cfg)
    factory = build.make_factory(cfg)
    with ExitStack() as closers:
        cfg.env.evaluator_env_num = min(cfg.env.evaluator_env_num, request.episodes)
        backend = build.evaluator_backend(cfg, factory)
        closers.callback(backend.close)
        if request.video is not None and factory.spec.player_num > 1:
            raise ConfigError(
                f'{factory.spec.name} has {factory.spec.player_num} players; videos show one player only',
                where=f'{request.flag}video',
                remedy='policy.eval.evaluator.render.render_freq=0 films evaluations during training.',
            )
        policy = played_policy(opened, state, cfg, factory.spec, request.model)
        # evaluate
        films = None if request.video is None else FilmFolder(Path(request.video))
        how: dict[str, Any] = {'seed': request.seed, 'purpose': SCORE, 'tb_logger': films}
        evaluator = build.make_evaluator(cfg, backend, policy, factory.spec, **how)
        closers.callback(evaluator.close)
        if show_progress is not None:
            evaluator.on_step = _at_times(lambda: show_progress(evaluator.status()))
        info = evaluator.eval(n_episode=request.episodes)[1]
    returns, lengths = info['eval_episode_return'], info['eval_episode_len']
    return Score(returns, lengths, sum(info['eval_episode_cut']), opened.path)


def _at_times(show_progress: Callable[[], object]) -> Callable[[], None]:
    """Returns a function that may be called often, and calls another one every ``PROGRESS_SECONDS``."""
    last = monotonic()

    def on_step() -> None:
        nonlocal last
        if monotonic() - last > PROGRESS_SECONDS:
            last = monotonic()
            show_progress()

    return on_step


def played_config(opened: OpenCheckpoint, request: Request) -> ExperimentConfig:
    """Returns the config that a checkpoint is played with.

    Raises:
        ConfigError: If it cannot be used, or is that of a foreign run and reaches beyond it.
    """
    data = saved_config(opened, request.trust, request.overrides, request.env, config.as_played)
    return compiled_again(_with_episodes(data, request), request.overrides, opened.manifest)


def _film_or_not(cfg: ExperimentConfig, request: Request) -> None:
    """Films the evaluation if a folder for films is given, whatever training did."""
    section = cfg.policy.eval.evaluator
    video = request.video
    where = f'{request.flag}video'
    if section.get('render') is not None:
        section['render'].render_freq = -1 if video is None else 0
    elif video is not None:
        raise ConfigError(f'the evaluator {section.type!r} makes no films', where=where, got=video)
    if video is not None:
        check_encoder(where)
        os.environ.setdefault('SDL_VIDEODRIVER', 'dummy')  # pygame draws into memory; no display is needed


def _with_episodes(data: Mapping[str, Any], request: Request) -> Mapping[str, Any]:
    """Returns a config pair whose evaluator plays episodes, even if the run scored its policy on data.

    Raises:
        ConfigError: If the request names an evaluator that plays none.
    """
    tree = user_tree(data['main_config'], data['create_config'], request.overrides)[0]
    import_named(tree)
    asked = config.section_at(user_tree({}, {}, request.overrides)[0], ('policy', 'eval', 'evaluator'))
    if 'type' in asked and not SERIAL_EVALUATOR_REGISTRY.get_cls(asked).scores_returns:
        raise ConfigError(
            'a checkpoint is scored on episodes that it plays, and this evaluator plays none',
            where='policy.eval.evaluator.type',
            got=asked['type'],
            expected="'interaction'",
            remedy='Training scores a policy on data: rlframe train with the same options.',
        )
    chosen = {'type': 'interaction', **config.section_at(tree, ('policy', 'eval', 'evaluator'))}
    if SERIAL_EVALUATOR_REGISTRY.get_cls(chosen).scores_returns:
        return data
    data = copy.deepcopy(dict(data))
    data['create_config']['evaluator'] = {'type': 'interaction'}
    section = config.section_at(data['main_config'], ('policy', 'eval'))
    if isinstance(section, dict):
        section.pop('evaluator', None)
    return data
