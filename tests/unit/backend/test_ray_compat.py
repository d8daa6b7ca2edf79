"""A RayCollector takes what users of TorchRL's give it; on a Ray without processes, or in one process."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
import torch
from fake_ray import FakeRay
from gymnasium.envs.classic_control import CartPoleEnv

from rlframe.backend.ray.arguments import ActorArguments, MakeFromPython
from rlframe.backend.ray.collector import RayCollector
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.errors import ConfigError, ResourceError
from rlframe.policy.dqn import DQNPolicy
from rlframe.policy.ppo import PPOPolicy
from rlframe.worker.collector.dataset_collector import DatasetSerialCollector
from rlframe.worker.collector.serial_collector import SampleSerialCollector


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
    make = MakeFromPython({0: ActorArguments(env, {}, env_num, {'type': 'sample'})}, policy)
    return make(0, 0)


@pytest.mark.parametrize('wants', [Pushy(), lambda obs: np.full((len(obs), 1), -100.0)])
def test_actions_of_a_network_that_knows_no_bounds_are_clipped_and_recorded_as_taken(wants: Any) -> None:
    collector = parts_of('Pendulum-v1', wants).collector
    rows = collector.collect(8)
    assert set(np.abs(rows['action']).ravel().tolist()) == {2.0} and rows['action'].dtype == np.float32
    collector.close()


class Own(SampleSerialCollector):
    """A collector of the user's own, which is not registered."""


@pytest.mark.parametrize('given', ['sample', 'sync', Own])
def test_collector_class_may_be_a_class_or_a_type(ray: FakeRay, given: Any) -> None:
    c = collector_of(1, collector_class=given)
    assert c._kind is (given if isinstance(given, type) else SampleSerialCollector)
    parts = c._pool.make(0, 0)
    assert type(parts.collector) is c._kind and len(parts.collector.collect(4)) == 4
    parts.collector.close()


class Keyed(torch.nn.Module):
    """Has the keys of a TensorDictModule."""

    in_keys, out_keys = ('observation',), ('action',)

    def forward(self, *args: Any) -> Any:
        return args


NO_POLICY = r'policy: this is not a policy; got .*, expected a policy of rlframe'
NO_COUNT = r'total_frames: bad value; got .*int >= 1, or -1 or None'


