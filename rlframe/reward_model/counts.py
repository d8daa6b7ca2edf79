"""Counts: states are worth less the more often they were visited, in the episode and in the whole run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.data.observation import fields_of
from rlframe.data.timestep import Array, Batch, EnvSpec, FloatArray, IntArray
from rlframe.errors import ConfigError, nearest
from rlframe.registry import REWARD_MODEL_REGISTRY
from rlframe.reward_model.base import RewardModel, RewardModelConfig
from rlframe.utils.field import option
from rlframe.utils.schema import DICT, array, check_state

Visits = dict[int, int]
"""Codes of states to numbers of visits."""


class CountsConfig(RewardModelConfig):
    """Options of ``counts``."""

    episodic: bool = option(True, doc='whether visits in the running episode count')
    lifelong: bool = option(True, doc='whether visits in the whole run count')
    features: list[str] | None = option(
        None, doc='parts of the observation that tell states apart; None: the whole observation'
    )
    cell: float | None = option(
        None,
        range='(0, inf)',
        doc='size of the cells that floats are rounded to; None: they count as they are',
    )


def codes_of(columns: list[Array], cell: float | None = None) -> IntArray:
    """Returns a number for each row of columns [M, ...], int64 [M]; equal rows have equal numbers.

    Source:
        Dietzfelbinger, Universal Hashing and k-wise Independent Random Variables via Integer Arithmetic without Primes (1996).
    """
    code = np.zeros(len(columns[0]), np.uint64)
    draw = np.random.default_rng(0)
    for column in flat_columns(columns):
        if column.dtype.kind == 'f' and cell is not None:
            column = np.floor(column / cell).astype(np.int64)
        if column.dtype.kind == 'f':
            column = column.astype(np.float64).view(np.uint64)
        values = column.reshape(len(column), -1).astype(np.uint64)
        code += values @ draw.integers(1, 2**64, values.shape[1], np.uint64)
    return code.view(np.int64)


def flat_columns(columns: list[Array]) -> list[Array]:
    """Returns columns without fields: each field of a structured one is a column of its own."""
    found: list[Array] = []
    for column in columns:
        names = column.dtype.names
        found += [column] if names is None else flat_columns([column[name] for name in names])
    return [np.ascontiguousarray(column) for column in found]


@REWARD_MODEL_REGISTRY.register('counts')
class Counts(RewardModel):
    """Pays 1 / sqrt(n) for the n-th visit of a state; with both kinds of counts, the product of both.

        r(s') = 1 / sqrt(N_episode(s') N_run(s'))

    Source:
        Strehl & Littman, An Analysis of Model-Based Interval Estimation for Markov Decision Processes (2008), section 3;
        the product: Henaff et al., A Study of Global and Episodic Bonuses for Exploration in Contextual MDPs (2023), section 5.
    """

    _cfg: CountsConfig
    is_stored = True

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._run: Visits = {}
        self._episodes: dict[int, Visits] = {}  # of the running episode of each env
        self._paid: FloatArray = np.zeros(0)  # for the rows that were just collected

    @classmethod
    def check_config(cls, cfg: Any) -> list[ConfigError]:
        found = super().check_config(cfg)
        if not cfg.episodic and not cfg.lifelong:
            found.append(
                ConfigError(
                    'nothing is counted', where='episodic', got=False, expected='True, or lifelong=True'
                )
            )
        return found

    @classmethod
    def check_spec(cls, cfg: Any, spec: EnvSpec) -> list[ConfigError]:
        parts = list(fields_of(spec.observation_space))
        return [
            ConfigError(
                f'no such part of an observation of {spec.name}.{nearest(name, parts)}',
                where='features',
                got=name,
                expected=f'some of {parts}' if parts else 'None, as it has no parts',
            )
            for name in cfg.features or ()
            if name not in parts
        ]

    def collected(self, rows: Batch) -> None:
        cfg = self._cfg
        obs = rows['next_obs']
        columns = [obs] if cfg.features is None else [obs[name] for name in cfg.features]
        marks = zip(
            codes_of(columns, cfg.cell).tolist(),
            rows['env_id'].tolist(),
            rows['episode_step'].tolist(),
            strict=True,
        )
        count = np.ones(len(rows))
        for row, (code, env, step) in enumerate(marks):
            if cfg.episodic:
                if step == 0 or env not in self._episodes:
                    self._episodes[env] = {}
                count[row] *= _visit(self._episodes[env], code)
            if cfg.lifelong:
                count[row] *= _visit(self._run, code)
        self._paid = 1 / np.sqrt(count)

    def reward(self, rows: Batch) -> FloatArray:
        return self._paid

    def state_dict(self) -> dict[str, Any]:
        episodes = {str(env): _table(visits) for env, visits in self._episodes.items()}
        return super().state_dict() | {'run': _table(self._run), 'episodes': episodes}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(state, {'run': array('iu', (2, None)), 'episodes': DICT})
        super().load_state_dict(state)
        self._run = _visits(state['run'])
        self._episodes = {int(env): _visits(table) for env, table in state['episodes'].items()}


def _visit(visits: Visits, code: int) -> int:
    """Counts a visit, and returns how many there were."""
    visits[code] = visits.get(code, 0) + 1
    return visits[code]


def _table(visits: Visits) -> IntArray:
    """Returns visits as an array [2, n]."""
    return np.array([list(visits.keys()), list(visits.values())], np.int64).reshape(2, -1)


def _visits(table: IntArray) -> Visits:
    return dict(zip(*table.tolist(), strict=True))
