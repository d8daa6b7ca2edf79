"""Builds the error for an unknown key, with the option that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from rlframe.errors import ConfigError
from rlframe.registry import POLICY_REGISTRY

ALIKE, WORD_ALIKE = 0.85, 0.66
"""Minimum similarity of a mistyped name to the right one: as a whole, or word by word."""


def dotted_keys(options: Mapping[str, Any], prefix: str = '') -> list[str]:
    """Returns the dotted key of every option and section."""
    found = []
    for name, option in options.items():
        found.append(prefix + name)
        if isinstance(option, dict):
            found += dotted_keys(option, f'{prefix}{name}.')
    return found


def unknown_key(
    where: str, siblings: Mapping[str, Any], root: Mapping[str, Any], at: str = ''
) -> ConfigError:
    """Returns the error for an unknown key, with the closest known one.

    where: The unknown dotted key.
        where: The dotted key.
        siblings: The options of its section.
        root: All options, to find the section that the key belongs to.
        at: Prefix of the dotted keys of ``root``.
    """
    section, dot, name = where.rpartition('.')
    keys = dotted_keys(root, at)
    by_name: dict[str, list[str]] = {}
    for key in keys:
        by_name.setdefault(key.rpartition('.')[2], []).append(key)
    known = f'Known here: {", ".join(sorted(siblings))}' if 0 < len(siblings) <= 12 else ''
    from rlframe.utils.synonyms import meant_keys  # a long table, which only an error needs

    meant = meant_keys(name, keys)
    if meant:
        hint = f'. Did you mean {" and ".join(meant)}?'
    elif name in by_name:
        hint, known = f'; it belongs to {" or ".join(by_name[name][:3])}.', ''
    elif meant is not None:
        hint = '; other frameworks have an option of this name, but no component of this config does.'
    elif close := nearest_name(name, siblings):
        hint = f'. Did you mean {section}{dot}{close}?'
    elif close := nearest_name(name, by_name):
        hint = f'. Did you mean {by_name[close][0]}?'
    elif policies := policies_with(where):
        hint, known = f'; these policies have it: {", ".join(policies)}.', ''
    else:
        hint = '.'
    return ConfigError(f'{where} is not a known key{hint}', where=where, remedy=known)


def policies_with(where: str) -> list[str]:
    """Returns the names of the registered policies that have an option, by its dotted key in a config."""
    kind, _, key = where.partition('.')
    if kind != 'policy' or not key:
        return []
    policies = {name: POLICY_REGISTRY.get(name) for name in POLICY_REGISTRY.names()}
    return [name for name, policy in policies.items() if key in dotted_keys(policy.config_fields())]


def nearest_name(name: str, known: Iterable[str]) -> str:
    """Returns the known name that ``name`` misspells, or an empty string.

    Names that only share a word, such as ``learning_rate_policy`` and ``learning_rate_critic``, are different names.
    """
    close = difflib.get_close_matches(name, list(known), n=5, cutoff=0.6)
    return next((other for other in close if _is_misspelt(name, other)), '')


def _is_misspelt(name: str, other: str) -> bool:
    words, others = name.lower().split('_'), other.lower().split('_')
    if len(words) == len(others):
        return all(_ratio(*pair) >= WORD_ALIKE for pair in zip(words, others, strict=True))
    return _ratio(''.join(words), ''.join(others)) >= ALIKE


def _ratio(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()
