"""A part of the observations that only critics read: privileged training, which evaluation and exports do without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from error_texts import raises
from exported import trained
from fakes import config_pair
from gymnasium import spaces
from zoo import CLASSES, HiddenGoalEnv, IdentityEnv, Toy

import rlframe
from rlframe import config
from rlframe.data import Array, EnvSpec
from rlframe.data.observation import zero_obs
from rlframe.data.timestep import spec_of
from rlframe.envs.wrappers import InfoObservation
from rlframe.errors import ConfigError, IncompatibleError
from rlframe.export import export_policy
from rlframe.pipeline import SerialPipeline, build
from rlframe.policy import create_policy
from rlframe.run.read_checkpoint import load_checkpoint

GOAL = dict(critic_obs='goal', encoder_hidden_size_list=[8])
CORE = dict(core='gru', core_hidden_size=8)
DISCRETE = spaces.Discrete(4)
NUMBERS = spaces.Box(-1, 1, (2,), np.float32)
ACTORS: dict[str, tuple[dict[str, Any], Any]] = {
    'ppo': ({}, DISCRETE),
    'ppo gru': (CORE, DISCRETE),
    'impala': ({}, DISCRETE),
    'ppg': ({}, DISCRETE),
    'sac_discrete': ({}, DISCRETE),
    'sac_discrete gru': (CORE, DISCRETE),
    'sac': ({}, NUMBERS),
    'td3': ({}, NUMBERS),
    'tqc': ({}, NUMBERS),
    'crossq': ({}, NUMBERS),
}
"""Policies, with options of their network, and the actions that they are tried with."""


def observations(goal: float, space: Any = HiddenGoalEnv.observation_space) -> Array:
    obs = zero_obs(space, 4)
    obs['observation'] = CLASSES
    obs['goal'] = goal
    return obs


def values(policy: Any, obs: Any) -> torch.Tensor:
    """Returns what the critics of a policy say of observations."""
    model, tensor = policy.model, policy.tensor(obs)
    if hasattr(model, 'value_step'):
        return model.value_step(tensor, torch.zeros(4, *model.state_shape))[0]
    if hasattr(model, 'act'):
        return model.critic.nets[0].step(tensor, torch.zeros(4, 1, 8))[0]
    if hasattr(model, 'logit'):
        return model.value(tensor)
    return model.critic(tensor, *([torch.zeros(4, 2)] if policy.spec.action_space == NUMBERS else []))


@pytest.mark.parametrize('name', ACTORS)
def test_only_critics_read_the_part(name: str) -> None:
    model, action = ACTORS[name]
    spec = EnvSpec(HiddenGoalEnv.observation_space, action, name='Goal-v0')
    policy: Any = create_policy(dict(type=name.partition(' ')[0], model=GOAL | model), spec)
    policy.reset_eval()
    near, far = observations(0.0), observations(1.0)
    acted = [policy.eval_mode.forward(obs, np.arange(4))['action'] for obs in (near, near, far)]
    policy.reset_eval()
    others = [policy.eval_mode.forward(obs, np.arange(4))['action'] for obs in (far, far, near)]
    np.testing.assert_array_equal(acted, others)
    with torch.no_grad():
        assert not torch.allclose(values(policy, near), values(policy, far))


def right_share(critic_obs: str | None, filters: dict[str, Any]) -> float:
    """Trains a PPO, and returns the mean probability that it names the class."""
    main, create = config_pair(
        env_id='zoo:HiddenGoalEnv',
        policy='ppo',
        env=filters,
        model=dict(critic_obs=critic_obs, critic_hidden_size_list=[], encoder_hidden_size_list=[32]),
        learn=dict(batch_size=64, learning_rate=1e-2, value_norm=True, epoch_per_collect=10),
        collect=dict(n_sample=512, discount_factor=0.0),
        evaluator=dict(eval_freq=10**6),
        max_env_step=6000,
    )
    with SerialPipeline(config.compile_config(main, create, seed=0)) as pipeline:
        pipeline.run()
    policy: Any = pipeline.policy
    obs = observations(0.5) if critic_obs else observations(0.5)[['observation']]
    return float(torch.from_numpy(policy._logit(obs)).softmax(1).diagonal().mean())


@pytest.mark.usefixtures('cwd')
def test_a_task_whose_returns_depend_on_a_hidden_goal_is_learned_if_the_critic_sees_it() -> None:
    assert right_share('goal', {}) > 0.9


@pytest.mark.slow
@pytest.mark.usefixtures('cwd')
def test_the_same_task_is_not_learned_if_nobody_sees_the_goal() -> None:
    no_goal = dict(wrappers=[dict(type='FilterObservation', filter_keys=['observation'])])
    assert right_share(None, no_goal) < 0.6


SEES = dict(model=dict(critic_obs='goal'), normalize_obs=True)


@pytest.mark.usefixtures('cwd')
@pytest.mark.parametrize(
    ('policy', 'options'), [('ppo', SEES), ('sac_discrete', dict(model=CORE | dict(critic_obs='goal')))]
)
def test_an_exported_policy_acts_as_evaluations_do_without_the_part(
    policy: str, options: dict[str, Any]
) -> None:
    checkpoint = trained(policy, dict(env_id='zoo:HiddenGoalEnv'), options)
    loaded = rlframe.load(export_policy(checkpoint)['artifact'])
    assert list(loaded.observation_space) == ['observation']
    assert not any('critic' in name for name in loaded.policy.model.state_dict())
    saved, manifest = load_checkpoint(checkpoint)
    cfg = config.compile_config(**config.config_of(manifest, ''))
    judge: Any = build.make_policy(cfg, build.make_factory(cfg).spec, fields=('eval',))
    build.load_network(judge, saved, manifest, cfg, '')
    for goal in (0.0, 1.0):
        obs = observations(goal)
        wanted = judge.eval_mode.forward(obs, np.arange(4))['action']
        np.testing.assert_array_equal(loaded.act({'observation': CLASSES}), wanted)


BAD: dict[str, tuple[type[Exception], Any, dict[str, Any]]] = {
    'unknown': (IncompatibleError, HiddenGoalEnv, dict(critic_obs='gaol')),
    'no parts': (IncompatibleError, IdentityEnv, dict(critic_obs='goal')),
    'all': (IncompatibleError, IdentityEnv, dict(critic_obs='observation')),
    'shared': (ConfigError, HiddenGoalEnv, dict(critic_obs='goal', share_encoder=True)),
}


@pytest.mark.parametrize('name', BAD)
def test_a_part_that_the_actor_needs_or_nobody_shows_is_an_error(name: str) -> None:
    error, env, model = BAD[name]
    spec = spec_of(env())
    if name == 'all':
        space = spaces.Dict(observation=IdentityEnv.observation_space, action_mask=spaces.MultiBinary(4))
        spec = EnvSpec(space, DISCRETE, name='Masked-v0')
    with raises(error):
        create_policy(dict(type='ppo', model=model), spec)


def test_bcq_acts_by_its_critics_so_they_see_no_more_than_it() -> None:
    spec = EnvSpec(HiddenGoalEnv.observation_space, NUMBERS, name='Goal-v0')
    with raises(ConfigError):
        create_policy(dict(type='bcq', model=GOAL), spec)


class TellingEnv(Toy):
    """Tells its steps, in its info and by the method of its state."""

    observation_space = spaces.Box(0, 1, (2,), np.float32)

    def info(self) -> dict[str, Any]:
        return {'steps': self.steps, 'name': 'telling'}

    def state(self) -> Array:
        return np.array([self.steps, 7], np.float32)


class PartsEnv(TellingEnv):
    """Shows parts."""

    observation_space = spaces.Dict(place=spaces.Discrete(3))

    def obs(self) -> Any:
        return {'place': np.int64(1)}


@pytest.mark.parametrize(
    ('kind', 'key', 'names', 'told'),
    [
        (TellingEnv, 'steps', ['observation', 'steps'], 1),
        (TellingEnv, 'state()', ['observation', 'state'], [1, 7]),
        (PartsEnv, 'state()', ['place', 'state'], [1, 7]),
    ],
)
def test_what_an_env_tells_becomes_a_part_of_its_observations(
    kind: Any, key: str, names: list[str], told: Any
) -> None:
    env = InfoObservation(kind(), key)
    assert list(env.observation_space) == names
    env.reset(seed=0)
    obs = env.step(0)[0]
    assert env.observation_space.contains(obs), obs
    np.testing.assert_array_equal(obs[names[-1]], told)


@pytest.mark.parametrize(
    ('kind', 'key'), [(TellingEnv, 'step'), (IdentityEnv, 'state()'), (PartsEnv, 'place')]
)
def test_what_an_env_does_not_tell_is_an_error(kind: Any, key: str) -> None:
    with raises(ConfigError):
        InfoObservation(kind(), key)


def test_a_mask_beside_the_parts_hides_none_of_them() -> None:
    space = spaces.Dict(observation=HiddenGoalEnv.observation_space, action_mask=spaces.MultiBinary(4))
    policy: Any = create_policy(dict(type='ppo', model=GOAL), EnvSpec(space, DISCRETE, name='Masked-v0'))
    obs = zero_obs(space, 4)
    obs['action_mask'] = 1
    before = policy._logit(obs), policy._values(obs)
    obs['observation']['goal'] = 1
    np.testing.assert_array_equal(policy._logit(obs), before[0])
    assert not np.allclose(policy._values(obs), before[1])


def test_an_evaluation_whose_observations_have_no_parts_is_an_error() -> None:
    spec = EnvSpec(spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2), name='Plain')
    with raises(IncompatibleError):
        create_policy(dict(type='ppo', model=dict(critic_obs='state')), spec, enable_field=('eval',))
