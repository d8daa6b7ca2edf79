"""Buffer states in one file: nested dicts of arrays and plain values, as npz without pickle."""

from __future__ import annotations

import io
import os
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlframe.data import Array
from rlframe.errors import CheckpointError, CheckpointNotFoundError
from rlframe.run.checkpoint_files import refusal
from rlframe.run.checkpoint_tree import BAD_TREE, Encoder, decode, describe, to_json
from rlframe.utils import strict_json
from rlframe.utils.files import remedy_of

HEADER_BYTES = 10_000
"""Size above which nothing is taken for the head of an array."""


def save_state(state: Mapping[str, Any], file_name: str | Path) -> None:
    """Writes a state to a temporary file next to ``file_name`` and renames it, so a file of that name is complete.

    Raises:
        CheckpointError: If something in it can be no part of a file; its place is named.
    """
    encoder = Encoder('state')
    try:
        tree = to_json(encoder.tree(state))
    except CheckpointError as error:
        error.remedy = f'{error.remedy} Or keep the state_dict in memory.'.lstrip()
        raise
    folder = os.path.dirname(os.path.abspath(file_name))
    handle, temporary = tempfile.mkstemp(prefix=os.path.basename(file_name) + '.', suffix='.part', dir=folder)
    try:
        with os.fdopen(handle, 'wb') as file:
            np.savez(file, tree=np.array(tree.decode('ascii')), **encoder.arrays)  # type: ignore[arg-type]  # NumPy's stub takes the arrays for its option allow_pickle
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, file_name)
    except BaseException:
        os.unlink(temporary)
        raise


def load_state(file_name: str | Path) -> dict[str, Any]:
    """Reads a file of ``save_state``. Nothing is unpickled, and nothing larger than the file is allocated.

    Raises:
        CheckpointNotFoundError: If the file does not exist.
        CheckpointCorruptError: If it is damaged or something else.
        UnsafeCheckpointError: If it contains a pickle; with its position.
    """
    path = Path(file_name)
    try:
        with open(path, 'rb') as file:
            arrays = _read_arrays(file)
        return dict(decode(strict_json.loads(str(arrays.pop('tree')).encode(), 'STATE'), arrays))
    except FileNotFoundError:
        raise CheckpointNotFoundError('there is no such file', where=str(path)) from None
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error, *BAD_TREE) as error:
        message = f'this is not a replay buffer state: {describe(error)}'
        raise refusal(path.resolve(), message, remedy=remedy_of(error)) from error


def _read_arrays(file: Any) -> dict[str, Array]:
    """Reads the members of an npz, each as large as it says, and together no larger than the file."""
    size = os.fstat(file.fileno()).st_size
    with zipfile.ZipFile(file) as packed:
        members = packed.infolist()
        total = sum(info.file_size for info in members)
        if total > size:
            raise ValueError(f'{len(members)} members say that they hold {total} bytes in a file of {size}')
        return {info.filename.removesuffix('.npy'): _read_array(packed.read(info)) for info in members}


def _read_array(data: bytes) -> Array:
    head = io.BytesIO(data)
    version = np.lib.format.read_magic(head)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(head, max_header_size=HEADER_BYTES)
    nbytes = int(np.prod([int(n) for n in shape], dtype=object)) * dtype.itemsize
    if dtype.hasobject or nbytes != len(data) - head.tell():
        raise ValueError(f'an array of {dtype} and {shape} in {len(data) - head.tell()} bytes')
    array: Array = np.load(io.BytesIO(data), allow_pickle=False)
    return array
