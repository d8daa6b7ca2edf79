"""Encodes immutable values as plain lists, and decodes them."""

from __future__ import annotations

import datetime
import decimal
import fractions
import functools
import pathlib
import struct
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

Function = TypeVar('Function', bound=Callable[..., Any])


def cached(function: Function) -> Function:
    """Caches the results of a function of types."""
    return cast(Function, functools.lru_cache(4096)(function))


PLAIN = frozenset((type(None), bool, str))
"""Types with a JSON representation; ints and floats too, unless they are huge or NaN."""
BIG = 1 << 1024
"""Ints beyond this are written in hexadecimal: JSON readers limit the number of digits."""
SCALAR_KINDS = 'biufcSUMm'
"""Kinds of numpy types without references or fields."""
TYPES = {
    f'{kind.__module__}.{kind.__name__}': kind
    for kind in (
        bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, object,
        deque, OrderedDict, defaultdict, Counter, np.ndarray, np.bool_, np.int8, np.int16, np.int32, np.int64,
        np.uint8, np.uint16, np.uint32, np.uint64, np.float16, np.float32, np.float64, np.complex64, np.complex128,
    )
}  # fmt: skip
"""Types that may themselves be values, such as the factory of a ``defaultdict``."""
PATHS = {
    kind.__name__: kind
    for kind in (pathlib.PosixPath, pathlib.WindowsPath, pathlib.PurePosixPath, pathlib.PureWindowsPath)
}


@cached
def is_single(kind: type) -> bool:
    """Whether ``encode_value`` may support values of a type; a NaN is identified by its object."""
    return kind in ENCODERS or issubclass(kind, np.generic | np.dtype | type)


def encode_value(value: Any) -> list[Any] | None:
    """Returns a value of one of the types below as a list that begins with a tag, or ``None`` for any other type."""
    kind = type(value)
    if kind in ENCODERS:
        return ENCODERS[kind](value)
    if isinstance(value, np.generic) and kind is value.dtype.type and value.dtype.kind in SCALAR_KINDS:
        named = value.dtype.str if np.dtype(value.dtype.str).type is kind else value.dtype.char
        if value.dtype.kind in 'SU':
            text = value.item()
            return ['np text', named, text.decode('latin-1') if isinstance(text, bytes) else text]
        return ['np', named, value.tobytes().hex()]
    if isinstance(value, np.dtype):
        return _dtype(value)
    if isinstance(value, type) and (name := f'{value.__module__}.{value.__name__}') in TYPES:
        return ['type', name] if TYPES[name] is value else None
    return None


def decode_value(encoded: list[Any]) -> Any:
    """Decodes a value that ``encode_value`` wrote.

    Raises:
        Exception: If the value is malformed.
    """
    return DECODERS[encoded[0]](*encoded[1:])


def encode_dtype(dtype: np.dtype[Any]) -> Any:
    """Returns a numpy type as plain values, or ``None`` if it cannot be rebuilt from them."""
    if dtype.hasobject or dtype.metadata is not None:
        return None
    plain = _plain(dtype)
    made = decode_dtype(plain)
    return plain if made == dtype and _plain(made) == plain else None


def decode_dtype(plain: Any) -> np.dtype[Any]:
    """Returns the numpy type that ``encode_dtype`` wrote."""
    if isinstance(plain, str):
        dtype: np.dtype[Any] = np.dtype(plain)
        if dtype.hasobject:
            raise ValueError('the bytes of a state are never references to objects')
        return dtype
    if 'base' in plain:
        return np.dtype((decode_dtype(plain['base']), tuple(plain['shape'])))
    formats = [decode_dtype(kind) for kind in plain['formats']]
    layout: Any = {name: plain[name] for name in ('names', 'offsets', 'itemsize')}
    layout['formats'] = formats
    made: np.dtype[Any] = np.dtype(layout, align=bool(plain['aligned']))
    return made


def _plain(dtype: np.dtype[Any]) -> Any:
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return {'base': _plain(base), 'shape': list(shape)}
    if dtype.names is None or dtype.fields is None:
        return dtype.str
    fields = [dtype.fields[name] for name in dtype.names]
    return {
        'names': list(dtype.names),
        'formats': [_plain(field[0]) for field in fields],
        'offsets': [field[1] for field in fields],
        'itemsize': dtype.itemsize,
        'aligned': dtype.isalignedstruct,
    }


