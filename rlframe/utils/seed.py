"""Derives every random generator from the config's seed and the name of its user."""

from __future__ import annotations

import hashlib
import random
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from rlframe.utils import schema
from rlframe.utils.lazy import torch
from rlframe.utils.serialize import checked_bits, checked_words

COLLECT, EVALUATE, SCORE = 'collect', 'evaluate', 'score'
"""Purposes with separate env seeds: training, evaluation during training, scoring of a finished policy."""
BIT_GENERATORS = ('MT19937', 'PCG64', 'PCG64DXSM', 'Philox', 'SFC64')


def _key(name: str) -> int:
    return zlib.crc32(name.encode())


def env_seed(seed: int, rank: int, index: int, purpose: str = COLLECT) -> int:
    """Returns the seed of an env's (or, in evaluation, an episode's) first reset: f(seed, rank, index), below 2**32."""
    return int(np.random.SeedSequence([seed, rank, index, _key(purpose)]).generate_state(1)[0])


def incarnation_seed(seed: int, rank: int, incarnation: int) -> int:
    """Returns the seed of the replacement of a lost worker; the first incarnation, 0, has the run's own seed."""
    if incarnation == 0:
        return seed
    key = [seed, rank, incarnation, _key('incarnation')]
    return int(np.random.SeedSequence(key).generate_state(1)[0])


def layer_seed(seed: int, rank: int) -> int:
    """Returns the seed of the generator of a network's layers."""
    return env_seed(seed, rank, 0, 'layers')


def component_rng(seed: int, name: str, rank: int = 0) -> np.random.Generator:
    """Returns the generator of the component called ``name``."""
    return np.random.default_rng(np.random.SeedSequence([seed, rank, _key(name)]))


def set_seed(seed: int) -> None:
    """Seeds the global generators of Python, numpy and torch, which user code and weight initialisation draw from."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  the global generator is what is to be seeded
    if torch.cuda.is_available():
        torch.manual_seed(seed)
    else:  # the generator of the CPU alone: the other call takes 400 us, for stack traces of devices that are not here
        torch.default_generator.manual_seed(seed)


def restore_generator(generator: torch.Generator, saved: torch.Tensor) -> bool:
    """Continues from the saved state of one of torch's generators.

    Returns:
        Whether it could: the state of another type of device, or a number, only seeds the generator.
    """
    is_same: bool = saved.shape == generator.get_state().shape
    if is_same:
        generator.set_state(saved.cpu())
    else:
        digest = hashlib.blake2b(saved.cpu().numpy().tobytes(), digest_size=8).digest()
        generator.manual_seed(int.from_bytes(digest, 'little'))
    return is_same


def set_pkg_seed(seed: int, use_cuda: bool | None = True) -> None:
    """Seeds the global generators; DI-engine's name for ``set_seed``.

    Args:
        seed: The seed.
        use_cuda: Has no effect: generators of devices are seeded, too.
    """
    set_seed(seed)


def global_rng_state() -> dict[str, Any]:
    """Returns the state of the global generators, as plain data."""
    version, internal, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)  # noqa: NPY002  as in set_seed
    return {
        'torch': torch.get_rng_state(),
        'numpy': [kind, np.asarray(keys).tolist(), position, has_gauss, cached],
        'random': [version, list(internal), gauss],
        **_gpu_rng_states(),
    }


def _gpu_rng_states() -> dict[str, Any]:
    """Returns the states of torch's generators on the GPUs that this process uses, by number."""
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):  # type: ignore[no-untyped-call]  # torch has no types
        return {}
    return {'cuda': {str(i): torch.cuda.get_rng_state(i) for i in range(torch.cuda.device_count())}}


def _fits_numpy(value: Any) -> bool:
    kinds = (str, list, int, int, int | float)
    is_five = isinstance(value, list | tuple) and len(value) == len(kinds)
    has_kinds = is_five and all(isinstance(v, kind) for v, kind in zip(value, kinds, strict=True))
    return has_kinds and checked_words(tuple(value)) is not None


def _fits_random(value: Any) -> bool:
    is_three = isinstance(value, list | tuple) and len(value) == 3
    return is_three and isinstance(value[0], int) and isinstance(value[1], list | tuple)


