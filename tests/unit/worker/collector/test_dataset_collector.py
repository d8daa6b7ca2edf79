"""The collector of recorded data: passes, counts, and a state that goes on in the middle of a pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from error_texts import raises
from fakes import ScriptedPolicy

from rlframe.errors import ConfigError
from rlframe.run.progress import Progress
from rlframe.worker import SampleSerialCollector, create_serial_collector

COLUMNS = {'obs': np.arange(40, dtype=np.float32).reshape(20, 2), 'action': np.arange(20)}


def data_of(form: str) -> Any:
    if form == 'columns':
        return COLUMNS
    pairs = [(torch.from_numpy(obs), int(action)) for obs, action in zip(*COLUMNS.values(), strict=True)]
    return torch.utils.data.DataLoader(pairs, batch_size=6, shuffle=True)


class Policy(ScriptedPolicy):
    def get_train_sample(self, block: Any) -> Any:
        assert block['action'].shape[0] == 1
        return block.map(lambda column: column[0])


def make(form: str = 'columns', seed: int = 0, **given: Any) -> Any:
    policy = Policy(batch_size=6).collect_mode
    return create_serial_collector({'type': 'dataset'}, data=data_of(form), policy=policy, seed=seed, **given)


@pytest.mark.parametrize('form', ['columns', 'loader'])
def test_passes_follow_each_other_and_envstep_counts_rows(form: str) -> None:
    progress = Progress()
    collector, steps = make(form, progress=progress), []
    collector.on_step = lambda: steps.append(1)
    rows = [collector.collect(train_iter=i) for i in range(8)]
    assert [len(batch) for batch in rows] == [6, 6, 6, 2] * 2 and progress.envstep == collector.envstep == 40
    assert rows[5]['collect_iter'].tolist() == [5] * 6 and len(steps) == 8
    for part in (rows[:4], rows[4:]):
        assert sorted(a for batch in part for a in batch['action'].tolist()) == list(range(20))


@pytest.mark.parametrize(('form', 'done'), [('columns', 0), ('columns', 5), ('loader', 2), ('loader', 4)])
def test_state_goes_on_in_the_middle_of_a_pass(form: str, done: int) -> None:
    torch.manual_seed(1)
    collector = make(form)
    for _ in range(done):
        collector.collect()
    state, torch_state = collector.state_dict(), torch.get_rng_state()
    wanted = [collector.collect()['action'].tolist() for _ in range(9)]
    torch.manual_seed(2)
    other = make(form, seed=5)
    other.load_state_dict(state)
    torch.set_rng_state(torch_state)  # as a pipeline does
    assert [other.collect()['action'].tolist() for _ in range(9)] == wanted


def test_orders_follow_from_the_seed() -> None:
    orders = [make(seed=seed).collect()['action'].tolist() for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]


def test_nothing_is_collected_from_nothing() -> None:
    with raises(ValueError):
        create_serial_collector({'type': 'dataset'}, env=COLUMNS).collect()
    with raises(ValueError):
        create_serial_collector({'type': 'dataset'}, policy=Policy(batch_size=2).collect_mode).collect()
    with raises(ValueError):
        create_serial_collector(
            {'type': 'dataset'}, env=[], policy=Policy(batch_size=2).collect_mode
        ).collect()


def test_other_data_are_taken_over_also_in_place_of_an_env_and_an_unfinished_pass_is_left() -> None:
    collector = make()
    collector.collect()
    for replace in (collector.reset_env, collector.reset_data):
        replace({'obs': COLUMNS['obs'][:3], 'action': COLUMNS['action'][:3]})
        assert sorted(collector.collect()['action'].tolist()) == [0, 1, 2]
    collector.close(), collector.close()


def test_a_collector_that_steps_envs_reads_no_data() -> None:
    with raises(ConfigError):
        SampleSerialCollector({}, data=COLUMNS)
