"""Envs of EnvPool give steps that belong together, however few of them a batch has."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from error_texts import raises
from fakes import ScriptedPolicy
from fault_envs import Steady
from gymnasium import spaces

from rlframe.data import Batch
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.envs.pool_manager import EnvPoolManager
from rlframe.errors import ActionError, ConfigError, EnvError, IncompatibleError, MissingDependencyError
from rlframe.worker import EpisodeSerialCollector, InteractionSerialEvaluator, SampleSerialCollector
from rlframe.worker.collector.rollout import Rollout

BATCHES = [None, 2]


@pytest.fixture
def make() -> Any:
    pytest.importorskip('envpool')
    made: list[EnvPoolManager] = []

    def build(env_num: int = 5, task_id: str = 'CartPole-v1', **cfg: Any) -> EnvPoolManager:
        made.append(EnvPoolManager(task_id, env_num, cfg))
        return made[-1]

    yield build
    for manager in made:
        manager.close()


class Swinging(ScriptedPolicy):
    """Chooses by the obs, so that episodes end soon and actions differ."""

    def forward(self, obs: Any, env_id: Any, **settings: Any) -> Batch:
        action = (np.abs(obs).sum(1) * 1000).astype(np.int64) % 3 > 0
        return super().forward(obs, env_id).replace(action=action.astype(np.int64))


def assert_own_dynamics(rows: Any) -> int:
    """Fails unless CartPole itself goes from obs to next_obs by the action; returns how many episodes ended."""
    cartpole: Any = gymnasium.make('CartPole-v1').unwrapped
    cartpole.reset()
    for obs, action, next_obs, terminated in zip(
        rows['obs'], rows['action'], rows['next_obs'], rows['terminated'], strict=True
    ):
        cartpole.state, cartpole.steps_beyond_terminated = tuple(obs.astype(np.float64)), None
        expected, _, ends, _, _ = cartpole.step(int(action))
        np.testing.assert_allclose(next_obs, expected, atol=1e-5)
        assert ends == terminated
    np.testing.assert_array_equal(rows['told'], rows['obs'])
    np.testing.assert_array_equal(rows['acted'], rows['env_id'])
    assert (rows['reward'] == 1).all()
    return int(rows['terminated'].sum())


def assert_chained(rows: Any, env_num: int) -> None:
    """Fails unless each env's rows follow each other, and begin where episodes begin."""
    for env in range(env_num):
        own = rows[rows['env_id'] == env]
        assert len(own) > 5
        done = own['terminated'] | own['truncated']
        same = (own['next_obs'][:-1] == own['obs'][1:]).all(1)
        np.testing.assert_array_equal(same, ~done[:-1])
        assert (np.abs(own['obs'][1:][done[:-1]]) <= 0.05).all() and (np.abs(own['obs'][0]) <= 0.05).all()


@pytest.mark.parametrize('batch_size', BATCHES)
def test_transitions_are_those_of_cartpole_and_no_reset_is_one(make: Any, batch_size: int | None) -> None:
    manager = make(batch_size=batch_size)
    assert manager.can_hold == (batch_size is None)
    collector = SampleSerialCollector({}, manager, Swinging().collect_mode)
    parts = [collector.collect(101) for _ in range(4)]
    rows = Batch.cat(parts)
    assert collector.envstep == 404 + collector.carried and collector.discarded == 0
    assert assert_own_dynamics(rows) > 10
    assert_chained(rows, 5)
    if batch_size is None:
        assert np.bincount(rows['env_id']).max() - np.bincount(rows['env_id']).min() <= 1


