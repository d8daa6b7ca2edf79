"""Networks read observations of every space, each number once and where it belongs."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from boundary import boundary
from error_texts import raises
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from space_envs import OBS

from rlframe.data import EnvSpec
from rlframe.data.observation import NamedEncoder, pack_rows, zero_obs
from rlframe.errors import ConfigError, IncompatibleError
from rlframe.model.core import MLP
from rlframe.model.encoder import _warn_of_layout, make_reader
from rlframe.policy import create_policy


def tensors(column: np.ndarray) -> Any:
    if column.dtype.names:
        return {name: tensors(column[name]) for name in column.dtype.names}
    return torch.from_numpy(column)


def batch(space: gymnasium.Space, count: int = 5) -> tuple[list[Any], Any]:
    space.seed(1)
    obs, rows = [space.sample() for _ in range(count)], zero_obs(space, count)
    pack_rows(obs, rows)
    return obs, tensors(rows)


PLAIN = st.one_of(
    st.builds(
        lambda shape, dtype: spaces.Box(0, 9, tuple(shape), np.dtype(dtype)),
        st.lists(st.integers(1, 3), max_size=2),
        st.sampled_from(['int16', 'float32', 'float64', 'uint8']),
    ),
    st.builds(spaces.Discrete, st.integers(1, 9), start=st.integers(-3, 3)),
    st.builds(spaces.MultiDiscrete, st.lists(st.integers(1, 4), min_size=1, max_size=3)),
    st.just(spaces.MultiDiscrete(np.array([[1, 2], [3, 4]]), start=np.array([[0, -1], [5, 2]]))),
    st.builds(spaces.MultiBinary, st.integers(1, 4)),
)


@settings(max_examples=30, deadline=None)
@given(parts=st.lists(PLAIN, min_size=1, max_size=3), plain=st.booleans())
def test_without_images_a_vector_is_what_gymnasium_flattens_to(
    parts: list[gymnasium.Space], plain: bool
) -> None:
    inner = spaces.Dict({f'k{i}': part for i, part in enumerate(parts)})
    space = parts[0] if plain else spaces.Tuple((inner, spaces.Discrete(3)))
    obs, rows = batch(space)
    read = make_reader(space, 'relu')
    expected = np.stack([gymnasium.spaces.flatten(space, one) for one in obs])
    assert read.size == expected.shape[1]
    np.testing.assert_array_equal(read(rows).numpy(), expected.astype(np.float32))


GRID = spaces.Box(0, 255, (7, 7, 3), np.uint8)


def test_symbols_of_a_grid_are_embedded_each_kind_by_itself() -> None:
    space = spaces.Dict(
        image=GRID,
        mission=spaces.Box(0, 255, (5,), np.uint8),
        direction=spaces.Discrete(4),
    )
    read = make_reader(space, 'relu', NamedEncoder('grid'))
    assert read.size == 4 + 3 * 3 * 32 + 32
    _, rows = batch(space)
    rows['image'] = rows['image'] % 11
    whole = read(rows)
    for channel in range(3):
        changed = rows['image'].clone()
        changed[:, 3, 3, channel] += 1
        assert not torch.equal(read(rows | {'image': changed}), whole)


def test_letters_of_a_text_are_embedded_each_place_by_itself() -> None:
    read: Any = make_reader(
        spaces.Dict(image=GRID, text=spaces.Box(0, 255, (9,), np.uint8)), 'relu', NamedEncoder('grid')
    )
    (text,) = (part for part in read.parts if hasattr(part, 'letters'))
    words = ['a red key', 'a key red', 'A RED KEY', 'a red bey']
    rows = torch.tensor([list(word.encode()) for word in words], dtype=torch.uint8)
    weight = text.letters.weight.detach().numpy().reshape(9, 32, 32)
    first = sum(weight[place, ord(letter) % 32] for place, letter in enumerate(words[0]))
    found = text(rows).detach().numpy()
    np.testing.assert_allclose(found[0], np.maximum(first, 0), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(found[2], found[0])
    assert (found[1] != found[0]).any() and (found[3] != found[0]).any()


def test_hadamax_pools_the_products_of_two_normed_convolutions() -> None:
    space = spaces.Box(0, 1, (4, 3, 2), np.float32)
    torch.manual_seed(0)
    read: Any = make_reader(space, 'relu', NamedEncoder('hadamax', 0.25), 'hwc')
    image = np.random.default_rng(0).normal(size=(1, 4, 3, 2)).astype(np.float32)
    padded = np.pad(image[0].astype(float), ((1, 1), (1, 1), (0, 0)))
    product = np.ones((4, 3, 4))
    (block,) = read.layers
    for conv in block.convs:
        weight, bias = (p.detach().double().numpy() for p in conv.parameters())
        for y, x in np.ndindex(4, 3):
            seen = np.einsum('ocij,ijc->o', weight, padded[y : y + 3, x : x + 3]) + bias
            normed = (seen - seen.mean()) / np.sqrt(seen.var() + 1e-5)
            product[y, x] *= [v * (1 + math.erf(v / math.sqrt(2))) / 2 for v in normed]
    pooled = [product[y : y + 2, x : x + 2].max((0, 1)) for y in (0, 2) for x in (0, 2)]
    found = read(torch.from_numpy(image)).detach().numpy()
    np.testing.assert_allclose(found, [np.stack(pooled).T.reshape(-1)], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ('shape', 'size'), [((10, 10, 4), 16 * 25), ((84, 84, 4), 64 * 11 * 11), ((1, 1, 3), 16)]
)
def test_hadamax_pools_where_other_convolutions_have_strides(shape: tuple[int, ...], size: int) -> None:
    read = make_reader(spaces.Box(0, 255, shape, np.uint8), 'relu', NamedEncoder('hadamax'), 'hwc')
    assert read.size == size == read(torch.zeros(2, *shape, dtype=torch.uint8)).shape[1]


@pytest.mark.parametrize('kind', OBS)
def test_gradients_reach_every_weight_and_copies_are_their_own(kind: str) -> None:
    space = OBS[kind][0]
    net = MLP(space, [8], 'tanh', 3)
    _, rows = batch(space)
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net)), copy.deepcopy(net).to('cpu')):
        assert torch.equal(twin(rows), net(rows)) and twin(rows).shape == (5, 3)
        twin(rows).square().sum().backward()
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in twin.parameters())
        with torch.no_grad():
            [p.zero_() for p in twin.parameters()]
        assert not twin(rows).any() and net(rows).any()


def features(shape: tuple[int, ...], image: Any, **options: Any) -> torch.Tensor:
    torch.manual_seed(0)
    read = make_reader(spaces.Box(0, 255, shape, image.dtype), 'relu', **options)
    return read(torch.from_numpy(image))


def test_layouts_and_stacks_of_the_same_image_read_the_same() -> None:
    hwc = np.random.default_rng(0).integers(0, 256, (2, 12, 14, 3), np.uint8)
    chw = np.ascontiguousarray(hwc.transpose(0, 3, 1, 2))
    one = features((12, 14, 3), hwc)
    assert one.shape == (2, 16 * 10 * 12)
    torch.testing.assert_close(features((3, 12, 14), chw), one)
    torch.testing.assert_close(features((12, 14, 3), hwc, image_layout='hwc'), one)
    torch.testing.assert_close(features((12, 14, 3), hwc.astype(np.float32) / 255), one)
    assert not torch.allclose(features((12, 14, 3), hwc.astype(np.float32)), one)
    # four grey frames of a stack are the four channels of an image
    grey = np.random.default_rng(1).random((2, 4, 12, 14)).astype(np.float32)
    stacked = features((4, 12, 14, 1), grey[..., None])
    torch.testing.assert_close(features((4, 12, 14), grey), stacked)
    torch.testing.assert_close(features((4, 1, 12, 14), grey[:, :, None]), stacked)


@pytest.mark.parametrize(
    ('shape', 'options', 'size'),
    [
        ((4, 84, 84), {}, 64 * 7 * 7),
        ((36, 36, 3), {}, 64),
        ((35, 36, 3), {}, 16 * 33 * 34),
        ((2, 9, 1), {}, 18),
        ((10, 10, 4), {'conv_layers': [[8, 3, 2], [5, 2, 1]]}, 5 * 3 * 3),
        ((10, 10, 4), {'image_layout': 'chw', 'conv_layers': []}, 400),
    ],
)
def test_sizes_of_convolutions(shape: tuple[int, ...], options: dict[str, Any], size: int) -> None:
    space = spaces.Box(0, 255, shape, np.uint8)
    read = make_reader(space, 'relu', **options)
    assert read.size == size and read(batch(space)[1]).shape == (5, size)


def test_a_mask_is_not_read() -> None:
    inner = spaces.Dict(action_mask=spaces.MultiBinary(2), x=spaces.Box(0, 1, (3,)))
    space = spaces.Dict(action_mask=spaces.MultiBinary(4), observation=inner)
    _, rows = batch(space)
    read = make_reader(space, 'relu')
    assert read.size == 5, 'only the mask at the top is one'
    before = read(rows)
    rows['action_mask'] = 1 - rows['action_mask']
    assert torch.equal(read(rows), before)


@pytest.mark.parametrize(
    ('shape', 'layout', 'is_good'),
    [
        ((3, 84, 84), 'hwc', False),
        ((4, 84, 84, 1), 'chw', False),
        ((210, 160, 3), 'chw', False),
        ((17, 8, 8), 'chw', True),
        ((8, 8, 17), 'hwc', True),
        ((32, 6, 7), 'chw', True),
    ],
)
def test_layout_that_takes_channels_for_a_side_of_the_image_is_refused(
    shape: tuple[int, ...], layout: str, is_good: bool
) -> None:
    space = spaces.Box(0, 255, shape, np.uint8)
    if is_good:
        make_reader(space, 'relu', None, layout)
        return
    with raises(IncompatibleError):
        make_reader(space, 'relu', None, layout)


@pytest.mark.parametrize(
    ('shape', 'said'),
    [
        ((7, 7, 20), "7 channels of 7x20; 20 channels of 7x7: policy.model.image_layout='hwc'"),
        ((20, 7, 7), "7 channels of 20x7; 20 channels of 7x7: policy.model.image_layout='chw'"),
        ((5, 4, 26), "5 channels of 4x26; 26 channels of 5x4: policy.model.image_layout='hwc'"),
        ((4, 8, 8, 8), "8 channels of 8x8; 8 channels of 8x8: policy.model.image_layout='chw'"),
        ((9, 6, 9), "9 channels of 9x6; 9 channels of 6x9: policy.model.image_layout='chw'"),
        *(((*size, 3), '') for size in ((84, 84), (210, 160), (7, 7))),
        *((shape, '') for shape in ((10, 10, 7), (6, 7, 2), (19, 19, 17), (3, 64, 64), (4, 84, 84, 1), (2, 9, 9))),
    ],
)  # fmt: skip
def test_a_layout_that_may_be_the_other_one_is_told_of_once(
    shape: tuple[int, ...], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    space = spaces.Dict(camera=spaces.Box(0, 255, shape, np.uint8))
    _warn_of_layout.cache_clear()
    for _ in range(2):
        make_reader(space, 'relu')
    assert len(caplog.messages) == bool(said) and said in caplog.text
    _warn_of_layout.cache_clear()
    for layout in ('hwc', 'chw'):
        make_reader(space, 'relu', [], layout)
    assert len(caplog.messages) == bool(said)


ATARI = spaces.Box(0, 255, (4, 84, 84), np.uint8)


@pytest.mark.parametrize(
    ('name', 'width', 'size', 'weights'),
    [
        ('nature', 0.5, 1568, 21_584),
        ('impala', 1.0, 3872, 97_744),
    ],
)
def test_named_encoders_have_the_size_of_their_papers(
    name: str, width: float, size: int, weights: int
) -> None:
    """IMPALA's: 16, 32, 32 channels on 42, 21, 11 pixels, 15 convolutions; Nature's: 64 channels on 7 pixels."""
    reader: Any = make_reader(ATARI, 'relu', NamedEncoder(name, width))
    assert reader.size == size
    assert sum(parameter.numel() for parameter in reader.parameters()) == weights
    assert reader(torch.from_numpy(ATARI.sample()[None])).shape == (1, size)
    convolutions = [layer for layer in reader.modules() if isinstance(layer, torch.nn.Conv2d)]
    assert len(convolutions) == (15 if name == 'impala' else 3)


def test_an_option_names_the_encoder_and_its_width() -> None:
    spec = EnvSpec(observation_space=ATARI, action_space=spaces.Discrete(2), name='game')
    for kind, encoder, channels in (
        ('dqn', 'impala', 4),
        ('sac_discrete', 'impala', 4),
        ('pqn', 'hadamax', 8),
    ):
        policy = create_policy({'type': kind, 'model': {'encoder': encoder, 'encoder_width': 0.25}}, spec)
        layers = [each for each in policy.model.modules() if isinstance(each, torch.nn.Conv2d)]
        assert layers[0].out_channels == channels
        action = policy.eval_mode.forward(ATARI.sample()[None], np.arange(1))['action']
        assert action.shape == (1,)


SMALL = spaces.Box(0, 1, (10, 10, 1))
LAYERS = r'conv_layers.*\[channels, kernel size, stride\]'
REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (spaces.Box(0, 1, (4,)), {'conv_layers': [[8, 3, 1]]}),
    (spaces.Box(0, 255, (84, 84, 6), np.uint8), {'image_layout': 'chw', 'conv_layers': [[8, 8, 4]]}),
    (spaces.Dict(eye=spaces.Box(0, 255, (10, 10, 3), np.uint8)), {'conv_layers': [[8, 5, 2], [8, 4, 1]]}),
    *((SMALL, {'conv_layers': layers}) for layers in ([3], [[8, 3]], [[8, 3, 0]], [[8, 3, True]])),
    (ATARI, {'encoder': 'impala', 'conv_layers': [[8, 3, 1]]}),
    (ATARI, {'encoder_width': 2.0}),
    (spaces.Box(0, 1, (4,)), {'encoder': 'nature'}),
    (spaces.Box(0, 255, (20, 20, 3), np.uint8), {'encoder': 'nature'}),
]


@pytest.mark.parametrize(('space', 'options'), REFUSED)
def test_encoders_that_do_not_fit_are_refused(space: Any, options: dict[str, Any]) -> None:
    spec = EnvSpec(space, spaces.Discrete(2), name='Toy')
    with raises(ConfigError, IncompatibleError):
        create_policy({'type': 'dqn', 'model': options}, spec)


@boundary
@given(
    dtype=st.sampled_from(['uint8', 'int8', 'uint16', 'int16', 'int32', 'int64']),
    high=st.integers(1, 127),
    data=st.data(),
)
def test_images_of_whole_numbers_are_divided_by_their_largest_value(
    dtype: str, high: int, data: st.DataObject
) -> None:
    low = 0 if dtype.startswith('u') else data.draw(st.integers(-high, 0))
    whole = spaces.Box(low, high, (4, 5, 3), np.dtype(dtype))
    obs = torch.from_numpy(np.stack([whole.sample(), whole.low, whole.high]))
    torch.manual_seed(0)
    read = make_reader(whole, 'relu')
    torch.manual_seed(0)
    scaled = make_reader(spaces.Box(-1, 1, (4, 5, 3)), 'relu')
    torch.testing.assert_close(read(obs), scaled(obs.double() / high).float())
