"""A player that begins each episode with random moves."""

from __future__ import annotations

import gymnasium
import numpy as np

from rlframe.data.faces import EvalMode, by_env
from rlframe.data.timestep import Batch, EnvSpec
from rlframe.policy.parts.random_policy import random_opponent, with_opening


def test_only_the_first_moves_of_an_episode_are_random_and_the_same_in_every_evaluation() -> None:
    spec = EnvSpec(gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Discrete(1000))
    resets = []
    mode = EvalMode(
        by_env(lambda obs, env_id: Batch(action=np.full(len(env_id), -1)), spec), resets.append, *[None] * 4
    )
    player = with_opening(mode, random_opponent(spec, 0), spec, 2)

    def act(*env_id: int) -> list[int]:
        return player.forward(np.zeros((len(env_id), 2), np.float32), np.array(env_id))['action'].tolist()

    first = [act(0, 1), act(0), act(0, 1), act(0, 1)]
    assert min(first[0] + first[1]) >= 0
    assert first[2][0] == -1 and first[2][1] >= 0, 'env 1 has made one move'
    assert first[3] == [-1, -1]
    player.reset(np.array([1]))
    again = act(0, 1)
    assert again[0] == -1 and again[1] >= 0, 'only env 1 has begun another episode'
    player.reset(None)
    assert [act(0, 1), act(0), act(0, 1), act(0, 1)] == first
    assert len(resets) == 2