@pytest.mark.parametrize('batch_size', BATCHES)
def test_episodes_and_evaluations_count_the_first_of_each_env(make: Any, batch_size: int | None) -> None:
    collector = EpisodeSerialCollector({}, make(batch_size=batch_size), Swinging().collect_mode)
    for n_episode in (7, 3):
        episodes = collector.collect(n_episode)
        quota = [n_episode // 5 + (env < n_episode % 5) for env in range(5)]
        assert np.bincount([e['env_id'][0] for e in episodes], minlength=5).tolist() == quota
        for episode in episodes:
            done = episode['terminated'] | episode['truncated']
            assert done[-1] and not done[:-1].any() and (np.abs(episode['obs'][0]) <= 0.05).all()
            assert (episode['env_id'] == episode['env_id'][0]).all()
            assert_own_dynamics(episode)
    evaluator = InteractionSerialEvaluator(
        {'n_episode': 5}, make(batch_size=batch_size), Swinging().eval_mode
    )
    one, two = evaluator.eval()[1], evaluator.eval()[1]
    assert one == two and len(set(one['eval_episode_return'])) > 1, 'the seeds of its episodes are fixed'


def test_blocks_are_ragged_where_a_batch_is_a_part_of_the_envs(make: Any) -> None:
    policy = Swinging(on_policy=True, n_sample=60)
    collector = SampleSerialCollector({}, make(batch_size=3), policy.collect_mode)
    for _ in range(3):
        rows = collector.collect()
        assert 60 <= len(rows) < 60 + 3 and collector.carried == 0
        assert_own_dynamics(rows)
    assert any('mask' in block for block in policy.blocks)
    for block in policy.blocks:
        counts = block['mask'].sum(0) if 'mask' in block else np.full(5, len(block))
        assert counts.sum() >= 60 and counts.max() == block['reward'].shape[0]


def test_a_time_limit_is_a_truncation_and_kwargs_reach_the_task(make: Any) -> None:
    pytest.importorskip('envpool')
    factory = GymEnvFactory({'env_id': 'Acrobot-v1', 'kwargs': {'max_episode_steps': 4}})
    for batch_size in (None, 2):
        manager = EnvPoolManager.from_factory(factory, 3, {'batch_size': batch_size})
        assert factory.spec is manager.spec and manager.spec.max_episode_steps == 4
        collector = SampleSerialCollector({}, manager, ScriptedPolicy().collect_mode)
        rows = collector.collect(60)
        for env in range(3):
            own = rows[rows['env_id'] == env]
            np.testing.assert_array_equal(own['truncated'], np.arange(len(own)) % 4 == 3)
        assert not rows['terminated'].any()
        manager.close()


def test_continuous_actions_are_taken_and_wrong_ones_are_refused(make: Any) -> None:
    manager = make(3, 'Pendulum-v1')
    manager.reset(seed=[1, 2, 3])
    step = manager.step(np.array([[-2.0], [0.0], [2.0]]), manager.ready)
    assert step.env_id is not None and step.obs.dtype == np.float32 and len(set(step.reward.tolist())) == 3
    manager = make(3)
    manager.reset()
    with pytest.raises(ActionError, match=r'7.* for env 1 is not in Discrete\(2\)'):
        manager.step(np.array([0, 7, 0]), manager.ready)
    with pytest.raises(ActionError, match='2 actions were given for 3 envs'):
        manager.step(np.zeros(2, np.int64), manager.ready)


def test_nothing_is_waited_for_that_would_never_come(make: Any) -> None:
    manager = make(4, batch_size=3)
    manager.reset(seed=[1, 2, 3, 4])
    assert len(manager.ready) == 3
    with pytest.raises(ValueError, match='only 2 envs are busy'):
        manager.step(np.zeros(1, np.int64), manager.ready[:1])
    manager.reset(seed=[1, 2, 3, 4])
    busy = np.setdiff1d(np.arange(4), manager.ready)
    with pytest.raises(ValueError, match='of which only'):
        manager.step(np.zeros(1, np.int64), busy)
    with pytest.raises(ValueError, match='in the middle of an episode'):
        manager.reset(manager.ready[:1])


@pytest.mark.parametrize('batch_size', [None, 2])
def test_a_checkpoint_begins_all_envs_anew_in_both_runs(
    make: Any, batch_size: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    manager, other = make(3, batch_size=batch_size), make(3, batch_size=batch_size)
    collectors = [SampleSerialCollector({}, each, Swinging().collect_mode) for each in (manager, other)]
    collectors[0].collect(20)
    collectors[0].settle()
    assert 'would continue their episodes: env 0, 1, 2: EnvPool has neither' in caplog.text
    assert manager.restart_lost().tolist() == [], 'they are at the beginning of an episode already'
    collectors[1].load_state_dict(collectors[0].state_dict())
    assert collectors[1].discarded == collectors[0].discarded and not collectors[1].unsaved
    rows = [collector.collect(60) for collector in collectors]
    for env in range(3):
        own = [each['obs'][each['env_id'] == env] for each in rows]
        shared = min(map(len, own))
        assert shared > 5
        np.testing.assert_array_equal(own[0][:shared], own[1][:shared])
    assert other.load_state_dict(manager.state_dict()).tolist() == [0, 1, 2], 'nobody called restart_lost'
    assert manager.restart_lost().tolist() == [0, 1, 2]
    assert manager._episodes.begun == other._episodes.begun and len(set(manager._episodes.begun)) == 3
    both = np.intersect1d(manager.ready, other.ready)
    np.testing.assert_array_equal(manager.obs[both], other.obs[both])


def test_what_cannot_be_made_is_refused_by_name(make: Any) -> None:
    with pytest.raises(EnvError, match=r"EnvPool has no task 'CartPol-v1'\. Did you mean 'CartPole-v1'\?"):
        make(2, 'CartPol-v1')
    with pytest.raises(ConfigError, match='at most 2') as caught:
        make(2, batch_size=3)
    assert caught.value.where == 'env.manager.batch_size'
    for section, where in (
        ({'env_id': 'CartPole-v1', 'kwargs': {'nonsense': 1}}, 'env.kwargs'),
        ({'env_id': Steady}, 'env.env_id'),
        ({'env_id': 'CartPole-v1', 'wrappers': ['FlattenObservation']}, 'env.wrappers'),
    ):
        with pytest.raises(EnvError) as refused:
            EnvPoolManager.from_factory(GymEnvFactory(section), 2)
        assert refused.value.where == where


def test_a_missing_package_is_named_with_its_extra(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, 'envpool', None)
    with raises(MissingDependencyError):
        EnvPoolManager('CartPole-v1', 2)


def test_pictures_are_those_of_the_env_asked_for(make: Any) -> None:
    pytest.importorskip('envpool')
    manager = EnvPoolManager.from_factory(GymEnvFactory({'env_id': 'CartPole-v1'}), 2, None, 'rgb_array')
    manager.reset(seed=[1, 2])
    pictures = [manager.render(env) for env in (0, 1)]
    assert pictures[0].shape == (400, 600, 3) and not np.array_equal(*pictures)
    rollout = Rollout(manager, Swinging().collect_mode)
    rollout.step()
    assert not np.array_equal(manager.render(0), pictures[0])
    manager.close()


def parts_of(obs: Any, path: str = '') -> dict[str, Any]:
    """Returns the parts of an observation, nested mappings or fields of an array, as columns."""
    names = obs.dtype.names if isinstance(obs, np.ndarray) else list(obs)
    if names is None:
        return {path: obs}
    return {key: part for name in names for key, part in parts_of(obs[name], f'{path}/{name}').items()}


@pytest.mark.parametrize('task_id', ['MiniGrid-Empty-5x5-v0', 'Parking-v0'])
def test_observations_of_several_parts_are_those_that_envpool_gives(make: Any, task_id: str) -> None:
    envpool = pytest.importorskip('envpool')
    seeds, options = [1, 2, 3], dict(num_envs=3, max_episode_steps=6)
    pool = envpool.make(task_id, env_type='gymnasium', seed=seeds, **options)
    manager = EnvPoolManager(task_id, 3, kwargs={'max_episode_steps': 6})
    manager.reset(seed=seeds)
    space = manager.spec.action_space
    space.seed(0)
    (expected, _), done = pool.reset(), np.zeros(3, bool)
    for _ in range(14):
        got, wanted = parts_of(manager.obs), parts_of(expected)
        assert got.keys() == wanted.keys() and len(got) >= 3
        for name, column in wanted.items():
            np.testing.assert_array_equal(got[name], column, name)
        if done.all():
            (expected, _), done = pool.reset(np.arange(3)), np.zeros(3, bool)
            manager.reset(np.arange(3))
            continue
        action = np.array([space.sample() for _ in range(3)])
        step = manager.step(action, manager.ready)
        expected, _, terminated, truncated, _ = pool.step(action, np.arange(3))
        done = terminated | truncated
        np.testing.assert_array_equal(step.done, done)
        assert done.all() == done.any()
    manager.close()
    pool.close()


@pytest.mark.parametrize(
    ('task_id', 'kwargs', 'threshold'),
    [
        ('FetchReach-v4', {}, None),
        ('CartPole-v1', {}, 475.0),
        ('FetchReach-v4', {'reward_threshold': 7.0}, 7.0),
    ],
)
def test_a_threshold_is_gymnasium_s_or_the_user_s(
    monkeypatch: pytest.MonkeyPatch, task_id: str, kwargs: Any, threshold: float | None
) -> None:
    """EnvPool gives whole families of tasks a threshold of 0 or 10, and a time limit where there is none."""
    give_tasks(monkeypatch, {task_id: task_of(spaces.Discrete(2), spaces.Discrete(2))})
    made = EnvPoolManager(task_id, 1, kwargs=kwargs)
    assert made.spec.reward_threshold == threshold and made.spec.max_episode_steps is None


def task_of(obs: Any, action: Any, **config: Any) -> Any:
    """Returns what EnvPool tells of a task."""
    return SimpleNamespace(
        gymnasium_observation_space=obs,
        gymnasium_action_space=action,
        reward_threshold=0.0,
        config=SimpleNamespace(max_episode_steps=2**31 - 1, **config),
    )


class FakePool:
    """Keeps the actions that it is given; an env shows an observation of its space drawn by its number."""

    def __init__(self, task: Any, count: int) -> None:
        self.observation_space, self.sent, self._ids = task.gymnasium_observation_space, [], np.arange(count)

    def async_reset(self) -> None:
        self.send(np.zeros(len(self._ids)), self._ids)

    def send(self, action: Any, env_id: Any) -> None:
        self._ids, self.sent = env_id, [*self.sent, action]

    def recv(self) -> Any:
        each = []
        for number in self._ids.tolist():
            self.observation_space.seed(number)
            each.append(self.observation_space.sample())
        obs = {name: np.stack([one[name] for one in each]) for name in self.observation_space}
        if 'action_mask' in obs:
            obs['action_mask'][:2, ..., 0] = 1
            obs['action_mask'][2:] = 0
        nothing = np.zeros(len(each))
        return obs, nothing, nothing > 0, nothing > 0, {'env_id': self._ids}

    def close(self) -> None:
        pass


def give_tasks(monkeypatch: pytest.MonkeyPatch, tasks: dict[str, Any]) -> list[FakePool]:
    """Puts an EnvPool with these tasks in the place of the installed one; returns the pools that are made."""
    made: list[FakePool] = []

    def make(task_id: str, num_envs: int, **options: Any) -> FakePool:
        made.append(FakePool(tasks[task_id], num_envs))
        return made[-1]

    fake = SimpleNamespace(
        list_all_envs=lambda: list(tasks), make_spec=lambda task_id, **_: tasks[task_id], make=make
    )
    monkeypatch.setitem(sys.modules, 'envpool', fake)
    return made


def integers(high: list[int], low: int = 0, dtype: Any = np.int32) -> spaces.Box:
    return spaces.Box(np.full(len(high), low, dtype), np.array(high, dtype), dtype=dtype)


CLASSES: dict[str, tuple[Any, Any, tuple[int, ...] | None]] = {
    'one value': (integers([5, 0, 2]), spaces.MultiDiscrete([6, 1, 3], dtype=np.int32), None),
    'another start': (
        integers([2, 3], -1, np.int16),
        spaces.MultiDiscrete([4, 5], dtype=np.int16, start=[-1, -1]),
        None,
    ),
    'masked each': (integers([3, 3, 3]), spaces.MultiDiscrete([4, 4, 4], dtype=np.int32), (3, 4)),
    'masked together': (integers([1, 2, 3]), spaces.Discrete(24), (2, 3, 4)),
    'one integer': (integers([3], 2, np.int64), spaces.MultiDiscrete([2], start=[2]), None),
    'many values': (integers([300]), integers([300]), None),
    'classes': (spaces.Discrete(4), spaces.Discrete(4), (4,)),
}
"""Actions of a task, those that a policy sees, and the shape of the mask."""


@pytest.mark.parametrize('case', CLASSES)
def test_few_integers_of_envpool_are_classes_that_its_masks_fit(
    monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    own, seen, shape = CLASSES[case]
    mask = {} if shape is None else {'action_mask': spaces.MultiBinary(shape)}
    obs = spaces.Dict({**mask, 'board': spaces.Box(0, 9, (2,))})
    made = give_tasks(monkeypatch, {'Board-v1': task_of(obs, own)})
    manager = EnvPoolManager('Board-v1', 3)
    assert manager.spec.action_space == seen
    if shape is not None:
        assert manager.spec.observation_space['action_mask'].shape == (int(np.prod(shape)),)
    manager.reset(seed=[1, 2, 3])
    manager.spec.action_space.seed(0)
    for _ in range(8):
        action = np.stack([manager.spec.action_space.sample() for _ in range(3)])
        manager.step(action, manager.ready)
        sent, (given, *_) = made[0].sent[-1], made[0].recv()
        assert all(own.contains(one) for one in sent)
        if case != 'masked together':
            np.testing.assert_array_equal(sent, action)
        else:  # an action's entry in the mask is that of its integers
            entries = [given['action_mask'][i][tuple(sent[i])] for i in range(2)]
            assert entries == [manager.obs['action_mask'][i][action[i]] for i in range(2)]
        if shape is not None:
            np.testing.assert_array_equal(
                manager.obs['action_mask'][:2], given['action_mask'].reshape(3, -1)[:2]
            )
            assert manager.obs['action_mask'][2].all(), 'a mask that allows nothing allows everything'
    manager.close()


def test_buttons_without_bounds_are_refused_with_the_option_that_makes_classes_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = np.finfo(np.float64)
    buttons = spaces.Box(limits.tiny, limits.max, (3,), np.float64)
    give_tasks(monkeypatch, {'Doom-v1': task_of(spaces.Discrete(2), buttons, use_combined_action=False)})
    with raises(IncompatibleError):
        EnvPoolManager('Doom-v1', 1)
