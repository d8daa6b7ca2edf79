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

from rlframe.backend.ray.arguments import MakeFromPython, env_makers, exploration_of, within_bounds
from rlframe.backend.ray.collector import RayCollector
from rlframe.errors import CheckpointMismatchError, ConfigError
from rlframe.worker.collector.dataset_collector import DatasetSerialCollector
from rlframe.worker.collector.serial_collector import SampleSerialCollector


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
    assert len({id(env.unwrapped) for env in parts.env.envs.values()} | {id(given.unwrapped)}) == 3
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


def test_a_list_of_devices_is_where_batches_are_unless_another_place_is_given(ray: FakeRay) -> None:
    c = collector_of(2, device=['cpu', 'cpu'])
    assert c.storing_device == 'cpu' and isinstance(c.next()['rank'], torch.Tensor)
    assert collector_of(2, collector_kwargs=[{'device': 'cpu'}] * 2).storing_device == 'cpu'
    gpus = {'remote_configs': {'num_gpus': 1}, 'device': ['cuda:0', 'cuda:1']}
    with pytest.raises(
        ConfigError, match=r"storing_device: .*got .'cuda:0', 'cuda:1'.*Pass it as storing_device"
    ):
        collector_of(2, **gpus)
    ray.nodes_have = [{'CPU': 8.0, 'GPU': 2.0}]
    assert collector_of(2, **gpus, storing_device='cpu').storing_device == 'cpu'


class Own(SampleSerialCollector):
    """A collector of the user's own, which is not registered."""


@pytest.mark.parametrize('given', ['single', 'sync', 'async', 'sample', SampleSerialCollector, Own])
def test_collector_class_may_be_a_class_a_type_or_a_name_of_torchrl(ray: FakeRay, given: Any) -> None:
    c = collector_of(1, collector_class=given)
    assert c._kind is (given if isinstance(given, type) else SampleSerialCollector)
    parts = c._pool.make(0, 0)
    assert type(parts.collector) is c._kind and len(parts.collector.collect(4)) == 4
    parts.collector.close()


def test_collectors_of_torchrl_itself_collect_samples(ray: FakeRay) -> None:
    theirs = type('MultiSyncDataCollector', (), {'__module__': 'torchrl.collectors'})
    assert collector_of(1, collector_class=theirs)._kind is SampleSerialCollector


@pytest.mark.parametrize('given', [dict, DatasetSerialCollector, None, 3])
def test_what_is_no_collector_is_refused(ray: FakeRay, given: Any) -> None:
    with pytest.raises(ConfigError, match=r"collector_class: .*subclass of SerialCollector, 'single'"):
        collector_of(1, collector_class=given)
    assert not ray.actors


class Keyed(torch.nn.Module):
    """Has the keys of a TensorDictModule."""

    in_keys, out_keys = ('observation',), ('action',)

    def forward(self, *args: Any) -> Any:
        return args


class Typed(torch.nn.Module):
    def forward(self, data: 'TensorDictBase') -> Any:  # noqa: F821, UP037
        return data


@pytest.mark.parametrize('policy', [Keyed(), Typed(), lambda td: td, lambda tensordict: tensordict])
def test_a_policy_that_takes_a_tensordict_is_told_what_form_it_has_here(ray: FakeRay, policy: Any) -> None:
    with pytest.raises(ConfigError, match=r'policy: this takes a tensordict.*policy.module of a TensorDictM'):
        RayCollector('CartPole-v1', policy, frames_per_batch=6)
    assert not ray.actors


@pytest.mark.parametrize(
    ('policy', 'problem'),
    [
        (lambda x: x['observation'], 'fails with IndexError'),
        (lambda x: x.set('action', 0), 'fails with AttributeError'),
        (lambda x: {'action': x}, r'returns an array of shape \[\]'),
        (lambda x: x.sum(), r'returns an array of shape \[\]'),
    ],
)
def test_a_policy_of_another_form_is_told_so_at_its_first_observations(policy: Any, problem: str) -> None:
    collector = parts_of('CartPole-v1', policy).collector
    with pytest.raises(ConfigError, match=rf'cannot act on float32 observations \[2, 4\]: it {problem}.*'):
        collector.collect(8)
    collector.close()


def test_an_error_of_a_policy_that_has_acted_is_its_own() -> None:
    turns = iter([1])
    collector = parts_of(
        'CartPole-v1', lambda obs: np.full(len(obs), [next(turns, None)][0] or [][0])
    ).collector
    with pytest.raises(IndexError):
        collector.collect(8)
    collector.close()


def test_handles_of_actors_can_be_called(ray: FakeRay) -> None:
    c = collector_of(3)
    c.remove_collectors([1])
    assert [handle.rank for handle in c.remote_collectors()] == [0, 2]
    ray.answers['state'] = {'at_random': True}
    assert [ray.get(handle.state.remote()) for handle in c.remote_collectors()] == [{'at_random': True}] * 2
    c._pool._lose(c._pool.slots[0], 'it is gone')
    assert [handle.rank for handle in c.remote_collectors()] == [2]


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
    for words, message in (
        ({'worker_rank': 0}, r'worker_rank: no such actor; got 0, expected one of \[1, 2, 3\]'),
        ({'worker_ids': 3}, r'worker_ids: no such actor; got 3, expected one of \[0, 1, 2\]'),
        ({'worker_rank': 1, 'worker_ids': 0}, 'both say which actors'),
    ):
        with pytest.raises(ConfigError, match=message):
            c.update_policy_weights_(**words)


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
    c.load_state_dict(state_dict=states)
    assert c.delivered == delivered, 'what was counted here stays'
    with pytest.raises(CheckpointMismatchError, match='3 actors there, 2 here'):
        c.load_state_dict([*states, states[0]])
