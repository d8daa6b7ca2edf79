"""Training loops and policies that DI-engine's users wrote by hand run with other imports."""

from __future__ import annotations

import json
import warnings
from collections import namedtuple
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from easydict import EasyDict
from error_texts import raises
from fakes import counting_manager
from games import counting_players

from rlframe.config import compile_config
from rlframe.data import Batch, EnvSpec
from rlframe.entry import random_collect
from rlframe.envs import BaseEnvManager, create_env_manager, get_vec_env_setting
from rlframe.errors import ConfigError, ConfigWarning
from rlframe.policy import create_policy
from rlframe.worker import (
    AdvancedReplayBuffer,
    BaseLearner,
    BattleEpisodeSerialCollector,
    BattleInteractionSerialEvaluator,
    BattleSampleSerialCollector,
    EpisodeSerialCollector,
    InteractionSerialEvaluator,
    SampleSerialCollector,
    create_comm_learner,
    create_learner,
)

pytestmark = pytest.mark.usefixtures('cwd')

CARTPOLE: dict[str, Any] = dict(
    exp_name='cartpole_seed0',
    env=dict(collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2, stop_value=1e9),
    policy=dict(
        cuda=False,
        model=dict(obs_shape=4, action_shape=2, encoder_hidden_size_list=[8]),
        learn=dict(batch_size=8, learning_rate=0.001),
        collect=dict(n_sample=16),
        eval=dict(evaluator=dict(eval_freq=4)),
    ),
)
CREATE: dict[str, Any] = dict(
    env=dict(type='cartpole', import_names=['dizoo.classic_control.cartpole.envs.cartpole_env']),
    env_manager=dict(type='base'),
)
LOOP = """
from functools import partial

from tensorboardX import SummaryWriter

from ding.config import compile_config
from ding.entry.utils import random_collect
from ding.envs import create_env_manager, get_vec_env_setting
from ding.policy import create_policy
from ding.utils import set_pkg_seed
from ding.worker import (
    BaseLearner, BaseSerialCommander, InteractionSerialEvaluator, create_buffer, create_serial_collector
)


def serial_pipeline(main_config, create_config, seed, max_train_iter):
    create_config.policy.type = create_config.policy.type + '_command'
    cfg = compile_config(
        main_config, seed=seed, env=None, auto=True, create_cfg=create_config, save_cfg=True, renew_dir=True
    )
    env_fn, collector_env_cfg, evaluator_env_cfg = get_vec_env_setting(cfg.env)
    collector_env = create_env_manager(cfg.env.manager, [partial(env_fn, cfg=c) for c in collector_env_cfg])
    evaluator_env = create_env_manager(cfg.env.manager, [partial(env_fn, cfg=c) for c in evaluator_env_cfg])
    collector_env.seed(cfg.seed, dynamic_seed=True)
    evaluator_env.seed(cfg.seed, dynamic_seed=False)
    set_pkg_seed(cfg.seed, use_cuda=cfg.policy.cuda)
    policy = create_policy(cfg.policy, model=None, enable_field=['learn', 'collect', 'eval', 'command'])
    tb_logger = SummaryWriter('./{}/log/serial'.format(cfg.exp_name))
    learner = BaseLearner(cfg.policy.learn.learner, policy.learn_mode, tb_logger, exp_name=cfg.exp_name)
    collector = create_serial_collector(
        cfg.policy.collect.collector,
        env=collector_env,
        policy=policy.collect_mode,
        tb_logger=tb_logger,
        exp_name=cfg.exp_name,
    )
    evaluator = InteractionSerialEvaluator(
        cfg.policy.eval.evaluator, evaluator_env, policy.eval_mode, tb_logger, exp_name=cfg.exp_name
    )
    replay_buffer = None
    if cfg.policy.other.replay_buffer is not None:
        replay_buffer = create_buffer(cfg.policy.other.replay_buffer, tb_logger=tb_logger, exp_name=cfg.exp_name)
    commander = BaseSerialCommander(
        cfg.policy.other.commander, learner, collector, evaluator, replay_buffer, policy.command_mode
    )
    learner.call_hook('before_run')
    if cfg.policy.get('random_collect_size', 0) > 0:
        random_collect(cfg.policy, policy, collector, collector_env, commander, replay_buffer)
    evaluations = []
    while learner.train_iter < max_train_iter:
        collect_kwargs = commander.step()
        if evaluator.should_eval(learner.train_iter):
            stop, info = evaluator.eval(learner.save_checkpoint, learner.train_iter, collector.envstep)
            evaluations.append(info['eval_episode_return'])
            if stop:
                break
        new_data = collector.collect(train_iter=learner.train_iter, policy_kwargs=collect_kwargs)
        if replay_buffer is None:
            learner.train(new_data, collector.envstep)
            continue
        replay_buffer.push(new_data, cur_collector_envstep=collector.envstep)
        for _ in range(cfg.policy.learn.update_per_collect):
            train_data = replay_buffer.sample(learner.policy.get_attribute('batch_size'), learner.train_iter)
            if train_data is None:
                break
            learner.train(train_data, collector.envstep)
            if learner.policy.get_attribute('priority'):
                replay_buffer.update(learner.priority_info)
    learner.call_hook('after_run')
    tb_logger.close()
    return policy, learner, collector, replay_buffer, evaluations


"""
"""A loop as DI-engine's users have it."""


