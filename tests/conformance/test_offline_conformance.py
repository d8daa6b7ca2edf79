"""Our updates of offline learners equal those of d3rlpy from the same weights, batches and draws."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from offline_pairs import DEFAULT_PAIRS, OFFLINE_PAIRS, ROWS_OF_BATCH, OfflinePair
from page import all_defaults, check_row, table, their_defaults
from peers import float64, section

from rlframe.data import Batch, EnvSpec
from rlframe.errors import CheckpointMismatchError
from rlframe.policy import create_policy

TOLERANCE = 1e-9
UPDATES, SIZES, OBS_SIZE, ACTIONS = 4, [8, 8], 3, 2
SIDE = Path(__file__).with_name('d3rlpy_side.py')
HINT = (
    'needs an environment of its own with d3rlpy: python -m venv D3 && D3/bin/pip install d3rlpy==2.8.1, then'
    ' RLFRAME_D3RLPY=D3/bin/python python -m pytest -m conformance'
)
OWN = 'model.latents', 'target_model.imitator'
"""What only ours has: latent numbers to act by, and a copy of the imitator that nothing reads."""
Arrays = dict[str, Any]
ROWS = table('Offline learners')


class Doubles(np.random.Generator):
    """Draws float64 numbers where float32 ones are asked for."""

    def standard_normal(self, size: Any = None, dtype: Any = None, out: Any = None) -> Any:
        return super().standard_normal(size)

    def random(self, size: Any = None, dtype: Any = None, out: Any = None) -> Any:
        return super().random(size)


def batches(pair: OfflinePair) -> list[Arrays]:
    """Returns the columns of the batches that both learn from, some rows of which end an episode."""
    rng = np.random.default_rng(0)

    def action() -> np.ndarray:
        if pair.classes:
            return rng.integers(pair.classes, size=ROWS_OF_BATCH)
        numbers = rng.uniform(-1, 1, (ROWS_OF_BATCH, ACTIONS)).astype(
            np.float32
        )  # which the env's actions are
        return numbers.astype(np.float64)

    return [
        {
            'obs': rng.normal(size=(ROWS_OF_BATCH, OBS_SIZE)),
            'next_obs': rng.normal(size=(ROWS_OF_BATCH, OBS_SIZE)),
            'action': action(),
            'next_action': action(),
            'reward': rng.normal(size=ROWS_OF_BATCH),
            'terminated': rng.random(ROWS_OF_BATCH) < 0.2,
        }
        for _ in range(UPDATES)
    ]


class Ours:
    """Our policy, and what it draws.

    Args:
        pair: What it is to learn.
        weights: What it begins with; None: its own.
    """

    def __init__(self, pair: OfflinePair, weights: Arrays | None = None) -> None:
        space = spaces.Discrete(pair.classes) if pair.classes else spaces.Box(-1, 1, (ACTIONS,), np.float32)
        spec = EnvSpec(spaces.Box(-9, 9, (OBS_SIZE,), np.float32), space, name='Recorded')
        options = {'model.encoder_hidden_size_list': SIZES, **pair.ours}
        torch.manual_seed(0)
        self.policy = create_policy(section(options) | {'type': pair.policy, 'device': 'cpu'}, spec)
        self.policy.rng = Doubles(np.random.PCG64(1))
        self.mode = self.policy.learn_mode
        if weights is not None:
            self.mode.load_state_dict(self.mode.state_dict() | weights)
        self.draws: list[Arrays] = []
        update: Any = self.policy.update
        update.draws = self._noted(update.draws)

    def _noted(self, draws: Callable[..., Arrays]) -> Callable[..., Arrays]:
        def noted(*arguments: Any) -> Arrays:
            self.draws.append(draws(*arguments))
            return self.draws[-1]

        return noted

    def state(self) -> Arrays:
        """Returns the weights that learning changes, by part."""
        state = self.mode.state_dict()
        parts = {name: state[name] for name in ('model', 'target_model') if state.get(name)}
        return {
            part: {name: value.detach().clone() for name, value in named.items()}
            for part, named in parts.items()
        }

    def weights(self) -> Arrays:
        """Returns them by their full names."""
        return {
            f'{part}.{name}': value.numpy()
            for part, named in self.state().items()
            for name, value in named.items()
        }


def given(pair: OfflinePair) -> tuple[Arrays, Arrays]:
    """Returns the weights that ours begins with, and what theirs is to read."""
    ours = Ours(pair)
    start = ours.state()
    task = {
        'peer': pair.peer,
        'arguments': pair.theirs,
        'sizes': SIZES,
        'classes': pair.classes,
        'start': pair.start,
        'updates': UPDATES,
    }
    found = {'task': np.array(json.dumps(task))}
    found |= {f'weights/{name}': value for name, value in ours.weights().items()}
    for number, rows in enumerate(batches(pair)):
        ours.mode.forward(Batch(rows))
        found |= {f'{number}/{name}': column for name, column in rows.items()}
        for name, numbers in ours.draws[number].items():
            found[f'{number}/draws/{name}'] = numbers
    return start, found


@pytest.fixture(scope='module')
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Arrays, Arrays]]:
    """Returns, for each pair, the weights to begin with and what d3rlpy made of them; one process answers for all."""
    python = os.environ.get('RLFRAME_D3RLPY')
    if not python:
        pytest.skip(HINT)
    folder = tmp_path_factory.mktemp('d3rlpy')
    starts = {}
    with pytest.MonkeyPatch.context() as patch, float64(patch):
        for pair in OFFLINE_PAIRS:
            starts[pair.name], arrays = given(pair)
            np.savez(folder / f'{pair.name}.given.npz', **arrays)
    done = subprocess.run([python, str(SIDE), str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = {}
    for pair_name, start in starts.items():
        with np.load(folder / f'{pair_name}.answer.npz') as file:
            found[pair_name] = start, {name: file[name] for name in file.files}
    return found


def relative(own: Any, theirs: Any) -> float:
    """Returns the largest difference of two arrays, in units of the largest number if that is above 1."""
    one, other = np.ravel(own), np.ravel(theirs)
    return float(np.abs(one - other).max() / max(np.abs(other).max(), 1.0))


def largest_difference(pair: OfflinePair, start: Arrays, answer: Arrays) -> tuple[float, str]:
    """Returns how much ours differs at most over all updates, and in what."""
    ours = Ours(pair, start)
    differences, seen = [], set()
    for number, rows in enumerate(batches(pair)):
        metrics: Any = ours.mode.forward(Batch(rows))
        for logged, (name, factor) in pair.losses.items():
            theirs = answer.get(f'{number}/losses/{logged}')
            assert (theirs is None) == (name not in metrics), f'{logged} of update {number}'
            if theirs is not None:
                seen.add(logged)
                differences.append(
                    (relative(factor * float(metrics[name]), theirs), f'{name} of update {number}')
                )
        weights = ours.weights()
        known = {name for name in weights if f'{number}/weights/{name}' in answer}
        assert all(name.startswith(OWN) for name in weights.keys() - known)
        for name in known:
            difference = relative(weights[name], answer[f'{number}/weights/{name}'])
            differences.append((difference, f'{name} after update {number}'))
    assert seen == pair.losses.keys()
    assert all(np.isfinite(difference) for difference, _ in differences)
    return max(differences)


@pytest.mark.slow
@pytest.mark.conformance
@pytest.mark.parametrize('pair', OFFLINE_PAIRS, ids=lambda pair: pair.name)
def test_losses_and_weights_equal_those_of_d3rlpy_and_would_not_without_an_option(
    pair: OfflinePair, answers: dict[str, tuple[Arrays, Arrays]], monkeypatch: pytest.MonkeyPatch
) -> None:
    start, answer = answers[pair.name]
    with float64(monkeypatch):
        difference, where = largest_difference(pair, start, answer)
        print(f'{difference:.1e} {where}')
        assert difference < TOLERANCE, where
        moved = max(
            float(np.abs(answer[f'{UPDATES - 1}/weights/{name}'] - answer[f'0/weights/{name}']).max())
            for name in (
                key.removeprefix('0/weights/') for key in answer if key.startswith('0/weights/model.')
            )
        )
        assert moved > 1000 * TOLERANCE
        for option in pair.ours:
            other = dataclasses.replace(pair, ours={n: v for n, v in pair.ours.items() if n != option})
            try:
                difference, _ = largest_difference(other, start, answer)
            except (CheckpointMismatchError, AssertionError):
                continue  # another network, or other losses
            assert difference > TOLERANCE, option


def test_the_table_has_the_pairs_of_the_tests_and_our_defaults() -> None:
    assert list(ROWS) == [pair.row for pair in DEFAULT_PAIRS]
    for pair in DEFAULT_PAIRS:
        check_row(pair, ROWS[pair.row])
        named = all_defaults(ROWS, pair.row).keys()
        assert pair.ours.keys() <= named, f'{pair.row}: the page does not say that their defaults differ'


@pytest.mark.slow
@pytest.mark.conformance
@pytest.mark.parametrize('pair', DEFAULT_PAIRS, ids=lambda pair: pair.name)
def test_the_table_has_the_defaults_of_d3rlpy(
    pair: OfflinePair, answers: dict[str, tuple[Arrays, Arrays]]
) -> None:
    defaults = json.loads(str(answers[pair.name][1]['defaults']))
    for argument, value in their_defaults(ROWS[pair.row][5]):
        assert defaults[argument] == value, argument
