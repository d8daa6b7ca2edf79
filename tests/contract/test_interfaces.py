"""Classes that define only what an interface requires train, save and resume; those that define less are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import minimal_parts
import pytest
from error_texts import raises
from fakes import config_pair
from runs import differences

from rlframe.config import compile_config
from rlframe.errors import ConfigError, InterfaceError
from rlframe.pipeline import SerialPipeline
from rlframe.registry import (
    BUFFER_REGISTRY,
    COMMANDER_REGISTRY,
    LEARNER_HOOK_REGISTRY,
    SERIAL_COLLECTOR_REGISTRY,
    SERIAL_EVALUATOR_REGISTRY,
    Registry,
)
from rlframe.run.read_checkpoint import load_checkpoint
from rlframe.worker import IBuffer, ISerialCollector, ISerialEvaluator, LearnerHook, create_serial_collector

INTERFACES: dict[Any, Any] = {
    ISerialCollector: minimal_parts.MinimalCollector,
    ISerialEvaluator: minimal_parts.MinimalEvaluator,
    IBuffer: minimal_parts.MinimalBuffer,
    LearnerHook: minimal_parts.MinimalHook,
}
KEPT_BY: dict[Any, Registry] = {
    ISerialCollector: SERIAL_COLLECTOR_REGISTRY,
    ISerialEvaluator: SERIAL_EVALUATOR_REGISTRY,
    IBuffer: BUFFER_REGISTRY,
    LearnerHook: LEARNER_HOOK_REGISTRY,
}


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty working directory, and classes that are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    for interface, registry in KEPT_BY.items():
        registry.register('minimal', INTERFACES[interface])
    yield
    for registry in (*KEPT_BY.values(), COMMANDER_REGISTRY):
        for name in ('minimal', 'half'):
            registry._classes.pop(name, None)


def pair(*parts: str) -> tuple[Any, Any]:
    """Returns a config in which these parts are minimal."""
    main, create = config_pair(
        evaluator=dict(eval_freq=10), learn=dict(learner=dict(hook={}), update_per_collect=2)
    )
    main['policy']['collect'].pop('collector')
    main['policy']['other'] = {}
    if 'hook' in parts:
        main['policy']['learn']['learner']['hook']['own'] = dict(type='minimal')
    return main, create | {part: dict(type='minimal') for part in parts if part != 'hook'}


@pytest.mark.parametrize('interface', INTERFACES, ids=lambda interface: interface.__name__)
def test_the_minimal_classes_define_what_is_abstract_and_nothing_else(interface: Any) -> None:
    defined = {name for name, value in vars(INTERFACES[interface]).items() if callable(value)}
    assert defined == interface.__abstractmethods__


@pytest.mark.parametrize(
    'parts',
    [('collector',), ('replay_buffer', 'evaluator'), ('collector', 'evaluator', 'replay_buffer', 'hook')],
    ids='+'.join,
)
def test_minimal_parts_train_and_resume_to_the_same_bits(parts: tuple[str, ...], tmp_path: Path) -> None:
    def finish(pipeline: SerialPipeline, name: str) -> Any:
        pipeline.run()
        assert pipeline.progress.train_iter == 20 and pipeline.result()['eval/mean_reward'] > 0
        state = load_checkpoint(pipeline.save_checkpoint(tmp_path / name))[0]
        state['progress']['wall_time'] = 0
        return state

    cfg = compile_config(*pair(*parts), max_train_iter=20)
    with SerialPipeline(cfg) as straight:
        while straight.progress.train_iter < 10:
            straight.step()
        saved = straight.save_checkpoint(tmp_path / 'saved')
        expected = finish(straight, 'straight')
    with SerialPipeline(cfg, resume=saved) as resumed:
        assert resumed.progress.train_iter == 10
        assert differences(finish(resumed, 'resumed'), expected) == []
        assert resumed.exact


def test_minimal_parts_begin_with_random_actions() -> None:
    main, create = pair('collector', 'replay_buffer')
    main['policy']['random_collect_size'] = 30
    with SerialPipeline(compile_config(main, create)) as pipeline:
        pipeline.step()
        assert pipeline.replay_buffer is not None and pipeline.replay_buffer.count() >= 38


class Half:
    """Defines nothing of any interface but this."""

    def collect(self, *args: Any, **kwargs: Any) -> None: ...


class HalfCollector(ISerialCollector):
    """Forgets to save itself."""

    def collect(self, *args: Any, **kwargs: Any) -> None: ...

    def reset_env(self, _env: Any = None) -> None: ...


CASES = [
    (SERIAL_COLLECTOR_REGISTRY, 'collector', HalfCollector),
    (SERIAL_COLLECTOR_REGISTRY, 'collector', Half),
    (SERIAL_EVALUATOR_REGISTRY, 'evaluator', Half),
    (BUFFER_REGISTRY, 'replay_buffer', Half),
    (COMMANDER_REGISTRY, 'commander', Half),
]


@pytest.mark.parametrize(('registry', 'part', 'cls'), CASES)
def test_a_class_that_lacks_methods_is_refused_before_anything_is_created(
    registry: Registry, part: str, cls: type, tmp_path: Path
) -> None:
    registry.register('half', cls)
    main, create = pair()
    with raises(InterfaceError) as caught:
        compile_config(main, create | {part: dict(type='half')})
    assert 'docs/interfaces.md' in str(caught.value) and isinstance(caught.value, ConfigError)
    with raises(InterfaceError):
        registry.build('half', {})
    assert not list(tmp_path.iterdir())


def test_a_hook_that_lacks_its_method_is_refused() -> None:
    LEARNER_HOOK_REGISTRY.register('half', Half)
    main, create = pair()
    main['policy']['learn']['learner']['hook']['own'] = dict(type='half', position='after_iter')
    with raises(InterfaceError):
        compile_config(main, create)


def test_a_collector_made_from_python_is_checked_too() -> None:
    SERIAL_COLLECTOR_REGISTRY.register('half', HalfCollector)
    with raises(InterfaceError):
        create_serial_collector({'type': 'half'})  # type: ignore[arg-type]  # as from Python
