"""Numbers pass from any env through any env manager as they are: observations, rewards and flags, returns, statistics.

To check your own manager: ``RLFRAME_IMPORT=my_module pytest tests/contract/test_number_boundary.py``.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from boundary import boundary
from fakes import ScriptedPolicy
from hypothesis import given, settings
from hypothesis import strategies as st
from number_envs import LENGTH, NativeNumbers, Numbers, TensorNumbers, obs_at
from quick_workers import forked_workers, quick_workers  # noqa: F401

from rlframe.envs.gym_env import GymEnvFactory
from rlframe.policy.parts.normalize import OBS_CLIP, ObsNormalizer
from rlframe.registry import ENV_MANAGER_REGISTRY, import_modules
from rlframe.scores import reaches
from rlframe.worker.collector.episode_log import EpisodeLog
from rlframe.worker.collector.rollout import Rollout

ENVS, STEPS = 2, 13
FORMS: dict[str, list[tuple[Any, dict[str, Any], dict[str, Any]]]] = {
    'gym_vector': [
        (Numbers, {}, {}),
        *((NativeNumbers, {}, {'autoreset': mode}) for mode in ('NEXT_STEP', 'SAME_STEP', 'DISABLED')),
    ],
    'torch_vector': [(TensorNumbers, {}, {})],
}
"""By manager, class of the envs, options of the manager and of the envs; the single env for all others."""
LEFT_OUT = ('env_pool',)
"""Managers that make their own envs."""
IN_PROCESSES = ('subprocess', 'async_subprocess')
"""Managers that start processes for each case, and so get few."""


def cases() -> list[Any]:
    """Returns each registered manager with each form of the envs that it takes."""
    import_modules([name for name in os.environ.get('RLFRAME_IMPORT', '').split(',') if name])
    return [
        pytest.param(
            name,
            *form,
            id='-'.join([name, form[0].__name__, *map(str, (form[1] | form[2]).values())]),
            marks=[pytest.mark.slow] if name == 'async_subprocess' else [],
        )
        for name in ENV_MANAGER_REGISTRY.names()
        if name not in LEFT_OUT
        for form in FORMS.get(name, [(Numbers, {}, {})])
    ]


numbers = st.fixed_dictionaries(
    {
        'dtype': st.sampled_from(['float32', 'float64', 'int64', 'int32', 'uint8']),
        'offset': st.sampled_from([0.0, 0.1, -3.0, 254.0, 1e8, 1.7e9, 2.0**31 - 5, -1e15, 1.7e18]),
        'scale': st.sampled_from([1e-6, 1e-3, 1.0, 50.0, 1e4]),
        'rewards': st.lists(
            st.sampled_from([0.0, 0.1, 0.3, -1.0, 1 / 3, 1e-9, 1e8 + 0.5, 2.0**24 + 1, 2.0**40 + 1]),
            min_size=1,
            max_size=LENGTH,
        ),
    }
)


def fits(case: dict[str, Any]) -> bool:
    """Whether the obs of a case are in the range of their type."""
    kind = np.dtype(case['dtype'])
    return kind.kind == 'f' or np.iinfo(kind).min <= case['offset'] <= np.iinfo(kind).max


@pytest.mark.filterwarnings('ignore::rlframe.errors.EnvContractWarning')
@pytest.mark.parametrize(('name', 'env_id', 'options', 'kwargs'), cases())
def test_numbers_are_the_env_s_own(
    name: str, env_id: Any, options: dict[str, Any], kwargs: dict[str, Any]
) -> None:
    @settings(boundary, max_examples=3 if name in IN_PROCESSES else 2 * boundary.max_examples // 5)
    @given(numbers.filter(fits))
    def check(case: dict[str, Any]) -> None:
        factory = GymEnvFactory({'env_id': env_id, 'kwargs': case | kwargs, 'action_mask': False})
        manager = ENV_MANAGER_REGISTRY.get(name).from_factory(factory, ENVS, options)
        try:
            play(manager, case, np.float32 if name == 'torch_vector' else np.float64)
        finally:
            manager.close()

    check()


def play(manager: Any, case: dict[str, Any], reward_type: Any) -> None:
    """Steps the envs and compares everything with what the envs must have given."""
    kind = case['dtype'], case['offset'], case['scale']
    paid = np.array(case['rewards'], np.float64).astype(reward_type).astype(np.float64)
    manager.reset(seed=list(range(ENVS)))
    rollout, log = Rollout(manager, ScriptedPolicy().collect_mode), EpisodeLog(ENVS)
    episode, step = np.zeros(ENVS, int), np.zeros(ENVS, int)
    normalizer = ObsNormalizer(manager.spec) if np.dtype(kind[0]).itemsize > 1 else None
    own_return, held, seen = np.zeros(ENVS), [], []
    for _ in range(STEPS):
        made = rollout.step()
        env, time = made.timestep.env_id, made.timestep
        expected = obs_at(*kind, env, episode[env], step[env])
        reward = paid[step[env] % len(paid)]
        step[env] += 1
        over = step[env] == LENGTH
        odd = episode[env] % 2 == 1
        np.testing.assert_array_equal(made.obs, expected)
        held = [*held[-1:], (time, env, episode[env], step[env].copy(), over, odd, reward)]
        for row in held:  # also the step before, whose arrays are still valid
            assert_row(kind, *row)
        if normalizer is not None:
            normalizer.gather(made.obs)
            seen.append(expected)
        own_return[env] += reward
        ended = log.update(made)
        np.testing.assert_array_equal(ended.return_, own_return[ended.env_id])
        assert sorted(ended.env_id) == sorted(env[over])
        finished = env[over]
        own_return[finished], step[finished] = 0.0, 0
        episode[finished] += 1
    assert episode.min() >= 1
    if normalizer is not None:
        assert_normalised(normalizer, np.concatenate(seen))


def assert_row(
    kind: Any, time: Any, env: Any, episode: Any, step: Any, over: Any, odd: Any, reward: Any
) -> None:
    np.testing.assert_array_equal(time.obs, obs_at(*kind, env, episode, step))
    assert time.obs.dtype == kind[0] and time.reward.dtype == np.float64
    np.testing.assert_array_equal(time.reward, reward)
    np.testing.assert_array_equal(time.terminated, over & ~odd)
    np.testing.assert_array_equal(time.truncated, over & odd)


def assert_normalised(normalizer: ObsNormalizer, rows: Any) -> None:
    """Fails unless rows are normalised by the mean and the deviation that numpy computes in float64."""
    normalizer.refresh()
    exact = rows.astype(np.float64)
    around = exact - exact[0]
    deviation = around - around.mean(0)
    spread = deviation.std(0)
    resolution = np.finfo(rows.dtype if rows.dtype.kind == 'f' else np.float64).eps * np.abs(exact).max(0)
    got = normalizer(rows)
    assert got.dtype == np.float32 and np.isfinite(got).all()
    varies = spread > 50 * resolution  # others are constant up to rounding
    wanted = np.clip(deviation / np.where(varies, spread, 1), -OBS_CLIP, OBS_CLIP)
    np.testing.assert_allclose(got[:, varies], wanted[:, varies], rtol=1e-2, atol=1e-2)
    assert np.abs(got[:, ~varies]).max(initial=0) <= OBS_CLIP and (got[:, spread == 0] == 0).all()


@given(st.integers(1, 2000), st.floats(-1e6, 1e6).filter(lambda reward: abs(reward) > 1e-6))
@boundary
def test_a_sum_of_equal_rewards_reaches_their_product(count: int, reward: float) -> None:
    total = 0.0
    for _ in range(count):
        total += reward
    assert reaches(total, count * reward)
    assert not reaches(count * reward - abs(count * reward) * 1e-8, count * reward)


@given(st.integers(2**24, 2**33))
@boundary
def test_neighbours_of_large_whole_goals_do_not_reach_them(goal: int) -> None:
    assert reaches(goal, goal) and reaches(goal + 1, goal) and not reaches(goal - 1, goal)
