"""The layers of an env: what it keeps is not taken for one, and none is shared by two envs or learns while it is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

from rlframe.envs.env_manager import BaseEnvManager
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.envs.schedule import check_scheduled
from rlframe.errors import ConfigError


class OldSimulator:
    """An env of the interface before Gymnasium's."""

    class Space:
        n = 3

    observation_space = action_space = Space()


KEPT: dict[str, Callable[[Any], Any]] = {
    'old simulator': lambda env: OldSimulator(),
    'class': lambda env: OldSimulator,
    'name': lambda env: 'CartPole-v1',
    'dict': lambda env: {'env': 1},
    'nothing': lambda env: None,
    'itself': lambda env: env,
    'env': lambda env: gymnasium.make('CartPole-v1'),
}
"""What an env may keep as ``self.env``."""


class Keeper(gymnasium.Env[Any, Any]):
    """Keeps something as ``self.env``, and draws its observations from its space."""

    def __init__(self, what: str) -> None:
        self.observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(3)
        self.what = what

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.env = KEPT[self.what](self)
        self.at = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.at += 1
        return self.observation_space.sample(), 1.0, self.at == 3, False, {}


@pytest.mark.parametrize('what', KEPT)
def test_an_env_may_keep_anything_as_its_env(what: str) -> None:
    one, other = (BaseEnvManager([lambda: Keeper(what)] * 2) for _ in range(2))
    for seed in (1, 2, 3):
        for manager in (one, other):
            manager.reset(seed=[seed, seed])
        assert np.array_equal(one.obs, other.obs) and np.array_equal(one.obs[0], one.obs[1])
        one.step(np.zeros(2, np.int64), np.arange(2))
        other.step(np.zeros(2, np.int64), np.arange(2))
    one.restart_lost()
    other.load_state_dict(one.state_dict())
    assert np.array_equal(one.obs, other.obs)
    with pytest.raises(ConfigError, match='what'):
        check_scheduled(one.envs[0], {'whatt': dict(type='linear', start=1, end=3, decay=9)})
    one.close(), other.close()