def changed(section: dict[str, Any], **keys: Any) -> EasyDict:
    """Returns a copy of a config with other values at keys whose dots are written as two underscores."""
    copy = EasyDict(json.loads(json.dumps(section)))
    for key, value in keys.items():
        *path, name = key.split('__')
        below = copy
        for step in path:
            below = below.setdefault(step, EasyDict())
        below[name] = value
    return copy


def run(policy: str, seed: int = 0, **keys: Any) -> Any:
    loops: dict[str, Any] = {}
    exec(LOOP.replace('from ding.', 'from rlframe.'), loops)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', ConfigWarning)
        return loops['serial_pipeline'](
            changed(CARTPOLE, **keys), changed(CREATE, policy__type=policy), seed, 8
        )


def test_off_policy_loop_of_di_engine_runs_with_its_imports_changed_and_repeats_with_its_seed() -> None:
    keys = dict(policy__learn__update_per_collect=2, policy__random_collect_size=12, policy__priority=True)
    runs = [run('dqn', seed, **keys) for seed in (3, 3, 4)]
    policy, learner, collector, buffer, evaluations = runs[0]
    assert learner.train_iter == 8 and len(evaluations) == 2
    assert collector.envstep == 12 + 4 * 16 == buffer.count()
    assert len(learner.priority_info['priority']) == 8 and Path('cartpole/ckpt').is_dir()
    assert type(policy).__name__ == 'DQNPolicy'
    weights = [torch.cat([p.detach().flatten() for p in each[0].model.parameters()]) for each in runs]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])


def test_on_policy_loop_of_di_engine_runs_with_its_imports_changed() -> None:
    keys = dict(policy__learn__epoch_per_collect=2, policy__action_space='discrete')
    _, learner, collector, _, evaluations = run('ppo', **keys)
    assert learner.train_iter == 8 and collector.envstep == 2 * 16 and len(evaluations) == 2


Functions = namedtuple(
    'Functions', ['forward', 'process_transition', 'get_train_sample', 'reset', 'get_attribute']
)
EvalFunctions = namedtuple('EvalFunctions', ['forward', 'reset', 'get_attribute'])


