"""Training from Python: ``rlframe.train``, ``rlframe.start`` and ``rlframe.open_run``."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlframe import config
from rlframe.checkpoint import open_checkpoint
from rlframe.config.sections import ExperimentConfig
from rlframe.errors import ConfigError, ConfigWarning, ExperimentExistsError
from rlframe.experiment.run import Run
from rlframe.experiment.short_names import full_keys
from rlframe.experiment.starting import SHAPING, starting_config
from rlframe.run.run_folder import chosen_folder

NAMES = ('seed', 'exp_name', 'max_env_step', 'max_train_iter')
"""Options that ``compile_config`` takes by themselves."""


def train(
    config: Any = None,
    *,
    env: Any = None,
    policy: str | None = None,
    model: Any = None,
    folder: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    progress: bool = True,
    **options: Any,
) -> Run:
    """Trains a policy and returns the run.

    Args:
        config: Name of a shipped config, such as ``'cartpole_dqn'``, path of a config file, or a pair of main and create
            config; None: one that suits the env.
        env: Id or class of the env, or a function that returns one; it replaces that of the config.
        policy: Name of the policy if there is no config; None: one that suits the env.
        model: A ``torch.nn.Module`` that replaces the network of the config.
        folder: The run folder, which must not exist; by default a new one in the working directory.
        overrides: Options by their dotted keys, such as ``{'policy.learn.batch_size': 64}``.
        progress: Whether to show the progress.
        options: Options by their short names, such as ``seed=1``, ``learning_rate=1e-3`` or ``max_env_step=20_000``.

    Raises:
        ConfigError: If an argument or an option is unknown, ambiguous or invalid; nothing is created.
        KeyboardInterrupt: After Ctrl-C, when everything is saved.
    """
    cfg = _compiled(config, env, policy, overrides or {}, options)
    return _begun(cfg, model, folder).train(progress)


def start(
    config: Any = None,
    *,
    env: Any = None,
    policy: str | None = None,
    model: Any = None,
    folder: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    progress: bool = True,
    **options: Any,
) -> Run:
    """Starts a run and returns it untrained, to train it step by step; the arguments are those of ``train``.

    ``for iteration in run.iterations(): ...`` trains until the run is finished or the loop is left. ``progress`` is what
    ``run.train()`` and ``run.resume()`` do if they are not told otherwise.
    """
    run = _begun(_compiled(config, env, policy, overrides or {}, options), model, folder)
    run.progress_shown = progress
    return run


def open_run(folder: str | Path, *, env: Any = None, model: Any = None, trust: bool = False) -> Run:
    """Opens the run of an existing folder, to evaluate, plot or resume it.

    Args:
        folder: The run folder.
        env: The env again, if it was passed as a class or a function.
        model: The network again, if one was passed.
        trust: Whether the config of a foreign run may import code, open files and start programs.

    Raises:
        CheckpointError: If there is no complete checkpoint.
        UnsafeCheckpointError: If the run is foreign and could reach beyond its folder.
        ConfigError: If the env has to be passed again.
    """
    opened = open_checkpoint(Path(folder).expanduser())
    where = str(opened.path)
    data: Mapping[str, Any] = config.config_of(opened.manifest, where)
    if env is not None:
        data = config.with_env(data, env)
    config.check_env_is_named(data, where)
    if not opened.manifest.is_own:
        config.check_trust(data, where, trust, [], env)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', ConfigWarning)  # they were shown when the run began
        cfg = config.compile_config(data['main_config'], data['create_config'])
    return Run(cfg, opened.path.parent.parent, model=model, trust=trust)


def _begun(cfg: ExperimentConfig, model: Any, folder: str | Path | None) -> Run:
    """Starts a run with a compiled config."""
    config.warn_of_own_parts(cfg, model)
    try:
        return Run(cfg, chosen_folder(None, folder), model=model)
    except ExperimentExistsError as error:
        error.remedy = (
            f'Continue it with rlframe.open_run({str(folder)!r}).resume(), pass another folder=, or leave that out for a'
            ' free name.'
        )
        raise


def _compiled(
    given: Any, env: Any, policy: str | None, overrides: Mapping[str, Any], options: Mapping[str, Any]
) -> ExperimentConfig:
    main, create = _pair(given, env, policy, {**overrides, **options})
    named = {name: options[name] for name in NAMES if name in options}
    rest = {name: value for name, value in options.items() if name not in NAMES}
    if not rest:
        return config.compile_config(main, create, overrides=overrides, **named)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', ConfigWarning)  # the second time shows them
        cfg = config.compile_config(main, create, overrides=overrides, **named)
    keys = full_keys(rest, cfg)
    return config.compile_config(main, create, overrides={**overrides, **keys}, **named)


def _pair(
    given: Any, env: Any, policy: str | None, overrides: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Returns main and create config for the arguments of the user."""
    if callable(given) and env is None:
        given, env = None, given
    if given is None and env is None:
        raise ConfigError(
            'nothing to train', where='train', remedy="train('cartpole_dqn') or train(env='CartPole-v1')."
        )
    if given is None:
        shaping = {name: overrides[f'env.{name}'] for name in SHAPING if f'env.{name}' in overrides}
        return starting_config(env, policy, shaping, overrides.get('max_env_step'))
    if policy is not None:
        raise ConfigError(
            'the config names its policy already',
            where='policy',
            got=policy,
            expected='None with a config',
            remedy='Give env and policy, or a config.',
        )
    try:
        main, create = config.config_pair(given)
    except ConfigError as error:
        if isinstance(given, str) and re.search(r'-v\d+$', given):
            error.remedy = f'For an env: train(env={given!r}). {error.remedy}'
        raise
    if env is None:
        return main, create
    return {**main, 'env': {**main.get('env', {}), 'env_id': env}}, create
