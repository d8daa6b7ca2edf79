"""Every exception survives copying and pickling with its type, message and fields."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from rlframe import errors
from rlframe.errors import ConfigError, ConfigErrors, RegistryError, RLFrameError

CLASSES = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, RLFrameError) and cls is not ConfigErrors
]
TWINS = [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))]


@pytest.mark.parametrize('twin_of', TWINS)
def test_twin_keeps_type_message_and_fields(twin_of: object) -> None:
    for cls in CLASSES:
        error = cls('no good', where='a.b', got=[1, 2], expected='a dict', remedy='Use a dict.')
        error.add_note('in actor 3')
        twin = twin_of(error)  # type: ignore[operator]
        assert type(twin) is cls
        assert str(twin) == str(error) == 'a.b: no good; got [1, 2], expected a dict. Use a dict.'
        assert twin.args == ('no good',)
        assert vars(twin) == vars(error)


@pytest.mark.parametrize('twin_of', TWINS)
def test_twin_of_several_errors_keeps_each(twin_of: object) -> None:
    error = ConfigErrors([ConfigError('x', where='a'), RegistryError('y')], where='file')
    twin = twin_of(error)  # type: ignore[operator]
    assert type(twin) is ConfigErrors
    assert [type(e) for e in twin.errors] == [ConfigError, RegistryError]
    assert str(twin) == 'file: 2 mistakes in the config\n  a: x\n  y'


def test_a_message_that_begins_with_the_place_does_not_repeat_it() -> None:
    assert str(ConfigError('a.b is not a known key.', where='a.b')) == 'a.b is not a known key.'


def test_exit_codes() -> None:
    assert ConfigError.exit_code == 2 and RLFrameError.exit_code == 1
    assert issubclass(ConfigError, ValueError)


def test_registry_error_is_not_printed_as_a_quoted_key() -> None:
    assert str(RegistryError("unknown policy 'x'")) == "unknown policy 'x'"
