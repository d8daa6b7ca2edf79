"""States of random generators are saved whole, also those of GPUs, and continue where there is none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from error_texts import raises

from rlframe.errors import CheckpointError
from rlframe.utils.seed import forked, global_rng_state, restore_generator, set_global_rng_state


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> dict[int, torch.Tensor]:
    """Returns the states of the generators of two GPUs, which torch is made to have."""
    states = {i: torch.full((16,), i, dtype=torch.uint8) for i in range(2)}
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: True)
    monkeypatch.setattr(torch.cuda, 'is_initialized', lambda: True)
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 2)
    monkeypatch.setattr(torch.cuda, 'get_rng_state', states.__getitem__)
    monkeypatch.setattr(torch.cuda, 'set_rng_state', lambda state, i: states.__setitem__(i, state))
    return states


def test_generators_of_gpus_continue(gpus: dict[int, torch.Tensor]) -> None:
    saved = global_rng_state()
    assert saved['cuda'].keys() == {'0', '1'}
    gpus[1] = torch.zeros(16, dtype=torch.uint8)
    set_global_rng_state(saved)
    assert gpus[1].tolist() == [1] * 16


def test_a_run_from_a_gpu_continues_without_one() -> None:
    saved = global_rng_state()
    assert 'cuda' not in saved
    set_global_rng_state(saved | {'cuda': {'0': torch.zeros(16, dtype=torch.uint8)}})
    assert torch.equal(torch.get_rng_state(), saved['torch'])


def test_a_trial_that_takes_over_a_run_from_a_gpu_forks_its_generators() -> None:
    saved: dict[str, Any] = global_rng_state() | {'cuda': {'0': torch.zeros(16, dtype=torch.uint8)}}
    other = forked(saved, 1)
    assert not torch.equal(other['torch'], saved['torch'])
    assert torch.equal(forked(saved, 1)['torch'], other['torch'])


def test_damaged_states_of_gpus_are_named() -> None:
    with raises(CheckpointError):
        set_global_rng_state(global_rng_state() | {'cuda': {'0': [1, 2]}})


def test_a_clone_forks_the_generators_of_layers_and_devices() -> None:
    saved = {'policy': {'generator': torch.Generator().manual_seed(3).get_state()}}
    drawn = []
    for state in (saved, forked(saved, 1), forked(saved, 1), forked(saved, 2)):
        generator = torch.Generator()
        assert restore_generator(generator, state['policy']['generator']) == (state is saved)
        drawn.append(float(torch.rand(1, generator=generator)))
    assert drawn[1] == drawn[2] and len(set(drawn)) == 3
    assert drawn[0] == float(torch.rand(1, generator=torch.Generator().manual_seed(3)))
