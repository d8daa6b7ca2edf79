"""What a run records: the columns of a step, and what is known of its env."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe._version import __version__
from rlframe.config.schema import ExperimentConfig
from rlframe.data.recording import facts_of_spec
from rlframe.data.timestep import Array, EnvSpec
from rlframe.worker.collector.rollout import Step

SHAPING = ('kwargs', 'wrappers', 'frame_stack', 'action_mask')
"""Options of an env that change its observations and actions."""


def step_columns(step: Step) -> dict[str, Array]:
    """Returns the columns of a step as recorded data have them: actions and rewards are the env's own."""
    timestep = step.timestep
    return {
        'obs': step.obs,
        'next_obs': timestep.obs,
        'action': step.output['action'],
        'reward': timestep.reward.astype(np.float32),
        'terminated': timestep.terminated,
        'truncated': timestep.truncated,
    }


def env_facts(cfg: ExperimentConfig, spec: EnvSpec) -> dict[str, Any]:
    """Returns what is known of the env of a run: the options that create it, and its spaces."""
    env = {name: cfg.env[name] for name in SHAPING if cfg.env.get(name) not in (None, [], {}, 1)}
    if isinstance(env_id := cfg.env['env_id'], str):
        env = {'type': cfg.env.type, 'env_id': env_id, 'manager': cfg.env.manager.type} | env
    return {'rlframe': __version__, 'env': env, 'spec': facts_of_spec(spec)}
