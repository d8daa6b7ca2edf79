"""Gives different seeds to samples that repeat an earlier one of their search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.tune.search.basic_variant import BasicVariantGenerator

from rlframe.tune.trial import trial_options

SEEDS = 2**32
"""Upper bound of seeds, exclusive."""


class Repeats:
    """Counts how often the options of a trial have occurred before.

    Args:
        seed: Seed of runs whose options contain none.
        is_searched: Whether seeds are searched over, and therefore used as drawn.
    """

    def __init__(self, seed: int, is_searched: bool) -> None:
        self._seed, self._is_searched = seed, is_searched
        self._count: dict[str, int] = {}

    def seed_of(self, options: Mapping[str, Any]) -> int | None:
        """Returns the seed of a trial that repeats an earlier one, None for the first with its options."""
        if self._is_searched:
            return None
        key = repr(sorted(options.items()))
        number = self._count[key] = self._count.get(key, -1) + 1
        return (int(options.get('seed', self._seed)) + number) % SEEDS if number else None


class SeededVariants(BasicVariantGenerator):  # type: ignore[misc]  # Ray is untyped
    """Grids and random draws; a trial with the same options as an earlier one gets the next seed.

    Args:
        repeats: Counts them.
        options: Arguments of Ray's ``BasicVariantGenerator``.
    """

    def __init__(self, repeats: Repeats, **options: Any) -> None:
        super().__init__(**options)
        self._repeats = repeats

    def next_trial(self) -> Any:
        """Returns the next trial, None if none is available now."""
        trial: Any = super().next_trial()  # type: ignore[no-untyped-call]  # Ray is untyped
        if trial is not None and (seed := self._repeats.seed_of(trial_options(trial.config))) is not None:
            trial.config['seed'] = trial.evaluated_params['seed'] = seed
        return trial


def seeded_optuna(repeats: Repeats, seed: int | None) -> Any:
    """Returns Optuna's search, in which a trial with the same options as an earlier one gets the next seed."""
    from ray.tune.search.optuna import OptunaSearch

    class SeededOptuna(OptunaSearch):  # type: ignore[misc]  # Ray is untyped
        _repeats: Repeats

        def suggest(self, trial_id: str) -> Any:
            drawn: Any = super().suggest(trial_id)
            own = None if drawn is None else self._repeats.seed_of(trial_options(drawn))
            return drawn if own is None else {**drawn, 'seed': own}

    search = SeededOptuna(seed=seed)
    search._repeats = repeats  # an attribute, which is saved with the search
    return search
