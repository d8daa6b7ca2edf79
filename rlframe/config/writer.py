"""Writes a complete config as ``total_config.py``, which is itself a config, and as ``config.json``."""

from __future__ import annotations

import importlib
import json
import math
import numbers
import os
import pprint
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlframe.utils.resolved_config import raw_items

SECRET = re.compile('token|secret|password|api_?key', re.IGNORECASE)
"""Keys whose values are not written."""
REDACTED = '***'


class _Code:
    """Python source that ``pprint`` puts in place of a value."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def write_total_config(path: str | Path, main: Mapping[str, Any], create: Mapping[str, Any]) -> None:
    """Writes a config pair as a Python file and, beside it, as ``config.json``.

    Reading the Python file gives an equal pair. Values under keys such as ``token``, ``secret``, ``password``
    or ``api_key`` are written as ``'***'`` in both files. Classes and functions become imports; a value that
    no source can express is written as text, and the file says so.

    Args:
        path: The Python file, or a folder in which it is called ``total_config.py``.
        main: ``main_config``.
        create: ``create_config``.
    """
    file = Path(path)
    file = file / 'total_config.py' if file.is_dir() else file
    _replace(file, total_config_text(main, create))
    _replace(file.with_name('config.json'), json.dumps(config_data(main, create), indent=2) + '\n')


def config_data(main: Mapping[str, Any], create: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a config pair as plain data that JSON can hold, without secrets; classes become ``'module:Class'``."""
    data: dict[str, Any] = _as_json({'main_config': _redacted(main), 'create_config': _redacted(create)})
    return data


def total_config_text(main: Mapping[str, Any], create: Mapping[str, Any]) -> str:
    """Returns the source of a config file that defines the two."""
    modules: set[str] = set()
    inexpressible: list[str] = []
    parts = [
        f'{name} = EasyDict(\n{_indented(_as_code(_redacted(tree), name, modules, inexpressible))}\n)\n'
        for name, tree in (('main_config', main), ('create_config', create))
    ]
    head = '"""The complete config of one run, defaults included; it is itself a config."""\n'
    if inexpressible:
        head += ''.join(f'# Written as text, because no source gives it: {key}\n' for key in inexpressible)
    imports = ''.join(f'import {module}\n' for module in sorted(modules))
    return '\n'.join([head, f'{imports}from easydict import EasyDict\n', *parts])


def _indented(tree: Any) -> str:
    text = pprint.pformat(tree, width=100, sort_dicts=False)
    return '\n'.join('    ' + line for line in text.splitlines()) + ','


def _redacted(value: Any, is_secret: bool = False) -> Any:
    if isinstance(value, Mapping):
        return {n: _redacted(v, is_secret or bool(SECRET.search(str(n)))) for n, v in raw_items(value)}
    if type(value) in (list, tuple):
        return type(value)(_redacted(item, is_secret) for item in value)
    return REDACTED if is_secret and value is not None else value


def _as_code(value: Any, key: str, modules: set[str], inexpressible: list[str]) -> Any:
    """Returns ``value`` made of things whose ``repr`` is source for them."""
    if isinstance(value, Mapping):
        return {
            name: _as_code(below, f'{key}.{name}', modules, inexpressible) for name, below in value.items()
        }
    if type(value) in (list, tuple):
        return type(value)(_as_code(item, key, modules, inexpressible) for item in value)
    number = _python_number(value)
    if isinstance(number, float) and not math.isfinite(number):
        return _Code(f"float('{number}')")
    if number is not None or value is None or isinstance(value, bool | str | bytes):
        return value if number is None else number
    if _is_importable(value):
        modules.add(value.__module__)
        return _Code(f'{value.__module__}.{value.__qualname__}')
    inexpressible.append(key)
    return str(value)


def _is_importable(value: Any) -> bool:
    """Whether ``value`` is a class or function that its module holds under its own name."""
    module, name = getattr(value, '__module__', None), getattr(value, '__qualname__', None)
    if not isinstance(module, str) or not isinstance(name, str):
        return False
    try:
        found: Any = importlib.import_module(module)
        for step in name.split('.'):
            found = getattr(found, step)
    except (ImportError, AttributeError):
        return False
    return found is value and module != '__main__'


def _python_number(value: Any) -> int | float | None:
    """Returns a number, also numpy's, as Python's own; ``None`` for everything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, numbers.Integral):
        return int(value)
    return float(value) if isinstance(value, numbers.Real) else None


def _as_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _as_json(below) for name, below in value.items()}
    if type(value) in (list, tuple):
        return [_as_json(item) for item in value]
    number = _python_number(value)
    if number is not None:
        return number
    if _is_importable(value):
        return f'{value.__module__}:{value.__qualname__}'
    return value if value is None or isinstance(value, bool | str) else str(value)


def _replace(file: Path, text: str) -> None:
    """Writes a whole file or nothing."""
    draft = file.with_name(f'.{file.name}.{os.getpid()}')
    draft.write_text(text, encoding='utf-8')
    draft.replace(file)
