"""What DI-engine's users pass to policies in another form: config sections with sizes, and rows with ``done``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.data.faces import Learn
from rlframe.data.timestep import Batch, EnvSpec
from rlframe.errors import ConfigError
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


def learning_from_rows(learn: Learn, spec: EnvSpec) -> Learn:
    """Returns the ``forward`` of a learn face that also takes rows in DI-engine's form; see ``with_own_shapes``."""
    return partial(_learn, learn, spec)


def _learn(learn: Learn, spec: EnvSpec, data: Batch, **settings: Any) -> Any:
    return learn(with_own_shapes(data, spec), **settings)


def with_own_shapes(data: Batch, spec: EnvSpec) -> Batch:
    """Returns rows whose flags, rewards and actions have the form that updates read; usually the same rows.

    ``done`` alone is taken as ``terminated``. Rewards and discrete actions of DI-engine have one more axis of length 1.

    Raises:
        ValueError: If a row has several rewards.
    """
    changed: dict[str, Any] = {}
    if 'terminated' not in data and 'done' in data:
        changed['terminated'] = data['done'] != 0
        data = data.replace(**changed)
    leading = next((data[name].shape for name in ('terminated', 'advantage') if name in data), (len(data),))
    if 'reward' in data and data['reward'].shape != leading:
        if data['reward'].shape != (*leading, 1):
            raise ValueError(
                f'rewards of the shape {list(data["reward"].shape)} for {list(leading)} rows: sum the rewards of n steps,'
                ' as collectors do for policy.nstep'
            )
        changed['reward'] = data['reward'].reshape(leading)
    is_class = spec.action_space.shape == () and hasattr(spec.action_space, 'n')
    if is_class and 'action' in data and data['action'].shape == (*leading, 1):
        changed['action'] = data['action'].reshape(leading)
    return data.replace(**changed) if changed else data