@pytest.mark.parametrize(
    ('given', 'message'),
    [
        ({'frames_per_batch': 51, 'num_collectors': 2, 'sync': True}, 'divisible by 2.*got 51'),
        ({'frames_per_batch': 0}, 'frames_per_batch: bad value; got 0, expected at least 1'),
        ({'num_collectors': 0}, 'num_collectors: bad value; got 0'),
        ({'frame_skip': 4}, 'frame_skip is not a known argument'),
        ({'collector_kwargs': {'mark_episode': True}}, 'Did you mean mark_episodes'),
        ({'policy': PPOPolicy({}, GymEnvFactory({'env_id': 'CartPole-v1'}).spec)}, 'fresh data only'),
        ({'collector_class': 'sampl'}, "Did you mean 'sample'"),
        ({'collector_class': dict}, 'collector_class: .*subclass of SerialCollector'),
        ({'collector_class': DatasetSerialCollector}, 'collector_class: .*steps envs'),
        ({'exploration_type': 'MODE'}, "exploration_type: bad value; got .*'random' or 'deterministic'"),
        (
            {'device': ['cpu', 'cuda'], 'num_collectors': 2},
            r'device: one device for all collectors; got .*expected a single device',
        ),
        ({'env_device': 'cuda'}, 'env_device: actor 0 should use cuda, but has no GPU'),
        ({'collector_kwargs': {'device': 'cpu'}}, 'device'),
        ({'policy': Keyed()}, r'policy: this takes a tensordict.*policy.module of a TensorDictM'),
        *(({'policy': bad}, NO_POLICY) for bad in (DQNPolicy, 'dqn')),
        *(({'total_frames': bad}, NO_COUNT) for bad in (0, 1.5, '10', math.nan, math.inf, True)),
    ],
)
def test_arguments_of_another_kind_are_refused_with_what_to_say_before_an_actor_starts(
    ray: FakeRay, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        RayCollector(**{'create_env_fn': 'CartPole-v1', 'frames_per_batch': 6, **given})
    assert not ray.actors


def test_any_function_of_observations_is_a_policy(ray: FakeRay) -> None:
    of_two = functools.partial(lambda obs, state: obs, state=1)
    for policy in (torch.nn.Identity(), np.zeros_like, of_two, lambda obs, scale=2: obs):
        RayCollector('CartPole-v1', policy, frames_per_batch=6).shutdown()


LISTS: dict[str, list[Any]] = {
    'create_env_fn': ['CartPole-v1', CartPoleEnv],
    'create_env_kwargs': [{}, None],
    'num_workers_per_collector': [1, 2],
    'collector_kwargs': [{'mark_episodes': True}, {}],
    'remote_configs': [{'num_cpus': 2}, {}],
    **{name: ['cpu', 'cpu'] for name in ('device', 'storing_device', 'env_device', 'policy_device')},
}
"""Lists with a value for each of two actors."""


def test_a_list_has_a_value_for_each_actor(ray: FakeRay) -> None:
    c = RayCollector(frames_per_batch=6, sync=True, **LISTS)
    assert (c.device, c.storing_device, c.env_device, c.policy_device) == ('cpu',) * 4
    own = c._pool.make.own
    assert [own[rank].env_fn for rank in (0, 1)] == LISTS['create_env_fn']
    assert [own[rank].env_num for rank in (0, 1)] == [1, 2]
    assert [own[rank].collector['mark_episodes'] for rank in (0, 1)] == [True, False]
    assert [c._pool.slots[rank].link.options['num_cpus'] for rank in (0, 1)] == [2, 1]
    c.load_state_dict(state_dict=c.state_dict())  # by TorchRL's name


@pytest.mark.parametrize('name', LISTS)
def test_a_list_of_another_length_is_refused_with_both_lengths(ray: FakeRay, name: str) -> None:
    given = {'create_env_fn': 'CartPole-v1', 'num_collectors': 3, name: LISTS[name]}
    with pytest.raises(ConfigError, match=f'{name} has 2 entries for 3 collectors'):
        RayCollector(frames_per_batch=6, **given)
    assert not ray.actors
    more = {'num_workers_per_collector': 'num_envs'}.get(name, name)
    if 'device' not in name and name != 'create_env_kwargs':
        with pytest.raises(ConfigError, match=f'{more} has 2 entries for 3 collectors'):
            collector_of().add_collectors(num_collectors=3, **{more: LISTS[name]})


def test_a_policy_without_an_action_for_each_observation_is_told_so() -> None:
    collector = parts_of('CartPole-v1', lambda x: x.sum()).collector
    with pytest.raises(ConfigError, match=r'shape \[\] for float32 observations \[2, 4\]'):
        collector.collect(8)
    collector.close()


def test_batches_are_tensors_where_a_device_is_given(ray: FakeRay) -> None:
    assert isinstance(collector_of().next()['rank'], np.ndarray)
    for given in ({'device': 'cpu'}, {'storing_device': 'cpu'}):
        c = collector_of(**given)
        assert c.storing_device == 'cpu' and isinstance(c.next()['rank'], torch.Tensor)


@pytest.mark.parametrize('is_sync', [True, False])
def test_the_iteration_returns_total_frames_and_ends_its_actors_unless_they_are_to_stay(
    is_sync: bool, ray: FakeRay
) -> None:
    for persistent in (False, True):
        c = collector_of(2, total_frames=np.int64(20), sync=is_sync, persistent=persistent)
        assert [len(batch) for batch in c] == [6, 6, 6, 2]
        assert c.delivered == c.total_frames == 20 == c.requested
        if persistent:
            for again in (c.next, lambda c=c: list(c)):
                with pytest.raises(ValueError, match='all total_frames=20 were delivered'):
                    again()
            assert len(c.collect(4)) == 4, 'who asks for more by number gets it'
        else:
            with pytest.raises(ValueError, match='have been shut down'):
                c.collect(4)
        c.shutdown()


def test_weights_go_to_the_ranks_that_are_named(ray: FakeRay) -> None:
    policy = torch.nn.Linear(4, 2)
    c = RayCollector('CartPole-v1', policy, frames_per_batch=6, num_collectors=3, sync=True)

    def given() -> list[bool]:
        c.next()
        return [c._pool.slots[rank].link.weights[-1] is not None for rank in range(3)]

    assert given() == [True] * 3 and given() == [False] * 3
    named: list[tuple[dict[str, Any], list[int]]] = [
        ({'worker_rank': 1}, [0]),  # counted from 1, as TorchRL counts
        ({'worker_rank': [1, 3]}, [0, 2]),
        ({'worker_ids': 1}, [1]),
        ({'worker_ids': [2]}, [2]),
        ({'worker_ids': None}, [0, 1, 2]),
    ]
    for words, ranks in named:
        torch.nn.init.normal_(policy.weight)
        c.update_policy_weights_(**words)
        assert given() == [rank in ranks for rank in range(3)]
    with pytest.raises(ConfigError, match=r'worker_rank: no such actor; got 0, expected one of \[1, 2, 3\]'):
        c.update_policy_weights_(0)
    with pytest.raises(ConfigError, match=r'worker_ids: no such actor; got 3, expected one of \[0, 1, 2\]'):
        c.update_policy_weights_(worker_ids=3)


def test_actors_join_with_the_arguments_that_torchrl_has(ray: FakeRay) -> None:
    policy = torch.nn.Linear(4, 2)
    c = RayCollector('CartPole-v1', policy, frames_per_batch=8, num_workers_per_collector=2)
    cart, acrobot = 'CartPole-v1', 'Acrobot-v1'
    marked, cpus = {'mark_episodes': True}, [{'num_cpus': 2}, {}]
    assert c.add_collectors([cart, acrobot], 3, policy, marked, cpus) == [1, 2]
    make = c._pool.make
    assert [make.own[rank].env_num for rank in range(3)] == [2, 3, 3]
    assert [make.own[rank].collector['mark_episodes'] for rank in range(3)] == [False, True, True]
    assert [c._pool.slots[rank].link.options['num_cpus'] for rank in (0, 1, 2)] == [1, 2, 1]
    with pytest.raises(ConfigError, match='all actors act with the policy trained in this process'):
        c.add_collectors(policy=torch.nn.Linear(4, 2))
    c.remove_collectors([1])
    c.add_collectors('MountainCar-v0')
    c.add_collectors()  # as the last one
    with pytest.raises(ResourceError):
        c.add_collectors(acrobot, num_collectors=9)
    assert c.add_collectors([cart]) == [5]
    specs = [c._pool.make.factory(rank).spec for rank in range(6)]
    assert [spec.observation_space.shape[0] for spec in specs] == [4, 4, 6, 2, 2, 4]
