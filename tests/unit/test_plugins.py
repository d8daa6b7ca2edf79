"""Plug-ins: components of installed packages are found when their names are used, and a broken one harms nobody."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from error_texts import raises
from foreign import CREATE, MAIN

from rlframe import config
from rlframe import registry as base_registry
from rlframe.app import explain as listing
from rlframe.entry.__main__ import main
from rlframe.errors import RegistryError, UnsafeCheckpointError
from rlframe.registry import HOOK_REGISTRY, Plugins

CODE = """
from rlframe.registry import HOOK_REGISTRY
from rlframe.worker.hooks import RunHook

@HOOK_REGISTRY.register('from_a_plugin')
class Own(RunHook):
    '''A hook of a package.'''
"""


@pytest.fixture(autouse=True)
def plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[Plugins]:
    """A process that has not looked for plug-ins yet."""
    own = Plugins()
    monkeypatch.setattr(base_registry, 'PLUGINS', own)
    monkeypatch.setattr(listing, 'PLUGINS', own)
    yield own
    HOOK_REGISTRY._classes.pop('from_a_plugin', None)  # what a test has imported stays registered


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages."""
    monkeypatch.syspath_prepend(tmp_path)
    for name in ('rlplug_good', 'rlplug_bad'):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def install(site: Path, package: str, point: str, code: str) -> None:
    """Installs a package with one module and one entry point, as pip would."""
    info = site / f'{package}-1.5.dist-info'
    info.mkdir()
    (info / 'METADATA').write_text(f'Metadata-Version: 2.1\nName: {package}\nVersion: 1.5\n')
    (info / 'entry_points.txt').write_text(f'[rlframe.registry]\n{point}\n')
    (site / f'{package}.py').write_text(code)
    importlib.invalidate_caches()


def test_a_component_of_a_package_is_found_when_its_name_is_used(site: Path) -> None:
    install(site, 'rlplug_good', 'good = rlplug_good', CODE)
    assert 'from_a_plugin' not in HOOK_REGISTRY and 'rlplug_good' not in sys.modules
    cfg = config.compile_config({**MAIN, 'hooks': {'from_a_plugin': True}}, CREATE)
    assert cfg.hooks.from_a_plugin.type == 'from_a_plugin' and 'rlplug_good' in sys.modules


def test_a_config_without_unknown_names_loads_no_plugin(site: Path) -> None:
    install(site, 'rlplug_bad', 'bad = rlplug_bad', 'raise SystemExit(3)')
    config.compile_config({**MAIN, 'hooks': {'early_stop': True}}, CREATE)
    assert 'rlplug_bad' not in sys.modules


def test_a_function_is_called_and_a_broken_plugin_is_skipped_with_one_warning(
    site: Path, caplog: pytest.LogCaptureFixture
) -> None:
    install(
        site,
        'rlplug_good',
        'good = rlplug_good:register',
        f'def register():\n    exec({CODE!r}, {{"__name__": "m"}})\n',
    )
    install(site, 'rlplug_bad', 'bad = rlplug_bad', 'raise ValueError("no\\nlicence")')
    with caplog.at_level(logging.WARNING, 'rlframe.registry'):
        assert HOOK_REGISTRY.get('from_a_plugin').__name__ == 'Own'
        with raises(RegistryError):
            HOOK_REGISTRY.get('from_a_plugn')
    (record,) = caplog.records
    assert record.getMessage() == "the plug-in 'bad' of rlplug_bad 1.5 is skipped: ValueError: no licence"


def test_plugins_are_listed(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(site, 'rlplug_good', 'good = rlplug_good', CODE)
    install(site, 'rlplug_bad', 'bad = rlplug_bad:missing', '')
    assert main(['list', '--plugins']) == 0
    out, err = capsys.readouterr()
    rows = [line.split() for line in out.splitlines()]
    assert rows[0][:4] == ['bad', 'rlplug_bad', '1.5', 'skipped:'] and 'missing' in out
    assert rows[-1] == ['good', 'rlplug_good', '1.5', 'loaded'] and err == ''
    assert main(['list', 'run_hook']) == 0 and 'from_a_plugin' in capsys.readouterr().out


def test_a_foreign_config_that_names_a_component_of_a_package_is_refused_before_the_package_is_imported(
    site: Path,
) -> None:
    install(site, 'rlplug_bad', 'bad = rlplug_bad', 'raise SystemExit(3)')
    for main_config, create in (
        ({**MAIN, 'hooks': {'from_a_plugin': {'x': 1}}}, CREATE),
        ({**MAIN, 'hooks': {'x': {'type': 'from_a_plugin'}}}, CREATE),
        (MAIN, {**CREATE, 'policy': {'type': 'from_a_plugin'}}),
        (MAIN, {**CREATE, 'collector': {'type': 'from_a_plugin', 'backend': 'from_a_plugin'}}),
    ):
        with raises(UnsafeCheckpointError):
            config.check_trust({'main_config': main_config, 'create_config': create}, 'here', trust=False)
    assert 'rlplug_bad' not in sys.modules
