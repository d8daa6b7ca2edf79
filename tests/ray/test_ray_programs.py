"""What a user's program defines or can import, its actors can: wherever Ray was started."""

from __future__ import annotations

from pathlib import Path

import pytest
from ray_runs import output_of

pytestmark = pytest.mark.ray
PROGRAM = Path(__file__).with_name('own_program.py')


def test_components_that_only_the_program_itself_registers_are_known_in_actors(tmp_path: Path) -> None:
    assert output_of(tmp_path, str(PROGRAM)) == 'trained 42 return 5.0\n'


def test_component_of_the_program_that_cannot_be_handed_over_is_named(tmp_path: Path) -> None:
    out = output_of(tmp_path, str(PROGRAM), 'unpicklable')
    assert (
        "components[('collector', 'locked')].lock is a lock" in out
        and 'list that module in import_names' in out
    )


ELSEWHERE = """
import os, sys
import ray
ray.init(address='local', num_cpus=1, object_store_memory=10**8, include_dashboard=False, configure_logging=False)
os.chdir('there')
sys.path.insert(0, 'lib')
from rlframe.worker import RayCollector
with RayCollector('own_env:OwnEnv', frames_per_batch=4, sync=True) as collector:
    print(len(collector.next()))
"""
OWN_ENV = """
from gymnasium.envs.classic_control.cartpole import CartPoleEnv as OwnEnv
"""


def test_relative_entry_of_the_import_path_means_the_same_in_actors(tmp_path: Path) -> None:
    (tmp_path / 'there' / 'lib').mkdir(parents=True)
    (tmp_path / 'there' / 'lib' / 'own_env.py').write_text(OWN_ENV, encoding='utf-8')
    assert output_of(tmp_path, '-c', ELSEWHERE) == '4\n'
