"""What the tests on a GPU count with, tried on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu_cells import MODES, REFUSED, Cell, policies, refusal
from toys import toy_of_policy


def test_every_policy_has_a_toy(cwd: Path) -> None:
    for name in policies():
        assert toy_of_policy(name)['env']['stop_value'] > 0


@pytest.mark.parametrize('policy', policies())
def test_a_policy_takes_every_mode_on_a_gpu_but_those_that_are_listed(policy: str, cwd: Path) -> None:
    for mode in MODES:
        why = refusal(Cell(policy, mode, 'cuda'))
        assert bool(why) == ((policy, mode) in REFUSED), why
