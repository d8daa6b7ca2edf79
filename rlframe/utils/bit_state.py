"""Validates states of numpy's bit generators that come from a file, since numpy does not.

numpy reads any memory that a position points to, and a generator whose numbers are all 0 keeps it drawing forever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

MT19937_WORDS, PHILOX_WORDS = 624, 4
"""Number of random words that these generators hold; the position after the last one means that none are left."""


def checked_bits(state: Any) -> Any:
    """Returns the state of a bit generator if it is valid.

    Raises:
        ValueError: If its position lies outside its words, or its numbers would all be 0.
    """
    name = state.get('bit_generator') if isinstance(state, Mapping) else None
    if name == 'MT19937':
        _check(state['state']['pos'], MT19937_WORDS)
        _check_words(state['state']['key'])
    elif name == 'Philox':
        _check(state['buffer_pos'], PHILOX_WORDS)
    elif name in ('PCG64', 'PCG64DXSM') and state['state']['inc'] % 2 == 0:
        raise ValueError('the increment of a random generator is even')
    return state


def checked_words(state: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the state of numpy's global generator, as a tuple, if it is valid; raises like ``checked_bit_state``."""
    _check(state[2], MT19937_WORDS)
    _check_words(state[1])
    return state


def _check_words(words: Any) -> None:
    if not np.any(words):
        raise ValueError('the words of a random generator are all 0')


def _check(position: Any, most: int) -> None:
    if type(position) is not int or not 0 <= position <= most:
        raise ValueError(f'the position {position!r} of a random generator is none of 0 to {most}')
