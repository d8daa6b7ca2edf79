"""What is done to a trained run before it is given to the command line as a bad input."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

from checkpoint_helpers import forge

from rlframe.run.manifest import write_text


def _truncated(run: Path) -> None:
    file = run / 'ckpt' / 'latest' / 'tensors.safetensors'
    file.write_bytes(file.read_bytes()[:-100])


def _empty(run: Path) -> None:
    (run / 'ckpt' / 'latest' / 'state.json').write_bytes(b'')


def _text(run: Path) -> None:
    (run / 'ckpt' / 'latest' / 'tensors.safetensors').write_text('these are no weights')


def _newer(run: Path) -> None:
    manifest = run / 'ckpt' / 'latest' / 'manifest.json'
    facts = json.loads(manifest.read_text())
    del facts['sha256']
    manifest.write_bytes(write_text(facts, 99))


def _pickled(run: Path) -> None:
    forge(run / 'ckpt' / 'latest', 'tensors.safetensors', pickle.dumps({'weights': Path('x')}))


def _stripped(run: Path) -> None:
    for path in sorted((run / 'ckpt').rglob('*'), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


EDITS: dict[str, Callable[[Path], None]] = {
    'truncated': _truncated,
    'empty': _empty,
    'text': _text,
    'newer': _newer,
    'pickled': _pickled,
    'stripped': _stripped,
}
"""Names of what can be done to the run that a case is given."""
