"""Finds the secrets in configs and keeps them out of all files that a run writes.

A value is a secret if its key says so (``api_key``, ``dbPassword``, ``hf-token``), with everything nested below it.
In strings, secrets are recognised by form: the password in ``scheme://user:password@host``, ``token=...``,
``Bearer ...``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from rlframe.errors import CheckpointError
from rlframe.utils.field import raw_items

REDACTED = '***'
"""Written in place of a secret."""
WORDS = frozenset(
    [
        'token',
        'secret',
        'secrets',
        'password',
        'passwords',
        'passwd',
        'pwd',
        'passphrase',
        'passcode',
        'credential',
        'credentials',
        'creds',
        'auth',
        'oauth',
        'bearer',
        'authorization',
        'apikey',
        'accesskey',
        'privatekey',
        'secretkey',
    ]
)
"""Words that make a key the name of a secret."""
KEYS = frozenset(
    [
        'api',
        'access',
        'private',
        'secret',
        'auth',
        'signing',
        'encryption',
        'account',
        'ssh',
        'client',
        'license',
    ]
)
"""Words that make a following ``key`` the name of a secret."""
ENDINGS = ('token', 'secret', 'password', 'passwd', 'pwd', 'passphrase', 'apikey', 'credentials', 'auth')
"""Ends of words written together, as in ``dbpassword``."""
MEASURES = frozenset(
    [
        'size',
        'dim',
        'dims',
        'num',
        'count',
        'len',
        'length',
        'limit',
        'max',
        'min',
        'index',
        'idx',
        'level',
        'mask',
        'type',
        'mode',
        'rate',
        'dropout',
        'embedding',
        'embed',
        'vocab',
        'path',
        'file',
        'dir',
        'folder',
        'timeout',
        'ttl',
        'expiry',
        'required',
        'enabled',
        'reward',
        'penalty',
        'bonus',
        'cost',
        'level',
        'emb',
    ]
)
"""Last words of keys whose values describe a secret or are other kinds of tokens, not secrets."""
QUANTITIES = frozenset(['max', 'min', 'num', 'n', 'pad', 'eos', 'bos', 'unk', 'mask', 'cls', 'sep', 'per'])
"""Words that make a following ``token`` a token of text."""
SHORTEST = 4
"""Minimum length of secrets that are also found within longer strings; shorter ones are only found as whole strings."""
DIGITS = 6
"""Digits that a number needs to be recognised as a secret in a state."""

_FORMER = re.compile('token|secret|password|api_?key', re.IGNORECASE)
_PART = re.compile(r'[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+')
_URL = re.compile(r'[A-Za-z][\w+.-]*://[^\s:/@]*:(?!\d+/)(\S+)@')
_USER = re.compile(r'https?://(\*\*\*|[^\s:/?#@]{16,})@')
_PAIR = re.compile(r'([\w.-]*[A-Za-z][\w.-]*)=([^\s&;,\'"]+)')
_BEARER = re.compile(r'\b[Bb]earer +(\*\*\*|[\w.~+/=-]{8,})')
_HEADER = re.compile(r'([A-Za-z][\w-]*): *(\S.*)')

Span = tuple[int, int]


def is_secret_name(name: Any) -> bool:
    """Whether the value of a key with this name is a secret; ``max_tokens``, ``tokenizer`` or ``author`` do not."""
    parts = [part.lower() for part in _PART.findall(str(name))]
    if not parts or parts[-1] in MEASURES:
        return False
    for i, part in enumerate(parts):
        before = parts[i - 1] if i else ''
        if part == 'key' and before in KEYS:
            return True
        is_word = part in WORDS or part.endswith(ENDINGS)
        if is_word and not (part == 'token' and before in QUANTITIES):
            return True
    return False


def redacted(tree: Any, is_secret: bool = False) -> Any:
    """Returns a config with ``'***'`` in place of its secrets."""
    if isinstance(tree, Mapping):
        return {name: redacted(below, is_secret or is_secret_name(name)) for name, below in raw_items(tree)}
    if type(tree) in (list, tuple):
        return type(tree)(redacted(item, is_secret or flag) for item, flag in _flagged(tree))
    if is_secret and _can_be_secret(tree):
        return REDACTED
    return _hidden(tree) if isinstance(tree, str) else tree


def shown_address(address: Any) -> str:
    """Returns scheme, host and port of an address; whatever else may hold a token is hidden.

    Args:
        address: The address as a user wrote it. The name before the host in ``ray://name@host:port`` is no secret.
    """
    scheme, mark, rest = str(address).rpartition('://')
    place, *more = re.split('[/?#]', rest, maxsplit=1)
    name, at, host = place.rpartition('@')
    if '@' in ''.join(more):  # what seems to be the host may be half of a password
        return f'{scheme}{mark}{REDACTED}'
    name = REDACTED if at and (not mark or scheme.startswith('http')) else name
    return f'{scheme}{mark}{name}{at}{host}' + (f'/{REDACTED}' if ''.join(more) else '')


def redacted_keys(tree: Any) -> list[str]:
    """Returns the dotted keys of a config whose secrets were replaced by ``'***'``."""
    found = []
    for key, name, value, is_secret in _leaves(tree, '', '', False):
        is_whole = value == REDACTED and (is_secret or bool(_FORMER.search(name)))
        is_part = isinstance(value, str) and any(value[a:b] == REDACTED for a, b in _spans(value))
        if is_whole or is_part:
            found.append(key)
    return found


class Secrets:
    """The secrets of one config, by name.

    Args:
        config: The config; a secret is named by its dotted key.
    """

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        self._config = config or {}
        self._values: dict[str, Any] = dict(_found(self._config))
        self._names = {value: name for name, value in reversed(self._values.items())}
        texts = {value for value in self._names if isinstance(value, str) and len(value) >= SHORTEST}
        self._in_text = _alternatives(texts)
        self._scrubbed = _alternatives(
            {form for text in texts for form in (text, json.dumps(text)[1:-1], repr(text)[1:-1])}
            | {str(value) for value in self._names if _is_long(value)}
        )

    def __bool__(self) -> bool:
        return bool(self._values)

    def given(self) -> dict[str, Any]:
        """Returns the options that contain secrets, by dotted key, to complete a redacted config."""
        options = {name.partition('#')[0].partition('[')[0] for name in self._values}
        return {option: self._option(option) for option in sorted(options)}

    def _option(self, key: str) -> Any:
        value: Any = self._config
        for name in key.split('.'):
            value = dict(raw_items(value))[name]
        return value

    def scrub(self, text: str) -> str:
        """Replaces every secret in a text for people by ``'***'``."""
        return self._scrubbed.sub(REDACTED, text) if self._scrubbed else text

    def split(self, value: Any) -> list[Any] | None:
        """Splits a value into strings and, as one-item lists, names of secrets; ``None`` if it has no secret."""
        if isinstance(value, str) and value in self._names:
            return [[self._names[value]]]
        if _is_long(value):
            return [[self._names[value]]] if value in self._names else None
        if not isinstance(value, str) or self._in_text is None or not self._in_text.search(value):
            return None
        pieces = self._in_text.split(value)
        return [[self._names[piece]] if i % 2 else piece for i, piece in enumerate(pieces)]

    def join(self, parts: list[Any]) -> Any:
        """Restores the value that ``split`` split.

        Raises:
            CheckpointError: If a secret in it is not known here; the option is named.
        """
        values = [self._value(part[0]) if isinstance(part, list) else part for part in parts]
        return values[0] if len(values) == 1 else ''.join(values)

    def _value(self, name: str) -> Any:
        if name not in self._values:
            key = name.partition('#')[0]
            raise CheckpointError(
                f'it needs the secret {key}, which is never saved in a checkpoint',
                where=key,
                remedy=f'Set {key}=... again.',
            )
        return self._values[name]


class Unknown(Secrets):
    """Secrets of unknown value: each is ``'***'``."""

    def _value(self, name: str) -> Any:
        return REDACTED


def _alternatives(texts: set[str]) -> re.Pattern[str] | None:
    longest_first = sorted(texts, key=lambda text: (-len(text), text))
    return re.compile(f'({"|".join(map(re.escape, longest_first))})') if texts else None


def _can_be_secret(value: Any) -> bool:
    return value is not None and value != '' and not isinstance(value, bool | float)


def _is_long(value: Any) -> bool:
    return type(value) is int and abs(value) >= 10 ** (DIGITS - 1)


def _flagged(items: list[Any] | tuple[Any, ...]) -> Iterator[tuple[Any, bool]]:
    """Yields the items of a list, and whether the item before is a flag such as ``--password``."""
    before: Any = None
    for item in items:
        is_flag = isinstance(before, str) and before.startswith('-') and '=' not in before
        yield item, is_flag and isinstance(item, str) and is_secret_name(before)
        before = item


def _spans(text: str) -> list[Span]:
    """Returns the start and end of each secret in a text."""
    spans = [match.span(1) for pattern in (_URL, _USER, _BEARER) for match in pattern.finditer(text)]
    spans += [match.span(2) for match in _PAIR.finditer(text) if is_secret_name(match[1])]
    header = _HEADER.fullmatch(text)
    if header and is_secret_name(header[1]) and not header[2].startswith('//'):
        spans.append(header.span(2))
    kept: list[Span] = []
    for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        if not kept or start >= kept[-1][1]:
            kept.append((start, end))
    return kept


def _hidden(text: str) -> str:
    for start, end in reversed(_spans(text)):
        text = text[:start] + REDACTED + text[end:]
    return text


def _leaves(tree: Any, key: str, name: str, is_secret: bool) -> Iterator[tuple[str, str, Any, bool]]:
    """Yields dotted key, last name, value, and whether a key marks it as secret, for each leaf value."""
    if isinstance(tree, Mapping):
        for below, value in raw_items(tree):
            inner = f'{key}.{below}' if key else str(below)
            yield from _leaves(value, inner, str(below), is_secret or is_secret_name(below))
    elif type(tree) in (list, tuple):
        for i, (item, flag) in enumerate(_flagged(tree)):
            yield from _leaves(item, f'{key}[{i}]', name, is_secret or flag)
    else:
        yield key, name, tree, is_secret


def _found(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields names and values: dotted keys, with ``#n`` behind them for the n-th secret within a text."""
    for key, _, value, is_secret in _leaves(config, '', '', False):
        if is_secret and isinstance(value, str | int) and _can_be_secret(value):
            yield key, value
        elif isinstance(value, str) and (spans := _spans(value)):
            yield key, value
            for i, (start, end) in enumerate(spans, 1):
                yield f'{key}#{i}', value[start:end]
                if (plain := unquote(value[start:end])) != value[start:end]:
                    yield f'{key}#{i}-unquoted', plain
