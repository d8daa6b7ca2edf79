"""Options that both ends of ``flask_fs`` share, and their checks."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from rlframe.errors import ConfigError
from rlframe.safety.secrets import shown_address
from rlframe.utils.field import REQUIRED, Field

TOKEN = 'RLFRAME_TOKEN'
"""Environment variable with the token, for those who want it in no file."""
SHORTEST_TOKEN = 16
PROTOCOL_HEADER = 'RLFrame-Protocol'
"""Header of every answer of a coordinator, with the version of its messages."""
MESSAGE_PATH, HEALTH_PATH = '/message', '/health'
JSON_TYPE = 'application/json'
SAME_FOLDER = 'Both must see the same folder: check path_data here and in the config of the coordinator.'

SHARED: dict[str, Any] = dict(
    path_data=Field(
        REQUIRED,
        type=str,
        reaches='file',
        doc='folder for arrays on their way, which the coordinator and all workers see, under any path',
    ),
    token=Field(
        None,
        type=str,
        check=lambda value: '' if _is_token(value) else f'at least {SHORTEST_TOKEN} visible ASCII characters',
        doc=f'secret that all roles share; by default the environment variable {TOKEN}',
    ),
    max_payload_bytes=Field(2**30, range='[1024, inf)', unit='bytes', doc='size of the largest payload'),
    max_folder_bytes=Field(
        4 * 2**30, range='[1024, inf)', unit='bytes', doc='size of all payloads that wait in the folder'
    ),
)


def token_of(cfg: Mapping[str, Any]) -> str:
    """Returns the token of the options or of the environment; an empty text if there is none.

    Raises:
        ConfigError: If the one of the environment is too short.
    """
    if cfg['token']:
        return str(cfg['token'])
    token = os.environ.get(TOKEN, '')
    if token and not _is_token(token):
        raise ConfigError(
            f'the token has {len(token)} characters, or some that are not visible ASCII',
            where=TOKEN,
            remedy=f'Use at least {SHORTEST_TOKEN}, such as: openssl rand -hex 16',
        )
    return token


def is_loopback(host: str) -> bool:
    """Whether a host can be reached from this machine only."""
    if host == 'localhost':
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_address(address: str) -> tuple[str, int]:
    """Returns host and port of ``http://host:port`` or ``host:port``.

    Raises:
        ConfigError: If it is neither.
    """
    try:
        parts = urlsplit(address if '://' in address else f'http://{address}')
        extra = parts.path.strip('/') or parts.query or parts.fragment or parts.username
        if parts.scheme == 'http' and parts.hostname and parts.port and not extra:
            return parts.hostname, parts.port
    except (ValueError, AttributeError, TypeError):
        pass
    raise ConfigError(
        'bad address of a coordinator',
        where='address',
        got=shown_address(address),
        expected="'http://host:port'",
        remedy=f'A token belongs in the variable {TOKEN}.' if '@' in str(address) else '',
    )


def url_of(host: str, port: int) -> str:
    """Returns the address of a host and a port."""
    return f'http://[{host}]:{port}' if ':' in host else f'http://{host}:{port}'


def _is_token(value: Any) -> bool:
    return (
        isinstance(value, str)
        and len(value) >= SHORTEST_TOKEN
        and value.isascii()
        and value.isprintable()
        and ' ' not in value
    )
