"""Registries: names to classes, lazily, with errors that say what to do."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from error_texts import raises

import rlframe.backend
import rlframe.envs
import rlframe.policy
import rlframe.registry
import rlframe.worker
from rlframe.config.trust import check_trust
from rlframe.errors import ConfigError, RegistryError, UnsafeCheckpointError
from rlframe.parallel.roles import Launcher
from rlframe.parallel.transport.base import Transport
from rlframe.registry import REGISTRIES, Registry, import_modules, nearest
from rlframe.reward_model.base import RewardModel
from rlframe.run.logger import Logger
from rlframe.worker.hooks import RunHook


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes importable modules into a folder that is on the path for one test."""
    monkeypatch.syspath_prepend(tmp_path)
    written = []

    def write(name: str, source: str) -> None:
        (tmp_path / f'{name}.py').write_text(source)
        written.append(name)

    yield write
    for name in written:
        sys.modules.pop(name, None)


class Recent:
    """A component."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args, self.kwargs = args, kwargs


def test_unknown_name_gives_neighbour_known_names_and_remedy() -> None:
    registry = Registry('replay buffer', {'naive': 'json'})
    registry.register('recent', Recent)
    with pytest.raises(KeyError) as caught:
        registry.get('recnt')
    text = str(caught.value)
    for word in (
        "unknown replay buffer 'recnt'",
        "Did you mean 'recent'?",
        "['naive']",
        "imported: ['recent']",
        'import_names',
    ):
        assert word in text


def test_a_class_may_be_registered_again_after_a_reload(module: Any) -> None:
    module('reloaded_mod', 'class Mine: ...\n')
    registry = Registry('policy')
    for _ in range(2):
        spec = importlib.util.find_spec('reloaded_mod')
        assert spec is not None and spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        sys.modules['reloaded_mod'] = loaded
        spec.loader.exec_module(loaded)
        registry.register('mine', loaded.Mine)
    assert registry.get('mine') is loaded.Mine


def test_get_cls_imports_the_named_modules_first(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry('policy')
    monkeypatch.setitem(REGISTRIES, 'test', registry)
    module(
        'named_mod',
        "from rlframe.registry import REGISTRIES\n@REGISTRIES['test'].register('own')\nclass Own: ...\n",
    )
    assert registry.get_cls({'type': 'own', 'import_names': ['named_mod']}).__name__ == 'Own'


def test_config_without_a_type_is_refused() -> None:
    with raises(RegistryError):
        Registry('policy').get_cls({})


def test_build_passes_arguments_and_errors_on() -> None:
    registry = Registry('buffer')
    registry.register('recent', Recent)
    built = registry.build({'type': 'recent'}, 1, a=2)
    assert (built.args, built.kwargs) == ((1,), {'a': 2})
    named = registry.build('recent', {'size': 4}, a=2)
    assert (named.args, named.kwargs) == (({'size': 4},), {'a': 2}), 'as in DI-engine'
    registry.register('number', int)
    with raises(ValueError):
        registry.build({'type': 'number'}, 'x')


def test_a_registry_tells_what_is_in_it(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry('buffer', {'lazy': 'details_mod'})
    monkeypatch.setitem(REGISTRIES, 'test', registry)
    module(
        'details_mod',
        "import rlframe.registry as r\n\n@r.REGISTRIES['test'].register('lazy')\nclass Lazy: ...\n",
    )
    registry.register('recent', Recent)
    assert list(registry.query()) == list(registry) == registry.names() == ['lazy', 'recent']
    assert 'lazy' in registry and 'recent' in registry and 'other' not in registry and len(registry) == 2
    assert 'details_mod' not in sys.modules
    file, line = registry.query_details(['recent'])['recent']
    assert Path(file) == Path(__file__) and Path(file).read_text().splitlines()[line - 1] == 'class Recent:'
    details = registry.query_details()
    assert list(details) == ['lazy', 'recent'] and details['lazy'][0].endswith('details_mod.py')
    assert registry['lazy'] is registry.get('lazy')
    with raises(RegistryError):
        registry.query_details(['other'])


def test_a_name_is_that_of_the_class_where_none_is_given() -> None:
    registry = Registry('buffer')
    assert registry.register()(Recent) is Recent
    assert registry.register(None, int) is int
    assert registry.names() == ['Recent', 'int']


def test_a_name_is_taken_over_by_force_only_also_before_the_builtin_class_is_imported(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry('policy', {'dqn': 'forced_mod'})
    monkeypatch.setitem(REGISTRIES, 'test', registry)
    module(
        'forced_mod',
        "import rlframe.registry as r\n@r.REGISTRIES['test'].register('dqn')\nclass DQN: ...\n",
    )
    assert registry.is_builtin('dqn')
    registry.register('dqn', Recent, force_overwrite=True)
    import forced_mod  # type: ignore[import-not-found]

    assert registry.get('dqn') is Recent and not registry.is_builtin('dqn')

    @registry.register('dqn', force_overwrite=True)
    class Mine: ...

    assert registry.get('dqn') is Mine
    with raises(RegistryError):
        registry.register('dqn', Recent)
    registry.register('dqn', forced_mod.DQN, force_overwrite=True)
    assert registry.is_builtin('dqn')


def test_missing_module_is_a_config_error_but_a_broken_one_is_left_alone(module: Any) -> None:
    for name in ('no_such_module_y', 'no_such_package_y.sub'):
        with raises(ConfigError):
            import_modules([name])
    module('broken_mod', 'import no_such_module_z\n')
    with pytest.raises(ModuleNotFoundError, match='no_such_module_z') as caught:
        import_modules(['broken_mod'])
    assert not isinstance(caught.value, ConfigError)


def test_a_builtin_module_that_registers_nothing_is_named() -> None:
    with raises(RegistryError):
        Registry('policy', {'lost': 'json'}).get('lost')


def test_every_builtin_class_is_of_the_type_that_its_registry_promises() -> None:
    scope = {'nn': torch.nn, **vars(rlframe.backend), **vars(rlframe.envs), **vars(rlframe.policy)}
    scope |= {name: getattr(rlframe.worker, name) for name in rlframe.worker.__all__} | {
        'Transport': Transport,
        'Launcher': Launcher,
        'Logger': Logger,
        'RunHook': RunHook,
        'RewardModel': RewardModel,
    }
    promised = {
        id(getattr(rlframe.registry, name)): eval(text.partition('[')[2].rstrip(']'), scope)
        for name, text in vars(rlframe.registry)['__annotations__'].items()
        if text.startswith('Registry[')
    }
    registries = [value for value in vars(rlframe.registry).values() if isinstance(value, Registry)]
    assert len(registries) == len(promised) > len(REGISTRIES)
    for registry in registries:
        kind = promised[id(registry)]
        assert all(issubclass(registry.get(name), kind) for name in registry if registry.is_builtin(name))
        assert not registry.interface or registry.interface.rpartition(':')[2] == kind.__name__


def test_a_name_in_another_case_is_found_if_it_is_the_only_one() -> None:
    registry: Registry[Any] = Registry('thing')
    for name in ('ppo', 'Dqn', 'DQN'):
        registry.register(name, type(name, (), {}))
    assert [registry.name_in_any_case(name) for name in ('PPO', 'ppo', 'dqn', 'DQN', 'x')] == [
        'ppo',
        'ppo',
        'dqn',
        'DQN',
        'x',
    ]
    assert nearest('PPO', ['ppo', 'sac']) == " Did you mean 'ppo'?"


def test_module_and_class_name_a_policy_or_a_network_and_nothing_else(
    cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cwd / 'named_by_path.py').write_text('class Mine: ...\n')
    monkeypatch.syspath_prepend(cwd)
    for kind, registry in REGISTRIES.items():
        if kind in ('policy', 'model'):
            assert registry.get('named_by_path:Mine').__name__ == 'Mine'
            with raises(ConfigError):
                registry.get('named_by_path:Min')
            continue
        with raises(RegistryError):
            registry.get('named_by_path:Mine')


def test_a_foreign_config_names_no_module_and_class_unless_it_is_trusted(cwd: Path) -> None:
    for key in ('policy', 'model'):
        main = {'policy': {'model': {'type': 'not_there:Mine'}}} if key == 'model' else {}
        create = {'policy': {'type': 'dqn' if key == 'model' else 'not_there:Mine'}}
        with raises(UnsafeCheckpointError):
            check_trust({'main_config': main, 'create_config': create}, 'here', trust=False)
