"""Arguments that several commands have. It needs the standard library only."""

from __future__ import annotations

import argparse
import shutil


def program(path: str) -> str:
    """Returns the argument that names a program; one that is not there is a mistake, before anything is measured."""
    if shutil.which(path) is None:
        raise argparse.ArgumentTypeError(f'there is no program {path}')
    return path
