"""The level that each row was stepped in, as a column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fakes import NUMBER, frames_of
from test_sample_collector import make


@pytest.mark.parametrize('facts', [{'nstep': 3, 'discount_factor': 0.9}, {'unroll_len': 2}], ids=str)
def test_level_seeds_become_a_column_from_any_call_on(facts: dict[str, Any]) -> None:
    def form(seeds: list[int]) -> Any:
        return dict(reversed(list(enumerate(seeds)))) if 'nstep' in facts else seeds

    collector, _, _ = make(3, None, {'lengths': [5, 4]}, **facts)
    given = {0: None, 1: [70, 80, 90], 2: None, 3: [170, 180, 190], 4: None}
    wanted = {0: [-1] * 3, 1: [70, 80, 90], 2: [-1] * 3, 3: [170, 180, 190], 4: [-1] * 3}
    met: set[tuple[int, int]] = set()
    for train_iter, seeds in given.items():
        if train_iter == 3:  # where it was saved, it goes on
            twin, _, _ = make(3, None, {'lengths': [5, 4]}, **facts)
            twin.load_state_dict(collector.state_dict())
            collector = twin
        level_seeds = None if seeds is None else form(seeds)
        rows = collector.collect(7, train_iter, level_seeds=level_seeds)
        if train_iter == 0:
            assert 'seed' not in rows
            continue
        real = rows['mask'] if 'mask' in rows else np.ones(7, bool)
        env, stepped = rows['obs'][..., NUMBER][real].astype(int), rows['collect_iter'][real]
        expected = [wanted[int(i)][e] for i, e in zip(stepped, env, strict=True)]
        assert rows['seed'][real].tolist() == expected
        met |= {(train_iter, int(i)) for i in stepped}
    assert any(called > stepped for called, stepped in met), 'rows were carried over'
    collector.reset()
    assert 'seed' not in collector.collect(3)


def test_level_seeds_of_a_block_are_those_of_the_call() -> None:
    collector, _, _ = make(2, None, {'lengths': [3]}, on_policy=True)
    assert 'seed' not in collector.collect(8)
    for seeds, expected in (({0: 5, 1: 6}, [5, 6]), (None, [-1, -1]), ([8, 9], [8, 9])):
        rows = collector.collect(8, level_seeds=seeds)
        np.testing.assert_array_equal(rows['seed'], np.array(expected)[rows['obs'][..., NUMBER].astype(int)])


@pytest.mark.parametrize('seeds', [{0: 1, 1: 2, 5: 3}, [1, 2]], ids=str)
def test_level_seeds_that_lack_an_env_are_refused_before_anything_is_stepped(seeds: Any) -> None:
    collector, _, manager = make(3)
    with pytest.raises(ValueError, match='level_seeds needs one seed for each of the 3 envs'):
        collector.collect(6, level_seeds=seeds)
    assert frames_of(manager) == 0