class OwnPolicy:
    """A policy as DI-engine's users write it: dicts from env id to observation, one transition at a time."""

    def __init__(self, **facts: Any) -> None:
        self.facts = {'n_sample': 6, 'n_episode': 2, **facts}
        self.resets: list[Any] = []
        self.trajectories: list[list[Any]] = []

    def _forward(self, data: dict[int, Any], eps: float = 0.0) -> dict[int, Any]:
        self.eps = eps
        assert all(obs.dtype == torch.float32 for obs in data.values())
        return {env: {'action': torch.tensor([0]), 'told': {'obs': obs}} for env, obs in data.items()}

    def _eval(self, data: dict[int, Any]) -> dict[int, Any]:
        return self._forward(data)

    def _process_transition(self, obs: Any, policy_output: Any, timestep: Any) -> dict[str, Any]:
        next_obs, reward, done, _ = timestep
        assert np.array_equal(policy_output['told']['obs'], obs)
        return {
            'obs': obs,
            'next_obs': next_obs,
            'action': policy_output['action'],
            'reward': reward,
            'done': done,
        }

    def _get_train_sample(self, transitions: list[Any]) -> list[Any]:
        self.trajectories.append(transitions)
        return transitions

    def _reset(self, data_id: Any = None) -> None:
        self.resets.append(data_id)

    def _get_attribute(self, name: str) -> Any:
        if name not in self.facts:
            raise NotImplementedError(name)
        return self.facts[name]

    @property
    def collect_mode(self) -> Any:
        return Functions(
            self._forward,
            self._process_transition,
            self._get_train_sample,
            self._reset,
            self._get_attribute,
        )

    @property
    def eval_mode(self) -> Any:
        return EvalFunctions(self._eval, self._reset, self._get_attribute)


def test_policy_of_di_engines_form_collects_samples_of_one_env_and_episode_at_a_time() -> None:
    policy = OwnPolicy()
    collector = SampleSerialCollector({}, counting_manager(2), policy.collect_mode)
    samples = collector.collect(policy_kwargs={'eps': 0.5})
    assert len(samples) == 6 and policy.eps == 0.5
    assert samples['action'].shape == (6, 1) and samples['reward'].shape == (6, 1)
    for trajectory in policy.trajectories:
        places = [tuple(row['obs'][:2].tolist()) for row in trajectory]
        assert len(set(places)) == 1  # the env and its episode
        assert [row['done'] for row in trajectory[:-1]] == [False] * (len(trajectory) - 1)
    assert np.array_equal(samples['terminated'] | samples['truncated'], samples['done'])
    for _ in range(4):
        collector.collect()
    assert policy.resets[0] is None and [0, 1] in policy.resets


def test_policy_of_di_engines_form_collects_and_plays_episodes() -> None:
    policy = OwnPolicy()
    collector = EpisodeSerialCollector({}, counting_manager(2), policy.collect_mode)
    episodes = collector.collect()
    assert [bool(episode['done'][-1]) for episode in episodes] == [True, True]
    assert not any(episode['done'][:-1].any() for episode in episodes)
    evaluator = InteractionSerialEvaluator({'n_episode': 2}, counting_manager(2), policy.eval_mode)
    _, info = evaluator.eval()
    assert len(info['eval_episode_return']) == 2


def test_policies_of_di_engines_form_play_games() -> None:
    policies = [OwnPolicy(), OwnPolicy()]
    modes = [policy.collect_mode for policy in policies]
    episodes, infos = BattleEpisodeSerialCollector({}, counting_players(2), modes).collect()
    assert len(episodes) == 2 and len(infos[0]) == 2 and all(len(own) == 2 for own in episodes)
    with raises(ConfigError):
        BattleSampleSerialCollector({}, counting_players(2), modes).collect()
    evaluator = BattleInteractionSerialEvaluator(
        {'n_episode': 2}, counting_players(2), [p.eval_mode for p in policies]
    )
    assert len(evaluator.eval()[1]['eval_episode_return']) == 2