def _dtype(dtype: np.dtype[Any]) -> list[Any] | None:
    descr = encode_dtype(dtype)
    return None if descr is None else ['dtype', descr]


def _zone(zone: datetime.tzinfo | None) -> Any:
    if zone is None or type(zone) is not datetime.timezone:
        return None if zone is None else False
    offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]  # typeshed does not know it
    return [offset.days, offset.seconds, offset.microseconds, *name]


def _zone_of(plain: Any) -> datetime.timezone | None:
    if plain is None:
        return None
    days, seconds, microseconds, *name = plain
    offset = datetime.timedelta(days, seconds, microseconds)
    return datetime.UTC if not offset and not name else datetime.timezone(offset, *name)


def _moment(value: datetime.datetime) -> list[Any] | None:
    zone = _zone(value.tzinfo)
    parts = [value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond]
    return None if zone is False else ['datetime', parts, zone, value.fold]


def _clock(value: datetime.time) -> list[Any] | None:
    zone = _zone(value.tzinfo)
    parts = [value.hour, value.minute, value.second, value.microsecond]
    return None if zone is False else ['time', parts, zone, value.fold]


def _scalar(named: str, content: str) -> Any:
    dtype = np.dtype(named)
    if dtype.kind not in SCALAR_KINDS:
        raise ValueError(f'no scalar has the type {named}')
    return np.frombuffer(bytes.fromhex(content), dtype)[0] if dtype.itemsize else dtype.type()


def _text(named: str, content: str) -> Any:
    kind = np.dtype(named)
    if kind.kind not in 'SU':
        raise ValueError(f'no text has the type {named}')
    return kind.type(content.encode('latin-1') if kind.kind == 'S' else content)


def _range(value: range) -> list[Any] | None:
    parts = [value.start, value.stop, value.step]
    return ['range', *parts] if all(type(part) is int and abs(part) < BIG for part in parts) else None


ENCODERS: dict[type, Callable[[Any], list[Any] | None]] = {
    int: lambda v: ['int', hex(v)],
    float: lambda v: ['float', struct.pack('<d', v).hex()],
    complex: lambda v: ['complex', struct.pack('<dd', v.real, v.imag).hex()],
    bytes: lambda v: ['bytes', v.decode('latin-1')],  # as text, in which secrets are found
    range: _range,
    type(Ellipsis): lambda _: ['constant', 'Ellipsis'],
    type(NotImplemented): lambda _: ['constant', 'NotImplemented'],
    decimal.Decimal: lambda v: ['decimal', str(v)],
    fractions.Fraction: lambda v: ['fraction', v.numerator, v.denominator],
    uuid.UUID: lambda v: ['uuid', v.hex],
    datetime.date: lambda v: ['date', v.year, v.month, v.day],
    datetime.timedelta: lambda v: ['timedelta', v.days, v.seconds, v.microseconds],
    datetime.datetime: _moment,
    datetime.time: _clock,
    **dict.fromkeys(PATHS.values(), lambda v: ['path', type(v).__name__, str(v)]),
}
"""Maps types to the functions that encode their values."""
DECODERS: dict[str, Callable[..., Any]] = {
    'int': lambda text: int(text, 16),
    'float': lambda text: struct.unpack('<d', bytes.fromhex(text))[0],
    'complex': lambda text: complex(*struct.unpack('<dd', bytes.fromhex(text))),
    'bytes': lambda text: text.encode('latin-1'),
    'range': range,
    'constant': {'Ellipsis': Ellipsis, 'NotImplemented': NotImplemented}.__getitem__,
    'decimal': decimal.Decimal,
    'fraction': lambda over, under: fractions.Fraction(int(over), int(under)),
    'uuid': uuid.UUID,
    'date': datetime.date,
    'timedelta': datetime.timedelta,
    'datetime': lambda parts, zone, fold: datetime.datetime(*parts).replace(tzinfo=_zone_of(zone), fold=fold),
    'time': lambda parts, zone, fold: datetime.time(*parts).replace(tzinfo=_zone_of(zone), fold=fold),
    'path': lambda kind, text: PATHS[kind](text),
    'np': _scalar,
    'np text': _text,
    'dtype': decode_dtype,
    'type': TYPES.__getitem__,
}
"""Maps tags to the functions that decode the values."""
