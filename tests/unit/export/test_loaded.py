"""An exported policy acts without its config and env: masks, frames, episodes, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from error_texts import raises
from exported import SpaceEnv, as_eval_builds_it, observations, same, trained
from gymnasium.wrappers import FrameStackObservation
from zoo import SampledEnv

import rlframe
from rlframe.data.observation import pack
from rlframe.errors import (
    DeviceError,
    IncompatibleError,
    NonFiniteError,
    ObservationError,
    UnsafeCheckpointError,
)
from rlframe.export import LoadedPolicy, export_policy
from rlframe.policy import Policy
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.serialize import leaves

pytestmark = pytest.mark.usefixtures('cwd')

Pair = tuple[LoadedPolicy, Policy]


def pair(policy: str, env: dict[str, Any], options: Any = None, **kwargs: Any) -> Pair:
    """Returns an exported policy, loaded, and the same policy as ``eval`` builds it."""
    run = trained(policy, env, options)
    path = export_policy(run)['artifact']
    return rlframe.load(path, **kwargs), as_eval_builds_it(run)


def answer(policy: Policy, rows: np.ndarray) -> np.ndarray:
    action: np.ndarray = policy.eval_mode.forward(rows, np.arange(len(rows)))['action']
    return action


@pytest.mark.parametrize('obs', ['Dict', 'Box (image)'])
def test_observations_of_every_kind_are_taken_as_the_env_gives_them(obs: str) -> None:
    loaded, policy = pair(
        'ppo', dict(env_id=SpaceEnv, kwargs=dict(obs=obs, action='Box')), dict(normalize_obs=obs == 'Dict')
    )
    env, seen = SpaceEnv(obs, 'Box'), []
    for seed in range(12):
        one, _ = env.reset(seed=seed)
        action = loaded.act(one)
        same(action, answer(policy, np.stack([pack(env.observation_space, one)]))[0])
        assert env.action_space.contains(action)
        seen.append(action.tobytes())
    assert len(set(seen)) == 4  # as many as there are classes


@pytest.mark.parametrize(('where', 'action'), [('obs', 'Discrete'), ('info', 'MultiDiscrete')])
def test_a_mask_is_obeyed_beside_the_observation_and_in_it(where: str, action: str) -> None:
    kwargs = dict(obs='Dict', action=action, mask=where)
    loaded, policy = pair('ppo' if action != 'Discrete' else 'dqn', dict(env_id=SpaceEnv, kwargs=kwargs))
    space = loaded.observation_space
    space.seed(0)
    free = 0
    for _ in range(20):
        inner = space['observation'].sample()
        mask = np.zeros(space['action_mask'].shape[0], np.int8)
        mask[[1, 2]] = 1  # of MultiDiscrete([2, 2]) one action of each
        whole = {'observation': inner, 'action_mask': mask}
        expected = answer(policy, np.stack([pack(space, whole)]))[0]
        got = [loaded.act(whole), loaded.act(inner, mask), loaded.act(inner, mask.astype(bool))]
        if action == 'MultiDiscrete':
            got.append(loaded.act(inner, (mask[:2], mask[2:])))
        for one in got:
            assert np.array_equal(one, expected)
        assert np.array_equal(expected, [1, 0]) if action == 'MultiDiscrete' else expected - 2 in (1, 2)
        free += not np.array_equal(loaded.act(inner, np.ones_like(mask)), expected)
    assert free > 0, 'a policy that wants what is allowed shows nothing'
    batch = {'observation': [inner] * 3, 'action_mask': np.stack([mask] * 3)}
    with raises(ObservationError):
        loaded.act(batch)
    assert len(loaded.act([whole] * 3)) == 3


def test_masks_that_are_missing_doubled_or_unknown_are_refused() -> None:
    masked, _ = pair('dqn', dict(env_id=SpaceEnv, kwargs=dict(obs='Box', mask='info')))
    obs, mask = np.zeros(4, np.float32), np.ones(4, np.int8)
    with raises(ObservationError):
        masked.act(obs)
    with raises(ObservationError):
        masked.act({'observation': obs, 'action_mask': mask}, mask)
    with raises(ObservationError):
        masked.act(obs, mask[:3])
    with raises(ObservationError):
        masked.act(np.stack([obs] * 2), mask)
    assert masked.act(np.stack([obs] * 2), np.stack([mask] * 2)).shape == (2,)


@pytest.mark.parametrize('kwargs', [dict(obs='Dict'), dict(obs='Box', mask='info')])
def test_frames_are_stacked_as_the_wrapper_stacks_them(kwargs: dict[str, str]) -> None:
    given = dict(env_id=SpaceEnv, kwargs=kwargs, frame_stack=3)
    loaded, policy = pair('dqn', given, dict(model=dict(encoder_hidden_size_list=[16])))
    card = (loaded.path / 'README.md').read_text(encoding='utf-8')
    assert 'policy.reset()' in card and ('policy.act(obs, action_mask)' in card) == ('mask' in kwargs)
    wrapped, seen = FrameStackObservation(SpaceEnv(**kwargs), 3), set()
    plain = SpaceEnv(**kwargs)
    forward, taken = loaded._mode.forward, list[np.ndarray]()

    def watched(rows: np.ndarray, env_id: np.ndarray) -> Any:
        taken.append(rows.copy())
        return forward(rows, env_id)

    loaded._mode = loaded._mode._replace(forward=watched)
    for seed in range(4):
        loaded.reset()
        obs, info = plain.reset(seed=seed)
        stacked, _ = wrapped.reset(seed=seed)
        done = False
        while not done:
            mask = info.get('action_mask')
            whole = stacked if mask is None else {'observation': stacked, 'action_mask': mask}
            row = np.stack([pack(loaded.observation_space, whole)])
            action = loaded.act(obs) if mask is None else loaded.act(obs, mask)
            assert action == answer(policy, row)[0]
            assert taken[-1].dtype == row.dtype and taken[-1].shape == row.shape
            for (_, got), (_, wanted) in zip(leaves(taken[-1]), leaves(row), strict=True):
                assert np.array_equal(got, wanted)
            seen.add(row.tobytes())
            obs, _, done, _, info = plain.step(action)
            stacked, *_ = wrapped.step(action)
    assert len(seen) > 8
    unstacked = rlframe.load(loaded.path, stack_frames=False)
    assert unstacked.act(whole) == answer(policy, row)[0]
    assert loaded.is_stateful and not unstacked.is_stateful


def test_the_number_of_envs_of_running_episodes_cannot_change() -> None:
    loaded, _ = pair('r2d2', dict(env_id=SampledEnv))
    obs = observations(loaded.observation_space, 3)
    loaded.act(obs)
    with raises(ObservationError):
        loaded.act(obs[0])
    with raises(ObservationError):
        loaded.act(obs, np.ones((3, 4), np.int8))
    loaded.reset(np.array([False, True, False]))
    with raises(ObservationError):
        loaded.act(obs[:2])
    loaded.reset()
    assert isinstance(loaded.act(obs[0]), int)


def test_what_is_loaded_says_what_it_is_and_refuses_what_is_not_of_its_space() -> None:
    loaded, _ = pair('sac', dict(env_id=SampledEnv, kwargs=dict(action='Box')))
    assert (
        loaded.observation_space == SampledEnv.OBS['Box'] and loaded.action_space == SampledEnv.ACTIONS['Box']
    )
    assert 'sac' in repr(loaded) and 'SampledEnv' in repr(loaded) and not loaded.is_stateful
    inside = np.array([0.0, 0.0, 0.0, 3.0])
    assert loaded.act(inside).shape == (3, 1) and loaded.act(inside[None]).shape == (1, 3, 1)
    with raises(ObservationError):
        loaded.act([[0.0, 0.0, 90.0, 3.0], [0.0, 0.0, 91.0, 3.0]])
    with raises(ObservationError):
        loaded.act(np.zeros(3))
    with pytest.raises(NonFiniteError):
        loaded.act([0.0, 0.0, 0.0, float('nan')])
    with raises(DeviceError):
        rlframe.load(loaded.path, device='cuda:99')


def test_loading_disturbs_no_generator_and_leaves_the_folder_as_it_was() -> None:
    loaded, _ = pair('dqn', dict(env_id=SampledEnv), dict(model=dict(noisy=True)))
    state, files = torch.get_rng_state(), {p.name: p.read_bytes() for p in loaded.path.iterdir()}
    again = rlframe.load(loaded.path)
    rows = observations(again.observation_space, 50)
    first = again.act(rows)
    same(first, again.act(rows)), same(first, loaded.act(rows))
    assert torch.equal(state, torch.get_rng_state())
    assert files == {p.name: p.read_bytes() for p in loaded.path.iterdir()}


def test_neither_the_env_nor_the_run_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, _ = pair('dqn', dict(env_id=SampledEnv))
    elsewhere = tmp_path / 'elsewhere' / 'my policy'
    elsewhere.parent.mkdir()
    loaded.path.rename(elsewhere)
    for name in ('zoo', 'space_envs', 'rlframe.envs.gym_env'):
        monkeypatch.setitem(sys.modules, name, None)  # importing it fails
    obs = [0.5, 1.0, 20.0, 3.5]
    assert rlframe.load(elsewhere).act(obs) == loaded.act(obs)


OWN = """
from rlframe.data import Batch
from rlframe.policy.dqn import DQNPolicy
from rlframe.registry import POLICY_REGISTRY


