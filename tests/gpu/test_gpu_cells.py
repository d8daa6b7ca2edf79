"""What the tests on a GPU count with, tried on the CPU."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from gpu_cells import MODES, REFUSED, SYNC, Cell, cells, host_waits, policies, refusal
from toys import toy_of_policy


def test_every_policy_has_a_toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in policies():
        assert toy_of_policy(name)['env']['stop_value'] > 0
    with pytest.raises(KeyError, match=r"no toy of 'forgotten': add one to TOYS in tests/toys\.py"):
        toy_of_policy('forgotten')


def test_every_policy_is_tried_in_every_mode_on_a_gpu_and_only_where_the_marker_asks_for_it() -> None:
    found = cells({'eager': ['dqn']})
    on_gpu = {param.values[0] for param in found if {mark.name for mark in param.marks} == {'gpu', 'slow'}}
    modes = {Cell(name, mode, 'cuda') for name in policies() for mode in MODES}
    assert on_gpu == {cell for cell in modes if cell[:2] not in REFUSED}
    assert [str(param.values[0]) for param in found if len(param.marks) == 1] == ['dqn-eager-cpu']


@pytest.mark.parametrize('policy', policies())
def test_a_policy_takes_every_mode_on_a_gpu_but_those_that_are_listed(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for mode in MODES:
        why = refusal(Cell(policy, mode, 'cuda'))
        assert bool(why) == ((policy, mode) in REFUSED), why


def test_on_the_cpu_each_value_that_is_read_counts_as_a_wait() -> None:
    tensor = torch.ones(3)
    with host_waits('cpu') as places:
        total = (tensor * 2).sum()
        assert places == []
        float(total), bool(total > 1), tensor.nonzero()
    assert places == ['_local_scalar_dense', '_local_scalar_dense', 'nonzero']


def test_on_a_gpu_each_warning_of_torch_counts_as_a_wait_and_no_other_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    modes: list[Any] = []
    monkeypatch.setattr(torch.cuda, 'set_sync_debug_mode', modes.append)
    with host_waits('cuda') as places:
        for _ in range(2):
            warnings.warn(f'{SYNC} (Triggered internally)', UserWarning, stacklevel=1)
        warnings.warn('something else', UserWarning, stacklevel=1)
    assert len(places) == 2 and all(Path(__file__).name in place for place in places)
    assert modes == ['warn', 'default']
    with pytest.warns(UserWarning, match='back to normal'):
        warnings.warn('back to normal', UserWarning, stacklevel=1)
