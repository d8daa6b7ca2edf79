"""The key that identifies a user's own checkpoints and artifacts, and its keyed hash."""

from __future__ import annotations

import functools
import hashlib
import hmac
import logging
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

logger = logging.getLogger('rlframe.trust')

VARIABLE = 'RLFRAME_TRUST_KEY'
"""Environment variable that holds the key itself, for machines that share no configuration folder."""
LEAST = 32
"""Characters that a key must have."""
PURPOSE = b'rlframe manifest 1\n'
"""Hashed before a manifest, so that the hash is not valid for any other purpose."""


def keyed_hash(body: bytes) -> str | None:
    """Returns the keyed hash of a manifest; None, with one warning, if this user has no key and none can be created.

    Args:
        body: The content of the manifest.
    """
    key = _key() or _made_key()
    return None if key is None else _hash(key, body)


def is_own(body: bytes, claimed: str) -> bool:
    """Whether the hash at the end of a manifest was made with this user's key.

    Args:
        body: The content of the manifest before it.
        claimed: The hash in the manifest.
    """
    key = _key()
    return key is not None and hmac.compare_digest(_hash(key, body), claimed)


def has_key() -> bool:
    """Whether this user has a key, so their files are recognised later."""
    return _key() is not None


def key_file() -> Path:
    """Returns the path of the key: ``rlframe/trust.key`` in the user's configuration folder.

    Raises:
        RuntimeError: If this user has no home folder.
    """
    named = os.environ.get('XDG_CONFIG_HOME', '')
    base = Path(named) if os.path.isabs(named) else Path.home() / '.config'
    return base / 'rlframe' / 'trust.key'


def _hash(key: bytes, body: bytes) -> str:
    return hmac.new(key, PURPOSE + body, hashlib.sha256).hexdigest()


def _key() -> bytes | None:
    """Returns the key, if it exists and only this user can read it."""
    if named := os.environ.get(VARIABLE):
        if len(named) >= LEAST:
            return named.encode('utf-8', 'surrogateescape')
        _warn_once(f'{VARIABLE} has {len(named)} characters, at least {LEAST} are needed: it is not used')
        return None
    try:
        file = key_file()
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (OSError, RuntimeError):
        return None
    with os.fdopen(descriptor, 'rb') as opened:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            return None
        if facts.st_uid != os.geteuid() or stat.S_IMODE(facts.st_mode) & 0o077:
            _warn_once(f'{file} can be read or changed by others, so it is not used: chmod 600 {file}')
            return None
        key = opened.read(4096).strip()
    return key if len(key) >= LEAST else None


def _made_key() -> bytes | None:
    """Creates the key; if another process is faster, uses its key."""
    if os.environ.get(VARIABLE):
        return None
    try:
        file = key_file()
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = file.with_name(f'.{file.name}.{secrets.token_hex(8)}')
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, 'wb') as opened:
                opened.write(secrets.token_hex(32).encode('ascii') + b'\n')
                opened.flush()
                os.fsync(descriptor)
            with suppress(FileExistsError):
                os.link(draft, file)  # atomic, and never replaces another key
        finally:
            draft.unlink(missing_ok=True)
    except (OSError, RuntimeError) as error:
        reason = getattr(error, 'strerror', None) or error
        _warn_once(
            f'the key of this user cannot be saved ({reason}), so eval, export and --resume will not recognise what is written'
            f' now as your own and may ask for --trust; {VARIABLE} can hold a key'
        )
        return None
    return _key()


@functools.cache
def _warn_once(text: str) -> None:
    logger.warning('%s', text)
