"""What a user's program defines or can import, its actors can: wherever Ray was started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ray_runs import output_of

from rlframe.backend.ray.collector import RayCollector

pytestmark = pytest.mark.ray
PROGRAM = Path(__file__).with_name('own_program.py')


def test_components_that_only_the_program_itself_registers_are_known_in_actors_or_named(
    tmp_path: Path,
) -> None:
    trained, error = output_of(tmp_path, str(PROGRAM)).splitlines()
    assert trained == 'trained 42 return 5.0'
    assert "components[('collector', 'locked')].lock is a lock" in error
    assert 'list that module in import_names' in error


OWN_ENV = """
from gymnasium.envs.classic_control.cartpole import CartPoleEnv as OwnEnv
"""


def test_relative_entry_of_the_import_path_means_the_same_in_actors(
    ray_of_tests: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / 'lib').mkdir()
    (tmp_path / 'lib' / 'own_env.py').write_text(OWN_ENV, encoding='utf-8')
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend('lib')
    with RayCollector('own_env:OwnEnv', frames_per_batch=4, sync=True) as collector:
        assert len(collector.next()) == 4
