"""A checked config that remembers which of its keys were read."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rlframe.registry import nearest

if TYPE_CHECKING:
    EasyDict = dict[str, Any]  # whose attributes are those that a view declares
else:
    from easydict import EasyDict


def raw_items(tree: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Returns all pairs of a dict without counting them as read, even if a key shadows ``items``."""
    return list(dict.items(tree)) if isinstance(tree, dict) else list(tree.items())


def copied(value: Any) -> Any:
    """Copies a value of a config; values that cannot be copied, such as open files, are returned unchanged."""
    try:
        return copy.deepcopy(value)
    except TypeError:
        if type(value) is dict:
            return {name: copied(inner) for name, inner in value.items()}
        return type(value)(map(copied, value)) if type(value) in (list, tuple) else value


def to_plain(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Copies a config to plain dicts and lists; nothing counts as read."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return to_plain(value)
        if type(value) in (list, tuple):
            return type(value)(plain(v) for v in value)
        return copied(value)

    return {name: plain(value) for name, value in raw_items(tree)}


class ResolvedConfig(EasyDict):
    """A config with only declared keys and valid values; it tracks which keys were read.

    Code that reads keys as attributes annotates the section with a view: a subclass that declares their types and
    nothing else, see ``rlframe.config.sections``.

    Args:
        values: The complete, checked values.
        user_keys: Dotted keys that the user set, for ``rlframe.config.unread_user_keys``.
        may_change: Every dotted key, and whether a resumed run may change it, for ``rlframe.config.check_changes``.
    """

    _read: set[str]
    _user_keys: frozenset[str]
    _may_change: Mapping[str, bool]
    _whole: ResolvedConfig | None = None
    """The compiled config that this is the section ``policy`` of, if it was not copied out of it."""

    def __init__(
        self,
        values: Mapping[str, Any] | None = None,
        user_keys: Iterable[str] = (),
        may_change: Mapping[str, bool] | None = None,
    ) -> None:
        object.__setattr__(self, '_read', set())
        object.__setattr__(self, '_user_keys', frozenset(user_keys))
        object.__setattr__(self, '_may_change', dict(may_change or {}))
        for name, value in raw_items({} if values is None else values):
            self[name] = value

    def __getitem__(self, name: str) -> Any:
        value: Any = dict.__getitem__(self, name)
        self._read.add(name)
        return value

    def __iter__(self) -> Iterator[str]:  # makes ``**cfg`` and ``dict(cfg)`` go through __getitem__
        return iter(list(dict.keys(self)))

    def __setitem__(self, name: str, value: Any) -> None:
        if isinstance(value, Mapping) and not isinstance(value, ResolvedConfig):
            value = ResolvedConfig(value)
        dict.__setitem__(self, name, value)

    if not TYPE_CHECKING:  # else a misspelt attribute would be Any

        def __getattr__(self, name: str) -> Any:
            try:
                return self[name]
            except KeyError:
                raise AttributeError(
                    f'the config has no key {name!r}.{nearest(name, dict.keys(self))}'
                ) from None

        __setattr__ = __setitem__

    def get(self, name: str, default: Any = None) -> Any:
        """Returns a value, counted as read."""
        self._read.add(name)
        return dict.get(self, name, default)

    def items(self) -> Any:
        """Returns all pairs, counted as read."""
        self._read.update(dict.keys(self))
        return dict.items(self)

    def values(self) -> Any:
        """Returns all values, counted as read."""
        self._read.update(dict.keys(self))
        return dict.values(self)

    def pop(self, name: str, *default: Any) -> Any:
        """Removes a key and returns its value."""
        return dict.pop(self, name, *default)

    def __deepcopy__(self, memo: dict[int, Any]) -> ResolvedConfig:
        twin = ResolvedConfig({}, self._user_keys, self._may_change)
        object.__setattr__(twin, '_read', self._read)  # reading the copy counts as reading the config
        for name, value in raw_items(self):
            dict.__setitem__(twin, name, copied(value))
        return twin

    def __reduce__(self) -> tuple[Any, ...]:
        return ResolvedConfig, (to_plain(self), self._user_keys, self._may_change)

    def was_read(self, name: str) -> bool:
        """Whether the key ``name`` of this section has been read."""
        return name in self._read

    def unread(self, prefix: str = '') -> list[str]:
        """Returns the dotted keys that have not been read."""
        found: list[str] = []
        pairs: list[tuple[str, Any]] = raw_items(self)
        for name, value in pairs:
            if isinstance(value, ResolvedConfig) and value:
                found += value.unread(f'{prefix}{name}.') if value._read else [prefix + name]
            elif name not in self._read:
                found.append(prefix + name)
        return found