@POLICY_REGISTRY.register('contrary_dqn')
class ContraryDQNPolicy(DQNPolicy):
    config = dict(other=dict(sign=-1.0))

    def forward_eval(self, obs, env_id, **settings):
        action = (self.q_value(obs) * self._cfg.other.sign).argmax(1).numpy()
        return Batch(action=action + self.spec.action_space.start)
"""


def test_a_policy_of_ones_own_is_imported_only_where_that_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / 'contrary_dqn.py').write_text(OWN, encoding='utf-8')
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        run = trained('contrary_dqn', dict(env_id=SampledEnv), imports=['contrary_dqn'])
        path = export_policy(run)['artifact']
        with raises(IncompatibleError):
            export_policy(run, ['torch_export'])
        assert not (path.parent / 'policy.pt2').exists()
        rows = observations(SampledEnv.OBS['Box'], 30)
        expected = answer(as_eval_builds_it(run), rows)
    finally:
        POLICY_REGISTRY._classes.pop('contrary_dqn', None)
        sys.modules.pop('contrary_dqn', None)
    assert 'trust=True' in (path / 'README.md').read_text(encoding='utf-8')
    monkeypatch.setenv('RLFRAME_TRUST_KEY', 'k' * 32)  # as if somebody else had exported it
    with raises(UnsafeCheckpointError):
        rlframe.load(path)
    assert 'contrary_dqn' not in sys.modules
    try:
        same(rlframe.load(path, trust=True).act(rows), expected)
    finally:
        POLICY_REGISTRY._classes.pop('contrary_dqn', None)
        sys.modules.pop('contrary_dqn', None)
