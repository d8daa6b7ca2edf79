"""RayCollector from Python: TorchRL's parameters, an iterable of batches, actors that come and go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import ray
import torch
from fault_envs import wait_until
from ray_envs import TellingEnv
from ray_runs import columns
from runs import differences

from rlframe.backend.ray.collector import RayCollector
from rlframe.data import Batch
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.errors import ConfigError, SerializationError
from rlframe.policy.dqn import DQNPolicy
from rlframe.worker.collector.serial_collector import SampleSerialCollector

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures('ray_of_tests')]


def dqn() -> DQNPolicy:
    spec = GymEnvFactory({'env_id': 'CartPole-v1'}).spec
    torch.manual_seed(0)
    return DQNPolicy({'model': {'encoder_hidden_size_list': [16]}}, spec)


def test_batches_come_until_total_frames_and_rank_0_is_the_collector_in_process() -> None:
    seen = []
    for actors in (1, 2):
        given = {'frames_per_batch': 12 * actors, 'total_frames': 60 * actors, 'num_workers_per_collector': 3}
        with RayCollector(
            'CartPole-v1', dqn(), sync=True, num_collectors=actors, seed=5, **given
        ) as collector:
            batches = [columns(batch) for batch in collector]
            assert collector.num_workers == actors and collector.envstep == 60 * actors
        assert len(batches) == 5 and all(len(batch['obs']) == 12 * actors for batch in batches)
        seen.append([{name: column[:12] for name, column in batch.items()} for batch in batches])
    assert differences(*seen) == []


def test_async_batches_are_of_one_actor_each_and_end_exactly() -> None:
    with RayCollector(TellingEnv, frames_per_batch=8, total_frames=60, num_collectors=2) as collector:
        batches = [np.array(batch['obs'])[:, 0] for batch in collector]
    assert [len(batch) for batch in batches] == [8] * 7 + [4]
    asked_before_the_last = batches[:4]  # which is of 4 frames, and may be ready before others
    assert all(len(np.unique(batch)) == 1 for batch in asked_before_the_last)
    assert collector.requested - collector.delivered < 8


def test_each_actor_has_its_own_env_arguments_and_options() -> None:
    kwargs = [{'low': 0}, {'low': 5}]
    with RayCollector(
        [ShiftedEnv, ShiftedEnv],
        frames_per_batch=8,
        create_env_kwargs=kwargs,
        sync=True,
        max_frames_per_traj=3,
    ) as collector:
        batch = collector.next()
        assert batch['obs'][:, 0].tolist() == [0] * 4 + [5] * 4
        assert (
            batch['truncated'].tolist() == [False, False, True, False] * 2 and not batch['terminated'].any()
        )


def test_random_frames_are_counted_as_delivered_and_deterministic_actions_are_the_best() -> None:
    with RayCollector(
        'CartPole-v1', right, frames_per_batch=10, sync=True, init_random_frames=15, postproc=with_sum
    ) as collector:
        actions = [np.array(collector.next()['action']) for _ in range(4)]
        assert set(actions[0]) | set(actions[1]) == {0, 1} and set(actions[2]) | set(actions[3]) == {1}
        assert collector.next()['sum'].tolist() == [10] * 10


def test_handles_classes_and_errors_of_a_policy_s_form_cross_processes() -> None:
    with RayCollector('CartPole-v1', frames_per_batch=4, num_collectors=2, collector_class=Own) as collector:
        states = ray.get([handle.state.remote() for handle in collector.remote_collectors()])
        assert [state['at_random'] for state in states] == [False, False]
        assert collector.next()['own'].tolist() == [7] * 4
    with (
        RayCollector('CartPole-v1', lambda data: data['observation'], frames_per_batch=4) as collector,
        pytest.raises(ConfigError, match=r'the policy cannot act on float32 .* it fails with IndexError'),
    ):
        collector.next()


def test_split_batches_are_pieces_of_episodes_in_order() -> None:
    with RayCollector(
        'CartPole-v1',
        dqn(),
        frames_per_batch=60,
        sync=True,
        num_workers_per_collector=3,
        split_trajs=True,
        device='cpu',
    ) as collector:
        pieces = [*collector.next(), *collector.next()]
    assert sum(len(piece) for piece in pieces) == 120
    for piece in pieces:
        assert isinstance(piece['obs'], torch.Tensor) and len(set(piece['env_id'].tolist())) == 1
        assert (np.diff(piece['episode_step']) == 1).all()
        assert torch.equal(piece['obs'][1:], piece['next_obs'][:-1])


def test_weights_of_a_module_reach_actors_when_they_are_told_to() -> None:
    module = torch.nn.Linear(4, 2, bias=False)
    torch.nn.init.zeros_(module.weight)
    with RayCollector(
        'CartPole-v1', Chooser(module), frames_per_batch=4, sync=True, num_collectors=2
    ) as collector:
        assert set(collector.next()['action']) == {0}
        module.weight.data[1] = 1e6 * torch.ones(4)
        assert set(collector.next()['action']) == {0}
        collector.update_policy_weights_(1)
        assert set(collector.next()['collect_iter']) == {2}
        assert sorted(collector.versions) == [1, 2]
        collector.update_policy_weights_()
        collector.next()
        assert collector.versions == [2, 2]
        with pytest.raises(ConfigError, match=r'no such actor; got 3, expected one of \[1, 2\]'):
            collector.update_policy_weights_(3)


def test_actors_come_and_go_while_frames_are_conserved() -> None:
    for is_sync in (True, False):
        with RayCollector(TellingEnv, frames_per_batch=6, sync=is_sync, num_collectors=1) as collector:
            seen: set[float] = set()

            def take(collector: RayCollector = collector, seen: set[float] = seen) -> int:
                """Takes a batch and returns how many actors were seen since ``seen`` was empty."""
                batch = collector.next()
                assert len(batch) == 6
                seen |= set(np.asarray(batch['obs'])[:, 0])
                c = collector
                assert c.requested == c.delivered + c.lost + c.stale + c.in_flight
                return len(seen)

            assert [take() for _ in range(3)] == [1, 1, 1]
            assert collector.add_collectors() == [1]
            assert wait_until(lambda: take() == 2, 30), 'both deliver'
            collector.remove_collectors([0])
            seen.clear()
            for _ in range(4):
                take()
            assert [actor.rank for actor in collector.actor_states()] == [1]
            assert collector.actor_states()[0].pid in seen
            with pytest.raises(ConfigError, match='at least one actor must remain'):
                collector.remove_collectors([1])


@pytest.mark.parametrize('policy', [dqn, None])
def test_set_seed_and_states_repeat_what_was_collected(policy: Any) -> None:
    given = policy and policy()
    with RayCollector('CartPole-v1', given, frames_per_batch=16, sync=True, num_collectors=2) as collector:
        collector.next()
        seeds = {collector.set_seed(7)}
        first = [columns(collector.next()) for _ in range(3)]
        state = collector.state_dict()
        then = [columns(collector.next()) for _ in range(3)]
        collector.load_state_dict(state)
        assert differences(then, [columns(collector.next()) for _ in range(3)]) == []
        seeds.add(collector.set_seed(7))
        assert differences(first, [columns(collector.next()) for _ in range(3)]) == []
        assert len(seeds) == 1
        collector.set_seed(7, static_seed=True)
        obs = np.array(collector.next()['obs'])
        assert np.array_equal(obs[0], obs[8]) and not np.array_equal(first[0]['obs'][0], first[0]['obs'][8])


@pytest.mark.parametrize(
    ('given', 'message'),
    [
        (
            {'frames_per_batch': 50, 'num_collectors': 4, 'sync': True},
            'divisible by 4.*got 50, expected 48 or 52',
        ),
        ({'frames_per_batch': 0}, 'frames_per_batch: bad value; got 0, expected at least 1'),
        (
            {'num_collectors': 2, 'create_env_kwargs': [{}] * 3},
            'create_env_kwargs has 3 entries for 2 collectors',
        ),
        ({'remote_configs': [{}, {}]}, 'remote_configs has 2 entries for 1 collectors'),
        ({'policy_device': 'cuda:0'}, 'actor 0 should use cuda:0, but has no GPU'),
        ({'exploration_type': 'some'}, "exploration_type: bad value; got 'some'"),
        ({'num_collectors': 0}, 'num_collectors: bad value; got 0'),
        ({'frame_skip': 4}, 'frame_skip is not a known argument'),
        ({'collector_kwargs': {'mark_episode': True}}, 'Did you mean mark_episodes'),
        ({'collector_class': 'sampl'}, "Did you mean 'sample'"),
    ],
)
def test_bad_arguments_are_refused_before_an_actor_starts(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RayCollector('CartPole-v1', None, **{'frames_per_batch': 8, **given})


def test_factories_of_another_number_and_unpicklable_ones_are_named() -> None:
    with pytest.raises(ConfigError, match='create_env_fn has 2 entries for 3 collectors'):
        RayCollector([TellingEnv, TellingEnv], frames_per_batch=6, num_collectors=3)
    lock = __import__('threading').Lock()
    with pytest.raises(SerializationError, match='lock'):
        RayCollector(lambda: lock and TellingEnv(), frames_per_batch=6)


# what the tests give to actors


class Own(SampleSerialCollector):
    """Is not registered."""

    def collect(self, *args: Any, **options: Any) -> Any:
        rows = super().collect(*args, **options)
        return rows.replace(own=np.full(len(rows), 7))


class ShiftedEnv(gymnasium.Env):
    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Box(-10, 10, (1,), np.int64)

    def __init__(self, low: int = 0) -> None:
        self._low = low

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.array([self._low]), {}

    def step(self, action: Any) -> Any:
        return np.array([self._low]), 0.0, False, False, {}


class Chooser(torch.nn.Module):
    """Chooses the action of the larger output for |obs|."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.layer(obs.abs()).argmax(1)


def right(obs: Any) -> Any:
    return np.ones(len(obs), np.int64)


def with_sum(batch: Batch) -> Batch:
    return batch.replace(sum=np.full(len(batch), batch['action'].sum()))


def test_a_module_acts_and_the_actors_end_with_the_iteration() -> None:
    module = torch.nn.Linear(3, 1)
    with torch.no_grad():
        module.weight.fill_(100.0)
    with RayCollector(
        'Pendulum-v1', module, frames_per_batch=7, total_frames=20, num_workers_per_collector=2
    ) as c:
        (pid,) = (actor.pid for actor in c.actor_states())
        batches = list(c)
        assert [len(batch) for batch in batches] == [7, 7, 6]
        assert all(np.abs(batch['action']).max() <= 2.0 for batch in batches)
        assert pid is not None and wait_until(lambda: not Path(f'/proc/{pid}').exists(), 30)
