"""Counts: states are worth less the more often they were visited, in the episode and in the whole run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlframe.data.observation import fields_of
from rlframe.data.timestep import Batch, EnvSpec, FloatArray
from rlframe.errors import ConfigError, nearest
from rlframe.registry import REWARD_MODEL_REGISTRY
from rlframe.reward_model.base import RewardModel, RewardModelConfig
from rlframe.reward_model.visits import (
    TABLE,
    EpisodeVisits,
    Visits,
    codes_of,
    table_of,
    visit,
    visits_of,
)
from rlframe.utils.field import option
from rlframe.utils.schema import DICT, check_state


class CountsConfig(RewardModelConfig):
    """Options of ``counts``."""

    episodic: bool = option(True, doc='whether visits in the running episode count')
    lifelong: bool = option(True, doc='whether visits in the whole run count')
    once: bool = option(False, doc='whether only the first visit in an episode is paid')
    features: list[str] | None = option(
        None,
        doc='parts of the observation that tell states apart, or places in one, such as image[3, 6, 0], what an agent of MiniGrid'
        ' carries; None: the whole observation',
    )
    infos: list[str] = option(
        [],
        doc='numbers in infos of the env that tell states apart, such as agent_pos; without features, they alone',
    )
    cell: float | None = option(
        None,
        range='(0, inf)',
        doc='size of the cells that floats are rounded to; None: they count as they are',
    )


@REWARD_MODEL_REGISTRY.register('counts')
class Counts(RewardModel):
    """Pays 1 / sqrt(n) for the n-th visit of a state; with both kinds of counts, the product of both.

        r(s') = 1 / sqrt(N_episode(s') N_run(s'))

    With ``once``, later visits of an episode are worth nothing, so a long episode is not worth more than a short one that sees
    the same states.

    Source:
        Strehl & Littman, An Analysis of Model-Based Interval Estimation for Markov Decision Processes (2008), section 3;
        the product: Henaff et al., A Study of Global and Episodic Bonuses for Exploration in Contextual MDPs (2023), section 5.
    """

    _cfg: CountsConfig
    is_stored = True

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._features = [place_of(feature) for feature in self._cfg.features or ()]
        self._run: Visits = {}
        self._episodes = EpisodeVisits()
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
        parts = fields_of(spec.observation_space)
        found = []
        for feature in cfg.features or ():
            name, place = place_of(feature)
            shape = parts[name].shape or () if name in parts else ()
            if name not in parts:
                wrong = f'no such part of an observation of {spec.name}.{nearest(name, list(parts))}'
                expected = f'some of {list(parts)}' if parts else 'None, as it has no parts'
            elif not is_inside(place, shape):
                wrong = f'no place in {name}'
                expected = f'indices within its shape, {list(shape)}'
            else:
                continue
            found.append(ConfigError(wrong, where='features', got=feature, expected=expected))
        return found

    def collected(self, rows: Batch) -> None:
        cfg = self._cfg
        obs = rows['next_obs']
        is_whole = cfg.features is None and not cfg.infos
        columns = [obs] if is_whole else [obs[name][:, *place] for name, place in self._features]
        columns += [rows[name] for name in cfg.infos]
        code = codes_of(columns, cfg.cell)
        in_episode = self._episodes.count(code, rows)
        count = np.ones(len(rows))
        if cfg.episodic:
            count *= in_episode
        if cfg.lifelong:
            count *= [visit(self._run, state) for state in code.tolist()]
        self._paid = 1 / np.sqrt(count)
        if cfg.once:
            self._paid[in_episode > 1] = 0.0

    def reward(self, rows: Batch) -> FloatArray:
        return self._paid

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {'run': table_of(self._run), 'episodes': self._episodes.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(state, {'run': TABLE, 'episodes': DICT})
        super().load_state_dict(state)
        self._run = visits_of(state['run'])
        self._episodes.load_state_dict(state['episodes'])


def place_of(feature: str) -> tuple[str, tuple[int, ...]]:
    """Returns the part of an observation that a feature names, and the indices behind it: ``image[3, 6]`` has some."""
    found = re.fullmatch(r'(.+)\[(\d+(?:, *\d+)*)\]', feature)
    return (found[1], tuple(map(int, found[2].split(',')))) if found else (feature, ())


def is_inside(place: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Returns whether an array of this shape has this place."""
    return len(place) <= len(shape) and all(i < size for i, size in zip(place, shape, strict=False))
