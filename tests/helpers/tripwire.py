"""A tripwire: notes whatever reaches beyond a folder while it is armed.

Programs, sockets and files are noticed by Python's audit events. ``importlib.import_module`` raises none, so imports are noticed
by a finder that is asked first and finds nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROCESSES = (
    *('subprocess.Popen', 'os.system', 'os.fork', 'os.forkpty', 'os.exec', 'os.posix_spawn', 'os.spawn'),
    *('pty.spawn', 'os.startfile'),
)
SOCKETS = ('socket.connect', 'socket.bind', 'socket.sendto', 'socket.getaddrinfo', 'socket.gethostbyname')
CHANGES = (
    'os.remove',
    'os.rename',
    'os.mkdir',
    'os.rmdir',
    'os.truncate',
    'os.link',
    'os.symlink',
    'os.chmod',
)
OURS = frozenset(
    (
        *('rlframe', 'gymnasium', 'torch', 'numpy', 'safetensors', 'easydict', 'cloudpickle', 'jinja2'),
        *('typing_extensions', 'farama_notifications', 'sympy', 'mpmath', 'networkx', 'markupsafe', 'fsspec'),
        *('_distutils_hack', 'filelock', 'opt_einsum', 'psutil', 'packaging', 'optree', 'rich', 'pygments'),
        *(
            'tensorboardX',
            'google',
            'protobuf',
            'PIL',
            'pettingzoo',
            'minigrid',
            'yaml',
            'setuptools',
            'numba',
        ),
    )
)
"""Packages that rlframe uses; whatever else is imported was named by somebody."""


class Tripwire:
    """What reached beyond the folder, in words."""

    def __init__(self) -> None:
        self.armed: Path | None = None
        self.found: list[str] = []

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if self.armed is None:
            return
        if event in PROCESSES or (event in SOCKETS and 'AF_UNIX' not in repr(args)):
            self.found.append(f'{event} {args[:2]!r}')
        elif event == 'open':
            self._opened(*args[:3])
        elif event in CHANGES and isinstance(args[0], str | bytes | os.PathLike):
            self._changed(event, args[0])

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Finds nothing, as the first finder of modules."""
        top = name.partition('.')[0]
        is_bait = top in ('this', 'antigravity')
        if self.armed is not None and (is_bait or (top not in OURS and top not in sys.stdlib_module_names)):
            self.found.append(f'import of {name}')

    def _opened(self, path: Any, mode: Any, flags: Any) -> None:
        writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        if writes and isinstance(path, str | bytes | os.PathLike):
            self._changed('open for writing', path)

    def _changed(self, what: str, path: Any) -> None:
        place = os.path.abspath(os.fsdecode(path))
        inside = f'{self.armed}{os.sep}'
        if not place.startswith((inside, '/dev/null', '/proc/')) and '__pycache__' not in place:
            self.found.append(f'{what}: {place}')


_wire = Tripwire()
_installed: list[bool] = []


@contextmanager
def armed(folder: Path) -> Iterator[list[str]]:
    """Yields a list to which everything is added that reaches beyond a folder: imports, programs, sockets, files written."""
    if not _installed:
        sys.addaudithook(_wire)  # it cannot be taken away again, so it is there once
        _installed.append(True)
    _wire.found = []
    _wire.armed = folder
    sys.meta_path.insert(0, _wire)  # type: ignore[arg-type]  # it has the one method that is called
    try:
        yield _wire.found
    finally:
        _wire.armed = None
        sys.meta_path.remove(_wire)  # type: ignore[arg-type]
