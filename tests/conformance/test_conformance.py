"""Our updates equal those of Stable-Baselines3 and sb3-contrib from the same weights, transitions and draws."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
from typing import Any

import numpy as np
import pytest
from page import PAGE, all_defaults, check_row, table, their_defaults
from pairs import PAIRS, Pair
from peers import Ours, Peer, float64

from rlframe.errors import CheckpointMismatchError

TOLERANCE = 1e-6
HINT = "needs the extra 'conformance': pip install -e '.[conformance]'"
COLUMNS = {'advantage': 'advantages', 'return_': 'returns', 'log_prob': 'log_probs'}
"""Columns of training samples to theirs."""
ROWS = table('Table')
FIRST = {pair.row: pair for pair in reversed(PAIRS)}
"""The pairs whose options the page names: the first of each row."""


def largest_difference(pair: Pair, peer: Peer) -> tuple[float, str]:
    """Returns how much our policy differs at most from the other learner, over all its trainings, and in what."""
    ours, differences = Ours(pair, peer), []
    for number, training in enumerate(peer.trainings):
        metrics, data = ours.learn(number)
        found: dict[str, Any] = {}
        for name, column in COLUMNS.items() if data is not None else ():
            rows = training[column].swapaxes(0, 1) if pair.is_recurrent else training[column]
            found[name] = data[name] - rows.reshape(-1)
        for logged, (name, factor) in pair.losses.items():
            values = [float(each[name]) for each in metrics if name in each]
            found[name] = np.mean(values) - factor * training['log'][logged]
        weights = ours.weights()
        assert weights.keys() == peer.weights[number + 1].keys()
        for part, theirs in peer.weights[number + 1].items():
            own = weights[part]
            tensors = (
                {part: (own, theirs)}
                if part == 'log_alpha'
                else {f'{part} {n}': (own[n], theirs[n]) for n in own}
            )
            found |= {name: (a - b).numpy() for name, (a, b) in tensors.items()}
        differences += [(float(np.abs(d).max()), f'{name} of training {number}') for name, d in found.items()]
    assert all(np.isfinite(difference) for difference, _ in differences)
    return max(differences)


@pytest.mark.slow
@pytest.mark.conformance
@pytest.mark.filterwarnings('ignore:You have specified a mini-batch size')
@pytest.mark.parametrize('pair', PAIRS, ids=lambda pair: pair.row.replace('`', '') + pair.variant)
def test_losses_and_weights_equal_theirs_and_would_not_without_an_option(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip('sb3_contrib', reason=HINT)
    with float64(monkeypatch):
        peer = Peer(pair, monkeypatch)
        moved = (peer.weights[-1]['model'][name] - value for name, value in peer.weights[0]['model'].items())
        assert max(float(each.abs().max()) for each in moved) > 1000 * TOLERANCE
        difference, where = largest_difference(pair, peer)
        print(f'{difference:.1e} {where}')
        assert difference < TOLERANCE, where
        for option in pair.ours:
            other = dataclasses.replace(pair, ours={n: v for n, v in pair.ours.items() if n != option})
            try:
                difference, _ = largest_difference(other, peer)
            except (CheckpointMismatchError, AssertionError):
                continue  # another network, or other draws
            assert difference > TOLERANCE, option


def test_the_table_has_the_pairs_of_the_tests_and_our_defaults() -> None:
    assert ROWS.keys() == FIRST.keys()
    for name, pair in FIRST.items():
        check_row(pair, ROWS[name])
        switches = pair.ours.keys() - {'model.core', 'model.encoder_hidden_size_list'}
        named = all_defaults(ROWS, name).keys()
        assert switches <= named, f'{name}: the page does not say that their defaults differ'


@pytest.mark.slow
@pytest.mark.conformance
@pytest.mark.parametrize('name', FIRST)
def test_the_table_has_their_defaults(name: str) -> None:
    pytest.importorskip('sb3_contrib', reason=HINT)
    module, _, kind = FIRST[name].peer.partition(':')
    parameters = inspect.signature(getattr(importlib.import_module(module), kind)).parameters
    for argument, value in their_defaults(ROWS[name][5]):
        assert parameters[argument].default == value, argument


@pytest.mark.slow
@pytest.mark.conformance
def test_the_page_of_papers_has_their_defaults() -> None:
    pytest.importorskip('sb3_contrib', reason=HINT)
    text = PAGE.with_name('algorithms.md').read_text(encoding='utf-8')
    peers = {pair.peer.partition(':')[2]: pair.peer.partition(':')[0] for pair in PAIRS}
    sections = re.findall(r'^\*\*Paper:.*?(?=^## |\Z)', text, re.MULTILINE | re.DOTALL)
    found = [
        (match[1], each) for each in sections if (match := re.search(r'Theirs: `(\w+)`(?! of RLlib)', each))
    ]
    assert {kind for kind, _ in found} == peers.keys() - {'MaskablePPO', 'RecurrentPPO'}
    for kind, section in found:
        parameters = inspect.signature(getattr(importlib.import_module(peers[kind]), kind)).parameters
        for argument, value in re.findall(r'`(\w+)=([^`]+)`', section):
            if argument != 'double':  # an option of ours, in a formula
                assert parameters[argument].default == ast.literal_eval(value), f'{kind}: {argument}'
