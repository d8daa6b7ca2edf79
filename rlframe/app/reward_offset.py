"""Whether the rewards of recorded data lie a row off, found by how well they follow from observations and actions."""

from __future__ import annotations

import numpy as np

from rlframe.data.recording import Recording
from rlframe.data.timestep import Array

ROWS = 20_000
"""Rows that are looked at."""
WIDEST = 64
"""Numbers of an observation and an action, at most: beyond, as with pictures, a linear fit says nothing."""
FEW = 24
"""Numbers of a row of which all products are looked at, and not only squares."""
GAIN = 0.25
"""Share of the variance of rewards by which another offset must explain more."""


def reward_offset(recording: Recording) -> int | None:
    """Returns -1 or 1 if rewards follow much better from the row before or behind, else None.

    A reward follows from the observation, the action and the next observation of its step; here by a ridge regression on these
    and their products. Rewards that hardly vary, or that hardly change from row to row, tell nothing.
    """
    names = ('obs', 'action', 'next_obs', 'reward', 'episode')
    if not {*names} <= recording.columns.keys():
        return None
    rows = {name: recording.columns[name][:ROWS] for name in names}
    if any(rows[name].dtype.kind not in 'biuf' for name in names):
        return None
    parts = [rows[name].reshape(len(rows[name]), -1) for name in ('obs', 'action', 'next_obs')]
    inputs = np.concatenate(parts, axis=1).astype(np.float64)
    reward = rows['reward'].astype(np.float64)
    if inputs.shape[1] > WIDEST or not np.isfinite(inputs).all() or not np.isfinite(reward).all():
        return None
    same = rows['episode'][1:] == rows['episode'][:-1]
    if same.sum() < 4 * inputs.shape[1] or reward.std() < 1e-6:
        return None
    features = _features(inputs)
    here = _explained(features[1:][same], reward[1:][same])
    before = _explained(features[:-1][same], reward[1:][same])
    behind = _explained(features[1:][same], reward[:-1][same])
    best = max(before, behind)
    if best < here + GAIN:
        return None
    return -1 if before >= behind else 1


def _features(inputs: Array) -> Array:
    scaled = (inputs - inputs.mean(0)) / np.maximum(inputs.std(0), 1e-6)
    scaled = np.clip(scaled, -10, 10)
    one, other = np.triu_indices(scaled.shape[1] if scaled.shape[1] <= FEW else 0)
    products = scaled[:, one] * scaled[:, other] if len(one) else scaled**2
    return np.concatenate([scaled, products, np.ones((len(scaled), 1))], axis=1)


def _explained(features: Array, values: Array) -> float:
    """Returns the share of the variance that a ridge regression explains on rows that it was not fitted to."""
    half = np.arange(len(values)) % 2 == 0
    left = features[half]
    weights = np.linalg.solve(left.T @ left + 1e-3 * len(left) * np.eye(left.shape[1]), left.T @ values[half])
    rest = values[~half] - features[~half] @ weights
    return float(1 - rest.var() / max(values[~half].var(), 1e-12))
