"""A config for an env that nobody has tuned: it compiles for every policy and space, trains, is scored and resumed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import space_envs
from error_texts import raises
from gymnasium import Env, spaces
from policies import learns_from_data, needs_data

from rlframe import config
from rlframe.app.starting import env_options, overridden_start, starting_config
from rlframe.entry.__main__ import main, parse, set_import_path
from rlframe.errors import ConfigError, IncompatibleError, MissingDependencyError
from rlframe.model.encoder import GridEncoder
from rlframe.pipeline import build
from rlframe.policy.dqn import DQNPolicy
from rlframe.policy.parts.fit import misfit
from rlframe.policy.parts.starting import Facts
from rlframe.registry import POLICY_REGISTRY
from rlframe.worker import create_serial_evaluator

SPACES = [
    *((obs, 'Discrete', '') for obs in space_envs.OBS),
    *(('Box', action, '') for action in space_envs.ACTIONS),
    ('Tuple', 'Discrete', 'info'),
    ('Box (image)', 'MultiDiscrete', 'obs'),
]


class TextEnv(space_envs.SpaceEnv):
    """Its observations have a part that no network reads."""

    def __init__(self, parts: Any = None) -> None:
        super().__init__()
        self.observation_space: Any = spaces.Dict(seen=self.observation_space, told=spaces.Text(9))

    def _answer(self) -> tuple[Any, dict[str, Any]]:
        obs, info = super()._answer()
        return {'seen': obs, 'told': 'go'}, info


class GridEnv(space_envs.SpaceEnv):
    """It shows a grid of symbols, and a direction."""

    def __init__(self) -> None:
        super().__init__()
        grid = spaces.Box(0, 255, (7, 7, 3), np.uint8)
        self.observation_space: Any = spaces.Dict(direction=spaces.Discrete(4), image=grid)


class GraphEnv(Env):
    """No network reads any of its observations."""

    observation_space = spaces.Graph(spaces.Box(0, 1, (2,)), None)
    action_space = spaces.Discrete(2)


@pytest.mark.parametrize(('obs', 'action', 'mask'), SPACES)
def test_every_policy_gets_a_config_for_every_space_that_it_supports(
    obs: str, action: str, mask: str
) -> None:
    options = {'kwargs': {'obs': obs, 'action': action, 'mask': mask}}
    spec = build.make_factory(
        config.compile_config(*starting_config(space_envs.SpaceEnv, None, options))
    ).spec
    for name in POLICY_REGISTRY.names() if obs == 'Box' else ():
        if not learns_from_data(name) and not misfit(POLICY_REGISTRY.get(name), spec):
            given = {'replay_buffer.init_from': 'data.npz'} if needs_data(name) else {}
            pair = starting_config(space_envs.SpaceEnv, name, options)
            cfg = config.compile_config(*pair, overrides=given)
            assert cfg.policy.type == name and cfg.max_env_step < 10**7


@pytest.mark.parametrize('name', ['ppo', 'dqn', 'r2d2', 'sac_discrete'])
def test_symbols_of_small_grids_are_embedded(name: str) -> None:
    cfg = config.compile_config(*starting_config(GridEnv, name))
    assert cfg.policy.model.encoder == 'grid'
    model = build.make_policy(cfg, build.make_factory(cfg).spec).get_attribute('model')
    assert any(isinstance(part, GridEncoder) for part in model.modules())
    assert cfg.policy.eval.get('deterministic', True) == (name != 'ppo')


def test_a_variation_of_a_policy_keeps_what_it_is() -> None:
    main, create = starting_config('CartPole-v1', 'rainbow')
    assert main.policy.model.noisy and main.policy.model.dueling and main.policy.other.eps == 0
    assert create.replay_buffer.type == 'advanced'
    learn = starting_config('Pendulum-v1', 'crossq')[0].policy.learn
    assert learn.learning_rate_actor == 1e-3
    assert starting_config('Pendulum-v1', 'redq')[0].policy.learn.update_per_collect == 160


def test_a_policy_of_your_own_states_where_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def starting(cls: type[DQNPolicy], facts: Facts) -> Any:
        return super(cls, cls).starting(facts) | dict(nstep=3, priority=facts.has_numbers)

    monkeypatch.setattr(POLICY_REGISTRY, '_classes', dict(POLICY_REGISTRY._classes))
    body = dict(starting=classmethod(starting), config=dict(discount_factor=0.5))
    POLICY_REGISTRY.register('own_dqn', type('OwnDQN', (DQNPolicy,), body))
    policy = starting_config('CartPole-v1', 'own_dqn')[0].policy
    assert (policy.nstep, policy.priority, policy.learn.batch_size) == (3, True, 128)
    assert policy.discount_factor == 0.5, 'a default that the class states'


def test_config_names_the_run_its_goal_and_its_budget() -> None:
    main_config, create_config = starting_config('CartPole-v1', 'dqn')
    assert main_config.exp_name == 'cartpole_v1_dqn'
    assert main_config.env.stop_value == 475
    assert main_config.max_env_step == 200_000
    assert create_config.policy.type == 'dqn'


def test_env_without_time_limit_gets_one_in_evaluations_only() -> None:
    main_config, _ = starting_config('CliffWalking-v1', 'ppo')
    assert main_config.policy.eval.evaluator.max_episode_len == 3000
    assert 'wrappers' not in main_config.env
    assert 'stop_value' not in main_config.env


class ToldGridEnv(GridEnv):
    """It also says what to do."""

    def __init__(self) -> None:
        super().__init__()
        told = {'graph': GraphEnv.observation_space, 'told': spaces.Text(9)}
        self.observation_space = spaces.Dict(dict(self.observation_space.spaces) | told, sort_keys=False)

    def _answer(self) -> tuple[Any, dict[str, Any]]:
        self._class = 1
        return {**self.observation_space.sample(), 'told': 'go there'}, {}


def test_texts_beside_a_grid_are_read_as_bytes() -> None:
    main, create = starting_config(ToldGridEnv)
    kept = ['direction', 'image', 'told']
    assert main.env.wrappers == [
        {'type': 'rlframe.envs.wrappers:TextAsBytes'},
        {'type': 'FilterObservation', 'filter_keys': kept},
    ]
    env = build.make_factory(config.compile_config(main, create)).create()
    for obs in (env.reset(seed=0)[0], env.step(0)[0]):
        assert list(obs) == kept and obs in env.observation_space
        assert bytes(obs['told']) == b'go there'.ljust(96, b'\0')
    env.close()


def test_parts_that_no_network_reads_are_left_out_unless_the_user_chooses_wrappers() -> None:
    main_config, _ = starting_config(TextEnv)
    assert main_config.env.wrappers == [{'type': 'FilterObservation', 'filter_keys': ['seen']}]
    assert starting_config(TextEnv, None, {'wrappers': []})[0].env.wrappers == []


def test_envs_of_tensors_are_stepped_on_their_device_where_the_policy_can() -> None:
    for policy, collector in (
        ('ppo', 'tensor'),
        ('a2c', 'tensor'),
        ('impala', 'sample'),
        ('ppo_offpolicy', 'sample'),
        ('dqn', 'sample'),
    ):
        main, create = starting_config('rlframe.envs.tensor:TorchCartPole', policy)
        assert (create.env_manager.type, create.collector.type) == ('torch_vector', collector)
        cfg = config.compile_config(main, create)
        assert collector == 'sample' or not cfg.policy.normalize_obs


def test_overrides_that_shape_an_env_are_known_before_it_is_looked_at() -> None:
    words = ['env.kwargs.obs=Tuple', 'env.frame_stack=2', 'seed=3', 'env.stop_value=1']
    assert env_options(words) == {'kwargs': {'obs': 'Tuple'}, 'frame_stack': 2}


@pytest.mark.parametrize(
    ('env', 'policy', 'error'),
    [
        ('CartPole-v1', 'sac', IncompatibleError),
        ('CartPole-v1', 'bc', ConfigError),
        (GraphEnv, None, IncompatibleError),
    ],
)
def test_policy_that_cannot_learn_in_an_env_is_refused_with_those_that_can(
    env: Any, policy: str | None, error: type[Exception]
) -> None:
    with raises(error):
        starting_config(env, policy)


def test_resumed_run_finds_its_env_in_the_working_directory(
    cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, 'path', [entry for entry in sys.path if entry])
    for words in (('--env', 'mine:Env', '--resume', 'auto'), ('-c', 'mine', '--resume', 'auto')):
        set_import_path(parse(['train', *words]))
        assert str(cwd) in sys.path
        sys.path.remove(str(cwd))


SMALL = (
    *('--env-step', '160', 'policy.learn.batch_size=16', 'policy.eval.evaluator.eval_freq=1000'),
    *('env.evaluator_env_num=2', 'env.n_evaluator_episode=2', 'policy.model.encoder_hidden_size_list=[8]'),
)


def test_run_of_an_env_is_scored_and_resumed_without_its_command_line(
    cwd: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(['train', '--env', 'CartPole-v1', '--policy', 'dqn', *SMALL]) == 0
    assert 'at most 160 env steps' in capsys.readouterr().out
    assert main(['eval', 'cartpole_v1_dqn_seed0', '--episodes', '2']) == 0
    assert main(['train', '--resume', 'cartpole_v1_dqn_seed0', '--env-step', '200']) == 0
    assert 'resumes from' in capsys.readouterr().out
    assert [entry.name for entry in cwd.iterdir()] == ['cartpole_v1_dqn_seed0']


@pytest.mark.parametrize(
    'words',
    [
        ('--env', 'Carpole-v1'),
        ('--env', 'CartPole-v1', '--policy', 'pppo'),
        ('--env', 'MiniGrid-Doorkey-5x5-v0'),
        ('--env', 'nowhere:Env'),
        ('--env', 'CartPole-v1', 'env.kwargs=3'),
        ('--env', 'CartPole-v1', '-c', 'cartpole_dqn'),
        ('--env', 'CartPole-v1', '--resume', 'x'),
        ('--policy', 'ppo', '-c', 'cartpole_dqn'),
        ('-c', 'cartpole_dq'),
        (),
    ],
)
def test_bad_input_is_refused_before_anything_is_created(
    words: tuple[str, ...], cwd: Path, refused: Callable[..., str]
) -> None:
    refused('train', *words)


def test_env_whose_package_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'minatar.gym', None)
    monkeypatch.delitem(gymnasium.registry, 'MinAtar/Freeway-v1', raising=False)
    with raises(MissingDependencyError):
        starting_config('MinAtar/Freeway-v1')


@pytest.mark.parametrize('budget', [None, 30_000, 5_000])
@pytest.mark.parametrize('policy', ['dqn', 'ppo', 'a2c', 'pqn'])
def test_a_run_has_at_least_twenty_evaluations_most_of_them_early(policy: str, budget: int | None) -> None:
    given = {} if budget is None else {'max_env_step': budget}
    cfg = config.compile_config(*starting_config('CartPole-v1', policy, max_env_step=budget), **given)
    evaluator = create_serial_evaluator(dict(cfg.policy.eval.evaluator, stop_value=None))
    size, length = cfg.policy.collect.n_sample, cfg.max_env_step
    at = [envstep for envstep in range(0, length, size) if evaluator.should_eval(envstep // size, envstep)]
    for solved in (min(30_000, length), length):  # a run usually ends before the default budget
        assert sum(envstep < solved for envstep in [*at, 0]) >= min(20, solved // size)  # and one at the end
    gaps = [b - a for a, b in pairwise(at)]
    assert all(later >= earlier - size for earlier, later in pairwise(gaps)) and len(at) < 70


@pytest.mark.parametrize(('policy', 'share'), [('dqn', 10), ('mdqn', 10), ('r2d2', 10), ('pqn', 5)])
def test_exploration_ends_within_the_budget(policy: str, share: int) -> None:
    for budget in (None, 30_000, 600, 10**7):
        main_config, _ = starting_config('CartPole-v1', policy, max_env_step=budget)
        steps = min(main_config.max_env_step, budget or main_config.max_env_step)
        assert main_config.policy.other.eps.decay == steps // share


@pytest.mark.parametrize('words', [['--env-step', '10000'], ['max_env_step=1e4']])
def test_the_budget_on_the_command_line_sets_how_often_is_evaluated(words: list[str]) -> None:
    from rlframe.entry.train import config_of

    frequencies = []
    for more in (words, []):
        pair = config_of(parse(['train', '--env', 'CartPole-v1', '--policy', 'DQN', *more]))
        assert pair is not None and pair[1]['policy']['type'] == 'dqn'
        frequencies.append(pair[0]['policy']['eval']['evaluator']['eval_freq'])
    assert frequencies == ['400 env steps, later 10 %', '1000 env steps, later 10 %']


def test_a_policy_with_a_core_starts_with_sequences_of_marked_episodes() -> None:
    for policy, is_replayed in (('qmix', True), ('sac_discrete', True), ('ppo', False)):
        options = {'policy.model.core': 'gru'}
        first = overridden_start('CartPole-v1', policy, options)
        cfg = config.compile_config(*first, overrides=options)
        assert (first[1].get('replay_buffer', {}).get('type') == 'sequence') is is_replayed
        assert cfg.policy.collect.collector.mark_episodes is is_replayed
