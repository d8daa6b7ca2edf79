"""The reward models of a run, and the episodes that they play."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from rlframe.config.rules import ROWS
from rlframe.config.schema import ExperimentConfig
from rlframe.data.faces import CollectMode
from rlframe.data.timestep import Batch
from rlframe.pipeline.build import make_env
from rlframe.reward_model.paid import RewardModels

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