RNG_STATE: schema.Schema = {
    'torch': schema.TENSOR,
    'numpy': schema.Kind('the state of the generator of numpy.random', _fits_numpy),
    'random': schema.Kind('the state of the generator of the module random', _fits_random),
}
"""The result of ``global_rng_state``."""


def set_global_rng_state(state: Mapping[str, Any]) -> None:
    """Restores the state of the global generators from ``global_rng_state()``."""
    torch.set_rng_state(state['torch'])
    np.random.set_state(checked_words(tuple(state['numpy'])))  # noqa: NPY002  as in set_seed
    version, internal, gauss = state['random']
    random.setstate((version, tuple(internal), gauss))
    schema.check_state(state.get('cuda', {}), schema.dict_of(schema.TENSOR))
    if torch.cuda.is_available():  # a run that began on a GPU may continue without one
        for i, generator in enumerate(state.get('cuda', {}).values()):
            if i < torch.cuda.device_count():
                torch.cuda.set_rng_state(generator, i)


def bit_generator_cls(name: Any) -> Any:
    """Returns numpy's class of bit generators with a saved name; ``numpy.random`` also contains other classes.

    Raises:
        ValueError: If there is no such class.
    """
    if name not in BIT_GENERATORS:
        raise ValueError(f'numpy has no bit generator {name!r}')
    return getattr(np.random, name)


def generator_of(state: Any) -> np.random.Generator:
    """Returns a generator with the saved state of a bit generator.

    Raises:
        ValueError: If it is no such state.
    """
    bit_generator = bit_generator_cls(state['bit_generator'])()
    bit_generator.state = checked_bits(state)
    return np.random.Generator(bit_generator)


def forked(state: Any, key: int) -> Any:
    """Returns the state of a run with every random generator replaced by a different one.

    Args:
        state: State that contains those of numpy generators and of the global ones, at any depth.
        key: The same state with the same key always gives the same generators.
    """
    if isinstance(state, Mapping):
        if 'bit_generator' in state:
            generator = bit_generator_cls(state['bit_generator'])
            forked_state: dict[str, Any] = generator(np.random.SeedSequence([_digest(state), key])).state
            return forked_state
        if {'torch', 'numpy', 'random'} <= state.keys():
            with preserved_rng():
                set_seed(_digest([state['numpy'], key]))
                return global_rng_state()
        if isinstance(state.get('generator'), torch.Tensor):
            # a number, by which restore_generator seeds it
            number = _digest([state['generator'].tolist(), key])
            state = {**state, 'generator': torch.tensor([number])}
        return {name: forked(below, key) for name, below in state.items()}
    if type(state) in (list, tuple):
        return type(state)(forked(below, key) for below in state)
    return state


def _digest(value: Any) -> int:
    """Returns a hash of the values, below 2**32."""
    return zlib.crc32(repr(value).encode())


@contextmanager
def seeded_globals(*key: int) -> Iterator[None]:
    """Makes a block's global random draws depend on the key alone, and restores the global generators afterwards."""
    with preserved_rng():
        set_seed(int(np.random.SeedSequence(key).generate_state(1)[0]))
        yield


@contextmanager
def preserved_rng() -> Iterator[None]:
    """Restores the states of the global generators after the block."""
    state = global_rng_state()
    try:
        yield
    finally:
        set_global_rng_state(state)


@contextmanager
def drawing_weights(generator: torch.Generator, seed: int, rank: int = 0) -> Iterator[None]:
    """Makes the initial weights that a block draws depend on a seed alone, and restores the global generators afterwards.

    Args:
        generator: One of torch's. It continues where the block ends, or on a GPU, or another rank, begins with a seed.
        seed: Seed of the weights, whatever the rank.
        rank: Which of several users of the seed it is.
    """
    with preserved_rng():
        set_seed(seed)
        yield
        if rank == 0 and generator.device.type == 'cpu':
            generator.set_state(torch.get_rng_state())
        else:
            generator.manual_seed(seed if rank == 0 else layer_seed(seed, rank))
