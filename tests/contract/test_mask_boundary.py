"""An action mask is never a number: of any type, wherever it is given, it forbids actions and does nothing else.

To check your own policy: ``RLFRAME_IMPORT=my_module pytest tests/contract/test_mask_boundary.py``.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from boundary import boundary
from error_texts import raises
from exported import trained
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from marks import slow_with
from policies import acting_policies
from quick_workers import forked_workers, quick_workers  # noqa: F401
from space_envs import SpaceEnv

import rlframe
from rlframe.data import Batch, EnvSpec
from rlframe.data.data_checks import check_batch
from rlframe.data.observation import pack, zero_obs
from rlframe.data.players import PlayerLayout
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.errors import ActionMaskError, IncompatibleError
from rlframe.export import export_policy
from rlframe.policy import create_policy
from rlframe.policy.parts.random_policy import random_collect_mode, random_opponent
from rlframe.registry import ENV_MANAGER_REGISTRY, POLICY_REGISTRY, import_modules
from rlframe.worker.collector.rollout import Rollout

import_modules([name for name in os.environ.get('RLFRAME_IMPORT', '').split(',') if name])
POLICIES = [name for name in acting_policies() if POLICY_REGISTRY.get(name).supports_action_mask]
MASKABLE = 'Discrete', 'MultiDiscrete', 'Tuple', 'Hybrid'
CASES = [
    (policy, action)
    for policy in POLICIES
    for action in POLICY_REGISTRY.get(policy).supported_actions.split(', ')
    if action in MASKABLE
]
SIZE = 4
"""Entries of a mask: four actions, or twice two."""
KINDS: dict[str, Any] = {
    'float32': spaces.Box(0, 1, (SIZE,), np.float32),
    'float64': spaces.Box(0, 1, (SIZE,), np.float64),
    'unbounded': spaces.Box(-np.inf, np.inf, (SIZE,), np.float32),
    'int8': spaces.Box(0, 1, (SIZE,), np.int8),
    'int64': spaces.Box(0, 1, (SIZE,), np.int64),
    'uint8': spaces.Box(0, 255, (SIZE,), np.uint8),
    'bool': spaces.Box(0, 1, (SIZE,), np.bool_),
    'MultiBinary': spaces.MultiBinary(SIZE),
    'MultiDiscrete': spaces.MultiDiscrete([2] * SIZE),
}
"""Spaces that a mask may be declared as."""
FLOATS = 'float32', 'float64', 'unbounded'
MANAGERS = [name for name in ENV_MANAGER_REGISTRY.names() if name not in ('env_pool', 'torch_vector')]
HERE = 'obs', 'info'


class TypedEnv(SpaceEnv):
    """Gives masks of a type; it raises an error if an action is forbidden.

    Args:
        where: Where it gives them: 'obs' or 'info'.
        kind: Their type.
        action: Kind of the actions.
        value: Value of the first entry from step ``at`` on, if it is not None.
        at: Number of such a step, 0 is the first reset.
    """

    def __init__(
        self, where: str, kind: str, action: str = 'Discrete', value: float | None = None, at: int = 0
    ) -> None:
        super().__init__('Box', action, where)
        self._dtype, self._value, self._calls = KINDS[kind].dtype, value, -at
        if where == 'obs':
            self.observation_space = spaces.Dict(
                {**self.observation_space.spaces, 'action_mask': KINDS[kind]}
            )

    def _answer(self) -> tuple[Any, dict[str, Any]]:
        obs, info = super()._answer()
        holder = obs if self._where == 'obs' else info
        holder['action_mask'] = mask = self._allowed.astype(self._dtype)
        if self._value is not None and self._calls >= 0:
            holder['action_mask'] = np.array([self._value, *mask[1:]])
        self._calls += 1
        return obs, info


@cache
def actor(policy: str, action: str, where: str, kind: str, normalize: bool) -> Any:
    """Returns a policy, with statistics in which a normalised mask would be no mask any more."""
    spec = GymEnvFactory(dict(env_id=TypedEnv, kwargs=dict(where=where, kind=kind, action=action))).spec
    torch.manual_seed(0)
    made = create_policy({'type': policy, 'device': 'cpu', 'normalize_obs': normalize}, spec, seed=0)
    if normalize:
        made._normalizer.obs.gather(rows_of(spec, np.tri(SIZE, dtype=bool)))
        made._normalizer.obs.refresh()
    return made


def rows_of(spec: EnvSpec, mask: np.ndarray) -> Any:
    rows = zero_obs(spec.observation_space, len(mask))
    rows['action_mask'] = mask
    rows['observation'] = np.random.default_rng(0).random((len(mask), 4))
    return rows


def is_allowed(action: Any, mask: np.ndarray, space: Any) -> bool:
    """Whether all actions [n, ...] are allowed by masks, [n, 4]."""
    if hasattr(space, 'first_class'):  # a row of all numbers
        action = action[:, space.is_class] - space.first_class
    elif isinstance(action, tuple):
        action = action[1] - space[1].start
    else:
        action = np.asarray(action) - space.start
    action = action.astype(np.int64)
    action = action.reshape(len(mask), -1)
    chosen = action + np.array([0, 2]) if action.shape[1] == 2 else action
    return bool(np.take_along_axis(mask, chosen, 1).all())


MASKS = st.lists(
    st.tuples(st.sampled_from([(0, 1), (1, 0), (1, 1)]), st.sampled_from([(0, 1), (1, 0), (1, 1)])),
    min_size=1,
    max_size=6,
).map(lambda rows: np.array(rows, bool).reshape(-1, SIZE))


@pytest.mark.parametrize(('policy', 'action'), CASES)
@settings(boundary, max_examples=2 * boundary.max_examples // 5)
@given(
    where=st.sampled_from(HERE),
    kind=st.one_of(st.sampled_from(FLOATS), st.sampled_from(list(KINDS))),
    normalize=st.booleans(),
    mask=MASKS,
)
def test_no_policy_takes_a_forbidden_action_and_its_network_gets_the_mask_as_it_is(
    policy: str, action: str, where: str, kind: str, normalize: bool, mask: np.ndarray
) -> None:
    made = actor(policy, action, where, kind, normalize)
    rows, env_id, seen = rows_of(made.spec, mask), np.arange(len(mask)), []
    with pytest.MonkeyPatch.context() as patch:
        for name in ('forward_collect', 'forward_eval'):
            forward = getattr(made, name)
            spy = lambda obs, *given, forward=forward, **options: (  # noqa: E731
                seen.append(obs['action_mask'].copy()) or forward(obs, *given, **options)
            )
            patch.setattr(made, name, spy)
        made.collect_mode.reset(None), made.eval_mode.reset(None)
        modes = [
            made.collect_mode,
            made.eval_mode,
            random_collect_mode(made.collect_mode, made.spec, np.random.default_rng(0)),
        ]
        for mode in modes:
            assert is_allowed(mode.forward(rows, env_id)['action'], mask, made.spec.action_space)
    assert len(seen) >= 2 and all(
        one.dtype == rows['action_mask'].dtype and (one == rows['action_mask']).all() for one in seen
    )


@pytest.mark.parametrize(
    ('policy', 'action'),
    [pytest.param(*case, marks=[] if case[1] == 'Discrete' else pytest.mark.slow) for case in CASES],
)
def test_no_forbidden_action_is_taken_in_training_evaluation_and_by_what_is_exported(
    policy: str, action: str, cwd: Path, monkeypatch: Any
) -> None:
    learned: list[Any] = []
    cls = POLICY_REGISTRY.get(policy)
    learn = cls.forward_learn
    monkeypatch.setattr(
        cls, 'forward_learn', lambda self, data, **given: learned.append(data) or learn(self, data, **given)
    )
    kwargs = dict(where='obs', kind='float32', action=action)
    run = trained(policy, dict(env_id=TypedEnv, kwargs=kwargs), dict(normalize_obs=True))
    columns = [data[name]['action_mask'] for data in learned for name in ('obs', 'next_obs') if name in data]
    assert learned and all(np.isin(column, (0, 1)).all() for column in columns)
    export_policy(run)
    loaded = rlframe.load(run.parents[1])
    one = np.array([[0, 1, 1, 0], [1, 0, 0, 1], [0, 1, 0, 1], [1, 0, 1, 0]], bool)
    mask = np.tile(one, (16, 1))
    obs = np.random.default_rng(0).random((len(mask), 4)).astype(np.float32)
    for other in (np.where(mask, 0, -np.inf), mask / 2):
        with raises(ActionMaskError):
            loaded.act(obs, other)
        with raises(ActionMaskError):
            loaded.act({'observation': obs, 'action_mask': other})
    for shown in (mask, mask.astype(np.int8), mask.astype(np.float64)):
        loaded.reset()
        assert is_allowed(loaded.act(obs, shown), mask, loaded.action_space)
        loaded.reset()
        assert is_allowed(loaded.act({'observation': obs, 'action_mask': shown}), mask, loaded.action_space)


GIVING = [(kind, HERE[i % 2], MANAGERS[i % len(MANAGERS)]) for i, kind in enumerate(KINDS)]
"""Each kind, and each manager."""


@pytest.mark.parametrize(('kind', 'where', 'manager'), slow_with('async_subprocess', GIVING))
def test_every_manager_gives_the_masks_of_its_envs(manager: str, where: str, kind: str) -> None:
    cls = ENV_MANAGER_REGISTRY.get(manager)
    factory = GymEnvFactory(dict(env_id=TypedEnv, kwargs=dict(where=where, kind=kind)))
    envs = cls.from_factory(factory, 2, cls.resolve_config({}))
    try:
        envs.reset(seed=[1, 2])
        rollout = Rollout(envs, random_opponent(envs.spec, 0))
        for _ in range(12):  # TypedEnv refuses what its mask forbids
            assert np.isin(rollout.step().obs['action_mask'], (0, 1)).all()
    finally:
        envs.close()


OTHERS = st.one_of(
    st.sampled_from(
        [
            -np.inf,
            np.inf,
            np.nan,
            2.0,
            -1.0,
            0.5,
            255.0,
            -1e9,
            float(np.nextafter(np.float32(1), np.float32(0))),
        ]
    ),
    st.floats(width=32).filter(lambda value: value not in (0, 1)),
)


@boundary
@given(value=OTHERS, where=st.sampled_from(HERE), kind=st.sampled_from(list(KINDS)), at=st.integers(0, 12))
def test_masks_of_other_values_are_refused_with_a_remedy(
    value: float, where: str, kind: str, at: int
) -> None:
    late = at > 6 and where == 'obs' and kind not in FLOATS
    kwargs = dict(where=where, kind=kind, value=value, at=0 if late else at)
    refused_by('base', kwargs)


@pytest.mark.parametrize('manager', slow_with('async_subprocess', MANAGERS))
@pytest.mark.parametrize(('value', 'where'), [(-np.inf, 'obs'), (0.25, 'info')])
def test_every_manager_refuses_them(manager: str, where: str, value: float) -> None:
    refused_by(manager, dict(where=where, kind='float32', value=value, at=3))


def refused_by(manager: str, kwargs: dict[str, Any]) -> None:
    cls = ENV_MANAGER_REGISTRY.get(manager)
    factory = GymEnvFactory(dict(env_id=TypedEnv, kwargs=kwargs, action_mask=kwargs['where'] == 'info'))
    envs = cls.from_factory(factory, 2, cls.resolve_config({}))
    with pytest.raises(ActionMaskError, match=r'action mask is \[.*expected 1 .or True.*mask == 0; of prob'):
        try:
            envs.reset(seed=[1, 2])
            rollout = Rollout(envs, random_opponent(envs.spec, 0))
            for _ in range(16):
                rollout.step()
        finally:
            envs.close()


@pytest.mark.parametrize('value', [-np.inf, 0.25, np.nan])
def test_recorded_masks_and_those_of_games_are_refused_alike(value: float) -> None:
    spec = GymEnvFactory(dict(env_id=TypedEnv, kwargs=dict(where='obs', kind='float32'))).spec
    one = {'observation': np.zeros(4, np.float32), 'action_mask': np.float32([1, value, 0, 1])}
    rows = np.stack([pack(spec.observation_space, one)] * 2)
    with raises(ActionMaskError):
        check_batch(Batch({'obs': rows, 'action': np.array([2, 2])}), spec, 'collector.data')
    layout = PlayerLayout(spec, 2)
    with raises(ActionMaskError):
        layout.put_obs(layout.new_record(), 1, one)


@pytest.mark.parametrize('action', ['Box', 'MultiBinary'])
@pytest.mark.parametrize('policy', acting_policies())
def test_a_mask_of_actions_that_cannot_be_masked_is_refused_with_a_remedy(policy: str, action: str) -> None:
    space = SpaceEnv(action=action).action_space
    spec = EnvSpec(spaces.Dict(board=spaces.MultiBinary(3), action_mask=KINDS['int8']), space, name='Odd')
    with pytest.raises(IncompatibleError) as caught:
        create_policy({'type': policy, 'device': 'cpu'}, spec)
    text = str(caught.value)
    assert 'cannot mask the actions of' in text and "filter_keys=['board']" in text and 'obeyed' not in text
