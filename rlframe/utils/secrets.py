"""Finds the secrets of a config, so that no written config contains them.

A value is a secret if its key says so (``api_key``, ``dbPassword``, ``hf-token``), with everything nested below it,
or if it is a URL with a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rlframe.utils.field import raw_items

REDACTED = '***'
"""Written in place of a secret."""
WORDS = (
    'token', 'secret', 'secrets', 'password', 'passwords', 'passwd', 'pwd', 'passphrase', 'passcode', 'credential', 'credentials',
    'creds', 'auth', 'bearer', 'authorization', 'apikey', 'accesskey', 'privatekey', 'secretkey',
)  # fmt: skip
"""Words that make a key the name of a secret, also at the end of words written together, as in ``dbpassword``."""
KEYS = frozenset({
    'api', 'access', 'private', 'secret', 'auth', 'signing', 'encryption', 'account', 'ssh', 'client', 'license',
})  # fmt: skip
"""Words that make a following ``key`` the name of a secret."""
MEASURES = frozenset({
    'size', 'dim', 'dims', 'num', 'count', 'len', 'length', 'limit', 'max', 'min', 'index', 'idx', 'level', 'mask', 'type', 'mode',
    'rate', 'dropout', 'embedding', 'embed', 'emb', 'vocab', 'path', 'file', 'dir', 'folder', 'timeout', 'ttl', 'expiry', 'required',
    'enabled', 'reward', 'penalty', 'bonus', 'cost',
})  # fmt: skip
"""Last words of keys whose values describe a secret or are other kinds of tokens, not secrets."""
QUANTITIES = frozenset({'max', 'min', 'num', 'n', 'pad', 'eos', 'bos', 'unk', 'mask', 'cls', 'sep', 'per'})
"""Words that make a following ``token`` a token of text."""
_PART = re.compile(r'[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+')
_URL = re.compile(r'[A-Za-z][\w+.-]*://[^\s:/@]*:(?!\d+/)\S+@')


def is_secret_name(name: Any) -> bool:
    """Whether the value of a key with this name is a secret; ``max_tokens``, ``tokenizer`` or ``author`` do not."""
    parts = [part.lower() for part in _PART.findall(str(name))]
    if not parts or parts[-1] in MEASURES:
        return False
    for i, part in enumerate(parts):
        before = parts[i - 1] if i else ''
        if part == 'key' and before in KEYS:
            return True
        if part.endswith(WORDS) and not (part == 'token' and before in QUANTITIES):
            return True
    return False


def redacted(tree: Any, is_secret: bool = False) -> Any:
    """Returns a config with ``'***'`` in place of its secrets."""
    if isinstance(tree, Mapping):
        return {name: redacted(below, is_secret or is_secret_name(name)) for name, below in raw_items(tree)}
    if type(tree) in (list, tuple):
        return type(tree)(redacted(item, is_secret) for item in tree)
    return REDACTED if _is_secret(tree, is_secret) else tree


def _is_secret(value: Any, has_secret_name: bool) -> bool:
    if isinstance(value, str) and _URL.search(value):
        return True
    return has_secret_name and value is not None and value != '' and not isinstance(value, bool | float)


def shown_address(address: Any) -> str:
    """Returns scheme, host and port of an address; all other parts, which may hold a token, are hidden.

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
    return [key for key, value, _ in _leaves(tree, '', False) if isinstance(value, str) and value == REDACTED]


def secret_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a config that contain secrets, by dotted key, to complete a redacted one."""
    found = [
        key
        for key, value, has_secret_name in _leaves(config, '', False)
        if _is_secret(value, has_secret_name)
    ]
    return {option: _option(config, option) for option in sorted({key.partition('[')[0] for key in found})}


def _option(config: Any, key: str) -> Any:
    for name in key.split('.'):
        config = dict(raw_items(config))[name]
    return config


def _leaves(tree: Any, key: str, is_secret: bool) -> Iterator[tuple[str, Any, bool]]:
    """Yields dotted key, value, and whether a key marks it as secret, for each leaf value."""
    if isinstance(tree, Mapping):
        for name, value in raw_items(tree):
            yield from _leaves(
                value, f'{key}.{name}' if key else str(name), is_secret or is_secret_name(name)
            )
    elif type(tree) in (list, tuple):
        for i, item in enumerate(tree):
            yield from _leaves(item, f'{key}[{i}]', is_secret)
    else:
        yield key, tree, is_secret
