"""The run folder, which holds all output of an experiment. One process at a time writes to it."""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import stat
import tempfile
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from threading import get_ident
from typing import IO, Any

from rlframe.errors import (
    ExperimentDirError,
    ExperimentExistsError,
    ExperimentLockedError,
    UnsafeCheckpointError,
)
from rlframe.utils.files import private_opener

LOGGER = logging.getLogger('rlframe')

LOCK = '.lock'
"""File of a run folder that the writing process keeps locked."""
CONFIG = 'config.json'
"""File of a run folder with the config that the run started with."""
LOG = 'log.txt'
"""File of a run folder that receives rlframe's log."""
LOCK_CHARACTERS = 300
"""Number of characters of a lock that are shown."""
FILES = (CONFIG, LOG, 'metrics.jsonl', 'metrics.csv', 'total_config.py', 'mlflow.json', 'wandb.json')
"""Files of a run folder that a resumed run opens."""
DELETE = 'Delete it.'
TRACKERS = ('wandb', 'mlruns')
"""Folders of a run that a tracker's own package writes and links; rlframe neither writes nor reads in them."""


def check_writable(folder: Path) -> None:
    """Checks that a folder exists and is writable by creating a file in it.

    Raises:
        ExperimentDirError: With the system's reason and the option or command that needs the folder.
    """
    try:
        os.rmdir(tempfile.mkdtemp(prefix='.rlframe-', dir=folder))
    except OSError as error:
        raise _unusable('cannot write here', folder, error) from error


def lock(folder: Path) -> Callable[[], None]:
    """Locks the run folder for this process, until the returned function is called or the process ends.

    The lock is the kernel's (flock), so a dead process holds none; on systems without flock, nothing is locked.

    Raises:
        ExperimentLockedError: With process, host and time of the lock holder.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return lambda: None
    # take the lock
    path = folder / LOCK
    while True:
        try:
            file = _opened(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        except OSError as error:
            raise _unusable('cannot write here', folder, error) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _content_of_lock(file) or 'an unknown process'
            file.close()
            raise ExperimentLockedError(
                f'the run folder is in use: {holder}',
                where=str(folder),
                remedy='Wait for that process, or end it.',
            ) from error
        if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
            break
        file.close()  # its last holder has deleted it
    # name its holder
    file.truncate(0)
    since = datetime.now().astimezone().isoformat(timespec='seconds')
    file.write(json.dumps({'pid': os.getpid(), 'host': socket.gethostname(), 'since': since}))
    file.flush()

    def release() -> None:
        if not file.closed:
            path.unlink(missing_ok=True)
            file.close()

    return release


def last_holder(folder: Path) -> str:
    """Returns process, host and time of the current lock holder, or of one that died; empty after a release."""
    try:
        with _opened(folder / LOCK, os.O_RDONLY) as file:
            return _content_of_lock(file)
    except OSError:
        return ''


def _opened(path: Path, flags: int) -> IO[str]:
    """Opens a regular file; does not follow a link, as the folder may be somebody else's, nor wait for a pipe."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, 'this is not a regular file', str(path))
    return os.fdopen(descriptor, 'r' if flags == os.O_RDONLY else 'a+', encoding='utf-8', errors='replace')


def _content_of_lock(file: IO[str]) -> str:
    """Returns the content of a lock as a short text that is safe to print to a terminal."""
    file.seek(0)
    return ''.join(letter if letter.isprintable() else ' ' for letter in file.read(LOCK_CHARACTERS)).strip()


def new_folder(name: str, seed: int, home: Path | None = None) -> Path:
    """Creates ``<name>_seed<seed>`` in a folder, by default the working directory, with a number appended if it exists."""
    return free_folder((home or Path()) / f'{name}_seed{seed}')


def free_folder(base: Path) -> Path:
    """Creates a folder, with a number appended to its name if it exists."""
    number = 0
    while True:
        folder = base.with_name(f'{base.name}_{number}' if number else base.name).absolute()
        try:
            _make(folder)
            return folder
        except FileExistsError:
            number += 1


def named_folder(name: str) -> Path:
    """Creates the folder that a user asked for, with the folders above it; an empty one may exist.

    Raises:
        ExperimentExistsError: If it is not empty; the error says what it is and names the alternatives.
        ExperimentDirError: If it cannot be created.
    """
    folder = Path(name).expanduser().absolute()
    try:
        _make(folder)
    except FileExistsError as error:
        remedy = 'Choose another folder (--out), or leave that out for a free name.'
        if not folder.is_dir():
            raise ExperimentExistsError(
                'this is a file, not a folder', where=str(folder), remedy=remedy
            ) from error
        if holds_run(folder):
            remedy = (
                'Resume it with --resume, choose another folder (--out), or leave that out for a free name.'
            )
            raise ExperimentExistsError(
                'the folder holds a run already', where=str(folder), remedy=remedy
            ) from error
        if any(folder.iterdir()):
            raise ExperimentExistsError(
                'the folder is not empty', where=str(folder), remedy=remedy
            ) from error
    return folder


