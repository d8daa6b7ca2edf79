"""A RayCollector takes what users of TorchRL's give it; on a Ray without processes, or in one process."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from fake_ray import FakeRay, fake_ray

from rlframe.backend.ray.collector import RayCollector
from rlframe.backend.ray.constructor.arguments import MakeFromPython
from rlframe.backend.ray.constructor.compat import env_makers, exploration_of, within_bounds
from rlframe.errors import CheckpointMismatchError, ConfigError


@pytest.fixture
def ray() -> Iterator[FakeRay]:
    with fake_ray() as ray:
        yield ray


def collector_of(count: int = 1, frames: int = 6, **given: Any) -> RayCollector:
    return RayCollector('CartPole-v1', None, frames_per_batch=frames, num_collectors=count, **given)


class Pushy(torch.nn.Module):
    """Wants more than any bound allows."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = torch.nn.Parameter(torch.tensor(100.0))

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.gain * torch.ones(len(obs), 1)


def parts_of(env: Any, policy: Any = None, env_num: int = 2) -> Any:
    """Makes what collects in an actor, here."""
    make = MakeFromPython(
        [env_makers(env)], [{}], policy, [{'type': 'sample'}], [env_num], None, True, [None], 0
    )
    return make(0, 0)


@pytest.mark.parametrize('wants', [Pushy(), lambda obs: np.full((len(obs), 1), -100.0)])
def test_actions_of_a_network_that_knows_no_bounds_are_clipped_and_recorded_as_taken(wants: Any) -> None:
    collector = parts_of('Pendulum-v1', wants).collector
    rows = collector.collect(8)
    assert set(np.abs(rows['action']).ravel().tolist()) == {2.0} and rows['action'].dtype == np.float32
    collector.close()


def test_other_actions_than_those_of_a_box_stay_what_they_are() -> None:
    actions = np.array([7, 8])
    assert within_bounds(actions, gymnasium.spaces.Discrete(3)) is actions
    free = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    assert within_bounds(np.full((2, 1), 1e9), free).tolist() == [[1e9], [1e9]]


def test_an_env_itself_is_copied_for_every_env_of_every_actor() -> None:
    given = gymnasium.make('CartPole-v1')
    parts = parts_of(given)
    rows = parts.collector.collect(40)
    assert len({id(env.unwrapped) for env in parts.env._group.envs.values()} | {id(given.unwrapped)}) == 3
    assert not np.array_equal(rows['obs'][0], rows['obs'][1]), 'with seeds of their own'
    parts.collector.close()


class Names(enum.Enum):
    RANDOM, MODE, MEAN, DETERMINISTIC = range(4)


@pytest.mark.parametrize(
    ('given', 'meant'),
    [(None, None), ('random', 'random'), ('MEAN', 'deterministic'), ('mode', 'deterministic')]
    + [(name, 'random' if name is Names.RANDOM else 'deterministic') for name in Names],
)
def test_names_of_how_to_explore(given: Any, meant: str | None) -> None:
    assert exploration_of(given) == meant


@pytest.mark.parametrize('given', ['some', 3, Exception])
def test_other_names_are_refused_with_those_that_there_are(given: Any) -> None:
    with pytest.raises(ConfigError, match=r'exploration_type: bad value; got .*deterministic'):
        exploration_of(given)


def test_devices_may_stand_among_the_collector_s_options(ray: FakeRay) -> None:
    c = collector_of(2, collector_kwargs={'device': 'cpu', 'storing_device': 'cpu'})
    assert (c.device, c.storing_device, c.policy_device) == ('cpu', 'cpu', ['cpu', 'cpu'])
    assert isinstance(c.next()['rank'], torch.Tensor)
    own = [{'policy_device': 'cpu', 'mark_episodes': True}, {'mark_episodes': True}]
    assert collector_of(2, collector_kwargs=own).policy_device == ['cpu', None]
    assert own[0]['policy_device'] == 'cpu', "the caller's dict is not changed"
    with pytest.raises(ConfigError, match='actor 1 should use cuda:0, but has no GPU'):
        collector_of(2, collector_kwargs=[{}, {'device': 'cuda:0'}])


def test_another_device_can_be_set_for_the_batches(ray: FakeRay) -> None:
    c = collector_of()
    assert isinstance(c.next()['rank'], np.ndarray)
    c.device = 'cpu'
    assert c.device == c.storing_device == 'cpu' and isinstance(c.next()['rank'], torch.Tensor)
    with pytest.raises(ConfigError, match='device has 2 entries for 1 collectors'):
        c.device = ['cpu', 'cpu']


