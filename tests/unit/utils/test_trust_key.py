"""The key by which a user's own checkpoints are recognised."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from rlframe.utils import trust_key


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty configuration folder."""
    monkeypatch.setenv('XDG_CONFIG_HOME', str(tmp_path / 'config'))
    monkeypatch.delenv('RLFRAME_TRUST_KEY', raising=False)
    trust_key._warn_once.cache_clear()
    return tmp_path / 'config'


def test_key_is_made_once_for_this_user_alone(home: Path) -> None:
    assert not trust_key.is_own(b'body', 'a' * 64) and not home.exists(), 'reading makes no key'
    keyed = trust_key.keyed_hash(b'body')
    file = home / 'rlframe' / 'trust.key'
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert os.listdir(file.parent) == ['trust.key']
    assert keyed is not None and trust_key.is_own(b'body', keyed) and not trust_key.is_own(b'other', keyed)
    before = file.read_bytes()
    assert trust_key.keyed_hash(b'body') == keyed and file.read_bytes() == before


def test_keys_of_two_users_differ(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keyed = trust_key.keyed_hash(b'body')
    monkeypatch.setenv('XDG_CONFIG_HOME', str(home / 'other'))
    assert trust_key.keyed_hash(b'body') != keyed


def test_processes_that_make_it_at_the_same_time_have_one_key(home: Path) -> None:
    program = "import sys; sys.stdin.read(1); from rlframe.utils.trust_key import keyed_hash; print(keyed_hash(b'body'))"
    processes = [
        subprocess.Popen(
            [sys.executable, '-c', program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write('.')
        process.stdin.flush()
    answers = {process.communicate()[0] for process in processes}
    assert len(answers) == 1 and 'None' not in answers.pop()


def test_key_of_a_cluster_comes_from_the_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('RLFRAME_TRUST_KEY', 'k' * 32)
    keyed = trust_key.keyed_hash(b'body')
    assert keyed is not None and trust_key.is_own(b'body', keyed) and not home.exists()
    monkeypatch.setenv('RLFRAME_TRUST_KEY', 'j' * 32)
    assert not trust_key.is_own(b'body', keyed)


def test_a_short_key_is_not_used(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv('RLFRAME_TRUST_KEY', 'short')
    assert trust_key.keyed_hash(b'body') is None and trust_key.keyed_hash(b'body') is None
    assert len(caplog.records) == 1 and 'at least 32' in caplog.text and not home.exists()


def test_a_folder_that_cannot_be_written_is_said_once_and_ends_nothing(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home.write_text('a file where the folder would be')
    with caplog.at_level(logging.WARNING):
        assert [trust_key.keyed_hash(b'body') for _ in range(3)] == [None] * 3
    assert len(caplog.records) == 1 and 'RLFRAME_TRUST_KEY' in caplog.text
    assert not trust_key.is_own(b'body', 'a' * 64) and not trust_key.has_key()


def test_a_key_that_others_can_read_or_that_is_a_link_is_not_used(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trust_key.keyed_hash(b'body')
    file = home / 'rlframe' / 'trust.key'
    file.chmod(0o644)
    assert trust_key.keyed_hash(b'body') is None
    assert f'chmod 600 {file}' in caplog.text
    file.rename(home / 'elsewhere')
    (home / 'elsewhere').chmod(0o600)
    file.symlink_to(home / 'elsewhere')
    assert not trust_key.has_key()
