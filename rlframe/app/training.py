"""Training from Python: ``rlframe.train``, ``rlframe.start`` and ``rlframe.open_run``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlframe import config
from rlframe.app.offline import data_config
from rlframe.app.run import Run
from rlframe.app.starting import NAMES, overridden_start
from rlframe.config.schema import ExperimentConfig
from rlframe.errors import ConfigError, ExperimentExistsError
from rlframe.export.artifact import compiled_again, saved_config
from rlframe.run.read_checkpoint import EMERGENCY, open_checkpoint
from rlframe.run.run_folder import chosen_folder


def train(  # noqa: PLR0913  # each is given by name
    config: Any = None,
    *,
    env: Any = None,
    policy: str | None = None,
    data: str | Sequence[str] | None = None,
    model: Any = None,
    folder: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    progress: bool = True,
    hooks: Any = (),
    **options: Any,
) -> Run:
    """Trains a policy and returns the run.

    Args:
        config: Name of a shipped config, such as ``'cartpole_dqn'``, path of a config file, or a pair of main and create
            config; None: one that suits the env.
        env: Id or class of the env, or a function that returns one; it replaces that of the config.
        policy: Name of the policy if there is no config; None: one that suits the env, or behaviour cloning of data.
        data: Path or id of recorded data to learn from, or several, if there is no config; the env is that of the data by default.
        model: A ``torch.nn.Module`` that replaces the network of the config.
        folder: The run folder, which must not exist or be empty; by default a new one in the working directory.
        overrides: Options by their dotted keys, such as ``{'policy.learn.batch_size': 64}``.
        progress: Whether to show the progress.
        hooks: Objects of ``RunHook``, and functions that are called with a ``RunView`` after each round, or at the event
            that they are named like: ``def after_eval(run): ...``.
        options: Options by their short names, such as ``seed=1``, ``learning_rate=1e-3`` or ``max_env_step=20_000``.

    Raises:
        ConfigError: If an argument or an option is unknown, ambiguous or invalid; nothing is created.
        KeyboardInterrupt: After Ctrl-C, when everything is saved.
    """
    cfg = _compiled(config, env, policy, data, overrides or {}, options)
    return _begun(cfg, model, folder, hooks).train(progress)


def start(  # noqa: PLR0913  # each is given by name
    config: Any = None,
    *,
    env: Any = None,
    policy: str | None = None,
    data: str | Sequence[str] | None = None,
    model: Any = None,
    folder: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    progress: bool = True,
    hooks: Any = (),
    **options: Any,
) -> Run:
    """Starts a run and returns it untrained, to train it step by step; the arguments are those of ``train``.

    ``for iteration in run.iterations(): ...`` trains until the run is finished or the loop is left. ``progress`` is what
    ``run.train()`` and ``run.resume()`` do if they are not told otherwise.
    """
    run = _begun(_compiled(config, env, policy, data, overrides or {}, options), model, folder, hooks)
    run.progress_shown = progress
    return run


def open_run(
    folder: str | Path, *, env: Any = None, model: Any = None, trust: bool = False, hooks: Any = ()
) -> Run:
    """Opens the run of an existing folder, to evaluate, plot or resume it.

    Args:
        folder: The run folder, or an emergency checkpoint of the run to resume from.
        env: The env again, if it was passed as a class or a function.
        model: The network again, if one was passed.
        trust: Whether the config of a foreign run may import code, open files and start programs.
        hooks: The hooks again, if objects were passed; their states are in the checkpoint.

    Raises:
        CheckpointError: If there is no complete checkpoint.
        UnsafeCheckpointError: If the run is foreign and could reach beyond its folder.
        ConfigError: If the env has to be passed again.
    """
    opened = open_checkpoint(Path(folder).expanduser())
    cfg = compiled_again(saved_config(opened, trust, env=env), manifest=opened.manifest)
    failed = opened.path if opened.path.name.startswith(EMERGENCY) else None
    return Run(cfg, opened.path.parent.parent, model=model, trust=trust, hooks=hooks, failed=failed)


def _begun(cfg: ExperimentConfig, model: Any, folder: str | Path | None, hooks: Any) -> Run:
    """Starts a run with a compiled config."""
    config.warn_of_own_parts(cfg, model)
    try:
        return Run(cfg, chosen_folder(None, folder), model=model, hooks=hooks)
    except ExperimentExistsError as error:
        error.remedy = (
            f'Continue it with rlframe.open_run({str(folder)!r}).resume(), pass another folder=, or leave that out for a'
            ' free name.'
        )
        raise


def _compiled(
    given: Any,
    env: Any,
    policy: str | None,
    data: str | Sequence[str] | None,
    overrides: Mapping[str, Any],
    options: Mapping[str, Any],
) -> ExperimentConfig:
    if data is None:
        main, create = _pair(given, env, policy, {**overrides, **options})
    else:
        main, create = _pair_of_data(given, env, policy, data, options.get('max_train_iter'))
    named = {name: options[name] for name in NAMES if name in options}
    overrides = {**{name: value for name, value in options.items() if name not in NAMES}, **overrides}
    return config.compile_config(main, create, overrides=overrides, **named)


def _pair_of_data(
    given: Any, env: Any, policy: str | None, data: str | Sequence[str], max_train_iter: int | None
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Returns main and create config to learn from recorded data."""
    if given is not None:
        raise ConfigError(
            'data are learned from without a config',
            where='data',
            got=data,
            expected='None with a config',
            remedy="With a config: overrides={'policy.collect.collector.data': PATH}.",
        )
    return data_config(data, policy, env, max_train_iter)


def _pair(
    given: Any, env: Any, policy: str | None, overrides: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Returns main and create config for the arguments of the user."""
    if callable(given) and env is None:
        env = given
        given = None
    if given is None and env is None:
        raise ConfigError(
            'nothing to train', where='train', remedy="train('cartpole_dqn') or train(env='CartPole-v1')."
        )
    if given is None:
        return overridden_start(env, policy, overrides)
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
