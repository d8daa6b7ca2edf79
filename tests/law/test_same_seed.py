"""The same seed gives the same run in another process, whatever the hash seed of Python is."""

from __future__ import annotations

from pathlib import Path

import pytest
from runs import DQN, assert_same_end, finish, train


@pytest.mark.slow
def test_hash_seed_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = []
    for hash_seed in ('1', '2'):
        monkeypatch.setenv('PYTHONHASHSEED', hash_seed)
        cwd = tmp_path / hash_seed
        cwd.mkdir()
        finish(train(cwd, *DQN, '--train-iter', '200'))
        folders.append(next(cwd.iterdir()))
    assert_same_end(*folders)
