"""Writes a complete config as ``total_config.py``, which is itself a config, and as ``config.json``."""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import numbers
import pprint
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlframe.config.compile import DEVICE_OPTIONS
from rlframe.safety.private_file import write_private
from rlframe.safety.secrets import redacted
from rlframe.safety.strict_json import to_tagged
from rlframe.safety.whole_file import whole_file
from rlframe.utils.resolved_config import to_plain


class _Code:
    """Python source that ``pprint`` puts in place of a value."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def write_total_config(path: str | Path, main: Mapping[str, Any], create: Mapping[str, Any]) -> None:
    """Writes a config pair as a Python file and, next to it, as ``config.json``.

    Reading the Python file gives an equal pair. Secrets are written as ``'***'`` in both files, which only their owner
    can read. Classes and functions become imports; a value that cannot be written as source is written as a string,
    with a note in the file.

    Args:
        path: The Python file, or a folder in which it is called ``total_config.py``.
        main: ``main_config``.
        create: ``create_config``.
    """
    file = Path(path)
    file = file / 'total_config.py' if file.is_dir() else file
    _replace(file, total_config_text(main, create))
    _replace(file.with_name('config.json'), _json_text(main, create))


def _json_text(main: Mapping[str, Any], create: Mapping[str, Any]) -> str:
    return json.dumps(to_tagged(config_data(main, create)), indent=2, allow_nan=False) + '\n'


def config_data(main: Mapping[str, Any], create: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a config pair as plain data that JSON can hold, without secrets; classes become ``'module:Class'``."""
    data: dict[str, Any] = _as_json({'main_config': redacted(main), 'create_config': redacted(create)})
    return data


def shared_fingerprint(cfg: Mapping[str, Any]) -> str:
    """Returns a hash of what all roles of parallel mode have to share: env, policy and seed.

    Commander, device, budgets and the section ``parallel`` may differ between roles.

    Args:
        cfg: A compiled config.
    """
    shared = redacted({name: to_plain(cfg)[name] for name in ('env', 'policy', 'seed')})
    for name in DEVICE_OPTIONS:
        shared['policy'].pop(name, None)
    shared['policy']['other'].pop('commander', None)
    text = json.dumps(to_tagged(_as_json(shared)), sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def total_config_text(main: Mapping[str, Any], create: Mapping[str, Any]) -> str:
    """Returns the source of a config file that defines the two."""
    modules: set[str] = set()
    inexpressible: list[str] = []
    parts = [
        f'{name} = EasyDict(\n{_indented(as_code(redacted(tree), name, modules, inexpressible))}\n)\n'
        for name, tree in (('main_config', main), ('create_config', create))
    ]
    head = '"""The complete config of one run, defaults included; it is itself a config."""\n'
    if inexpressible:
        head += ''.join(
            f'# Written as text, because it cannot be written as code: {key}\n' for key in inexpressible
        )
    imports = ''.join(f'import {module}\n' for module in sorted(modules))
    return '\n'.join([head, f'{imports}from easydict import EasyDict\n', *parts])


def _indented(tree: Any) -> str:
    text = pprint.pformat(tree, width=100, sort_dicts=False)
    return '\n'.join('    ' + line for line in text.splitlines()) + ','


def as_code(value: Any, key: str, modules: set[str], inexpressible: list[str]) -> Any:
    """Converts ``value`` to objects whose ``repr`` is valid source code."""
    if isinstance(value, Mapping):
        return {
            name: as_code(below, f'{key}.{name}', modules, inexpressible) for name, below in value.items()
        }
    if type(value) in (list, tuple):
        return type(value)(as_code(item, key, modules, inexpressible) for item in value)
    number = _python_number(value)
    if isinstance(number, float) and not math.isfinite(number):
        return _Code(f"float('{number}')")
    if number is not None or value is None or isinstance(value, bool | str | bytes):
        return value if number is None else number
    if is_importable(value):
        modules.add(value.__module__)
        return _Code(f'{value.__module__}.{value.__qualname__}')
    inexpressible.append(key)
    return _text(value)


def is_importable(value: Any) -> bool:
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
    if is_importable(value):
        return f'{value.__module__}:{value.__qualname__}'
    return value if value is None or isinstance(value, bool | str) else _text(value)


def _text(value: Any) -> str:
    """Returns a string for a value that cannot be written as source; the same in every process."""
    return re.sub(r' at 0x[0-9a-f]+', '', str(value))


def _replace(file: Path, text: str) -> None:
    """Writes a whole file or nothing."""
    with whole_file(file) as draft:
        write_private(draft, text)
