"""Writes the crash report of a run that ends with an error."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import traceback
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from rlframe.safety.private_file import write_private
from rlframe.safety.secrets import Secrets

PACKAGES = ('rlframe', 'torch', 'numpy', 'gymnasium', 'ray')


def write_crash_report(
    folder: Path, name: str, error: BaseException, facts: Mapping[str, Any], secrets: Secrets | None = None
) -> Path:
    """Writes a text file with the traceback, the versions of the packages involved, and facts about the run.

    Only its owner can read it.

    Args:
        folder: Run folder.
        name: Name of the file, without its ending.
        error: The error that ended the run.
        facts: Further headings and their content: text, or data that is shown as JSON.
        secrets: Values that are not written.
    """
    parts = {
        'when': datetime.now().astimezone().isoformat(timespec='seconds'),
        'error': ''.join(traceback.format_exception(error)),
        'versions': '\n'.join(
            [f'python {platform.python_version()} on {platform.platform()}', *map(_version, PACKAGES)]
        ),
        **facts,
    }
    path = folder / f'{name}.txt'
    text = [
        f'== {heading} ==\n{content if isinstance(content, str) else json.dumps(content, indent=2)}\n'
        for heading, content in parts.items()
    ]
    write_private(path, (secrets or Secrets()).scrub('\n'.join(text)))
    return path


def _version(package: str) -> str:
    try:
        return f'{package} {importlib.metadata.version(package)}'
    except importlib.metadata.PackageNotFoundError:
        return f'{package} not installed'
