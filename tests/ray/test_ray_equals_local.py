"""One Ray actor returns bit for bit what the collector returns in this process; kill and resume hold for actors too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from moved_memory import arrays_at
from ray_runs import BATTLES, RAY, train_to
from runs import CASES, assert_same_end, differences, every, killed_and_straight

from rlframe.run.read_checkpoint import load_checkpoint

pytestmark = pytest.mark.ray
EPISODES = ('collector.type=episode', 'collector.get_train_sample=true')
MORE = {
    'dqn naive': (
        *('policy.random_collect_size=30', 'policy.nstep=3', 'policy.normalize_obs=true'),
        'policy.model.noisy=true',
    ),
    'dqn episodes': (*EPISODES, 'policy.collect.n_sample=None', 'policy.collect.n_episode=2'),
    'dqn frames': ('env.env_id=zoo:Dot', 'env.frame_stack=3', 'replay_buffer.frames=once'),
    'battle samples': ('policy.random_collect_size=30',),
    'ppo parts': ('policy.model.core=lstm', 'policy.normalize_obs=true', 'policy.normalize_reward=true'),
    'ppo impala': ('policy.type=impala', 'policy.model.core=lstm', 'policy.normalize_obs=true'),
    'sac gru': (
        *('policy.model.core=gru', 'replay_buffer.type=sequence', 'replay_buffer.burn_in=2'),
        *('collector.mark_episodes=true', 'policy.random_collect_size=30'),
    ),
}


@pytest.mark.usefixtures('ray_of_tests')
@pytest.mark.filterwarnings('ignore:The old environment creation API:DeprecationWarning')  # of PettingZoo
@pytest.mark.parametrize('case', MORE)
def test_a_run_that_is_resumed_with_and_without_an_actor_ends_with_the_same_bits(
    case: str, tmp_path: Path
) -> None:
    name = case if case in {**CASES, **BATTLES} else case.split()[0].replace('dqn', 'dqn naive')
    if case in BATTLES:
        pytest.importorskip('pettingzoo')
    words = (*MORE[case], 'evaluator.eval_freq=42')
    straight = train_to(tmp_path / 'straight', 168, name, *words)
    assert len(straight['records']) > 3
    before: Path | None = None
    for i, backend in enumerate(((), RAY, RAY, ())):
        resumed = train_to(tmp_path / str(i), 42 * (i + 1), name, *words, *backend, resume=before)
        before = tmp_path / str(i)
    assert resumed['progress']['train_iter'] >= 168
    assert differences(straight, resumed) == []
    assert load_checkpoint(tmp_path / '3' / 'ckpt' / 'latest')[1]['exact']


@pytest.mark.usefixtures('ray_of_tests')
def test_it_does_so_wherever_arrays_lie_in_its_memory(tmp_path: Path) -> None:
    words = ('env.env_id=zoo:MovedInActors', 'policy.model.encoder_hidden_size_list=[8]')
    local = train_to(tmp_path / 'local', 70, 'ppo', *words)
    with arrays_at(40):
        remote = train_to(tmp_path / 'ray', 70, 'ppo', *words, *RAY)
    assert differences(local, remote) == []


@pytest.mark.usefixtures('ray_of_tests')
@pytest.mark.parametrize('case', ['ppo parts', 'dqn naive'])
def test_an_actor_collects_a_round_ahead_as_a_child_process_does(case: str, tmp_path: Path) -> None:
    words = (*MORE[case], 'collector.overlap=1')
    local = train_to(tmp_path / 'local', 70, case, *words)
    remote = train_to(tmp_path / 'ray', 70, case, *words, *RAY)
    assert differences(local, remote) == []


@pytest.mark.usefixtures('ray_of_tests')
def test_a_run_goes_on_with_other_collectors_and_says_what_begins_anew(tmp_path: Path) -> None:
    words = (*MORE['dqn naive'], 'evaluator.eval_freq=40')
    two = (*RAY, 'collector.num_collectors=2')
    kinds = {
        'one collector': (),
        '2 collectors': two,
        '2 collectors a round ahead': (*two, 'collector.overlap=1'),
        '2 collectors without sync': (*two, 'collector.sync=false'),
        'again one collector': RAY,
    }
    before: Path | None = None
    for i, (words_of, backend) in enumerate(kinds.items()):
        ended = train_to(tmp_path / str(i), 40 * (i + 1), 'dqn naive', *words, *backend, resume=before)
        before = tmp_path / str(i)
        _, manifest = load_checkpoint(before / 'ckpt' / 'latest')
        assert ended['progress']['train_iter'] == 40 * (i + 1) and len(manifest['inexact']) == i
        assert i == 0 or f' to {words_of.removeprefix("again ")}: running episodes' in manifest['inexact'][0]


@pytest.mark.usefixtures('ray_of_tests')
def test_learners_share_the_updates_of_data_from_an_actor(tmp_path: Path) -> None:
    words = ('policy.learn.num_learners=2', 'policy.normalize_obs=true')
    local = train_to(tmp_path / 'local', 70, 'ppo', *words)
    remote = train_to(tmp_path / 'ray', 70, 'ppo', *words, *RAY)
    assert differences(local, remote) == []


@pytest.mark.slow
@pytest.mark.usefixtures('copies')
@pytest.mark.parametrize(
    'own',
    [
        ('collector.update_after_each_batch=false', 'collector.max_weight_update_interval=7'),
        ('policy.collect.inference=central', 'collector.inference_batch=1'),
    ],
    ids=['new weights rarely', 'one server'],
)
def test_killed_and_resumed_run_of_two_actors_ends_with_the_same_bits(
    own: tuple[str, ...], ray_of_tests: Any, tmp_path: Path
) -> None:
    cluster = f"collector.ray_init_config={{'address': '{ray_of_tests.get_runtime_context().gcs_address}'}}"
    words = (*CASES['dqn naive'], *RAY, 'collector.num_collectors=2', cluster, *own)
    assert_same_end(*killed_and_straight(tmp_path, *words, '--train-iter', '300', every(51)))
