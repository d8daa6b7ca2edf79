"""What a test module registers is not seen by others."""

from __future__ import annotations

import registrations

from rlframe.registry import BUFFER_REGISTRY
from rlframe.worker.replay_buffer.base_buffer import IBuffer

AT_IMPORT = BUFFER_REGISTRY.names()


@BUFFER_REGISTRY.register('buffer_of_test_registrations')
class OwnBuffer(IBuffer):
    pass


def test_what_a_module_registers_when_it_is_imported_is_there_in_its_tests() -> None:
    assert 'buffer_of_test_registrations' in BUFFER_REGISTRY


def test_what_other_modules_register_when_they_are_imported_is_not_there() -> None:
    """Those of its folder and of folders before it were imported before, if more than this one was asked for."""
    assert [name for name in AT_IMPORT if 'test' in name] == []
    assert 'recent_of_test_sampler' not in BUFFER_REGISTRY


def test_what_tests_register_and_replace_is_gone_after_them_and_built_in_classes_stay() -> None:
    before = registrations.now()
    naive = BUFFER_REGISTRY.get('naive')
    BUFFER_REGISTRY.register('naive', OwnBuffer, force_overwrite=True)
    BUFFER_REGISTRY.register('late', OwnBuffer)
    registrations.restore(before | {'replay_buffer': {**before['replay_buffer'], 'naive': naive}})
    assert 'late' not in BUFFER_REGISTRY and BUFFER_REGISTRY.get('naive') is naive


def test_only_classes_of_the_module_itself_are_put_aside() -> None:
    before = registrations.now()
    other = type('Other', (OwnBuffer,), {'__module__': 'a_helper'})
    BUFFER_REGISTRY.register('of_helper', other)
    BUFFER_REGISTRY.register('of_module', OwnBuffer)
    taken = registrations.put_aside(before, __name__)
    assert taken['replay_buffer'] == {'of_module': OwnBuffer}
    assert 'of_helper' in BUFFER_REGISTRY and 'of_module' not in BUFFER_REGISTRY
    registrations.restore(before)
    assert registrations.now() == before
