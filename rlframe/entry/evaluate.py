"""``rlframe eval``: scores a checkpoint on episodes that training never saw."""

from __future__ import annotations

import argparse
import copy
import json
import os
import sys
import warnings
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe import build, config
from rlframe.errors import ConfigError, ConfigWarning, MissingDependencyError
from rlframe.registry import SERIAL_EVALUATOR_REGISTRY
from rlframe.utils.checkpoint import find_checkpoint, load_checkpoint
from rlframe.utils.field import ResolvedConfig
from rlframe.utils.seed import SCORE, env_seed, set_seed

if TYPE_CHECKING:
    from rlframe.envs import EnvFactory
    from rlframe.policy import Policy

DEFAULT_FPS = 30
"""Pictures a second of a film, where the env does not say."""


def evaluate(args: argparse.Namespace) -> int:
    """Does what the command line asks for and returns the exit code."""
    if args.episodes < 1:
        raise ConfigError('bad value', where='--episodes', got=args.episodes, expected='an int >= 1')
    if not 0 <= args.seed < 2**32:
        raise ConfigError('bad value', where='--seed', got=args.seed, expected='an int in [0, 4294967296)')
    if args.video is not None and Path(args.video).exists() and not Path(args.video).is_dir():
        raise ConfigError('bad value', where='--video', got=args.video, expected='a folder, not a file')
    path = find_checkpoint(args.checkpoint)
    returns, lengths = score(path, args.episodes, args.seed, args.overrides, args.video, args.allow_import)
    result = {
        'checkpoint': str(path),
        'episodes': len(returns),
        'mean': float(np.mean(returns)),
        'std': float(np.std(returns)),
        'min': float(np.min(returns)),
        'max': float(np.max(returns)),
        'mean_length': float(np.mean(lengths)),
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
            sys.stdout.write(f'film of the first episode: {args.video}\n')
    return 0


def score(
    path: Path,
    episodes: int,
    seed: int = 0,
    overrides: list[str] | None = None,
    video: str | None = None,
    allow_import: bool = False,
) -> tuple[list[float], list[int]]:
    """Plays episodes with the policy of a checkpoint.

    Args:
        path: The checkpoint.
        episodes: How many episodes.
        seed: Which ones: episode k begins with the seed f(seed, k), and none of them was seen in training.
        overrides: Options that replace those of the run.
        video: Folder for a film of the first episode.
        allow_import: Whether the config in the checkpoint may import the modules that it names.

    Returns:
        Returns and lengths of the episodes.
    """
    state, manifest = load_checkpoint(path, buffer=False)
    data = config.without_records(manifest['config'])
    config.check_code(data, str(path), allow_import)
    main, create = _with_episodes(data)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', ConfigWarning)  # they were shown when the run began
        cfg = config.compile_config(main, create, overrides=overrides or [])
    cfg.policy.eval.evaluator.backend = 'local'
    set_seed(seed)
    build.set_threads(cfg)
    factory = build.make_factory(cfg)
    with ExitStack() as closers:
        env = build.make_evaluator_env(cfg, factory, min(cfg.env.evaluator_env_num, episodes))
        closers.callback(env.close)
        if video is not None and factory.spec.player_num > 1:
            raise ConfigError(
                f'{factory.spec.name} has {factory.spec.player_num} players; films are of one player',
                where='--video',
                remedy='policy.eval.evaluator.render.render_freq=0 films evaluations during training.',
            )
        policy = build.make_policy(cfg, factory.spec, fields=('eval',))
        build.load_network(policy, state, manifest, cfg, str(path))
        if video is not None:
            _film(cfg, factory, policy, Path(video), seed)
        evaluator = build.make_evaluator(cfg, env, policy, factory.spec, seed=seed, purpose=SCORE)
        closers.callback(evaluator.close)
        _, info = evaluator.eval(n_episode=episodes)
    return info['eval_episode_return'], info['eval_episode_len']


def _with_episodes(data: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns a config pair whose evaluator plays episodes, also where that of the run scored its policy on data."""
    main, create = (copy.deepcopy(data[name]) for name in ('main_config', 'create_config'))
    kind: Any = SERIAL_EVALUATOR_REGISTRY.get_cls({'type': 'interaction', **create.get('evaluator', {})})
    if not kind.scores_returns:
        create['evaluator'] = {'type': 'interaction'}
        main['policy']['eval'].pop('evaluator', None)
    return main, create


def _film(cfg: ResolvedConfig, factory: EnvFactory, policy: Policy, folder: Path, seed: int) -> None:
    """Films one episode in an env of its own, under the manager that the config names."""
    from gymnasium.error import DependencyNotInstalled
    from gymnasium.utils.save_video import save_video

    os.environ.setdefault('SDL_VIDEODRIVER', 'dummy')  # pygame draws into memory; no window is looked for
    with closing(build.make_evaluator_env(cfg, factory, 1, 'rgb_array')) as env:
        env.launch()
        env.reset(seed=[env_seed(seed, 0, 0, SCORE)])
        mode = policy.eval_mode
        mode.reset(None)
        frames, done = [env.render(0)], False
        while not done:
            step = env.step(mode.forward(env.obs, env.ready)['action'], env.ready)
            frames.append(env.render(0))
            done = bool(step.done.any()) or any(info.get('abnormal') for info in step.info)
        fps = env.spec.render_fps or DEFAULT_FPS
    try:
        save_video(frames, str(folder), episode_trigger=lambda _: True, fps=fps)
    except DependencyNotInstalled as error:
        raise MissingDependencyError(
            'films need moviepy', where='--video', remedy='pip install "rlframe[video]"'
        ) from error
