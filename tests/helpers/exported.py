"""Runs that are trained a little, to be exported, and the policy as ``eval`` would build it of their checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from policies import given_data, learns_from_data, needs_data, recorded_transitions, round_of
from space_envs import SpaceEnv

from rlframe import config
from rlframe.config.schema import ExperimentConfig
from rlframe.data import Array, Batch
from rlframe.envs.env_manager import BaseEnvManager
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.pipeline import SerialPipeline, build
from rlframe.policy import Policy
from rlframe.policy.parts.random_policy import random_opponent
from rlframe.registry import POLICY_REGISTRY, import_modules
from rlframe.run.read_checkpoint import find_checkpoint, load_checkpoint

FLAT = {'iqn': 4.0, 'fqf': 4.0, 'pg': 4.0, 'ppo_pg': 30.0}
"""Policies whose first outputs hardly depend on the observation, and a factor of the weights by which they do."""


def toy_config(
    policy: str,
    env: dict[str, Any],
    options: dict[str, Any] | None = None,
    imports: list[str] | None = None,
    updates: int = 2,
) -> ExperimentConfig:
    """Returns the config of a run of a few updates, with evaluations, which any policy can do in any env that fits it."""
    import_modules(imports or [])
    cls: Any = POLICY_REGISTRY.get(policy)
    is_on_policy = cls.default_config().on_policy
    from_data = learns_from_data(policy)
    data = _recorded(env) if from_data or needs_data(policy) else None
    collect = dict(collector=dict(data=data)) if from_data else round_of(policy, 32)
    has_buffer = not is_on_policy and not from_data
    section: dict[str, Any] = dict(
        cuda=False,
        random_collect_size=16 if has_buffer and not cls.samples_rounds else 0,
        learn=dict(batch_size=16),
        collect=collect,
        eval=dict(evaluator=dict(eval_freq=max(updates // 2, 2))),
        other=dict(replay_buffer=dict(replay_buffer_size=200) | given_data(policy, data))
        if has_buffer
        else {},
    )
    envs = dict(collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2, stop_value=1e9)
    main = dict(exp_name='toy', max_train_iter=updates, env=envs | env, policy=section | (options or {}))
    create = dict(
        import_names=imports or [],
        env=dict(type='gym'),
        env_manager=dict(type='base'),
        policy=dict(type=policy),
    )
    if _is_recurrent(cls, options) and has_buffer:
        create |= dict(replay_buffer=dict(type='sequence', unroll_len=3), collector=dict(mark_episodes=True))
    return config.compile_config(main, create, seed=0)


def _is_recurrent(cls: Any, options: dict[str, Any] | None) -> bool:
    return cls.is_recurrent or (options or {}).get('model', {}).get('core') is not None


def trained(
    policy: str, env: dict[str, Any], options: dict[str, Any] | None = None, imports: list[str] | None = None
) -> Path:
    """Trains a policy for a few updates in the working directory and returns its last checkpoint."""
    with SerialPipeline(toy_config(policy, env, options, imports)) as pipeline:
        if policy in FLAT or _is_recurrent(POLICY_REGISTRY.get(policy), options):
            for parameter in pipeline.policy.model.parameters():
                parameter.detach().mul_(FLAT.get(policy, 4.0))
        pipeline.run()
    return find_checkpoint(pipeline.folder / 'ckpt' / 'latest')


def _recorded(env: dict[str, Any]) -> Batch:
    """Returns what a random player saw and did."""
    factory = GymEnvFactory(env)
    manager, player = BaseEnvManager.from_factory(factory, 4), random_opponent(factory.spec, 0)
    manager.reset(seed=range(4))
    rows = recorded_transitions(manager, player)
    manager.close()
    return rows


def as_eval_builds_it(run: Path) -> Policy:
    """Returns the policy of a checkpoint, built of its config."""
    path = find_checkpoint(run)
    state, manifest = load_checkpoint(path, buffer=False)
    cfg = config.compile_config(manifest['config']['main_config'], manifest['config']['create_config'])
    policy = build.make_policy(cfg, build.make_factory(cfg).spec, fields=('eval',))
    build.load_network(policy, state, manifest, cfg, str(path))
    return policy


def observations(space: Any, count: int, seed: int = 0) -> Array:
    """Returns random observations of a space that is one array, [count, ...]."""
    space.seed(seed)
    return np.stack([space.sample() for _ in range(count)])


def same(one: Any, other: Any) -> None:
    """Makes sure that two arrays, or their parts, are the same bit by bit, their types included."""
    if isinstance(one, dict | tuple):
        names = one if isinstance(one, dict) else range(len(one))
        assert type(one) is type(other) and len(one) == len(other)
        for name in names:
            same(one[name], other[name])
        return
    one, other = np.asarray(one), np.asarray(other)
    assert (one.dtype, one.shape) == (other.dtype, other.shape)
    assert one.tobytes() == other.tobytes()


__all__ = ['SpaceEnv', 'as_eval_builds_it', 'observations', 'same', 'trained']
