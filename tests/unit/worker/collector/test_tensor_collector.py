"""Rollouts and training samples that stay on a device equal what a loop over single envs gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from error_texts import raises
from fakes import FakeBoard, ScriptedPolicy, counting_manager
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import ROOT
from tensor_envs import Changed, ScriptedTensors, StatelessCartPole, counting_tensors

from rlframe.config import compile_config
from rlframe.data.returns import gae, gae_of_tensors
from rlframe.data.timestep import EnvSpec
from rlframe.envs.tensor import TorchCartPole, TorchPendulum
from rlframe.envs.tensor_manager import TensorEnvManager
from rlframe.errors import ConfigError, ConfigErrors, EpisodeTooLongError, IncompatibleError, NonFiniteError
from rlframe.model.distributions import distribution_for
from rlframe.policy.dqn import DQNPolicy
from rlframe.policy.parts.actions import ActionMap
from rlframe.policy.parts.tensor_acting import action_map
from rlframe.policy.ppo import A2CPolicy, PPOPolicy
from rlframe.worker.collector.tensor_collector import TensorSerialCollector

T, N = 40, 6


def policy_for(env: TensorEnvManager, kind: Any = PPOPolicy, seed: int = 0, **sections: Any) -> Any:
    """Returns a small policy for an env."""
    torch.manual_seed(0)
    cfg = {'cuda': False, 'model': dict(encoder_hidden_size_list=[8]), 'collect': dict(n_sample=T * N)}
    return kind(cfg | sections, env.spec, seed=seed)


def collector_for(env: Any, policy: Any, seed: int = 0, **given_: Any) -> TensorSerialCollector:
    return TensorSerialCollector({}, env, policy.collect_mode, seed=seed, **given_)


def short(kind: Any) -> Any:
    """Returns envs that are cut off after 15 steps."""
    envs = kind(N, 'cpu')
    envs._time_limit = 15
    return envs


def naive_samples(kind: Any, policy: Any, batch: Any, seeds: list[int]) -> dict[str, np.ndarray]:
    """Steps the same envs by the same actions, and makes samples env by env and row by row, from the last to the first."""
    cfg, model = policy._cfg.collect, policy.model
    actions = batch['action'].reshape(T, N, *batch['action'].shape[1:])
    to_env = ActionMap(policy.spec).to_env
    envs = short(kind)
    obs, rows = envs.reset(seed=seeds[0])[0], []
    for t in range(T):
        given_ = torch.from_numpy(np.ascontiguousarray(to_env(actions[t].numpy())))
        after, reward, terminated, truncated, info = envs.step(given_)
        rows.append((obs, reward, terminated, truncated, info['final_obs']))
        obs = after
    columns: dict[str, Any] = {name: np.zeros((T, N), np.float32) for name in ('advantage', 'return_')}
    columns['obs'] = np.stack([row[0].numpy() for row in rows])
    with torch.no_grad():
        for env in range(N):
            following = 0.0
            for t in reversed(range(T)):
                now, reward, terminated, truncated, final = (column[env] for column in rows[t])
                value = model.value(now[None]).item()
                behind = 0.0 if terminated else model.value(final[None]).item()
                is_cut = bool(terminated or truncated) or t == T - 1
                delta = reward.item() + cfg.discount_factor * behind - value
                following = delta + (0.0 if is_cut else cfg.discount_factor * cfg.gae_lambda * following)
                columns['advantage'][t, env], columns['return_'][t, env] = following, following + value
    return columns


@pytest.mark.parametrize(
    ('kind', 'policy_kind'),
    [(TorchCartPole, PPOPolicy), (TorchPendulum, A2CPolicy)],
)
def test_samples_equal_those_of_a_loop_over_single_envs(kind: Any, policy_kind: Any) -> None:
    env = TensorEnvManager(short(kind))
    policy = policy_for(env, policy_kind)
    collector = collector_for(env, policy)
    seeds = list(env._episodes.begun)
    batch = collector.collect(train_iter=3)
    want = naive_samples(kind, policy, batch, seeds)
    assert len(batch) == T * N and collector.envstep == T * N
    np.testing.assert_array_equal(batch['obs'].numpy(), want['obs'].reshape(T * N, -1))
    for name in ('advantage', 'return_'):
        np.testing.assert_allclose(batch[name].numpy(), want[name].reshape(-1), rtol=2e-4, atol=2e-4)
    with torch.no_grad():
        logit = policy.model.logit(batch['obs'])
        log_prob, _ = policy.distribution.evaluate(logit, batch['action'])
    np.testing.assert_allclose(batch['log_prob'].numpy(), log_prob.numpy(), rtol=1e-5, atol=1e-5)
    assert batch['collect_iter'].tolist() == [3] * T * N


@given(
    steps=st.integers(1, 12),
    envs=st.integers(1, 4),
    discount=st.floats(0.0, 1.0),
    lambda_=st.floats(0.0, 1.0),
    seed=st.integers(0, 99),
)
@settings(max_examples=25, deadline=None)
def test_advantages_of_tensors_are_those_of_arrays(
    steps: int, envs: int, discount: float, lambda_: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    reward, value, next_value = rng.normal(size=(3, steps, envs)).astype(np.float32)
    done = rng.random((steps, envs)) < 0.3
    columns = reward, value, next_value, done
    got = gae_of_tensors(*map(torch.from_numpy, columns), discount, lambda_)
    np.testing.assert_allclose(got.numpy(), gae(*columns, discount, lambda_), rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match='shapes must agree'):
        gae_of_tensors(*map(torch.from_numpy, (reward[:-1], value, next_value, done)), discount, lambda_)


SPACES = {
    'Discrete': dict(n=3, start=2),
    'MultiDiscrete': dict(nvec=[2, 3]),
    'MultiBinary': dict(n=3),
    'Box': dict(low=np.array([-1, 0], np.float32), high=np.array([2, 4], np.float32)),
}


@pytest.mark.parametrize('name', SPACES)
def test_actions_drawn_on_the_device_have_the_distribution_of_the_policy(name: str) -> None:
    import gymnasium

    space = getattr(gymnasium.spaces, name)(**SPACES[name])
    spec = EnvSpec(gymnasium.spaces.Box(0, 1, (1,)), space)
    distribution, count = distribution_for(space), 40_000
    outputs = distribution.size + distribution.log_std_size
    logit = torch.linspace(-0.8, 0.7, outputs).expand(count, outputs)
    generator = torch.Generator().manual_seed(0)
    drawn = distribution.sample_tensor(logit, generator)
    want = distribution.sample(logit.numpy().copy(), np.random.default_rng(0))
    assert drawn.shape == want.shape
    assert name == 'Box' or str(drawn.dtype).endswith(str(want.dtype))
    np.testing.assert_allclose(drawn.double().mean(0), want.astype(float).mean(0), atol=0.03)
    np.testing.assert_allclose(drawn.double().std(0), want.astype(float).std(0), atol=0.03)
    again = distribution.sample_tensor(logit, torch.Generator().manual_seed(0))
    assert torch.equal(drawn, again) and not torch.equal(drawn, distribution.sample_tensor(logit, generator))
    to_env = action_map(spec, torch.device('cpu'))(drawn)
    np.testing.assert_allclose(to_env.numpy(), ActionMap(spec).to_env(drawn.numpy()), rtol=1e-6)
    assert str(to_env.dtype).endswith(str(np.dtype(space.dtype)))
    assert all(space.contains(action) for action in to_env[:50].numpy())


def test_returns_and_lengths_are_counted_across_calls() -> None:
    env, board = counting_tensors(2, lengths=[3, 4]), FakeBoard()
    policy = ScriptedTensors(n_sample=10)
    collector = TensorSerialCollector({'collect_print_freq': 1}, env, policy.collect_mode, board)
    assert np.isnan(collector.mean_return())
    collector.collect()
    # env 0 ends after steps 3, 6, 9, 12, ..., env 1 after 4, 8, 12, ...
    first = [[1 + 2 + 3, 3], [4 * 100_000 + 1 + 2 + 3 + 4, 4]]
    assert collector.take_episodes()[:, :2].tolist() == first
    collector.collect()
    second = [[3000 + 6, 3], [4 * 101_000 + 10, 4], [6000 + 6, 3]]
    assert collector.take_episodes()[:, :2].tolist() == second
    collector.collect(train_iter=5)
    assert board.last('rollout/ep_len_mean') > 3 and board.last('rollout/episodes') == 8
    assert collector.mean_return() > 0


def test_an_episode_that_does_not_end_is_an_error() -> None:
    env, policy = counting_tensors(2, lengths=[3, 1000]), ScriptedTensors(n_sample=20)
    collector = TensorSerialCollector({'max_episode_len': 25}, env, policy.collect_mode)
    collector.collect()
    collector.collect()
    with raises(EpisodeTooLongError):
        collector.collect()


@pytest.mark.parametrize('place', [0, 1, 4])
def test_what_is_not_finite_is_named_and_not_returned(place: int) -> None:
    def spoilt(values: torch.Tensor) -> torch.Tensor:
        values = values.clone()
        values[3] = float('nan')
        return values

    class Ending(Changed):
        def _advance(self, state: torch.Tensor, action: torch.Tensor) -> Any:
            state, reward, terminated = super()._advance(state, action)
            return state, reward, torch.full_like(terminated, place == 4)

    env = TensorEnvManager(Ending(N, place, spoilt, after=7))
    with raises(NonFiniteError):
        collector_for(env, policy_for(env)).collect()


def test_a_policy_that_diverged_is_named() -> None:
    env = TensorEnvManager(TorchCartPole(N, 'cpu'))
    policy = policy_for(env)
    with torch.no_grad():
        next(policy.model.parameters()).fill_(float('nan'))
    with raises(NonFiniteError):
        collector_for(env, policy).collect()


@pytest.mark.parametrize('kind', [TorchCartPole, TorchPendulum, StatelessCartPole])
def test_a_saved_collector_goes_on_to_the_bit(kind: Any) -> None:
    env, other_env = TensorEnvManager(kind(N, 'cpu')), TensorEnvManager(kind(N, 'cpu'))
    policy = policy_for(env)
    one, other = collector_for(env, policy), collector_for(other_env, policy, seed=9)
    one.collect()
    other.collect()
    one.settle()
    reason = 'StatelessCartPole has no state_dict and no load_state_dict'
    assert bool(one.unsaved) == (kind is StatelessCartPole) and all(
        reason in why for why in one.unsaved.values()
    )
    state = one.state_dict()
    other.load_state_dict(state)
    for _ in range(3):
        first, second = one.collect(), other.collect()
        for name, column in first.items():
            assert np.array_equal(column, second[name]), name
        np.testing.assert_array_equal(one.take_episodes(), other.take_episodes())
    assert one._rollout.state_dict()['return'].tolist() == other._rollout.state_dict()['return'].tolist()


def test_a_generator_of_another_device_does_not_continue_exactly_and_says_so() -> None:
    env = TensorEnvManager(TorchCartPole(N, 'cpu'))
    collector = collector_for(env, policy_for(env))
    state = collector.state_dict()
    state['rollout']['generator'] = torch.arange(16, dtype=torch.uint8)  # as CUDA has them
    collector.load_state_dict(state)
    assert len(collector.unsaved) == N and 'actions were not drawn on cpu' in collector.unsaved[0]
    collector.collect()


def test_updates_from_tensors_equal_updates_from_arrays() -> None:
    env = TensorEnvManager(short(TorchCartPole))
    batch = collector_for(env, policy_for(env)).collect()
    weights = []
    for rows in (batch, batch.map(np.asarray)):
        learn = dict(value_norm=True, value_clip=0.3, advantage_norm='round', batch_size=64)
        policy = policy_for(env, learn=learn)
        for update in policy.learn_mode.forward(rows):
            update()
        weights.append(torch.cat([weight.flatten() for weight in policy.model.parameters()]))
    assert torch.equal(*weights)


class OwnAdvantage(PPOPolicy):
    """PPO that changes the training samples of arrays only."""

    def get_train_sample(self, block: Any) -> Any:
        return super().get_train_sample(block)


def test_policies_and_envs_that_cannot_are_refused_by_name() -> None:
    env = TensorEnvManager(TorchCartPole(N, 'cpu'))
    for kind, options in (
        (DQNPolicy, dict(collect=dict(n_sample=N))),
        (PPOPolicy, dict(normalize_obs=True)),
        (PPOPolicy, dict(normalize_reward=True)),
        (PPOPolicy, dict(model=dict(core='gru'))),
        (OwnAdvantage, {}),
    ):
        with raises(IncompatibleError):
            collector_for(env, policy_for(env, kind, **options))
    with raises(IncompatibleError):
        collector_for(counting_manager(2), ScriptedTensors())
    elsewhere = ScriptedTensors()
    elsewhere.facts['tensor_mode'] = elsewhere.facts['tensor_mode']._replace(device=torch.device('meta'))
    with raises(IncompatibleError):
        collector_for(env, elsewhere)
    with raises(ValueError):
        collector_for(env, ScriptedTensors(n_sample=7)).collect()
    with raises(IncompatibleError):
        collector_for(env, ScriptedTensors()).reset_policy(ScriptedPolicy().collect_mode)


def config(*overrides: str, **parts: Any) -> Any:
    from rlframe.config import read_config

    main, create = read_config(str(ROOT / 'configs' / 'cartpole_torch_ppo.py'))
    return compile_config(main, {**create, **parts}, overrides=overrides)


def test_configs_that_cannot_stay_on_the_device_are_refused_before_anything_starts() -> None:
    bad = {
        'env_manager.type=base': 'env.manager.type',
        'policy.normalize_obs=true': 'policy.normalize_obs',
        'collector.info_metrics=all': 'policy.collect.collector.info_metrics',
        'collector.mark_episodes=true': 'policy.collect.collector.mark_episodes',
        'policy.collect.n_sample=100': 'policy.collect.n_sample',
    }
    with pytest.raises(ConfigErrors) as caught:
        config(*bad)
    assert {error.where for error in caught.value.errors} == set(bad.values())
    for overrides in (
        ['collector.backend=ray'],
        ['policy.collect.n_episode=4', 'policy.collect.n_sample=None'],
    ):
        with raises(ConfigError):
            config(*overrides)


def test_a_replay_buffer_and_parallel_mode_are_refused_by_the_config() -> None:
    comm = {name: dict(type='flask_fs') for name in ('comm_collector', 'comm_learner')}
    with raises(ConfigError):
        config('policy.type=dqn')
    with raises(ConfigError):
        config(**comm, commander=dict(type='solo'))
