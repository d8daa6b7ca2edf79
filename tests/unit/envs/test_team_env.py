"""A game of cooperating agents as one env: what its parts hold, agents that come and go, and games that are no teams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from agent_games import Crowd, Different, Meeting
from error_texts import raises
from gymnasium import spaces

from rlframe import config
from rlframe.app.check_env import check_env, section_of, text_of
from rlframe.app.starting import starting_config
from rlframe.data.observation import pack
from rlframe.data.team import team_of
from rlframe.data.timestep import spec_of
from rlframe.envs.base_env import check_layers
from rlframe.envs.env_manager import BaseEnvManager
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.envs.schedule import check_scheduled
from rlframe.envs.team_env import Team
from rlframe.envs.worlds import find_world
from rlframe.errors import ConfigError, EnvError, IncompatibleError
from rlframe.pipeline import SerialPipeline

CROWD = 'agent_games:crowd'


class Rivals(Meeting):
    """What the first agent earns, the others lose."""

    def step(self, actions: dict[str, int]) -> Any:
        obs, _, *rest = super().step(actions)
        first = 1.0 - actions['a']
        return obs, {'a': first, 'b': -first / 2, 'c': -first / 2}, *rest


class Hunted(Different):
    """Has an agent that is called an adversary."""

    possible_agents = ['a', 'b', 'adversary_0']


class Paid(Meeting):
    """Pays more where a schedule says so."""

    pay = 1.0

    def step(self, actions: dict[str, int]) -> Any:
        obs, reward, *rest = super().step(actions)
        return obs, {agent: self.pay * own for agent, own in reward.items()}, *rest


class Drawn(Crowd):
    """Draws a grey picture."""

    metadata = {'name': 'drawn', 'render_modes': ['rgb_array'], 'render_fps': 5}

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(lives=[(0, 6), (2, 6), (0, 1)])

    def render(self) -> Any:
        return np.full((20, 30, 3), 99, np.uint8)


class PaidLater(Crowd):
    """Pays the last agent one step after it has left."""

    def __init__(self) -> None:
        super().__init__(lives=[(0, 6), (2, 6), (0, 3)])

    def step(self, actions: dict[str, Any]) -> Any:
        obs, rewards, *rest = super().step(actions)
        return obs, rewards | ({'agent 2': 2.5} if self._step == 4 else {}), *rest


class EndsAtItsLimit(Meeting):
    """Ends, and says that the time is over, too."""

    def step(self, actions: dict[str, int]) -> Any:
        obs, reward, over, _, infos = super().step(actions)
        return obs, reward, over, over, infos


class CutOff(Meeting):
    """Ends by a time limit, and tells its state."""

    def state(self) -> Any:
        return np.float32([self._left])

    def step(self, actions: dict[str, int]) -> Any:
        obs, reward, over, _, infos = super().step(actions)
        return obs, reward, dict.fromkeys(actions, False), over, infos


def test_a_step_of_a_team_is_one_row_with_what_each_agent_sees_did_and_earned() -> None:
    env = Team('agent_games')
    obs, _ = env.reset(seed=3)
    assert env.observation_space.contains(obs) and env.action_space == spaces.MultiDiscrete([4, 4, 4])
    place = int(obs['agents'][0, :4].argmax())
    obs, reward, *_ = env.step(np.array([place, place, (place + 1) % 4]))
    assert env.observation_space.contains(obs)
    assert reward == 2.0 and obs['rewards'].tolist() == [1, 1, 0]
    assert obs['last_action'].tolist() == [place + 1, place + 1, (place + 1) % 4 + 1], 'counted from 1'
    assert obs['present'].tolist() == [1, 1, 1] and obs['agents'][:, 4].tolist() == [0, 1, 2]
    np.testing.assert_array_equal(obs['state'], obs['agents'].reshape(-1))


@pytest.mark.parametrize('is_cut_off', [False, True])
def test_in_a_game_in_turns_only_the_next_agent_is_present(is_cut_off: bool) -> None:
    env = Team('agent_games:echo', rounds=2, is_cut_off=is_cut_off)
    obs, _ = env.reset(seed=0)
    found = []
    is_over, action = False, np.array([2, 2])
    while not is_over:
        assert env.observation_space.contains(obs) and 'rewards' not in obs
        before = obs['present']
        obs, reward, terminated, truncated, _ = env.step(action)
        is_over = terminated or truncated
        assert ((obs['last_action'] > 0) == before).all()
        found.append((before.tolist(), reward, obs['agents'][:, 0].tolist()))
    assert found == [
        ([1, 0], 0.0, [-1, 2]),
        ([0, 1], 2.0, [-1, 2]),
        ([1, 0], 0.0, [-1, 2]),
        ([0, 1], 2.0, [-1, 2]),
    ]
    assert truncated is is_cut_off and obs['present'].tolist() == [int(is_cut_off), 0]
    assert env.returns() == {'caller': 2.0, 'echo': 2.0}
    # its state is its seed and its moves
    env.reset(seed=0)
    obs = env.step(action)[0]
    copy = Team('agent_games:echo', rounds=2)
    copy.reset(seed=1)
    copy.set_state(env.get_state())
    again = copy._obs()
    assert all(np.array_equal(obs[name], again[name]) for name in obs)


def test_what_a_team_does_in_a_game_in_turns_is_said() -> None:
    text = text_of(check_env(section_of('team:agent_games:echo', {})), 200)
    assert 'agents act in turn: those who wait count as absent' in text


def test_adversaries_are_refused_before_spaces_are_compared() -> None:
    with raises(IncompatibleError):
        Team('test_team_env:Hunted')


def test_a_game_that_ends_at_its_time_limit_has_ended() -> None:
    env = Team('test_team_env:EndsAtItsLimit', length=1)
    env.reset(seed=3)
    obs, _, terminated, truncated, _ = env.step(np.zeros(3, int))
    assert (terminated, truncated) == (True, False)
    assert obs['present'].tolist() == [0, 0, 0]


def test_absent_agents_are_zeros_in_a_state_that_is_what_all_agents_see() -> None:
    env = Team(CROWD, lives=[(0, 4), (2, 4), (0, 1)])
    obs, _ = env.reset(seed=0)
    assert not obs['agents'][1].any(), 'it has seen nothing'
    is_over = False
    while not is_over:
        seen = obs['agents'] * obs['present'][:, None]
        np.testing.assert_array_equal(obs['state'], seen.reshape(-1))
        obs, _, is_over, *_ = env.step(np.zeros(3, int))
    acted = obs['agents'] * np.array([[1], [1], [0]])
    np.testing.assert_array_equal(obs['state'], acted.reshape(-1), 'those who acted last')


def test_images_in_a_state_that_is_what_all_agents_see_lie_between_0_and_1() -> None:
    env = Team(CROWD, obs='dict')
    obs, _ = env.reset(seed=0)
    image = obs['agents']['w'].astype(np.float32)
    assert image.max() > 100
    assert obs['state'].reshape(3, 19)[:, 3:] == pytest.approx(image.reshape(3, 16) / 255)


def test_the_team_may_earn_the_mean_and_the_end_tells_the_return_of_each_agent() -> None:
    env = Team('agent_games', team_reward='mean', length=2)
    obs, _ = env.reset(seed=3)
    total: Any = np.zeros(3)
    for last in (False, True):
        place = int(obs['agents'][0, :4].argmax())
        obs, reward, terminated, truncated, info = env.step(np.array([place, 0, 1]))
        assert reward == pytest.approx(obs['rewards'].mean()) and (terminated, truncated) == (last, False)
        total += obs['rewards']
    assert info == {f'return_of_{agent}': earned for agent, earned in zip('abc', total, strict=True)}


def test_absent_agents_are_marked_and_their_actions_mean_nothing() -> None:
    env = Team(CROWD, mask='obs', lives=[(0, 4), (2, 4), (0, 1)])
    obs, _ = env.reset(seed=0)
    found = []
    is_over = False
    while not is_over:
        masks = obs['action_mask'].reshape(3, 4)
        found.append(obs['present'].tolist())
        assert (masks[obs['present'] == 0] == [1, 0, 0, 0]).all()
        obs, reward, is_over, *_ = env.step(masks.argmax(1) - 1)
        acted = np.array(found[-1])
        assert reward == obs['rewards'].sum() and (obs['rewards'] > 0).tolist() == (acted > 0).tolist()
        assert (obs['last_action'] > 0).tolist() == (acted > 0).tolist()
    assert found == [[1, 0, 1], [1, 0, 0], [1, 1, 0], [1, 1, 0]]


def test_behind_a_time_limit_agents_count_as_present_and_behind_an_end_they_do_not() -> None:
    for game, present in (('test_team_env:CutOff', [1, 1, 1]), ('agent_games', [0, 0, 0])):
        env = Team(game, length=1)
        env.reset(seed=0)
        obs, _, terminated, truncated, _ = env.step(np.zeros(3, np.int64))
        assert truncated is (present == [1, 1, 1]) and terminated is not truncated
        assert obs['present'].tolist() == present


def test_the_state_of_a_game_is_what_it_tells_and_else_what_all_agents_see() -> None:
    assert Team('test_team_env:CutOff').observation_space['state'].shape == (1,)  # type: ignore[index]
    assert Team(CROWD, obs='dict').observation_space['state'].shape == ((2 + 1 + 16) * 3,)  # type: ignore[index]


def test_a_team_knows_what_one_agent_sees_and_does() -> None:
    team = team_of(spec_of(Team(CROWD, obs='dict', act='box')))
    crowd = Crowd(obs='dict', act='box')
    assert (team.size, team.outputs) == (3, (2, 2, 2))
    assert team.own == crowd.observation_space('agent 0')


def test_padding_makes_smaller_spaces_as_large_as_the_largest_and_masks_what_an_agent_cannot_do() -> None:
    env = Team('agent_games:Different', pad=True)
    obs, _ = env.reset(seed=0)
    assert obs['agents'].shape == (3, 5) and not obs['agents'][1, 3:].any()
    assert obs['action_mask'].reshape(3, 6).sum(1).tolist() == [4, 6, 4]
    obs, *_ = env.step(np.array([3, 5, 0]))
    assert obs['last_action'].tolist() == [4, 6, 1]


def test_a_running_game_continues_from_a_checkpoint() -> None:
    options = dict(env_id=Team, kwargs=dict(game=CROWD, lives=[(0, 6), (3, 6), (1, 5)]))
    one, other = (BaseEnvManager.from_factory(GymEnvFactory(options), 2) for _ in range(2))
    one.reset(seed=[3, 4]), other.reset(seed=[5, 6])
    actions = np.random.default_rng(0).integers(-1, 3, (20, 2, 3))
    for action in actions[:4]:
        one.step(action, np.arange(2))
    assert not len(one.restart_lost())
    other.load_state_dict(one.state_dict())
    for action in actions[4:]:
        got, wanted = other.step(action, np.arange(2)), one.step(action, np.arange(2))
        assert got.obs.tobytes() == wanted.obs.tobytes() and got.reward.tolist() == wanted.reward.tolist()
        if got.done.any():
            one.reset(got.env_id[got.done]), other.reset(got.env_id[got.done])
    one.close(), other.close()


def test_two_teams_have_games_of_their_own() -> None:
    check_layers([Team('agent_games'), Team('agent_games')])


BAD: dict[str, tuple[type[Exception], str, dict[str, Any]]] = {
    'other spaces': (IncompatibleError, 'agent_games:Different', {}),
    'no padding': (IncompatibleError, CROWD, dict(obs='dict', pad=True)),
    'rivals': (IncompatibleError, 'test_team_env:Rivals', {}),
    'actions': (IncompatibleError, CROWD, dict(act='multi')),
    'reward': (ConfigError, 'agent_games', dict(team_reward='max')),
    'in turns': (IncompatibleError, 'agent_games:echo', dict(sign=-1)),
    'padded turns': (IncompatibleError, 'agent_games:echo', dict(pad=True)),
    'no such game': (EnvError, 'agent_games:ecko', {}),
    'no game': (EnvError, 'zoo', {}),
    'one agent': (EnvError, 'zoo:Toy', {}),
}


@pytest.mark.parametrize('name', BAD)
def test_a_game_that_is_no_team_is_an_error_with_a_remedy(name: str) -> None:
    error, game, kwargs = BAD[name]
    with raises(error):
        Team(game, **kwargs)


@pytest.mark.parametrize('policy', ['qmix', 'mappo'])
def test_training_by_an_id_with_the_prefix_of_teams(policy: str, cwd: Any) -> None:
    assert find_world('team:agent_games').options == {'kwargs': {'game': 'agent_games'}}
    main, create = starting_config('team:agent_games', policy)
    main.policy |= dict(cuda=False)
    if policy == 'mappo':
        main.policy.collect.n_sample, main.policy.learn.batch_size = 128, 32
    main.policy.eval.evaluator.eval_freq, main.max_env_step = 40, 2000
    main.env.stop_value = 17.0
    with SerialPipeline(config.compile_config(main, create, seed=0)) as pipeline:
        pipeline.run()
    assert pipeline.evaluator.best >= 17.0, 'of 18; random agents have 4.5'


def test_pictures_have_a_line_for_each_agent_below_them() -> None:
    env = Team('test_team_env:Drawn', render_mode='rgb_array')
    assert env.metadata['render_fps'] == 5
    env.reset(seed=0)
    first = env.render()
    env.step(np.array([1, 0, -1]))
    assert env.lines() == [
        'agent 0: 1, reward 1, return 1',
        'agent 1: absent, return 0',
        'agent 2: -1, reward 1, return 1',
    ]
    picture = env.render()
    assert picture.dtype == np.uint8 and picture.shape == first.shape == (20 + 3 * 14 + 8, 320, 3)
    assert (picture[:20, :30] == 99).all() and (picture[:20, 30:] == 255).all()
    assert (picture[20:] != first[20:]).any()
    env.step(np.array([0, 0, 0]))
    assert env.lines()[1:] == ['agent 1: acts next, return 0', 'agent 2: absent, return 1']
    assert env.returns() == {'agent 0': 3, 'agent 1': 0, 'agent 2': 1}


def test_an_observation_of_a_team_is_one_row() -> None:
    env = Team('agent_games')
    obs, _ = env.reset(seed=0)
    row = pack(env.observation_space, obs)
    assert row.dtype.names == ('agents', 'state', 'present', 'last_action', 'rewards')


def test_the_check_of_a_team_says_how_to_train_it() -> None:
    report = check_env(section_of('team:agent_games', {}))
    assert report['good'] and report['next'] == 'rlframe train --env team:agent_games --policy mappo'
    assert {'vdn', 'qmix', 'wqmix', 'mappo'} <= set(report['facts']['policies'])


def remarks_of(game: str, steps: int = 30) -> tuple[list[tuple[str, str]], Any]:
    report = check_env(section_of(f'team:{game}', {}), steps)
    found = [(each['severity'], each['seen']) for each in report['findings'] if each['check'] == 'team']
    return found, report


def test_the_check_of_a_team_says_who_comes_and_goes_and_which_rewards_are_lost() -> None:
    (lost, equal), report = remarks_of('test_team_env:PaidLater')
    assert lost[0] == 'warning' and lost[1].endswith('leaves out: agent 2 12.5'), '5 games of 6 steps'
    assert equal[0] == 'note' and 'the reward of the team is 3 times that of each' in equal[1]
    there = {'agent 0': '', 'agent 1': 'comes and goes', 'agent 2': 'comes and goes'}
    assert report['facts']['agents'] == there and report['facts']['state'] is False and report['good']
    text = text_of(report, 200)
    assert 'agent 0, agent 1 (comes and goes), agent 2 (comes and goes); state: what all agents see' in text


def test_the_check_of_a_team_says_that_agents_are_paid_differently() -> None:
    ((kind, seen),), report = remarks_of('agent_games')
    assert kind == 'note' and seen.startswith('agents earn different rewards')
    assert report['checks']['team'] == 'passed'
    report = check_env(section_of('CartPole-v1', {}), 20)
    assert 'team' not in report['checks'] and 'agents' not in report['facts']


def test_without_a_name_the_policy_of_a_team_is_mappo() -> None:
    assert starting_config('team:agent_games')[1].policy.type == 'mappo'


def test_a_schedule_sets_what_a_game_has_and_a_checkpoint_keeps_it() -> None:
    def step(env: Team) -> float:
        return env.step(np.full(3, env.running.game._place))[1]

    one = Team('test_team_env:Paid')
    assert (
        one.has_wrapper_attr('pay')
        and not one.has_wrapper_attr('_length')
        and not one.has_wrapper_attr('close_')
    )
    with raises(ConfigError):
        check_scheduled(one, {'pai': dict(type='linear', start=1, end=3, decay=9)})
    one.set_wrapper_attr('pay', 2.0)
    one.reset(seed=0)
    assert one.get_wrapper_attr('pay') == 2.0 and step(one) == 6.0
    other = Team('test_team_env:Paid')
    other.set_state(one.get_state())
    assert other.returns() == one.returns() and step(other) == step(one) == 6.0


def test_cooks_earn_20_for_a_soup_and_more_while_they_are_shown_how() -> None:
    pytest.importorskip('overcooked')
    north, south, east, west, stay, interact = range(6)
    # the first cook fetches three onions and a dish, waits, and serves; the other one stays
    onion = [west, interact, east, north, interact, west]
    dish = [south, south, interact, north, east, north, *[stay] * 20, interact]
    moves = [north, *onion * 3, *dish, south, east, south, interact]
    for shaping, earned in ((0.0, 20.0), (1.0, 20.0 + 3 * 3 + 3 + 5)):
        env = Team('rlframe.envs.overcooked_game', old_dynamics=True, shaping=shaping)
        env.reset(seed=0)
        rewards = [env.step(np.array([move, stay]))[1] for move in moves]
        assert sum(rewards) == earned
    for layout in ('cramped_rom', 'cramped_room_single'):
        with raises(ConfigError):
            Team('rlframe.envs.overcooked_game', layout=layout)
