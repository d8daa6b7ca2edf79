"""Parts created by their names, with options as arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import pytest
from error_texts import raises

from rlframe import envs, policy, worker
from rlframe.envs import BaseEnvManager, create_env_manager
from rlframe.envs.pettingzoo_env import PettingZooEnvFactory
from rlframe.errors import ConfigError, RegistryError
from rlframe.policy import create_policy
from rlframe.worker import (
    AdvancedReplayBuffer,
    NaiveReplayBuffer,
    create_buffer,
    create_serial_collector,
    create_serial_evaluator,
)


def test_parts_by_name_take_options_of_any_depth_and_arguments_of_the_constructor() -> None:
    envs = create_env_manager('base', 'CartPole-v1', env_num=2)
    assert isinstance(envs, BaseEnvManager) and envs.env_num == 2
    policy = create_policy('dqn', env=envs, batch_size=8, encoder_hidden_size_list=[16], seed=3)
    collector = create_serial_collector('sample', env=envs, policy=policy.collect_mode, seed=1)
    buffer = create_buffer('advanced', replay_buffer_size=64, alpha=0.5, seed=2)
    assert isinstance(buffer, AdvancedReplayBuffer)
    buffer.push(collector.collect(16, policy_kwargs={'eps': 0.5}), collector.envstep)
    assert policy.learn_mode.forward(buffer.sample(8, 0))['total_loss'] > 0
    evaluator = create_serial_evaluator('interaction', env=envs, policy=policy.eval_mode, n_episode=2)
    assert len(evaluator.eval()[1]['eval_episode_return']) == 2
    envs.close()


CREATED: dict[str, tuple[Any, ...]] = {  # a name, further arguments, an option and its value
    'create_buffer': ('naive', {}, 'replay_buffer_size', 7),
    'create_comm_collector': ('in_process', dict(collector=None, transport=None), 'timeout', 7.0),
    'create_comm_learner': ('in_process', dict(make_learner=None, transport=None), 'timeout', 7.0),
    'create_commander': (
        'base',
        dict.fromkeys(('learner', 'collector', 'evaluator', 'replay_buffer')),
        None,
        None,
    ),
    'create_env_manager': ('base', dict(env_fn='CartPole-v1'), 'max_restarts', 7),
    'create_learner': ('base', {}, 'only_monitor_rank0', False),
    'create_parallel_collector': ('zergling', dict(make_collector=None), None, None),
    'create_parallel_commander': ('solo', {}, 'collector_task_space', 7),
    'create_policy': ('dqn', dict(env='CartPole-v1'), 'batch_size', 7),
    'create_serial_collector': ('sample', {}, 'collect_print_freq', 7),
    'create_serial_evaluator': ('interaction', {}, 'eval_freq', 7),
}
FACTORIES = {
    name: getattr(room, name)
    for room in (worker, policy, envs)
    for name in room.__all__
    if name.startswith('create_')
}


@pytest.mark.parametrize('name', sorted(FACTORIES))
def test_every_factory_takes_a_name_with_options_or_a_section(name: str) -> None:
    create, (kind, given, option, value) = FACTORIES[name], CREATED[name]
    made = create(kind, **given, **({option: value} if option else {}))
    assert option is None or (option in repr(made._cfg) and repr(value) in repr(made._cfg))
    with raises(RegistryError):
        create(f'{kind}s', **given)
    if name not in (
        'create_policy',
        'create_parallel_commander',
    ):  # a section of a policy, and a whole config
        assert type(create({'type': kind}, **given)) is type(made)


def test_sections_are_mappings_and_options_are_laid_over_those_of_a_section() -> None:
    sizes = dict(encoder_hidden_size_list=[8])
    policy = create_policy('dqn', 'CartPole-v1', model=sizes, learn=dict(batch_size=3), nstep=2)
    assert policy._cfg.model.encoder_hidden_size_list == [8] and policy._cfg.learn.batch_size == 3
    given = dict(thruput_controller=dict(window_seconds=7.0))
    buffer = AdvancedReplayBuffer(given, sample_min_limit_ratio=3.0)
    control = buffer._cfg.thruput_controller
    assert (control.window_seconds, control.sample_min_limit_ratio) == (7.0, 3.0)
    assert given == dict(thruput_controller=dict(window_seconds=7.0))
    assert create_env_manager('base', 'CartPole-v1').env_num == 1


@pytest.mark.parametrize(
    'env', ['CartPole-v1', gymnasium.make('CartPole-v1'), gymnasium.make_vec('CartPole-v1', 2)]
)
def test_spaces_come_from_an_id_an_env_or_a_vector_env(env: Any) -> None:
    policy = create_policy('ppo', env=env)
    assert policy.spec.observation_space.shape == (4,) and policy.spec.action_space.n == 2


@pytest.mark.parametrize(
    ('create', 'error'),
    [
        (lambda: NaiveReplayBuffer(size=5), ConfigError),
        (lambda: NaiveReplayBuffer(replay_buffer_size=0), ConfigError),
        (lambda: create_buffer('naiv'), RegistryError),
        (lambda: create_policy('ppo', env='CartPole-v1', lr=1e-3), ConfigError),
        (lambda: create_policy('ppo', env=3), ConfigError),
        (lambda: create_policy('sac', env=gymnasium.make('Pendulum-v1'), learning_rate=1.0), ConfigError),
        (lambda: create_env_manager('base', 'CartPole-v1', 0), ConfigError),
        (lambda: create_env_manager('base', 'CartPole-v1', 2, retry=1), ConfigError),
        (lambda: create_env_manager({'type': 'base'}, 'CartPole-v1', 2, retry=1), TypeError),
    ],
)
def test_names_and_options_that_do_not_exist_are_named(
    create: Callable[[], Any], error: type[Exception]
) -> None:
    with raises(error):
        create()


def test_the_policy_of_a_game_is_that_of_one_of_its_players() -> None:
    game = PettingZooEnvFactory({'env_id': 'classic.tictactoe_v3'}).make()
    assert create_policy('dqn', env=game).spec.action_space.n == 9
    game.close()
