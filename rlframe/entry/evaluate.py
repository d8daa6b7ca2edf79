"""``rlframe eval``: scores a checkpoint on episodes that training never saw."""

from __future__ import annotations

import argparse
import copy
import json
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlframe import config
from rlframe.checkpoint import OpenCheckpoint, open_checkpoint
from rlframe.config.sections import ExperimentConfig
from rlframe.errors import ConfigError, ConfigWarning
from rlframe.pipeline import build
from rlframe.registry import SERIAL_EVALUATOR_REGISTRY
from rlframe.run.film import FilmFolder, check_encoder
from rlframe.utils.seed import SCORE, set_seed

if TYPE_CHECKING:
    pass

PLAIN_SECONDS = 5.0
"""Seconds between two lines about a long evaluation."""


def evaluate(args: argparse.Namespace) -> int:
    """Runs the verb and returns the exit code."""
    if args.episodes < 1:
        raise ConfigError('bad value', where='--episodes', got=args.episodes, expected='an int >= 1')
    if not 0 <= args.seed < 2**32:
        raise ConfigError('bad value', where='--seed', got=args.seed, expected='an int in [0, 4294967296)')
    if args.video is not None and Path(args.video).exists() and not Path(args.video).is_dir():
        raise ConfigError('bad value', where='--video', got=args.video, expected='a folder, not a file')
    opened = open_checkpoint(args.checkpoint)
    path = opened.path
    info = _play(
        opened, args.episodes, args.seed, args.overrides, args.video, args.trust, on_step=_Progress()
    )
    returns, lengths = info['eval_episode_return'], info['eval_episode_len']
    result = {
        'checkpoint': str(path),
        'episodes': len(returns),
        'mean': float(np.mean(returns)),
        'std': float(np.std(returns)),
        'min': float(np.min(returns)),
        'max': float(np.max(returns)),
        'mean_length': float(np.mean(lengths)),
        'cut': sum(info['eval_episode_cut']),
        'video': args.video,
    }
    if args.json:
        sys.stdout.write(json.dumps(result) + '\n')
    else:
        sys.stdout.write(
            f'{path.parent.parent.name}/{path.name}: return {result["mean"]:.2f} +- {result["std"]:.2f}'
            f' over {len(returns)} episodes (min {result["min"]:g}, max {result["max"]:g}),'
            f' {result["mean_length"]:.1f} env steps each\n'
        )
        if args.video:
            sys.stdout.write(f'films of the worst, median and best of them: {args.video}\n')
    return 0


def score(  # noqa: PLR0913  # what the command line has, and what it cannot have
    path: Path,
    episodes: int,
    seed: int = 0,
    overrides: list[str] | None = None,
    video: str | None = None,
    trust: bool = False,
    *,
    allow_import: bool = False,
    model: Any = None,
    env: Any = None,
) -> tuple[list[float], list[int]]:
    """Plays episodes with the policy of a checkpoint.

    Args:
        path: The checkpoint.
        episodes: How many episodes.
        seed: Selects the episodes: episode k has the seed f(seed, k), which training never uses.
        overrides: Options that replace those of the run.
        video: Folder for films of the worst, the median and the best episode.
        trust: Whether the config of a foreign run may reach beyond the run.
        allow_import: Old name of ``trust``.
        model: A network to load the weights into, in place of the one named in the config.
        env: Id, class or factory of the env, in place of the one named in the config.

    Returns:
        Returns and lengths of the episodes.
    """
    parts = _OwnParts(model, env)
    info = _play(open_checkpoint(path), episodes, seed, overrides, video, trust or allow_import, parts)
    return info['eval_episode_return'], info['eval_episode_len']


class _OwnParts(NamedTuple):
    """Parts passed by the user in place of those that a config names; None: as the config says."""

    model: Any = None
    env: Any = None


CONFIGURED = _OwnParts()
"""Everything as the config says."""


class _Progress:
    """Reports the progress of a long evaluation on stderr from time to time."""

    def __init__(self) -> None:
        self.status: Callable[[], str] = str
        """Returns the progress."""
        self._last = monotonic()

    def __call__(self) -> None:
        if monotonic() - self._last > PLAIN_SECONDS:
            self._last = monotonic()
            sys.stderr.write(f'rlframe: {self.status()}\n')


def _play(
    opened: OpenCheckpoint,
    episodes: int,
    seed: int,
    overrides: list[str] | None,
    video: str | None,
    trust: bool,
    own: _OwnParts = CONFIGURED,
    on_step: _Progress | None = None,
) -> dict[str, Any]:
    """Plays episodes as ``score`` says and returns the evaluator's results."""
    path, manifest = opened.path, opened.manifest
    state = opened.state(buffer=False)  # verified before its config is used
    data = config.as_played(config.config_of(manifest, str(path)))
    if own.env is not None:
        data = config.with_env(data, own.env)
    if not manifest.is_own:
        config.check_trust(data, str(path), trust, overrides or [], own.env)
    main, create = _with_episodes(data)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', ConfigWarning)  # they were shown when the run began
        cfg = config.compile_config(main, create, overrides=overrides or [])
    cfg.policy.eval.evaluator.backend = 'local'
    _film_or_not(cfg, video)
    set_seed(seed)
    build.set_threads(cfg)
    factory = build.make_factory(cfg)
    with ExitStack() as closers:
        cfg.env.evaluator_env_num = min(cfg.env.evaluator_env_num, episodes)
        backend = build.evaluator_backend(cfg, factory)
        closers.callback(backend.close)
        if video is not None and factory.spec.player_num > 1:
            raise ConfigError(
                f'{factory.spec.name} has {factory.spec.player_num} players; videos show one player only',
                where='--video',
                remedy='policy.eval.evaluator.render.render_freq=0 films evaluations during training.',
            )
        if own.model is None:
            build.check_network(cfg, factory.spec, state, manifest, str(path))
        policy = build.make_policy(cfg, factory.spec, copy.deepcopy(own.model), fields=('eval',))
        build.load_network(policy, state, manifest, cfg, str(path))
        films = None if video is None else FilmFolder(Path(video))
        how: dict[str, Any] = {'seed': seed, 'purpose': SCORE, 'tb_logger': films}
        evaluator = build.make_evaluator(cfg, backend, policy, factory.spec, **how)
        closers.callback(evaluator.close)
        if on_step is not None:
            on_step.status, evaluator.on_step = evaluator.status, on_step
        return dict(evaluator.eval(n_episode=episodes)[1])


def _film_or_not(cfg: ExperimentConfig, video: str | None) -> None:
    """Films the evaluation if a folder for films is given, whatever training did."""
    section = cfg.policy.eval.evaluator
    if section.get('render') is not None:
        section['render'].render_freq = -1 if video is None else 0
    elif video is not None:
        raise ConfigError(f'the evaluator {section.type!r} makes no films', where='--video', got=video)
    if video is not None:
        check_encoder('--video')
        os.environ.setdefault('SDL_VIDEODRIVER', 'dummy')  # pygame draws into memory; no display is needed


def _with_episodes(data: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns a config pair whose evaluator plays episodes, even if that of the run scored its policy on data."""
    main, create = (copy.deepcopy(data[name]) for name in ('main_config', 'create_config'))
    kind = SERIAL_EVALUATOR_REGISTRY.get_cls(
        {'type': 'interaction', **config.section_at(create, ('evaluator',))}
    )
    if not kind.scores_returns:
        create['evaluator'] = {'type': 'interaction'}
        section = config.section_at(main, ('policy', 'eval'))
        if isinstance(section, dict):
            section.pop('evaluator', None)
    return main, create
