"""Buffer states in files: nested dicts of arrays and numbers, as npz without pickle."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.errors import CheckpointCorruptError, CheckpointError, CheckpointNotFoundError

ARRAY = '__array__'
"""Key of a dict that stands for an array, in the tree that is written as JSON."""


def save_state(state: Mapping[str, Any], file_name: str) -> None:
    """Writes a state beside ``file_name`` and renames it, so that the name always stands for a whole file.

    Raises:
        CheckpointError: If there is something other than mappings, arrays of numbers, numbers, strings and
            ``None`` in it.
    """
    arrays: dict[str, Any] = {}
    tree = _without_arrays(state, arrays, '')
    folder = os.path.dirname(os.path.abspath(file_name))
    handle, temporary = tempfile.mkstemp(prefix=os.path.basename(file_name) + '.', suffix='.part', dir=folder)
    try:
        with os.fdopen(handle, 'wb') as file:
            np.savez(file, tree=np.array(json.dumps(tree)), **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, file_name)
    except BaseException:
        os.unlink(temporary)
        raise


def load_state(file_name: str) -> dict[str, Any]:
    """Reads what ``save_state`` wrote. Nothing is unpickled.

    Raises:
        CheckpointNotFoundError: If there is no such file.
        CheckpointCorruptError: If it is damaged, or holds Python objects.
    """
    try:
        with open(file_name, 'rb') as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        state = _with_arrays(json.loads(str(arrays.pop('tree'))), arrays)
        return dict(state)
    except FileNotFoundError:
        raise CheckpointNotFoundError('there is no such file', where=str(file_name)) from None
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        EOFError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise CheckpointCorruptError(
            f'this is no replay buffer state: {error}', where=str(file_name)
        ) from error


def _without_arrays(value: Any, arrays: dict[str, Any], path: str) -> Any:
    if isinstance(value, Mapping):
        return {_name(name, path): _without_arrays(v, arrays, f'{path}.{name}') for name, v in value.items()}
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in 'biufcU':
        name = f'array{len(arrays)}'
        arrays[name] = value
        return {ARRAY: name}
    if value is None or isinstance(value, str | int | float):
        return value
    raise CheckpointError(
        f'a {type(value).__name__} cannot be saved to a file',
        where=path.removeprefix('.'),
        remedy='Push mappings of numpy arrays, numbers and strings, or keep the state_dict in memory.',
    )


def _name(name: Any, path: str) -> str:
    if not isinstance(name, str):
        raise CheckpointError(
            f'the name {name!r} cannot be saved to a file; only strings can', where=path.removeprefix('.')
        )
    return name


def _with_arrays(tree: Any, arrays: dict[str, Any]) -> Any:
    if not isinstance(tree, dict):
        return tree
    if tree.keys() == {ARRAY}:
        return arrays[tree[ARRAY]]
    return {name: _with_arrays(value, arrays) for name, value in tree.items()}
