"""The run folder: where an experiment leaves everything that tells its story."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from rlframe.errors import ExperimentDirError, ExperimentExistsError


def new_folder(name: str, seed: int) -> Path:
    """Makes ``<name>_seed<seed>`` in the working directory, with a number behind it where it exists already."""
    base = f'{name}_seed{seed}'
    number = 0
    while True:
        folder = Path(f'{base}_{number}' if number else base).absolute()
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
            remedy='Choose another --exp-name, leave it out (a free name is found), or delete the folder.',
        ) from error
    return folder


def _make(folder: Path) -> None:
    try:
        os.mkdir(folder)
    except FileExistsError:
        raise
    except OSError as error:
        raise ExperimentDirError(
            f'cannot make the run folder: {error.strerror}',
            where=str(folder),
            remedy=f'You are user {os.getuid()}.',
        ) from error


def log_to_file(folder: Path) -> logging.Handler:
    """Sends rlframe's log to ``log.txt`` of a run folder, until the handler that is returned is removed."""
    handler = logging.FileHandler(folder / 'log.txt', encoding='utf-8')
    handler.setFormatter(logging.Formatter('%(asctime)s %(levelname)s %(name)s: %(message)s'))
    logger = logging.getLogger('rlframe')
    logger.addHandler(handler)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)
    return handler
