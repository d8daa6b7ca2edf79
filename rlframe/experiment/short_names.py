"""Options by their short names: ``learning_rate`` for ``policy.learn.learning_rate``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe import config
from rlframe.errors import ConfigError
from rlframe.utils.resolved_config import ResolvedConfig
from rlframe.utils.synonyms import meant_keys
from rlframe.utils.unknown_key import nearest_name


def full_keys(options: Mapping[str, Any], cfg: ResolvedConfig) -> dict[str, Any]:
    """Returns options with their dotted keys.

    Args:
        options: Values by the last parts of their keys.
        cfg: A compiled config, whose keys count.

    Raises:
        ConfigError: If no key or several keys end in a name; with the candidates.
    """
    keys = config.changeable(cfg)
    copies = {target for target, source in config.FORWARDED.items() if source in keys}
    by_name: dict[str, list[str]] = {}
    for key in keys:
        if key not in copies:
            by_name.setdefault(key.rpartition('.')[2], []).append(key)
    return {_full_key(name, by_name): value for name, value in options.items()}


def _full_key(name: str, by_name: Mapping[str, list[str]]) -> str:
    found = by_name.get(name, [])
    if name in found:  # an option of the whole config
        return name
    if len(found) == 1:
        return found[0]
    if found:
        raise ConfigError(
            f'{name} is the name of {len(found)} options: {", ".join(sorted(found))}',
            where=name,
            remedy=f'Name one: overrides={{{sorted(found)[0]!r}: ...}}.',
        )
    raise ConfigError(
        f'{name} is not an option of this config{_hint(name, by_name)}',
        where=name,
        remedy="Options have the names of docs/config.md; dotted keys go into overrides={'policy.learn.batch_size': 64}.",
    )


def _hint(name: str, by_name: Mapping[str, list[str]]) -> str:
    keys = [key for found in by_name.values() for key in found]
    meant = meant_keys(name, [*keys, 'policy'])  # the name of a section says that it is a whole config
    if meant:
        return f'. Did you mean {" or ".join(meant)}?'
    near = [other for other in by_name if name in other.split('_') or other.startswith(name)]
    close = nearest_name(name, by_name) or next(iter(near), '')
    return f'. Did you mean {" or ".join(sorted(by_name[close]))}?' if close else ''
