"""Every action that reaches an env is in its action space, with its type and shape, whatever a network says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from boundary import boundary
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from marks import slow_with
from policies import acting_policies
from quick_workers import forked_workers, quick_workers  # noqa: F401
from zoo import Toy

from rlframe.data import Batch, EnvSpec
from rlframe.data.composite import by_rows
from rlframe.envs import BaseEnvManager
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.errors import IncompatibleError
from rlframe.export.function import EnvAction
from rlframe.policy import create_policy
from rlframe.policy.parts.actions import EXACT, ActionMap
from rlframe.policy.parts.random_policy import random_opponent
from rlframe.policy.parts.tensor_acting import action_map
from rlframe.registry import ENV_MANAGER_REGISTRY, POLICY_REGISTRY
from rlframe.worker import SampleSerialCollector, SequenceReplayBuffer

OBS = spaces.Box(-1, 1, (3,), np.float32)
INTEGERS = [f'{sign}int{bits}' for sign in ('', 'u') for bits in (8, 16, 32, 64)]
FLOATS = ['float16', 'float32', 'float64']
SHAPES = [(), (1,), (3,), (2, 2)]


def is_refused_by_its_bounds(error: IncompatibleError) -> bool:
    return 'no finite bounds' in str(error)


def contains(space: spaces.Space, action: Any) -> bool:
    return action.dtype == space.dtype and action.shape == space.shape and space.contains(action)


@st.composite
def boxes(draw: Any) -> spaces.Box:
    """Boxes with bounds of any size and distance, of floats and integers."""
    shape, name = draw(st.sampled_from(SHAPES)), draw(st.sampled_from([*FLOATS, *INTEGERS]))
    dtype = np.dtype(name)
    if dtype.kind == 'f':
        largest = min(float(np.finfo(dtype).max) / 4, 4e9)  # a Box of larger ones has no bounds
        numbers = st.floats(-largest, largest, width=8 * dtype.itemsize)
    else:
        limits = np.iinfo(dtype)
        numbers = st.integers(max(int(limits.min), -EXACT), min(int(limits.max), EXACT))
    pair = (
        st.tuples(numbers, numbers).map(sorted).filter(lambda ends: dtype.type(ends[0]) < dtype.type(ends[1]))
    )
    pairs = draw(st.lists(pair, min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    low, high = (np.array([ends[i] for ends in pairs], dtype).reshape(shape) for i in (0, 1))
    return spaces.Box(low, high, shape, dtype.type)


CLASSES = st.builds(
    lambda n, start, dtype: spaces.Discrete(n, start=start, dtype=dtype),
    st.integers(1, 9),
    st.integers(0, 100),
    st.sampled_from([np.int8, np.uint8, np.int32, np.int64]),
)
SEVERAL = st.builds(
    lambda sizes, start, dtype: spaces.MultiDiscrete(sizes, start=[start] * len(sizes), dtype=dtype),
    st.lists(st.integers(1, 5), min_size=1, max_size=3),
    st.integers(0, 100),
    st.sampled_from([np.int8, np.int16, np.int32, np.int64]),
)
SWITCHES = st.builds(spaces.MultiBinary, st.integers(1, 4))
KINDS = {'Box': boxes(), 'Discrete': CLASSES, 'MultiDiscrete': SEVERAL, 'MultiBinary': SWITCHES}
PARTS = st.one_of(*KINDS.values())
KINDS |= {
    'Dict': st.builds(lambda a, b: by_rows(spaces.Dict(a=a, b=spaces.Tuple((b,)))), PARTS, PARTS),
    'Tuple': st.lists(PARTS, min_size=1, max_size=3).map(lambda parts: by_rows(spaces.Tuple(parts))),
    'Hybrid': st.builds(lambda a, b, c: by_rows(spaces.Dict(a=a, b=b, c=c)), boxes(), CLASSES, boxes()),
}
BESIDE = [
    -np.inf,
    -1.5,
    np.nextafter(-1, -2),
    -1.0,
    np.nextafter(-1, 0),
    0.0,
    np.nextafter(1, 0),
    1.0,
    1.5,
    np.inf,
]


fewer = settings(boundary, max_examples=2 * boundary.max_examples // 5)


@fewer
@given(boxes(), st.lists(st.sampled_from(BESIDE) | st.floats(-2, 2), min_size=4, max_size=4))
def test_numbers_at_and_beyond_the_ends_of_minus_1_to_1_are_mapped_into_the_box(
    space: Any, numbers: Any
) -> None:
    spec = EnvSpec(OBS, space, name='Any')
    size = int(np.prod(space.shape))
    unit = np.array([numbers[:size], [-1.0] * size, [1.0] * size], np.float32)
    try:
        chosen = ActionMap(spec)
    except IncompatibleError as error:
        assert is_refused_by_its_bounds(error)
        return
    mapped = chosen.to_env(unit)
    assert all(contains(space, mapped[i, ...]) for i in range(3)), mapped
    if space.dtype.kind == 'f':
        step = np.spacing(np.maximum(np.abs(space.low), np.abs(space.high)))
        assert np.all(mapped[1, ...] == space.low) and np.all(space.high - mapped[2, ...] <= step)
    elif space.dtype.itemsize < 8:
        np.testing.assert_array_equal(mapped[1, ...], space.low)
        np.testing.assert_array_equal(mapped[2, ...], space.high)
    for function in (EnvAction(space), action_map(spec, torch.device('cpu'))):
        action = function(torch.from_numpy(unit)).numpy()
        assert all(contains(space, action[i, ...]) for i in range(3)), action
    back = chosen.from_env(mapped)
    assert back.shape == unit.shape and np.all(np.abs(back) <= 1 + 1e-6)


def test_integers_are_rounded_so_both_ends_of_a_switch_are_taken() -> None:
    space = spaces.Box(0, 1, (1,), np.int8)
    unit = np.linspace(-1, 1, 9, dtype=np.float32)[:, None]
    np.testing.assert_array_equal(
        ActionMap(EnvSpec(OBS, space)).to_env(unit)[:, 0], [0, 0, 0, 0, 0, 1, 1, 1, 1]
    )


def extreme(policy: Any) -> None:
    """Makes the outputs of a network large, so that its actions are at the ends and beyond."""
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(50)


ACTING = [
    (name, kind)
    for name in acting_policies()
    for kind in POLICY_REGISTRY.get(name).supported_actions.split(', ')
]


@pytest.mark.parametrize(('name', 'kind'), ACTING)
@fewer
@given(data=st.data())
def test_actions_of_a_policy_are_in_the_action_space(name: str, kind: str, data: Any) -> None:
    spec = EnvSpec(OBS, data.draw(KINDS[kind]), name='Any')
    try:
        policy = create_policy({'type': name, 'device': 'cpu'}, spec, seed=1)
    except IncompatibleError as error:
        assert is_refused_by_its_bounds(error)
        return
    if data.draw(st.booleans()):
        extreme(policy)
    obs, env_id = np.stack([OBS.sample() for _ in range(4)]), np.arange(4)
    drawn = policy.random_collect_mode(np.random.default_rng(1))
    faces = [policy.collect_mode, policy.greedy_collect_mode, drawn, policy.eval_mode]
    for face in [*faces, random_opponent(spec, 0)]:
        face.reset(None)
        settings = policy.get_setting_collect({'envstep': 0}) if face is faces[0] else {}
        action = face.forward(obs, env_id, **settings)['action']
        for i in range(4):
            assert contains(spec.action_space, action[i, ...]), (face, action)


SINGLE = spaces.Box(np.float32(-2), np.float32(3), (), np.float32)
WORN = spaces.Box(np.array([0, -300]), np.array([1, 300]), (2,), np.int16)


class Picky(Toy):
    """Refuses each action that is not exactly of its space."""

    observation_space = OBS
    length = None

    def __init__(self, single: bool = True) -> None:
        self.action_space = SINGLE if single else WORN

    def act(self, action: Any) -> Any:
        assert isinstance(action, np.ndarray) and contains(self.action_space, action), action
        return 1.0


@pytest.mark.parametrize('single', [True, False])
@pytest.mark.parametrize(
    'name',
    slow_with(
        'async_subprocess',
        [name for name in ENV_MANAGER_REGISTRY.names() if name not in ('env_pool', 'torch_vector')],
    ),
)
def test_every_manager_passes_actions_on_with_the_type_and_shape_of_the_space(
    name: str, single: bool
) -> None:
    kind = ENV_MANAGER_REGISTRY.get(name)
    factory = GymEnvFactory({'env_id': Picky, 'kwargs': {'single': single}})
    manager = kind.from_factory(factory, 2, kind.resolve_config({}))
    try:
        manager.reset(seed=[1, 2])
        opponent = random_opponent(factory.spec, 0)
        for _ in range(12):
            ready = manager.ready
            manager.step(opponent.forward(manager.obs[: len(ready)], ready)['action'], ready)
    finally:
        manager.close()


NARROW = {
    'Discrete': [spaces.Discrete(3, dtype=np.int8), spaces.Discrete(3, start=5, dtype=np.uint8)],
    'MultiDiscrete': [
        spaces.MultiDiscrete([2, 3], dtype=np.int8),
        spaces.MultiDiscrete([[2, 3], [4, 2]], dtype=np.int16),
    ],
    'MultiBinary': [spaces.MultiBinary(1), spaces.MultiBinary((2, 2))],
    'Box': [SINGLE, WORN, spaces.Box(0, 255, (), np.uint8), spaces.Box(0, 1, (2,), np.bool_)],
    'Dict': [spaces.Dict(a=spaces.Discrete(3, start=5, dtype=np.uint8), b=spaces.Dict(c=SINGLE, d=WORN))],
    'Tuple': [
        spaces.Tuple((spaces.MultiDiscrete([[2, 3], [4, 2]], dtype=np.int16), spaces.MultiBinary((2, 2))))
    ],
}


class Walk(Picky):
    """Has any of the narrow action spaces, shows observations drawn at random and ends at random."""

    def __init__(self, kind: str, number: int) -> None:
        self.action_space = NARROW[kind][number]

    def obs(self) -> Any:
        return self.np_random.uniform(-1, 1, 3).astype(np.float32) if self.steps else super().obs()

    def act(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        return 1.0

    def is_over(self) -> bool:
        return bool(self.np_random.random() < 0.2)


def updates_of(policy: Any, data: Batch) -> list[Any]:
    answer = policy.learn_mode.forward(data)
    return [answer] if isinstance(answer, Mapping) else [update() for update in answer]


TURNS = [
    (name, kind, i % len(NARROW[kind]))
    for kind in NARROW
    for i, name in enumerate(own for own, its_kind in ACTING if its_kind == kind)
]
"""Each policy with each kind of action; the spaces of a kind take turns."""


@pytest.mark.parametrize(('name', 'kind', 'number'), TURNS)
def test_policies_learn_from_actions_of_any_type_and_shape(name: str, kind: str, number: int) -> None:
    factory = GymEnvFactory({'env_id': Walk, 'kwargs': {'kind': kind, 'number': number}})
    policy = create_policy({'type': name, 'device': 'cpu'}, factory.spec, seed=1)
    if name == 'bc':
        obs = np.zeros((8, 3), np.float32)
        data = Batch(obs=obs, action=random_opponent(factory.spec, 0).forward(obs, np.arange(8))['action'])
    else:
        manager = BaseEnvManager.from_factory(factory, 4)
        cfg = {'mark_episodes': policy.is_recurrent}
        collector = SampleSerialCollector(cfg, manager, policy.collect_mode)
        data = collector.collect(64, policy_kwargs=policy.get_setting_collect({'envstep': 0}))
    if policy.is_recurrent:
        buffer = SequenceReplayBuffer(None)
        buffer.push(data, 0)
        data = buffer.sample(8, 5, 0)
    updates = updates_of(policy, data)
    assert all(np.isfinite(float(update['total_loss'])) for update in updates)
    if 'approx_kl' in updates[0]:
        assert abs(float(updates[0]['approx_kl'])) < 1e-6, 'at first it is the policy that acted'
