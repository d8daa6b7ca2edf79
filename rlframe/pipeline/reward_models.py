"""The reward models of a run, and the episodes that they play."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.config.rules import ROWS
from rlframe.config.schema import ExperimentConfig
from rlframe.data.faces import CollectMode
from rlframe.data.timestep import Batch
from rlframe.errors import ConfigError, nearest
from rlframe.pipeline.build import make_env
from rlframe.policy.parts.random_policy import random_actions
from rlframe.reward_model.paid import RewardModels
from rlframe.utils.field import raw_items
from rlframe.utils.seed import preserved_rng

if TYPE_CHECKING:
    from rlframe.envs import EnvFactory
    from rlframe.policy import Policy

PLAYED = 2**31
"""Rank of the envs in which reward models play episodes: no collector has it."""


def make_reward_models(cfg: ExperimentConfig, policy: Policy, factory: EnvFactory) -> RewardModels | None:
    """Creates the reward models; None if the config has none."""
    section = cfg.get('reward_model')
    if not section:
        return None
    buffer = cfg.policy.other.replay_buffer
    samples_rows = buffer is not None and buffer['type'] in ROWS
    device = str(policy.get_attribute('device'))
    play = partial(play_episodes, cfg, factory)
    return RewardModels(
        section, factory.spec, policy.learn_mode, samples_rows, seed=cfg.seed, device=device, play=play
    )


def check_infos(cfg: ExperimentConfig, factory: EnvFactory) -> None:
    """Checks that infos of the env have the numbers that reward models read, by a step of an env that is then closed.

    Raises:
        ConfigError: If they do not.
    """
    wanted = [
        (name, info)
        for name, own in raw_items(cfg.get('reward_model', {}))
        for info in own.get('infos') or ()
    ]
    told = first_info(cfg, factory) if wanted else {}
    names = [name for name, value in told.items() if np.asarray(value).dtype.kind in 'biuf']
    for model, name in wanted:
        if name not in names:
            raise ConfigError(
                f'infos of {factory.spec.name} have no number of this name',
                where=f'reward_model.{model}.infos',
                got=name,
                expected=f'some of {names}' if names else 'an empty list, as they have no numbers',
                remedy=nearest(name, names).strip(),
            )


def first_info(cfg: ExperimentConfig, factory: EnvFactory) -> Mapping[str, Any]:
    """Returns the info of a random step in an env of its own."""
    draw = random_actions(factory.spec, np.random.default_rng(0))
    with preserved_rng(), closing(make_env(cfg, factory, 1)) as env:
        env.reset(seed=[0])
        return env.step(draw(env.obs, 1), env.ready).info[0]


def play_episodes(cfg: ExperimentConfig, factory: EnvFactory, mode: CollectMode, count: int) -> list[Batch]:
    """Plays whole episodes in envs of their own, and returns the rows of each, [T, ...].

    Args:
        cfg: The config of the run, whose envs they are.
        factory: Creates the envs.
        mode: Who acts.
        count: Episodes.
    """
    from rlframe.worker import create_serial_collector

    env = make_env(cfg, factory, math.gcd(count, cfg.env.collector_env_num))
    try:
        collector = create_serial_collector(
            {'type': 'episode'}, env=env, policy=mode, seed=cfg.seed, rank=PLAYED
        )
        episodes: list[Batch] = collector.collect(count)
        return episodes
    finally:
        env.close()