def test_learner_takes_rows_of_di_engine() -> None:
    cfg = dict(type='dqn', model=dict(obs_shape=4, action_shape=2, encoder_hidden_size_list=[8]))
    rng = np.random.default_rng(0)
    own, rows = [], []
    for i in range(8):
        obs, reward = rng.normal(size=(2, 4)).astype(np.float32), np.float32(rng.normal())
        row = {'obs': obs[0], 'next_obs': obs[1], 'action': np.int64(i % 2), 'reward': reward}
        own.append(row | {'terminated': i % 3 == 0})
        rows.append(
            {name: torch.as_tensor(value).reshape(-1) for name, value in row.items()} | {'done': i % 3 == 0}
        )
    losses = []
    for data in (own, rows, Batch.from_rows(rows).map(np.asarray)):
        torch.manual_seed(0)
        learner = BaseLearner({}, create_policy(cfg).learn_mode)
        losses.append(float(learner.train(data)[0]['total_loss']))
    assert losses[0] == losses[1] == losses[2]


def test_several_rewards_in_a_row_are_refused() -> None:
    learner = BaseLearner(
        {}, create_policy(EasyDict(type='dqn', model=dict(obs_shape=2, action_shape=2))).learn_mode
    )
    obs = np.zeros(2, np.float32)
    row = {'obs': obs, 'next_obs': obs, 'action': 0, 'reward': np.zeros(3, np.float32), 'done': False}
    with raises(ValueError):
        learner.train([row] * 4)


def test_policy_is_created_from_a_section_with_sizes() -> None:
    section = changed(CARTPOLE).policy | {'type': 'dqn_command'}
    policy = create_policy(EasyDict(section))
    spec: EnvSpec = policy.get_attribute('spec')
    assert spec.observation_space.shape == (4,) and spec.action_space.n == 2  # type: ignore[attr-defined]
    said = policy.collect_mode.forward({0: np.zeros(4, np.float32), 3: np.ones(4, np.float32)}, eps=0.1)
    assert set(said) == {0, 3}
    box = create_policy({'type': 'sac', 'model': {'obs_shape': [3], 'action_shape': 2}}).get_attribute('spec')
    assert box.action_space.shape == (2,)
    ppo = {'type': 'ppo', 'action_space': 'continuous', 'model': {'obs_shape': 3, 'action_shape': 1}}
    assert create_policy(ppo).get_attribute('spec').action_space.shape == (1,)
    with raises(ConfigError):
        create_policy({'type': 'dqn', 'model': {'action_shape': 2}})


def test_policy_of_a_compiled_section_has_the_spaces_and_the_seed_of_its_config() -> None:
    cfg = compile_config({'env': {'env_id': 'CartPole-v1'}}, {'policy': {'type': 'dqn'}}, seed=5)
    policy = create_policy(cfg.policy)
    assert policy.get_attribute('spec').name == 'CartPole-v1'
    same = create_policy(cfg.policy, policy.get_attribute('spec'), seed=5)
    assert policy.get_attribute('rng').random() == same.get_attribute('rng').random()


@pytest.mark.parametrize('manager', ['base', 'gym_vector'])
def test_seeds_of_a_manager_are_those_that_its_envs_begin_with(manager: str) -> None:
    cfg = EasyDict(env_id='Acrobot-v1', collector_env_num=2, evaluator_env_num=1)
    env_fn, collect, evaluate = get_vec_env_setting(cfg)
    assert collect is not None and evaluate is not None and (len(collect), len(evaluate)) == (2, 1)
    env = create_env_manager(EasyDict(type=manager), [partial(env_fn, cfg=c) for c in collect])
    alone = env_fn(evaluate[0])
    first = [alone.reset(seed=seed)[0] for seed in (7, 8)]
    for seeds in (7, [7, 8], {0: 7, 1: 8}):
        env.seed(seeds, dynamic_seed=True)
        env.reset()
        assert np.array_equal(env.obs, first)
        env.reset()
        assert not np.array_equal(env.obs, first)
    env.seed(7)
    SampleSerialCollector({}, env, OwnPolicy().collect_mode)
    assert np.array_equal(env.obs, first)
    with raises(ValueError):
        env.seed([1, 2, 3])
    env.close()


