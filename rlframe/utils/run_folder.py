"""The run folder: where an experiment leaves everything that tells its story. One process at a time writes to it."""

from __future__ import annotations

import json
import logging
import os
import socket
import tempfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from rlframe.errors import ExperimentDirError, ExperimentExistsError, ExperimentLockedError

LOCK = '.lock'
"""File of a run folder that the process that writes there holds locked."""


def check_writable(folder: Path) -> None:
    """Makes sure that a folder exists and that files can be made in it, by making one.

    Raises:
        ExperimentDirError: With the system's reason, and who asks.
    """
    try:
        os.rmdir(tempfile.mkdtemp(prefix='.rlframe-', dir=folder))
    except OSError as error:
        raise _unusable('cannot write here', folder, error) from error


def lock(folder: Path) -> Callable[[], None]:
    """Takes the run folder for this process, until the function that is returned is called or the process ends.

    The lock is the kernel's (flock), so a process that died holds none; where the system has no flock, nothing is locked.

    Raises:
        ExperimentLockedError: With process, host and time of who has it.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return lambda: None
    path = folder / LOCK
    while True:
        try:
            file = open(path, 'a+', encoding='utf-8')  # noqa: SIM115  closed by release
        except OSError as error:
            raise _unusable('cannot write here', folder, error) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            holder = file.read().strip() or 'an unknown process'
            file.close()
            raise ExperimentLockedError(
                f'the run folder is in use: {holder}',
                where=str(folder),
                remedy='Wait for that process, or end it.',
            ) from error
        if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
            break
        file.close()  # its last holder deleted it meanwhile
    file.truncate(0)
    since = datetime.now().astimezone().isoformat(timespec='seconds')
    file.write(json.dumps({'pid': os.getpid(), 'host': socket.gethostname(), 'since': since}))
    file.flush()

    def release() -> None:
        if not file.closed:
            path.unlink(missing_ok=True)
            file.close()

    return release


def new_folder(name: str, seed: int) -> Path:
    """Makes ``<name>_seed<seed>`` in the working directory, with a number behind it where it exists already."""
    return free_folder(Path(f'{name}_seed{seed}'))


def free_folder(base: Path) -> Path:
    """Makes a folder, with a number behind its name where it exists already."""
    number = 0
    while True:
        folder = base.with_name(f'{base.name}_{number}' if number else base.name).absolute()
        try:
            _make(folder)
            return folder
        except FileExistsError:
            number += 1


def named_folder(name: str) -> Path:
    """Makes the folder that a user asked for by name.

    Raises:
        ExperimentExistsError: If it exists; the ways out are named.
    """
    folder = Path(name).absolute()
    try:
        _make(folder)
    except FileExistsError as error:
        raise ExperimentExistsError(
            'the run folder exists already',
            where=str(folder),
            remedy='Go on with it by --resume, choose another --exp-name, or leave that out (a free name is found).',
        ) from error
    return folder


def _make(folder: Path) -> None:
    try:
        os.mkdir(folder)
    except FileExistsError:
        raise
    except OSError as error:
        raise _unusable('cannot make the run folder', folder, error) from error


def _unusable(what: str, folder: Path, error: OSError) -> ExperimentDirError:
    return ExperimentDirError(
        f'{what}: {error.strerror}', where=str(folder), remedy=f'You are user {os.getuid()}.'
    )


def log_to_file(folder: Path) -> logging.Handler:
    """Sends rlframe's log to ``log.txt`` of a run folder, until the handler that is returned is removed."""
    handler = logging.FileHandler(folder / 'log.txt', encoding='utf-8')
    handler.setFormatter(logging.Formatter('%(asctime)s %(levelname)s %(name)s: %(message)s'))
    logger = logging.getLogger('rlframe')
    logger.addHandler(handler)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)
    return handler
