"""One Ray actor returns bit for bit what the collector returns in this process; kill and resume hold for actors too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from moved_memory import arrays_at
from ray_runs import BATTLES, RAY, train_to
from runs import CASES, assert_same_end, differences, every, killed_and_straight

from rlframe.errors import ConfigError

pytestmark = pytest.mark.ray
LENGTH = ('--train-iter', '400')

EPISODES = ('collector.type=episode', 'collector.get_train_sample=true')
MORE = {
    'dqn naive': ('policy.random_collect_size=30', 'policy.nstep=3', 'policy.normalize_obs=true'),
    'dqn episodes': (*EPISODES, 'policy.collect.n_sample=None', 'policy.collect.n_episode=2'),
    'dqn frames': ('env.env_id=image_env:Dot', 'env.frame_stack=3', 'replay_buffer.frames=once'),
    'dqn noisy': ('policy.model.noisy=true',),
    'battle samples': ('policy.random_collect_size=30',),
    'ppo': ('policy.normalize_obs=true', 'policy.normalize_reward=true'),
    'ppo lstm': ('policy.model.core=lstm', 'policy.normalize_obs=true'),
}


@pytest.mark.usefixtures('ray_of_tests')
@pytest.mark.filterwarnings('ignore:The old environment creation API:DeprecationWarning')  # of PettingZoo
@pytest.mark.parametrize(
    'case',
    ['dqn naive', 'dqn episodes', 'dqn frames', 'dqn noisy', 'ppo', 'ppo lstm', 'sac', 'r2d2', *BATTLES],
)
def test_one_actor_ends_with_the_bits_of_the_run_in_process(case: str, tmp_path: Path) -> None:
    name = case if case in {**CASES, **BATTLES} else 'ppo' if case == 'ppo lstm' else 'dqn naive'
    if case in BATTLES:
        pytest.importorskip('pettingzoo')
    words = MORE.get(case, ())
    local = train_to(tmp_path / 'local', 150, name, *words)
    remote = train_to(tmp_path / 'ray', 150, name, *words, *RAY)
    assert local['progress']['train_iter'] >= 150 and len(local['records']) > 3
    assert differences(local, remote) == []


@pytest.mark.usefixtures('ray_of_tests')
def test_it_does_so_wherever_arrays_lie_in_its_memory(tmp_path: Path) -> None:
    words = ('env.env_id=ray_envs:MovedInActors', 'policy.model.encoder_hidden_size_list=[8]')
    local = train_to(tmp_path / 'local', 100, 'ppo', *words)
    with arrays_at(40):
        remote = train_to(tmp_path / 'ray', 100, 'ppo', *words, *RAY)
    assert differences(local, remote) == []


@pytest.mark.usefixtures('ray_of_tests')
@pytest.mark.filterwarnings('ignore:The old environment creation API:DeprecationWarning')  # of PettingZoo
@pytest.mark.parametrize(
    'case', ['dqn naive', *(pytest.param(case, marks=pytest.mark.slow) for case in ('ppo', 'r2d2', *BATTLES))]
)
def test_a_run_changes_its_backend_when_it_is_resumed_and_ends_with_the_same_bits(
    case: str, tmp_path: Path
) -> None:
    if case in BATTLES:
        pytest.importorskip('pettingzoo')
    words = MORE.get(case, ())
    straight = train_to(tmp_path / 'straight', 180, case, *words)
    before: Path | None = None
    for end, backend in ((60, ()), (120, RAY), (180, ())):  # local, Ray, local again
        folder = tmp_path / str(end)
        changing = train_to(folder, end, case, *words, *backend, resume=before)
        before = folder
    assert differences(straight, changing) == []


@pytest.mark.usefixtures('ray_of_tests')
def test_a_run_of_two_actors_stays_with_them(tmp_path: Path) -> None:
    two = (*RAY, 'collector.num_collectors=2')
    train_to(tmp_path / 'two', 60, 'dqn naive', *two)
    with pytest.raises(ConfigError, match="backend: 'ray' before, 'local' now"):
        train_to(tmp_path / 'one', 120, 'dqn naive', resume=tmp_path / 'two')
    assert not list((tmp_path / 'one').iterdir())


RARELY = ('collector.update_after_each_batch=false', 'collector.max_weight_update_interval=7')


@pytest.mark.usefixtures('copies')
def test_killed_and_resumed_run_ends_with_the_same_bits(tmp_path: Path) -> None:
    own = "collector.ray_init_config={'num_cpus': 2, 'object_store_memory': 2e8, 'log_to_driver': False}"
    assert_same_end(*killed_and_straight(tmp_path, *CASES['dqn naive'], *RAY, own, *LENGTH, every(51)))


@pytest.mark.slow
@pytest.mark.usefixtures('copies')
@pytest.mark.parametrize(('case', 'more'), [('dqn naive', RARELY), ('ppo', ())])
def test_so_does_a_run_of_two_actors_in_a_cluster_that_lives_on(
    case: str, more: tuple[str, ...], ray_of_tests: Any, tmp_path: Path
) -> None:
    cluster = f"collector.ray_init_config={{'address': '{ray_of_tests.get_runtime_context().gcs_address}'}}"
    words = (*CASES[case], *RAY, 'collector.num_collectors=2', cluster, *more, *LENGTH, every(51))
    assert_same_end(*killed_and_straight(tmp_path, *words))
