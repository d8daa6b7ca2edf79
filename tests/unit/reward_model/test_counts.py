"""Counts of visits: numbers by hand, of parts and of cells, and what a saved count depends on."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from rlframe.data import Batch
from rlframe.data.timestep import EnvSpec
from rlframe.reward_model.counts import Counts
from rlframe.reward_model.visits import codes_of

PARTS = np.dtype([('place', np.uint8, (2,)), ('time', np.int64)])
SPEC = EnvSpec(
    spaces.Dict(place=spaces.Box(0, 9, (2,), np.uint8), time=spaces.Discrete(99)),
    spaces.Discrete(2),
    name='Parts',
)


def rows(places: list[int], env_id: list[int], episode_step: list[int]) -> Batch:
    obs = np.zeros(len(places), PARTS)
    obs['place'][:, 1] = places
    obs['time'] = np.arange(len(places))
    return Batch(next_obs=obs, env_id=np.array(env_id), episode_step=np.array(episode_step))


def paid(model: Counts, new: Batch) -> Any:
    model.collected(new)
    return model.reward(new)


@pytest.mark.parametrize(
    ('options', 'count'),
    [
        ({'lifelong': False}, [1, 2, 1, 1, 1]),
        ({'episodic': False}, [1, 2, 3, 1, 2]),
        ({}, [1, 4, 3, 1, 2]),
    ],
)
def test_the_nth_visit_is_worth_one_over_the_root_of_n(options: dict[str, Any], count: list[int]) -> None:
    model = Counts({'features': ['place'], **options}, SPEC)
    new = rows([3, 3, 3, 4, 4], [0, 0, 0, 0, 1], [0, 1, 0, 1, 7])
    np.testing.assert_allclose(paid(model, new), 1 / np.sqrt(count))


def test_only_first_visits_of_an_episode_may_be_paid_and_infos_tell_states_apart() -> None:
    new = rows([3, 3, 3, 4, 4], [0, 0, 0, 0, 1], [0, 1, 0, 1, 7]).replace(agent_pos=np.array([1, 1, 1, 2, 1]))
    for options, expected in (
        ({'features': ['place']}, [1, 0, 3, 1, 2]),
        ({'infos': ['agent_pos']}, [1, 0, 3, 1, 4]),
    ):
        found = paid(Counts({'once': True, **options}, SPEC), new)
        np.testing.assert_allclose(found, [1 / np.sqrt(n) if n else 0 for n in expected])


def test_a_feature_may_be_a_place_in_a_part_that_exists() -> None:
    new = rows([3, 3, 4], [0, 0, 0], [0, 1, 2])
    for feature, count in (('place[1]', [1, 2, 1]), ('place[0]', [1, 2, 3])):
        found = paid(Counts({'features': [feature], 'lifelong': False}, SPEC), new)
        np.testing.assert_allclose(found, 1 / np.sqrt(count))
    for wrong, expected in (
        ('place[2]', r'within its shape, \[2\]'),
        ('time[0]', r'shape, \[\]'),
        ('plac[0]', 'place'),
    ):
        [error] = Counts.check_spec(Counts.resolve_config({'features': [wrong]}), SPEC)
        assert re.search(expected, str(error)), error


def test_counts_continue_from_their_state_to_the_bit() -> None:
    first, later = rows([3, 3], [0, 1], [0, 0]), rows([3, 3], [0, 1], [1, 0])
    model, other = (Counts({'features': ['place']}, SPEC) for _ in range(2))
    model.collected(first)
    other.load_state_dict(model.state_dict())
    assert (
        paid(other, later).tolist() == paid(model, later).tolist() == (1 / np.sqrt([2 * 3, 1 * 4])).tolist()
    )


def test_floats_count_by_the_cell_that_they_are_in() -> None:
    codes = codes_of([np.array([[0.01], [0.09], [0.11], [-0.01]])], 0.1)
    assert codes[0] == codes[1] and len({*codes.tolist()}) == 3
    assert len({*codes_of([np.array([[0.01], [0.09]])]).tolist()}) == 2
    assert len({*codes_of([np.arange(6, dtype=np.uint8).reshape(3, 2)]).tolist()}) == 3