def test_without_sync_a_batch_may_have_any_size(ray: FakeRay) -> None:
    c = collector_of(2, frames=7, num_workers_per_collector=3)
    assert [len(c.next()) for _ in range(3)] == [7, 7, 7]


@pytest.mark.parametrize('is_sync', [True, False])
def test_the_iteration_returns_total_frames_and_ends_its_actors_unless_they_are_to_stay(
    is_sync: bool, ray: FakeRay
) -> None:
    for persistent in (False, True):
        c = collector_of(2, total_frames=20, sync=is_sync, persistent=persistent)
        assert [len(batch) for batch in c] == [6, 6, 6, 2]
        assert c.collected_frames == c.total_frames == 20 == c.requested
        if persistent:
            assert len(c.collect(4)) == 4
        else:
            with pytest.raises(ValueError, match='have been shut down'):
                c.collect(4)
        c.shutdown()


def test_breaking_off_the_iteration_ends_nothing(ray: FakeRay) -> None:
    c = collector_of(total_frames=20)
    for _ in c:
        break
    assert len(c.next()) == 6


def test_counts_have_the_names_that_users_of_torchrl_know(ray: FakeRay) -> None:
    policy = torch.nn.Linear(4, 2)
    c = RayCollector('CartPole-v1', policy, frames_per_batch=6, num_collectors=3)
    c.next()
    assert (c.num_collectors, c.num_workers, c.collected_frames) == (3, 3, 6)
    assert torch.equal(c.policy_weights['model']['weight'], policy.weight)
    assert collector_of().policy_weights == {}


def test_weights_go_to_the_ranks_that_are_named(ray: FakeRay) -> None:
    policy = torch.nn.Linear(4, 2)
    c = RayCollector('CartPole-v1', policy, frames_per_batch=6, num_collectors=3, sync=True)

    def given() -> list[bool]:
        c.next()
        return [c._pool.slots[rank].actor.weights[-1] is not None for rank in range(3)]

    assert given() == [True] * 3 and given() == [False] * 3
    for name, ranks in (
        ('worker_rank', 1),
        ('worker_rank', [0, 2]),
        ('worker_ids', [2]),
        ('worker_ids', None),
    ):
        torch.nn.init.normal_(policy.weight)
        c.update_policy_weights_(**{name: ranks})
        wanted = range(3) if ranks is None else ranks if isinstance(ranks, list) else [ranks]
        assert given() == [rank in wanted for rank in range(3)]
    with pytest.raises(ConfigError, match='worker_rank: no such actor; got 3'):
        c.update_policy_weights_(3)


def test_actors_join_with_the_arguments_that_torchrl_has(ray: FakeRay) -> None:
    policy = torch.nn.Linear(4, 2)
    c = RayCollector('CartPole-v1', policy, frames_per_batch=8, num_workers_per_collector=2)
    cart, acrobot = 'CartPole-v1', 'Acrobot-v1'
    marked, cpus = [{}, {'mark_episodes': True}], [{'num_cpus': 2}, {}]
    assert c.add_collectors([cart, acrobot], 3, policy, marked, cpus) == [1, 2]
    make = c._pool.make
    sizes = [make.factory(rank).spec.observation_space.shape[0] for rank in range(4)]
    assert sizes == [4, 4, 6, 6], 'who joins later is like the last one'
    assert make._env_num == [2, 3] and [own.get('mark_episodes') for own in make._collector] == [
        False,
        False,
        True,
    ]
    assert [c._pool.slots[rank].actor.options['num_cpus'] for rank in (0, 1, 2)] == [1, 2, 1]
    with pytest.raises(ConfigError, match='all actors act with the policy trained in this process'):
        c.add_collectors(policy=torch.nn.Linear(4, 2))
    with pytest.raises(ConfigError, match='collector_kwargs has 1 entries for 2 collectors'):
        c.add_collectors([cart, cart], collector_kwargs=[{}])


def test_a_list_of_states_is_one_for_each_actor(ray: FakeRay) -> None:
    c = collector_of(2)
    ray.answers['state'] = {'collector': {'discarded': 0}, 'acting': None, 'rng': None, 'at_random': True}
    states = c.state_dict()['actors']
    c.next()
    delivered = c.delivered
    c.load_state_dict(states)
    assert c.delivered == delivered, 'what was counted here stays'
    with pytest.raises(CheckpointMismatchError, match='3 actors there, 2 here'):
        c.load_state_dict([*states, states[0]])