def holds_run(folder: Path) -> bool:
    """Whether a folder is a run folder."""
    return (folder / CONFIG).is_file()


def home_of_runs(name: str | Path) -> Path:
    """Returns the folder that a user asked for to hold the folders of several runs; it is created if it does not exist.

    Raises:
        ExperimentExistsError: If it is a run folder itself.
        ExperimentDirError: If it is a file, or cannot be created or written.
    """
    folder = Path(name).expanduser().absolute()
    if holds_run(folder):
        raise ExperimentExistsError(
            'the folder holds a run, and is to hold one folder for each seed',
            where=str(folder),
            remedy='Choose another folder (--out).',
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable('cannot create the folder', folder, error) from error
    check_writable(folder)
    return folder


def chosen_folder(existing: Path | None, name: str | Path | None) -> Path | Callable[[], Path] | None:
    """Returns the folder of a run as pipelines take it.

    Args:
        existing: The folder of a run that is resumed, or starts again; None for a new run.
        name: The folder that the user asked for; only for a new run.

    Returns:
        The existing folder, else a function that creates the one asked for, else None: the pipeline creates one by its config.
    """
    return existing if existing is not None or name is None else partial(named_folder, str(name))


def check_links(folder: Path, is_own: bool = False) -> None:
    """Checks that everything written to a run folder stays in it, and that its files are files.

    Args:
        folder: The run folder.
        is_own: Whether this user made the run: then links to folders, on another disk for example, may stay. Links to
            files are not, as anybody can put them next to a checkpoint of this user.

    Raises:
        UnsafeCheckpointError: If a symbolic link in it leads elsewhere, or a pipe, a device or a folder has the name of a file.
    """
    inside = os.path.realpath(folder)
    for entry in (folder / name for name in FILES):
        if entry.is_dir():
            raise UnsafeCheckpointError('this is a folder, not a file', where=str(entry), remedy=DELETE)
    for place, folders, files in os.walk(folder):
        if os.path.basename(place) in TRACKERS and os.path.dirname(place) == os.fspath(folder):
            folders.clear()
            continue
        for entry in (Path(place, name) for name in (*folders, *files)):
            target = os.path.realpath(entry)
            leads_out = entry.is_symlink() and os.path.commonpath([inside, target]) != inside
            if leads_out and not (is_own and os.path.isdir(target)):
                raise UnsafeCheckpointError(
                    f'this link leads out of the run folder, to {target}, and you may not have put it there',
                    where=str(entry),
                    remedy='Delete the link.',
                )
            if not os.path.isfile(entry) and not os.path.isdir(entry) and os.path.exists(entry):
                raise UnsafeCheckpointError(
                    'this is a pipe, a socket or a device, not a file', where=str(entry), remedy=DELETE
                )


def _make(folder: Path) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable('cannot create the folder above the run folder', folder.parent, error) from error
    try:
        os.mkdir(folder)
    except FileExistsError:
        raise
    except OSError as error:
        raise _unusable('cannot create the run folder', folder, error) from error


def _unusable(what: str, folder: Path, error: OSError) -> ExperimentDirError:
    return ExperimentDirError(
        f'{what}: {error.strerror}', where=str(folder), remedy=f'You are user {os.getuid()}.'
    )


class RunLog(logging.FileHandler):
    """Writes rlframe's log to ``log.txt`` of a run folder, until it is closed.

    If several runs are open, each gets the records of the threads that last worked for it, and those of other threads.

    Args:
        folder: The run folder.
    """

    def __init__(self, folder: Path) -> None:
        os.close(private_opener(str(folder / LOG), os.O_WRONLY | os.O_CREAT))
        super().__init__(folder / LOG, encoding='utf-8', errors='backslashreplace')
        self.setFormatter(logging.Formatter('%(asctime)s %(levelname)s %(name)s: %(message)s'))
        self._threads: set[int | None] = set()
        LOGGER.addHandler(self)
        if LOGGER.level == logging.NOTSET:
            LOGGER.setLevel(logging.INFO)

    def take_thread(self) -> None:
        """Receives the records of this thread from now on, in place of other runs."""
        for each in _open_logs():
            each._threads.discard(get_ident())
        self._threads.add(get_ident())

    def filter(self, record: logging.LogRecord) -> Any:
        taken = any(record.thread in each._threads for each in _open_logs())
        return super().filter(record) if record.thread in self._threads or not taken else False

    def close(self) -> None:
        LOGGER.removeHandler(self)
        super().close()


def _open_logs() -> list[RunLog]:
    return [handler for handler in LOGGER.handlers if isinstance(handler, RunLog)]
