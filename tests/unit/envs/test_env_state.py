"""A restored env goes on exactly as the one that was saved, or it is said that its state cannot be saved."""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections import OrderedDict, deque
from pathlib import Path
from typing import Any

import env_zoo
import gymnasium
import numpy as np
import pytest
from games import TurnGame
from gymnasium import wrappers

from rlframe.envs.gym_env import GymEnvFactory
from rlframe.envs.player_env import player_env
from rlframe.envs.state import EnvState, MismatchError, Refusal
from rlframe.errors import CheckpointCorruptError, RLFrameError
from rlframe.run.read_checkpoint import load_checkpoint
from rlframe.run.write_checkpoint import save_checkpoint

QUICK = ['CartPole-v1', 'FrozenLake-v1', 'MiniGrid-DoorKey-5x5-v0']
SLOW = r'(CartPole|MountainCar|Pendulum|Acrobot|FrozenLake|Taxi|Cliff|Blackjack|LunarLander|Bipedal|CarRacing|MiniGrid|MinAtar)'

CLOCKS = 't', 'episode_start_time'
"""What RecordEpisodeStatistics tells of the time that has passed."""


def comparable(value: Any) -> Any:
    """Returns a value with everything that bits and types differ in."""
    if isinstance(value, np.ndarray):
        return (
            np.lib.format.dtype_to_descr(value.dtype),
            value.shape,
            value.flags.f_contiguous,
            value.flags.writeable,
            value.tobytes(),
        )
    if isinstance(value, dict):
        return [(name, comparable(own)) for name, own in value.items() if name not in CLOCKS]
    if isinstance(value, list | tuple):
        return type(value).__name__, [comparable(own) for own in value]
    return type(value).__name__, repr(value)


def play(env: Any, actions: list[Any]) -> list[Any]:
    """Returns what an env answers, with a reset behind each episode's end, and one more action that it draws."""
    answers = []
    for action in actions:
        answer = env.step(action)
        answers.append(comparable(answer))
        if answer[2] or answer[3]:
            answers.append(comparable(env.reset()))
    return [*answers, comparable(env.action_space.sample()), comparable(env.observation_space.sample())]


def through_file(state: Any, folder: Path) -> Any:
    return load_checkpoint(save_checkpoint(folder / 'state', {'env': state}))[0]['env']


def check_restored(make: Any, folder: Path, steps: int = 80) -> Refusal | None:
    """Compares an env with one that is put into its state after 50 random steps; returns why that cannot be done."""
    env, other = make(), make()
    of_env, of_other = EnvState(env), EnvState(other)
    env.reset(seed=3)
    env.action_space.seed(3)
    play(env, [env.action_space.sample() for _ in range(50)])
    state = of_env.capture()
    actions = [env.action_space.sample() for _ in range(steps)]
    if isinstance(state, Refusal):
        env.close()
        other.close()
        return state
    env.action_space.seed(5)
    state = of_env.capture()
    assert not isinstance(state, Refusal)
    later: Any = of_env.capture()
    expected = play(env, actions)
    of_other.restore(through_file(state, folder))
    again: Any = of_other.capture()
    assert again['graph'] == later['graph'], 'both are saved alike'
    assert play(other, actions) == expected
    of_other.restore(later)  # an env that has gone on, too
    assert play(other, actions) == expected
    env.close()
    other.close()
    return None


@pytest.mark.parametrize('env_id', QUICK)
def test_a_restored_env_goes_on_exactly(env_id: str, tmp_path: Path) -> None:
    factory = GymEnvFactory({'env_id': env_id})
    assert check_restored(factory.make, tmp_path) is None


@pytest.mark.slow
def test_every_env_that_is_installed_goes_on_exactly_or_says_why_not(tmp_path: Path) -> None:
    import minatar.gym
    import minigrid  # noqa: F401  it registers its envs

    if 'MinAtar/Breakout-v1' not in gymnasium.registry:
        minatar.gym.register_envs()
    refused = {}
    names = {str(spec.entry_point): name for name, spec in sorted(gymnasium.registry.items())}
    for number, env_id in enumerate(name for name in names.values() if re.match(SLOW, name)):
        factory = GymEnvFactory({'env_id': env_id})
        (tmp_path / str(number)).mkdir()
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')  # some ids are out of date
            try:
                tried = factory.make()
                tried.reset(seed=0)
                tried.close()
            except (RLFrameError, OSError):
                continue  # it needs what is not installed
            refusal = check_restored(factory.make, tmp_path / str(number))
        if refusal is not None:
            refused[env_id] = refusal.reason
    assert len(refused) < number
    for env_id, reason in refused.items():
        assert re.match('LunarLander|Bipedal|CarRacing', env_id), f'{env_id}: {reason}'


@pytest.mark.parametrize('name', env_zoo.SAVED)
def test_a_restored_nasty_env_goes_on_exactly(name: str, tmp_path: Path) -> None:
    assert check_restored(env_zoo.SAVED[name], tmp_path) is None


def test_a_set_of_text_is_saved_in_one_order_whatever_the_hashes_of_this_process() -> None:
    words = [(f'word{index}', f'name{index}', f'key{index}'.encode()) for index in range(200)]
    states = [held([frozenset(some[::order]) for some in words])[1] for order in (1, -1)]
    assert states[0]['graph'] == states[1]['graph']


