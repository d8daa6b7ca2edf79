"""Decision transformer: windows of episodes, what a step may look at, its loss, and acting step by step."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from policy_toys import OBS, PLAIN

from rlframe.data import Batch, EnvSpec
from rlframe.data.dataset import open_data
from rlframe.data.episodes import WindowSource
from rlframe.policy import create_policy

BOX = EnvSpec(OBS, gymnasium.spaces.Box(-2, 2, (2,), np.float32), name='Toy-v0')
MODEL = {'encoder_hidden_size_list': [8], 'width': 16, 'blocks': 2, 'heads': 2, 'context_len': 4}


def made(spec: Any = PLAIN) -> Any:
    return create_policy({'type': 'dt', 'cuda': False, 'model': MODEL}, spec, seed=0)


def episodes(spec: Any = PLAIN) -> Batch:
    """Returns episodes of 3 and 5 rows."""
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(8, 3)).astype(np.float32)
    action = rng.integers(4, size=8) if spec is PLAIN else rng.uniform(-2, 2, (8, 2)).astype(np.float32)
    ends = np.isin(np.arange(8), [2, 7])
    return Batch(
        obs=obs,
        next_obs=obs,
        action=action,
        reward=np.arange(8, dtype=np.float32),
        terminated=ends,
        truncated=np.zeros(8, bool),
        episode=np.array([0] * 3 + [1] * 5),
    )


def all_windows(spec: Any = PLAIN) -> Batch:
    """Returns the windows of all rows, in the order of their last rows."""
    source = WindowSource(open_data(episodes(spec)), 4)
    (batch,) = source.batches(8, np.random.default_rng(0))
    return batch[np.argsort(np.random.default_rng(0).permutation(8))]


def test_windows_hold_the_steps_of_one_episode_and_what_is_earned_from_each_on() -> None:
    batch = all_windows()
    assert WindowSource(open_data(episodes()), 4).returns.tolist() == [3, 25]
    assert batch['mask'].sum(1).tolist() == [1, 2, 3, 1, 2, 3, 4, 4]
    assert batch['reward'][2][batch['mask'][2]].tolist() == [0, 1, 2]
    assert batch['return_to_go'][2][batch['mask'][2]].tolist() == [3, 3, 2]
    assert batch['return_to_go'][7].tolist() == [22, 18, 13, 7] and batch['timestep'][7].tolist() == [
        1,
        2,
        3,
        4,
    ]


def test_the_loss_is_that_of_the_steps_of_the_windows() -> None:
    for spec in (PLAIN, BOX):
        policy, batch = made(spec), all_windows(spec)
        rows = policy.columns(batch)
        mask, model = batch['mask'], policy.model
        number = np.eye(4, dtype=np.float32)[batch['action']] if spec is PLAIN else batch['action'] / 2
        with torch.no_grad():
            features = model.features_of(rows['obs'], 2)
            rest = rows['return_to_go'], rows['timestep'], rows['mask']
            output = model.actions(features, torch.from_numpy(number), *rest).numpy().astype(float)[mask]
            reward = model.expected_reward(features, torch.from_numpy(number)).numpy().astype(float)[mask]
        if spec is PLAIN:
            chosen = output[np.arange(len(output)), batch['action'][mask]]
            wanted = (np.log(np.exp(output).sum(1)) - chosen).mean()
        else:
            wanted = ((output - number[mask]) ** 2).mean()
        parts = policy.update.loss(rows).parts
        assert parts['action_loss'].item() == pytest.approx(wanted, rel=1e-4)
        assert parts['reward_loss'].item() == pytest.approx(
            ((reward - batch['reward'][mask]) ** 2).mean(), rel=1e-4
        )


def test_a_step_sees_nothing_that_comes_later_and_nothing_before_the_episode() -> None:
    policy = made()
    rows = policy.columns(all_windows())
    model = policy.model
    features = model.features_of(rows['obs'], 2)
    number = torch.nn.functional.one_hot(rows['action'].long(), 4).float()
    rest = rows['timestep'], rows['mask']
    before = model.actions(features, number, rows['return_to_go'], *rest)
    for column, changed in ((2, slice(3, 4)), (3, slice(0, 1))):
        with torch.no_grad():
            other = features.clone()
            other[:, changed] += 1
            after = model.actions(other, number, rows['return_to_go'], *rest)
        same = torch.isclose(before[:, column], after[:, column], atol=1e-6).all(1)
        seen = rows['mask'][:, changed].squeeze(1) if column == 3 else torch.zeros(8, dtype=torch.bool)
        assert torch.equal(same, ~seen)


def test_acting_step_by_step_is_what_the_window_says() -> None:
    policy = made(BOX)
    model = policy.model
    model.target.fill_(7.0)
    obs = np.random.default_rng(1).normal(size=(6, 1, 3)).astype(np.float32)
    acted = [policy.eval_mode.forward(one, np.arange(1))['action'][0] / 2 for one in obs]
    with torch.no_grad():
        features = torch.from_numpy(obs[:, 0])
        number = torch.from_numpy(np.stack(acted))
        earned = torch.cat([torch.zeros(1), model.expected_reward(features, number).cumsum(0)[:-1]])
        for last in range(6):
            part = slice(max(last - 3, 0), last + 1)
            time = torch.arange(part.start, part.stop)
            rest = (7 - earned[part])[None], time[None], torch.ones(1, len(time), dtype=torch.bool)
            output = model.actions(features[None, part], number[None, part], *rest)[0, -1]
            np.testing.assert_allclose(output.numpy(), acted[last], atol=1e-5)
