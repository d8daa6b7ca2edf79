"""A config for learning from recorded data alone: ``rlframe train --data DATA --policy bc``."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from easydict import EasyDict

from rlframe import config
from rlframe.app.starting import encoder_settings, env_factory, plain_name
from rlframe.config.rules import begins_with, may_learn_from_data, offline_policies
from rlframe.data.data_checks import check_spec
from rlframe.data.formats import peek
from rlframe.data.recording import Recording, spec_of_data
from rlframe.data.timestep import EnvSpec
from rlframe.envs.worlds import find_world
from rlframe.errors import ConfigError, RLFrameError, UnsafeCheckpointError
from rlframe.policy.parts.fit import check_fit
from rlframe.registry import POLICY_REGISTRY

logger = logging.getLogger('rlframe.data')

UPDATES = 20_000
"""Budget in updates."""
EVALUATIONS = 10
"""Evaluations within a budget."""
HELD_OUT = 0.1
"""Share of the episodes on which a policy is scored if there is no env."""
SIZES = [256, 256]
"""Layers of a network."""
COUNTS: dict[str, Any] = dict(evaluator_env_num=10, n_evaluator_episode=20, stop_value='never')
"""Envs and episodes of an evaluation; the policy learns for as long as it is told to."""


def data_config(
    data: Sequence[str] | str,
    policy: str | None = None,
    env: str | None = None,
    max_train_iter: int | None = None,
    trust: bool = False,
    download: bool = False,
) -> tuple[EasyDict, EasyDict]:
    """Returns a config for recorded data.

    Args:
        data: Paths or ids of the data; several are mixed.
        policy: Name of the policy; None: behaviour cloning.
        env: The env to evaluate in; None: the one that the data name, if it can be created.
        max_train_iter: The budget that the user gives.
        trust: Whether the env that the data name may be code of their author.
        download: Whether Minari may fetch an id that is not here.

    Returns:
        ``main_config`` and ``create_config``.

    Raises:
        ConfigError: If there are no such data, or the policy learns by acting only.
        IncompatibleError: If the policy cannot act in the env.
        UnsafeCheckpointError: If the env that the data name could run code of their author.
    """
    paths = [data] if isinstance(data, str) else list(data)
    recording = peek(paths[0], '--data', download)
    name = POLICY_REGISTRY.name_in_any_case(policy or 'bc')
    if not may_learn_from_data(name):
        own = f' --env {env or recording.facts.get("env", {}).get("env_id", "ID")}'
        more = begins_with(name, shlex.quote(paths[0]))
        raise ConfigError(
            f'{name} learns by acting, not from data alone',
            where='policy.type',
            got=name,
            expected=' or '.join(map(repr, offline_policies())),
            remedy=f'To learn by acting: rlframe train{own} --policy {name}. {more}'.rstrip(),
        )
    section, spec = _env_of(recording, env, trust)
    kind = POLICY_REGISTRY.get(name)
    if hasattr(kind, 'supported_actions'):
        check_fit(kind, spec, offline_policies())
    has_env = section['type'] != 'recorded'
    budget = max_train_iter or UPDATES
    evaluator: dict[str, Any] = {'eval_freq': max(budget // EVALUATIONS, 1)}
    collector: dict[str, Any] = {'data': paths[0] if len(paths) == 1 else paths}
    if not has_env:
        collector['held_out'] = HELD_OUT
        evaluator |= {'data': paths[0], 'held_out': HELD_OUT}
    options = {key: value for key, value in section.items() if key not in ('type', 'manager')}
    if has_env:
        options |= COUNTS
    main = dict(
        exp_name=f'{plain_name(Path(paths[0]).stem)}_{plain_name(name)}',
        max_train_iter=UPDATES,
        env=options,
        policy=dict(
            collect=dict(collector=collector),
            eval=dict(evaluator=evaluator),
            **encoder_settings(kind, spec, SIZES),
        ),
    )
    create = dict(
        env=dict(type=section['type']),
        env_manager=dict(type=section['manager']),
        policy=dict(type=name),
        collector=dict(type='dataset'),
        evaluator=dict(type='interaction' if has_env else 'metric'),
    )
    return EasyDict(main), EasyDict(create)


def _env_of(recording: Recording, env: str | None, trust: bool) -> tuple[dict[str, Any], EnvSpec]:
    """Returns the options of the env to evaluate in, and its spec; without one, those of the data themselves."""
    facts: Mapping[str, Any] = recording.facts.get('env', {})
    wanted = env or facts.get('env_id')
    alone = {'type': 'recorded', 'env_id': recording.where, 'manager': 'base'}
    if wanted is None:
        logger.warning('the data name no env: the policy is scored on held-out data; --env plays in one')
        return alone, spec_of_data(recording)
    shaping = (
        {}
        if env
        else {name: value for name, value in facts.items() if name not in ('type', 'env_id', 'manager')}
    )
    try:
        if env is None:
            pair = {
                'main_config': {'env': {'env_id': wanted, **shaping}},
                'create_config': {'env': {'type': 'gym'}},
            }
            config.check_trust(pair, recording.where, trust)
        world = find_world(wanted, facts.get('manager') if facts.get('manager') == 'env_pool' else None)
        spec = env_factory(wanted, shaping).spec
    except RLFrameError as error:
        names_code = isinstance(error, UnsafeCheckpointError) and (shaping or ':' in str(wanted))
        if env is not None or names_code:
            raise
        logger.warning(
            'the env of the data, %s, cannot be created here: the policy is scored on held-out data', wanted
        )
        return alone, spec_of_data(recording)
    check_spec(recording.columns, recording.spec(), spec, '--data')
    return {
        'type': world.env,
        'env_id': world.env_id,
        'manager': world.manager or 'base',
        **world.with_options(shaping),
    }, spec
