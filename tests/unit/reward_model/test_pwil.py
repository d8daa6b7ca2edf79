"""PWIL: the greedy coupling by hand, and what steps of an episode earn by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from rlframe.data import Batch, EnvSpec
from rlframe.errors import ConfigError
from rlframe.reward_model.pwil import PWIL, transport

SPEC = EnvSpec(spaces.Box(-9, 9, (1,), np.float32), spaces.Discrete(2), name='Line-v0', max_episode_steps=4)


def rows(*obs: float, env: int = 0, first: int = 0) -> Batch:
    """Returns steps of one env at places of a line, all by action 0."""
    count = len(obs)
    return Batch(
        obs=np.array(obs, np.float32)[:, None],
        action=np.zeros(count, np.int64),
        env_id=np.full(count, env),
        episode_step=first + np.arange(count),
    )


def made(spec: EnvSpec = SPEC, **options: Any) -> PWIL:
    """Returns a model whose demonstrations are at -1 and 1, which standardisation leaves there."""
    demonstrations = Batch(obs=rows(-1, 1)['obs'], action=np.zeros(2, np.int64))
    return PWIL({'data': demonstrations, 'every': 1, **options}, spec, seed=0)


def test_mass_goes_to_the_nearest_demonstrations_that_have_room() -> None:
    left = np.array([0.2, 0.5, 0.0, 0.3])
    cost = transport(np.array([2.0, 1.0, 0.1, 3.0]), left, 0.6)
    assert cost == pytest.approx(0.5 * 1.0 + 0.1 * 2.0)
    np.testing.assert_allclose(left, [0.1, 0, 0, 0.3])


def test_mass_without_room_stays() -> None:
    left = np.array([0.1, 0.2])
    assert transport(np.array([1.0, 2.0]), left, 1.0) == pytest.approx(0.1 * 1 + 0.2 * 2)
    np.testing.assert_allclose(left, [0, 0], atol=1e-12)


def test_a_step_is_paid_by_the_cost_of_its_mass() -> None:
    model = made()
    model.collected(rows(-1, -1, -1, 3, 1))
    # each demonstration has room for two steps of four; behind the fourth there is none
    cost = np.array([0, 0, 2, 2]) / 4
    wanted = 5 * np.exp(-5 * 4 * cost / np.sqrt(3))  # one number and two classes
    np.testing.assert_allclose(model.reward(rows()), [*wanted, 0], rtol=1e-5)


def test_envs_have_room_of_their_own_which_a_new_episode_renews() -> None:
    model = made()
    model.collected(Batch.cat([rows(-1, -1), rows(-1, -1, env=1)]))
    np.testing.assert_allclose(model.reward(rows()), 5)
    model.collected(Batch.cat([rows(-1, first=2), rows(-1, env=1)]))
    in_the_same, in_a_new = model.reward(rows())
    assert in_the_same < 1 < in_a_new == pytest.approx(5)


def test_room_is_saved() -> None:
    first, second = made(), made()
    first.collected(rows(-1, -1))
    second.load_state_dict(first.state_dict())
    second.collected(rows(-1, first=2))
    first.collected(rows(-1, first=2))
    np.testing.assert_array_equal(first.reward(rows()), second.reward(rows()))


def test_an_env_without_a_time_limit_needs_a_horizon() -> None:
    spec = EnvSpec(SPEC.observation_space, SPEC.action_space, name='Endless-v0')
    (error,) = PWIL.check_spec(made()._cfg, spec)
    assert isinstance(error, ConfigError) and error.where == 'horizon'
    assert not PWIL.check_spec(made(horizon=7)._cfg, spec)
