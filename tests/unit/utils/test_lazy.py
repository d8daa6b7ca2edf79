"""Packages whose names are imported at their first use: one list, the stub, for type checkers and for Python."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import rlframe
from rlframe.utils.lazy import lazy_exports

ROOT = Path(rlframe.__file__).parent
STUBS = sorted(ROOT.rglob('__init__.pyi'))
PACKAGES = ['.'.join(['rlframe', *stub.parent.relative_to(ROOT).parts]) for stub in STUBS]


@pytest.mark.parametrize('package', PACKAGES)
def test_names_of_a_stub_are_all_and_can_be_listed_and_imported(package: str) -> None:
    module = importlib.import_module(package)
    stub = Path(str(module.__file__)).with_suffix('.pyi').read_text(encoding='utf-8')
    nodes = [node for node in ast.parse(stub).body if isinstance(node, ast.ImportFrom)]
    exports = {alias.asname: node.module for node in nodes for alias in node.names}
    assert exports and set(module.__all__) == set(exports) <= set(dir(module))
    assert {'__name__', '__doc__'} <= set(dir(module)), 'what a module has anyway stays listed'
    for name, home in exports.items():
        assert getattr(module, name) is getattr(importlib.import_module(str(home)), name)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        _ = module.nothing


def test_importing_packages_imports_none_of_their_names() -> None:
    code = f'import sys, {", ".join(PACKAGES)}; print(*(name for name in ("torch", "ray", "gymnasium") if name in sys.modules))'
    heavy = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    assert heavy.stdout.split() == []


def test_a_package_without_a_stub_says_which_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r'__init__\.pyi'):
        lazy_exports('package', str(tmp_path / '__init__.py'))
