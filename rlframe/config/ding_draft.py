"""A config pair during translation, and the record of its changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from rlframe.config.tree import ALL_COMPONENTS, Tree, section_at, set_path

MISSING: Any = type('Missing', (), {'__repr__': lambda self: 'MISSING', '__bool__': lambda self: False})()
"""Result of ``Draft.get`` and ``Draft.take`` for a missing key."""
SYSTEM = 'system_config'
"""Key of the main config under which the third part of a config of DI-engine's parallel mode lies."""
_PATHS = {part.name: part.path for part in ALL_COMPONENTS}


@dataclasses.dataclass(frozen=True)
class Change:
    """One thing that a translation changed."""

    key: str
    """Dotted key in the original config; empty for defaults that were filled in."""
    value: Any
    """Value in the original config."""
    became: Mapping[str, Any]
    """Options that replace it; empty if it has no counterpart."""
    reason: str
    """Reason for the change, or the replacement."""

    def __str__(self) -> str:
        options = ', '.join(f'{key}={value!r}' for key, value in self.became.items())
        if not self.key:
            return f'{self.reason}: {options}'
        if not self.became:
            return f'{self.key} is not used: {self.reason}'
        is_renamed = list(self.became.values()) == [self.value] and not self.reason
        text = (
            f'{self.key} -> {next(iter(self.became))}'
            if is_renamed
            else f'{self.key}={self.value!r} -> {options}'
        )
        return f'{text} ({self.reason})' if self.reason else text


class Draft:
    """A config pair during translation.

    Args:
        main: The main config, changed in place.
        create: The create config, changed in place.
    """

    def __init__(self, main: Tree, create: Tree) -> None:
        self.main, self.create = main, create
        self.policy = ''
        """rlframe's name of the policy."""
        self.is_parallel = False
        """Whether it is translated to rlframe's parallel mode."""
        self.changes: list[Change] = []

    def get(self, key: str, default: Any = MISSING) -> Any:
        """Returns the value of a dotted key of the main config."""
        *path, name = key.split('.')
        return section_at(self.main, path).get(name, default)

    def take(self, key: str, default: Any = MISSING) -> Any:
        """Returns the value of a dotted key of the main config and removes it."""
        *path, name = key.split('.')
        section = section_at(self.main, path)
        return section.pop(name, default) if isinstance(section, dict) else default

    def put(self, key: str, value: Any) -> None:
        """Sets a dotted key of the main config."""
        set_path(self.main, key.split('.'), value)

    def say(self, key: str, value: Any, became: Mapping[str, Any], reason: str) -> None:
        """Records a change that was made."""
        self.changes.append(Change(key, value, became, reason))

    def replace(self, key: str, value: Any, became: Mapping[str, Any], reason: str) -> None:
        """Sets the options that replace ``key`` and records the change."""
        for name, new in became.items():
            self.put(name, new)
        self.say(key, value, became, reason)

    def fill(self, defaults: Mapping[str, Any]) -> None:
        """Sets options that are missing, and missing parts of a schedule."""
        filled = {}
        for key, default in defaults.items():
            given = self.get(key)
            if given is MISSING:
                filled[key] = default
            elif isinstance(given, dict) and isinstance(default, dict):
                filled |= {f'{key}.{name}': new for name, new in default.items() if name not in given}
        if filled:
            self.replace('', None, filled, "DI-engine's defaults")

    def kind(self, component: str) -> Any:
        """Returns the type of a component, from either config; None if neither names one."""
        which = section_at(self.create, [component]).get('type')
        return section_at(self.main, _PATHS[component]).get('type') if which is None else which

    def set_kind(self, component: str, kind: Any, reason: str) -> None:
        """Sets the type of a component in the configs that name one; records it if a reason is given."""
        given = self.kind(component)
        for section in (section_at(self.create, [component]), section_at(self.main, _PATHS[component])):
            if 'type' in section and isinstance(section, dict):
                section['type'] = kind
        if reason:
            self.say(
                f'create_config.{component}.type', given, {f'create_config.{component}.type': kind}, reason
            )
