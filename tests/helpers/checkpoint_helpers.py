"""Small checkpoints, and what may happen to them."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlframe.data import Batch
from rlframe.run import checkpoint_tree as rows_module
from rlframe.run.manifest import write_text
from rlframe.run.read_checkpoint import open_newest
from rlframe.run.write_checkpoint import publish_checkpoint
from rlframe.worker.replay_buffer import IBuffer, create_buffer

MEMBERS = [
    'manifest.json',
    'state.json',
    'tensors.safetensors',
    'replay_buffer.json',
    'replay_buffer.safetensors',
    'replay_buffer-13-24.safetensors',
    'replay_buffer-24-33.safetensors',
]


def transitions(start: int, count: int) -> Batch:
    """Returns rows that tell their number in every column."""
    number = np.arange(start, start + count)
    obs = np.stack([number, 2 * number], axis=1).astype(np.float32)
    return Batch(obs=obs, action=number.astype(np.uint8), nested=Batch(reward=-number.astype(np.float32)))


def filled_buffer(size: int = 20, count: int = 33) -> IBuffer:
    """Returns a buffer with priorities that has gone round its ring."""
    buffer = create_buffer({'type': 'advanced', 'replay_buffer_size': size})
    for start in range(0, count, 5):
        buffer.push(transitions(start, min(5, count - start)), start)
    batch = buffer.sample(4, 0)
    buffer.update(
        {**{n: batch[n] for n in ('replay_unique_id', 'replay_buffer_idx')}, 'priority': np.ones(4) * 3}
    )
    return buffer


def state(number: int = 0) -> dict[str, Any]:
    """Returns what stands for the state of a run that is at a train iteration."""
    weight = torch.arange(12.0).reshape(3, 4) + number
    return {
        'progress': {'train_iter': number},
        'policy': {'model': {'layer.weight': weight}},
        'rng': [1, 2**70],
    }


def save_run(folder: Path, numbers: Any, monkeypatch: Any = None, **options: Any) -> list[Path]:
    """Saves a checkpoint with a replay buffer of several files for each number, as a run does."""
    if monkeypatch is not None:
        monkeypatch.setattr(rows_module, 'SEGMENT_BYTES', 150)
    return [
        publish_checkpoint(
            folder / f'iteration_{number}',
            state(number),
            {'score': 1.0},
            buffer=filled_buffer().checkpoint_state(),
            options={'keep_last': 5, **options},
        )
        for number in numbers
    ]


def newest_good(folder: Path) -> tuple[Path, Any]:
    """Returns the checkpoint that a run would be resumed from, and the damaged ones that are skipped."""
    opened, damaged = open_newest(folder)
    return opened.path, damaged


def assert_same(one: Any, other: Any, path: str = '') -> None:
    """Compares two states."""
    if isinstance(one, dict):
        assert list(one) == list(other), path
        for name in one:
            assert_same(one[name], other[name], f'{path}.{name}')
    elif isinstance(one, np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape), path
        np.testing.assert_array_equal(one, other, err_msg=path)
    else:
        assert one == other, path


def zipped(**members: bytes) -> bytes:
    """Returns a zip file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, 'w') as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    return file.getvalue()


def payload(marker: Path, protocol: int = 4) -> bytes:
    """Returns a pickle that makes a folder when it is loaded."""

    class Harmful:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(marker),)

    return pickle.dumps({'weights': Harmful()}, protocol=protocol)


def forge(path: Path, name: str, content: bytes, listed_as: str = '') -> None:
    """Puts other content into a member of a checkpoint and signs it, as somebody who knows the format can."""
    (path / name).write_bytes(content)
    edit_manifest(path, lambda m: m['files'].update({listed_as or name: facts_of(content)}))


def facts_of(content: bytes) -> dict[str, Any]:
    """Returns what a manifest says of a file."""
    return {'size': len(content), 'sha256': hashlib.sha256(content).hexdigest()}


def edit_manifest(path: Path, edit: Any) -> None:
    """Changes a manifest and seals it anew."""
    manifest = json.loads((path / 'manifest.json').read_text())
    del manifest['sha256']
    edit(manifest)
    (path / 'manifest.json').write_bytes(write_text(manifest))
