"""Checkpoints for the tests in this folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from checkpoint_helpers import save_run


@pytest.fixture(scope='module')
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two checkpoints, the second of which is to be damaged."""
    folder = tmp_path_factory.mktemp('original') / 'ckpt'
    with pytest.MonkeyPatch.context() as patch:
        save_run(folder, [1, 2], patch)
    return folder


@pytest.fixture
def saved(original: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(original, tmp_path / 'ckpt', symlinks=True)
    return tmp_path / 'ckpt'