@pytest.mark.parametrize('name', env_zoo.REFUSED)
def test_what_cannot_be_saved_is_named_with_its_place_and_type(name: str, tmp_path: Path) -> None:
    refusal = check_restored(env_zoo.REFUSED[name], tmp_path)
    assert refusal is not None, 'it was saved'
    assert re.match(r'(Unsaved|Closure|OfClass)\.held(\[0\])? \(', refusal.reason), refusal.reason


WRAPPED = {
    'statistics': lambda env: wrappers.RecordEpisodeStatistics(env, buffer_length=5),
    'flat': lambda env: wrappers.FlattenObservation(wrappers.TimeAwareObservation(env, flatten=False)),
    'autoreset': lambda env: wrappers.Autoreset(env),
    'all': lambda env: wrappers.NormalizeReward(
        wrappers.NormalizeObservation(wrappers.FrameStackObservation(wrappers.StickyAction(env, 0.3), 2))
    ),
}


@pytest.mark.parametrize('name', WRAPPED)
def test_the_state_of_wrappers_is_part_of_that_of_the_env(name: str, tmp_path: Path) -> None:
    assert check_restored(lambda: WRAPPED[name](gymnasium.make('CartPole-v1')), tmp_path) is None


def test_an_env_s_own_get_state_and_set_state_are_used_beneath_wrappers_too(tmp_path: Path) -> None:
    def make() -> Any:
        return wrappers.RecordEpisodeStatistics(
            player_env(TurnGame(0, players=3, leaves=True), 'Turns'), buffer_length=5
        )

    assert check_restored(make, tmp_path) is None


# a state is foreign data


def captured(env: Any) -> Any:
    state = EnvState(env)
    env.reset(seed=1)
    return state.capture()


def changed(state: Any, change: Any) -> Any:
    graph = json.loads(state['graph'])
    change(graph['nodes'])
    return {**state, 'graph': json.dumps(graph)}


@pytest.mark.parametrize(
    'name',
    ['subprocess:Popen', 'env_zoo:Closing', 'env_zoo:SAVED', 'env_zoo:no', 'never_imported:Thing', 'builtins:list'],
)  # fmt: skip
def test_a_state_makes_objects_of_the_env_s_own_classes_only(name: str) -> None:
    make = env_zoo.SAVED['SharedEntities']

    def change(nodes: Any) -> None:
        body = next(node for node in nodes if node.get('class') == 'env_zoo:Body')
        body['class'] = name

    before = set(sys.modules)
    with pytest.raises((MismatchError, CheckpointCorruptError)):
        EnvState(make()).restore(changed(captured(make()), change))
    assert set(sys.modules) == before


def test_a_damaged_state_is_an_error_that_says_so() -> None:
    rng = np.random.default_rng(0)
    junk = [None, -1, 10**9, 'x', [], [-1], [10**6], ['np', '<f8', 'zz'], {}, [[1], [2]], 1.5]

    def change(nodes: Any) -> None:
        for _ in range(4):
            node = nodes[rng.integers(len(nodes))]
            if name := [key for key in node if key != 'class']:
                node[name[rng.integers(len(name))]] = junk[rng.integers(len(junk))]

    for make in (*env_zoo.SAVED.values(), env_zoo.Holder):
        try:
            EnvState(make()).restore(changed(captured(make()), change))
        except (MismatchError, CheckpointCorruptError) as error:
            assert str(error)


# any plain structure


def held(content: Any) -> tuple[Any, Any]:
    """Returns an env that holds something, and its state."""
    env = env_zoo.Holder()
    state = EnvState(env)
    env.content = content
    env.reset(seed=1)
    return env, state.capture()


def shape(value: Any, seen: dict[int, int]) -> Any:
    """Returns a structure as text, in which an object that can change and was there before is a number."""
    if isinstance(value, list | dict | deque | set | np.ndarray):
        if id(value) in seen:
            return seen[id(value)]
        seen[id(value)] = len(seen)
    if isinstance(value, dict):
        return type(value).__name__, [(repr(name), shape(own, seen)) for name, own in value.items()]
    if isinstance(value, list | deque | tuple | set):
        return type(value).__name__, [shape(own, seen) for own in value], getattr(value, 'maxlen', None)
    return comparable(value)


def test_values_of_every_kind_keep_their_types_and_what_they_share(tmp_path: Path) -> None:
    shared: Any = deque([1, np.arange(6).reshape(2, 3).T], 5)
    loop: Any = OrderedDict(enumerate([shared, {8, 16, 0}, (shared, b'x'), {'of': shared}]))
    loop['self'] = loop
    (env, state), other = held([*env_zoo.plain(), shared, loop]), env_zoo.Holder()
    EnvState(other).restore(through_file(state, tmp_path))
    assert shape(other.held, {}) == shape(env.held, {})


def test_a_state_that_is_nested_too_deeply_or_has_too_long_a_number_is_refused() -> None:
    nested: Any = ()
    for _ in range(5000):
        nested = (nested,)
    for content, reason in ((nested, 'nested too deeply'), (10**5000, 'digits')):
        refused = held(content)[1]
        assert reason in repr(refused)
