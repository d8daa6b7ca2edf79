"""What DI-engine's users pass to policies in another form: config sections with sizes, and rows with ``done``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.data.faces import Learn
from rlframe.data.timestep import Batch, EnvSpec, spec_of
from rlframe.errors import ConfigError
from rlframe.registry import ENV_REGISTRY
from rlframe.utils.field import to_plain
from rlframe.utils.lazy import LazyModule

if TYPE_CHECKING:
    from gymnasium import spaces
else:
    spaces = LazyModule('gymnasium.spaces')

WORKERS = {
    'learn': ('learner',),
    'collect': ('collector',),
    'eval': ('evaluator',),
    'other': ('replay_buffer', 'commander'),
}
"""Parts of the ``policy`` section that other components own."""
KINDS = 'action_space', 'continuous'
"""DI-engine's options for the kind of actions, in the section or in its ``model``."""


def own_options(cfg: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a ``policy`` section that was not compiled, with the options of the policy alone."""
    own = {name: value for name, value in to_plain(cfg).items() if name not in KINDS}
    for name, others in {**WORKERS, 'model': KINDS}.items():
        if isinstance(own.get(name), dict):
            own[name] = {key: value for key, value in own[name].items() if key not in others}
    if isinstance(own.get('type'), str):
        own['type'] = own['type'].removesuffix('_command')
    return own


def spec_of_env(env: Any) -> EnvSpec:
    """Returns the spec that a policy is built from, of a spec, an id of Gymnasium, an env manager, an env or a vector env."""
    if isinstance(env, str):
        return ENV_REGISTRY.build({'type': 'gym', 'env_id': env}, {'env_id': env}).spec
    own = getattr(env, 'spec', env)
    if not isinstance(own, EnvSpec):
        if not hasattr(env, 'observation_space') and not hasattr(env, 'single_observation_space'):
            raise ConfigError(
                f'{env!r} has no spaces', where='env', expected='an id, an env manager or an env'
            )
        own = spec_of(env)
    return own.player or own


def spec_of_shapes(policy: Any, cfg: Mapping[str, Any]) -> EnvSpec:
    """Returns the spec of an env with the sizes in a section's ``model``.

    Actions are classes, or real numbers in [-1, 1] for a policy that has no others and where the section says so.

    Raises:
        ConfigError: If a size is missing.
    """
    model = cfg.get('model') or {}
    shapes = [model.get('obs_shape'), model.get('action_shape')]
    for name, shape in zip(('obs_shape', 'action_shape'), shapes, strict=True):
        sizes = shape if isinstance(shape, list | tuple) else [shape]
        if not sizes or not all(isinstance(size, int) for size in sizes):
            raise ConfigError(
                'the policy needs the spaces of its env',
                where=f'policy.model.{name}',
                got=shape,
                expected='an int or a list of ints',
                remedy='Set it, or give the spec of the env: create_policy(cfg, env_manager.spec).',
            )
    obs, action = ([shape] if isinstance(shape, int) else list(shape) for shape in shapes)
    said = {str(section.get(name)) for section in (cfg, model) for name in KINDS}
    is_real = 'Discrete' not in policy.supported_actions or bool(said & {'continuous', 'general', 'True'})
    classes = spaces.Discrete(action[0]) if len(action) == 1 else spaces.MultiDiscrete(action)
    return EnvSpec(
        spaces.Box(-math.inf, math.inf, obs, np.float32),
        spaces.Box(-1.0, 1.0, action, np.float32) if is_real else classes,
        name='the env of policy.model',
    )


def in_own_form(learn: Learn, one_a_row: Sequence[str]) -> Learn:
    """Returns a ``forward`` of the learn face that also takes rows in DI-engine's form."""

    def learns(data: Batch, **settings: Any) -> Any:
        columns = data.columns
        end = columns.get('terminated')
        shapes = [columns[name].shape for name in one_a_row if name in columns]
        if end is None or shapes.count(end.shape) < len(shapes):
            data = as_own_rows(data, one_a_row)
        return learn(data, **settings)

    return learns


def as_own_rows(data: Batch, one_a_row: Sequence[str]) -> Batch:
    """Returns rows in DI-engine's form with the columns and shapes that updates read.

    There ``done`` may stand for ``terminated``, and rewards and discrete actions have one more axis of length 1.

    ``one_a_row`` names the columns with one number a row.

    Raises:
        ValueError: If a row has several rewards.
    """
    columns = data.columns
    changed: dict[str, Any] = {}
    end = columns.get('terminated')
    if end is None and 'done' in columns:
        end = changed['terminated'] = columns['done'] != 0
    rows = end if end is not None else columns.get('advantage')
    leading = (len(data),) if rows is None else rows.shape
    for name in one_a_row:
        column = columns.get(name)
        if column is not None and column.shape == (*leading, 1):
            changed[name] = column.reshape(leading)
        elif name == 'reward' and column is not None and column.shape != leading:
            raise ValueError(
                f'rewards of the shape {list(column.shape)} for {list(leading)} rows: sum the rewards of n steps,'
                ' as collectors do for policy.nstep'
            )
    return data.replace(**changed) if changed else data
