"""Random shifts move images when a policy learns, reproducibly, and nothing else."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from easydict import EasyDict
from error_texts import raises
from gymnasium import spaces

from rlframe.data import Batch, EnvSpec
from rlframe.data.observation import zero_obs
from rlframe.errors import IncompatibleError
from rlframe.policy import create_policy
from rlframe.policy.parts.random_shift import check_shift, shifted_images

IMAGE = spaces.Box(0, 255, (4, 36, 36), np.uint8)


def spec_of(space: gymnasium.Space[Any]) -> EnvSpec:
    return EnvSpec(observation_space=space, action_space=spaces.Discrete(2), name='pictures')


def policy(space: gymnasium.Space[Any] = IMAGE, kind: str = 'dqn', pixels: int = 4) -> Any:
    model = dict(encoder_hidden_size_list=[8])
    return create_policy(
        {'type': kind, 'model': model, 'learn': {'random_shift': pixels}}, spec_of(space), seed=3
    )


def repeated(images: np.ndarray, shift: np.ndarray, hwc: bool) -> np.ndarray:
    """Takes each pixel from where it was; those from outside are the nearest inside."""
    height, width = images.shape[-3:-1] if hwc else images.shape[-2:]
    rows = []
    for image, down, right in zip(images, *shift, strict=True):
        y = np.clip(np.arange(height) + down, 0, height - 1)[:, None]
        x = np.clip(np.arange(width) + right, 0, width - 1)
        rows.append(image[..., y, x, :] if hwc else image[..., y, x])
    return np.array(rows)


@pytest.mark.parametrize(('shape', 'hwc'), [((5, 4, 8, 9), False), ((3, 2, 8, 9, 3), True)])
def test_a_shift_takes_pixels_from_beside_and_repeats_the_edges(shape: tuple[int, ...], hwc: bool) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, shape, np.uint8)
    shift = rng.integers(-9, 10, (2, len(images)))
    moved = shifted_images(images, shift, hwc)
    np.testing.assert_array_equal(moved, repeated(images, shift, hwc))
    assert moved.dtype == np.uint8


def rows_of(space: gymnasium.Space[Any], count: int = 6) -> Batch:
    obs = zero_obs(space, count)
    rng = np.random.default_rng(1)
    part = obs['image'] if obs.dtype.names else obs
    part[...] = rng.integers(0, 256, part.shape)
    zeros = np.zeros(count, bool)
    columns = dict(action=np.zeros(count, np.uint8), reward=np.ones(count, np.float32))
    return Batch(obs=obs, next_obs=obs.copy(), terminated=zeros, truncated=zeros, **columns)


def test_a_policy_learns_from_images_that_move_and_acts_on_those_that_do_not() -> None:
    ours, still = policy(), policy(pixels=0)
    still.model.load_state_dict(ours.model.state_dict())
    data, seen = rows_of(IMAGE), []
    for each in (ours, still):
        each.forward_learn = lambda data: seen.append(data) or {}
        each.learn_mode.forward(data)
    moved, same = seen
    assert same is data and moved['obs'].dtype == np.uint8
    assert (moved['obs'] != data['obs']).any() and (moved['obs'] != moved['next_obs']).any()
    rng = np.random.default_rng()
    rng.bit_generator.state = still.rng.bit_generator.state
    np.testing.assert_array_equal(moved['obs'], repeated(data['obs'], rng.integers(-4, 5, (2, 6)), False))
    obs = data['obs'][:2]
    np.testing.assert_array_equal(
        *(each.eval_mode.forward(obs, np.arange(2))['action'] for each in (ours, still))
    )


def test_shifts_are_the_same_after_the_state_is_restored() -> None:
    ours, other = policy(), policy()
    data = rows_of(IMAGE)
    ours.learn_mode.forward(data)
    other.learn_mode.load_state_dict(ours.learn_mode.state_dict())
    losses = [float(each.learn_mode.forward(data)['total_loss']) for each in (ours, other)]
    assert losses[0] == losses[1] and losses[0] != float(ours.learn_mode.forward(data)['total_loss'])


def test_only_the_images_among_the_parts_of_an_observation_move() -> None:
    space = spaces.Dict(image=spaces.Box(0, 255, (36, 36, 3), np.uint8), speed=spaces.Box(-1, 1, (3,)))
    data = rows_of(space)
    moved = policy(space)._shift(data['obs'])
    np.testing.assert_array_equal(moved['speed'], data['obs']['speed'])
    assert (moved['image'] != data['obs']['image']).any() and moved.dtype == data['obs'].dtype


@pytest.mark.parametrize('shape', [(3, 9, 7), (7, 9, 3)])
def test_a_shift_past_the_image_is_refused(shape: tuple[int, ...]) -> None:
    cfg = EasyDict(learn=dict(random_shift=6), model=dict(image_layout='auto'))
    spec = spec_of(spaces.Box(0, 255, shape, np.uint8))
    check_shift(cfg, spec)
    cfg.learn.random_shift = 7
    with raises(IncompatibleError):
        check_shift(cfg, spec)


def test_a_shift_without_images_is_refused() -> None:
    with raises(IncompatibleError) as caught:
        policy(spaces.Box(-1, 1, (4,)))
    assert caught.value.where == 'policy.learn.random_shift'
