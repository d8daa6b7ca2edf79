"""The page of algorithms has each policy, options that exist, and the defaults of the code."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest
from doc_blocks import ROOT

from rlframe.app.explain import flat_fields
from rlframe.registry import BUFFER_REGISTRY, POLICY_REGISTRY

PAGE = (ROOT / 'docs' / 'algorithms.md').read_text(encoding='utf-8')
SECTIONS = dict(re.findall(r'^## `(\w+)`\n(.*?)(?=^## |\Z)', PAGE, re.MULTILINE | re.DOTALL))
BUFFERS = {
    'r2d2': 'sequence',
    'r2d3': 'sequence',
    'acer': 'sequence',
    'mrq': 'sequence',
    'rainbow': 'advanced',
}
"""Policies that need another replay buffer than the plain one."""


def defaults(policy: str) -> dict[str, Any]:
    """Returns the defaults of a policy's options, and of its replay buffer's, by their keys."""
    buffer = BUFFER_REGISTRY.get(BUFFERS.get(policy, 'naive')).config_fields()
    fields = flat_fields(buffer, 'policy.other.replay_buffer.')
    fields += flat_fields(POLICY_REGISTRY.get(policy).config_fields(), 'policy.')
    return {key: field.default for key, field in fields}


def test_the_page_has_a_section_for_each_policy() -> None:
    assert SECTIONS.keys() == {name for name in POLICY_REGISTRY.names() if POLICY_REGISTRY.is_builtin(name)}


@pytest.mark.parametrize('policy', sorted(SECTIONS))
def test_the_options_of_a_section_exist_and_have_the_defaults_of_the_page(policy: str) -> None:
    rows = re.findall(r'^\|[^|]*\| `([\w.]+)` \| `([^`]+)` \|', SECTIONS[policy], re.MULTILINE)
    assert len(rows) == len(re.findall(r'^\|', SECTIONS[policy], re.MULTILINE)) - 2, (
        'a row without option or default'
    )
    known = defaults(policy)
    for key, written in rows:
        assert key in known, f'{policy}: there is no {key}'
        assert ast.literal_eval(written) == known[key], f'{policy}: the default of {key} is {known[key]!r}'
