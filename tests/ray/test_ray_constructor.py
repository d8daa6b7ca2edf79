"""RayCollector from Python: TorchRL's parameters, an iterable of batches, actors that come and go."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from fault_envs import wait_until
from ray_runs import columns, is_conserved
from runs import differences
from zoo import TellingEnv, Toy

from rlframe.backend.ray.collector import RayCollector
from rlframe.data import Batch
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.errors import ConfigError
from rlframe.policy.dqn import DQNPolicy
from rlframe.worker.collector.serial_collector import SampleSerialCollector

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures('ray_of_tests')]


def dqn() -> DQNPolicy:
    spec = GymEnvFactory({'env_id': 'CartPole-v1'}).spec
    torch.manual_seed(0)
    return DQNPolicy({'model': {'encoder_hidden_size_list': [16]}}, spec)


def test_each_actor_has_its_own_env_arguments_options_and_a_class_of_the_program() -> None:
    options: dict[str, Any] = {'collector_class': Own, 'max_frames_per_traj': 3, 'sync': True}
    options['create_env_kwargs'] = [{'low': 0}, {'low': 5}]
    with RayCollector([ShiftedEnv, ShiftedEnv], frames_per_batch=8, **options) as collector:
        batch = collector.next()
        assert batch['obs'][:, 0].tolist() == [0] * 4 + [5] * 4
        assert batch['truncated'].tolist() == [False, False, True, False] * 2
        assert not batch['terminated'].any() and batch['own'].tolist() == [7] * 8


def test_random_frames_are_counted_as_delivered_and_deterministic_actions_are_the_best() -> None:
    with RayCollector(
        'CartPole-v1', right, frames_per_batch=10, sync=True, init_random_frames=15, postproc=with_sum
    ) as collector:
        actions = [np.array(collector.next()['action']) for _ in range(4)]
        assert set(actions[0]) | set(actions[1]) == {0, 1} and set(actions[2]) | set(actions[3]) == {1}
        assert collector.next()['sum'].tolist() == [10] * 10


def test_split_batches_are_pieces_of_episodes_in_order() -> None:
    options: dict[str, Any] = {'num_workers_per_collector': 3, 'split_trajs': True, 'device': 'cpu'}
    with RayCollector('CartPole-v1', dqn(), frames_per_batch=60, sync=True, **options) as collector:
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
    with RayCollector(TellingEnv, frames_per_batch=6, num_collectors=1) as c:
        seen: set[float] = set()

        def take() -> int:
            """Takes a batch and returns how many actors were seen since ``seen`` was empty."""
            batch = c.next()
            assert len(batch) == 6
            seen.update(np.asarray(batch['obs'])[:, 0])
            assert is_conserved(c)
            return len(seen)

        assert [take() for _ in range(3)] == [1, 1, 1]
        assert c.add_collectors() == [1]
        assert wait_until(lambda: take() == 2, 30), 'both deliver'
        c.remove_collectors([0])
        seen.clear()
        for _ in range(4):
            take()
        assert [*c._pool.slots] == [1]
        assert c._pool.slots[1].facts.pid in seen
        with pytest.raises(ConfigError, match='at least one actor must remain'):
            c.remove_collectors([1])


def test_set_seed_and_states_repeat_what_was_collected() -> None:
    with RayCollector('CartPole-v1', None, frames_per_batch=16, sync=True, num_collectors=2) as collector:
        collector.next()
        seeds = {collector.set_seed(7)}
        first = [columns(collector.next()) for _ in range(2)]
        state = collector.state_dict()
        then = [columns(collector.next()) for _ in range(2)]
        collector.load_state_dict(state)
        assert differences(then, [columns(collector.next()) for _ in range(2)]) == []
        seeds.add(collector.set_seed(7))
        assert differences(first, [columns(collector.next()) for _ in range(2)]) == []
        assert len(seeds) == 1
        collector.set_seed(7, static_seed=True)
        obs = np.array(collector.next()['obs'])
        assert np.array_equal(obs[0], obs[8]) and not np.array_equal(first[0]['obs'][0], first[0]['obs'][8])


# what the tests give to actors


class Own(SampleSerialCollector):
    """Is not registered."""

    def collect(self, *args: Any, **options: Any) -> Any:
        rows = super().collect(*args, **options)
        return rows.replace(own=np.full(len(rows), 7))


class ShiftedEnv(Toy):
    observation_space = gymnasium.spaces.Box(-10, 10, (1,), np.int64)
    length = None

    def __init__(self, low: int = 0) -> None:
        self._low = low

    def obs(self) -> Any:
        return np.array([self._low])

    def act(self, action: Any) -> Any:
        return 0.0


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
