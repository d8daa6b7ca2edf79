"""Finds pickles by a file's content, whatever its name, without running any of it."""

from __future__ import annotations

import io
import pickletools
import struct
import zipfile
import zlib
from pathlib import Path
from typing import IO, NamedTuple

LOOK = 64 * 2**20
"""Number of bytes of a file, and of the files packed into it, that are searched."""
DEPTH = 3
"""Maximum nesting of zips that are searched."""
HARMLESS = ('torch', 'collections', 'numpy', '_codecs')
"""Modules whose names occur in every file that torch saved; others are named first."""


class Pickle(NamedTuple):
    """A pickle that was found."""

    member: str
    """Place within a packed file, empty if the file itself is the pickle."""
    names: tuple[str, ...]
    """The imports of the pickle, as ``module.name``."""

    def __str__(self) -> str:
        place = f' in {self.member}' if self.member else ''
        named = sorted(self.names, key=lambda name: name.split('.')[0] in HARMLESS)[:3]
        return f'a pickle{place}' + (f' that would call {", ".join(named)}' if named else '')


def find_pickle(file: Path | IO[bytes]) -> Pickle | None:
    """Returns the first pickle in a file: bare, saved by torch, in an npz, or in a zip; ``None`` if there is none."""
    if isinstance(file, Path):
        with open(file, 'rb') as opened:
            return find_pickle(opened)
    return _find(file, '', DEPTH)


def _find(file: IO[bytes], member: str, depth: int) -> Pickle | None:
    head = file.read(8)
    file.seek(0)
    if head.startswith(b'PK') and depth:
        return _find_in_zip(file, member, depth)
    data = file.read(LOOK)
    if head.startswith(b'\x93NUMPY') and b'|O' in data[:1024]:
        start = data.find(b'\x80', 10)
        return Pickle(member, _names(data[max(start, 0) :]) or ())
    names = _names(data)
    return None if names is None else Pickle(member, names)


def _find_in_zip(file: IO[bytes], member: str, depth: int) -> Pickle | None:
    left = LOOK  # of all members together: a small file can unpack to a very large one
    try:
        with zipfile.ZipFile(file) as packed:
            for info in packed.infolist():
                with packed.open(info) as opened:
                    inner = io.BytesIO(opened.read(left))
                left -= len(inner.getbuffer())
                found = _find(inner, f'{member}/{info.filename}'.lstrip('/'), depth - 1)
                if found is not None:
                    return found
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, NotImplementedError, RuntimeError, EOFError):
        return None
    return None


def _names(data: bytes) -> tuple[str, ...] | None:
    """Returns the imports of the pickles in some bytes, ``None`` if they are not a pickle."""
    stream, names, whole = io.BytesIO(data), list[str](), False
    has_header = data[:1] == b'\x80' and data[1:2] <= b'\x05'
    while stream.tell() < len(data):
        found, ended = _one_pickle(stream)
        names += found
        if not ended:
            break
        whole = True
    is_pickle = (has_header and (whole or names)) or (whole and names)
    return tuple(dict.fromkeys(names)) if is_pickle else None


def _one_pickle(stream: IO[bytes]) -> tuple[list[str], bool]:
    """Reads the instructions of one pickle: its imports, and whether the bytes reach its end."""
    names: list[str] = []
    texts, memo = ['', ''], dict[int, str]()
    try:
        for code, argument, _ in pickletools.genops(stream):
            if code.name in ('GLOBAL', 'INST'):
                names.append(str(argument).replace(' ', '.'))
            elif code.name == 'STACK_GLOBAL':
                names.append('.'.join(texts))
            elif code.name == 'MEMOIZE':
                memo[len(memo)] = texts[1]
            elif code.name.endswith('BINPUT'):
                memo[int(argument or 0)] = texts[1]
            elif code.name.endswith('BINGET'):
                texts = [texts[1], memo.get(int(argument or 0), '')]
            elif isinstance(argument, str):
                texts = [texts[1], argument]
    except (ValueError, IndexError, OverflowError, struct.error, EOFError, MemoryError):
        return names, False
    return names, True