def test_static_seed_begins_every_episode_of_an_env_alike() -> None:
    env_fn, collect, _ = get_vec_env_setting(EasyDict(env_id='CartPole-v1', collector_env_num=2), eval_=False)
    assert collect is not None
    env = BaseEnvManager([partial(env_fn, cfg=c) for c in collect])
    env.seed(3, dynamic_seed=False)
    env.reset()
    first = env.obs.copy()
    env.reset(np.array([1]))
    assert np.array_equal(env.obs, first)
    alone = env_fn(collect[0])
    alone.seed(3, dynamic_seed=False)
    assert all(np.array_equal(alone.reset()[0], first[0]) for _ in range(2))
    alone.seed(3, dynamic_seed=True)
    assert np.array_equal(alone.reset()[0], first[0]) and not np.array_equal(alone.reset()[0], first[0])


def test_envs_of_evaluations_follow_the_seed_of_their_manager() -> None:
    found = []
    for seed in (1, 1, 2):
        env = counting_manager(2)
        env.seed(seed, dynamic_seed=False)
        evaluator = InteractionSerialEvaluator({'n_episode': 2}, env, OwnPolicy().eval_mode)
        evaluator.eval()
        found.append(env._episodes.begun)
    assert found[0] == found[1] != found[2]


def test_random_data_are_pushed_after_the_users_function() -> None:
    cfg = compile_config(
        {'env': {'env_id': 'CartPole-v1'}, 'policy': {'random_collect_size': 10}}, {'policy': {'type': 'dqn'}}
    )
    env = create_env_manager(
        {'type': 'base'},
        [partial(get_vec_env_setting(cfg.env)[0], cfg=c) for c in get_vec_env_setting(cfg.env)[1] or []],
    )
    policy = create_policy(cfg.policy)
    collector = SampleSerialCollector({}, env, policy.collect_mode)
    buffer = AdvancedReplayBuffer({})
    random_collect(
        cfg.policy, policy, collector, env, None, buffer, postprocess_data_fn=lambda data: data[:4]
    )
    assert buffer.count() == 4 and set(buffer.sample(4, 0)['action'].tolist()) <= {0, 1}  # type: ignore[call-overload, index]


def test_unique_ids_of_items_may_be_texts() -> None:
    buffer = AdvancedReplayBuffer({'replay_buffer_size': 4, 'alpha': 1.0})
    buffer.push([{'a': i} for i in range(3)], 0)
    info = {'replay_buffer_idx': [0, 1, 2], 'priority': [0.0, 5.0, 0.0]}
    buffer.update(info | {'replay_unique_id': ['buffer_0', 'buffer_1', 'buffer_2']})
    rows: Any = buffer.sample(3, 0)
    assert set(rows['a'].tolist()) == {1}
    with raises(ValueError):
        buffer.update(info | {'replay_unique_id': ['buffer_0', 'mine', 'buffer_2']})


def test_types_may_lie_under_di_engines_keys() -> None:
    assert isinstance(create_learner(EasyDict(learner_type='base')), BaseLearner)
    with pytest.raises(Exception, match='naive_fs'):
        create_comm_learner(EasyDict(comm_learner_type='naive_fs'))
    main = changed(CARTPOLE, policy__learn__learner__learner_type='base')
    main.system_config = dict(comm_learner_type='flask_fs', comm_collector_type='flask_fs')
    create = changed(CREATE, policy__type='dqn', collector__type='zergling')
    with pytest.warns(ConfigWarning, match='comm_learner_type -> create_config.comm_learner.type'):
        cfg = compile_config(main, create, parallel=True)
    assert cfg.parallel.comm_learner.type == cfg.parallel.comm_collector.type == 'flask_fs'
    assert cfg.policy.learn.learner.type == 'base'
