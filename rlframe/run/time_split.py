"""TimeSplit: how long a run has collected, learned and evaluated."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter

COLLECT, LEARN, EVALUATE = 'collect', 'learn', 'evaluate'
KINDS = (COLLECT, LEARN, EVALUATE)


class TimeSplit:
    """Seconds of a run by what its process did, including the runs that it resumed.

    ``start`` begins to measure; each ``lap`` counts the time since the last call of either.
    """

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(KINDS, 0.0)
        self._last = perf_counter()

    def start(self) -> None:
        """Begins to measure: time before this call is not counted."""
        self._last = perf_counter()

    def lap(self, kind: str) -> None:
        """Counts the time since the last call."""
        now = perf_counter()
        self._seconds[kind] += now - self._last
        self._last = now

    def seconds(self) -> dict[str, float]:
        """Returns the seconds of each kind, for the manifests of checkpoints."""
        return dict(self._seconds)

    def metrics(self) -> dict[str, float]:
        """Returns the same as metrics."""
        return {f'time/{kind}': seconds for kind, seconds in self._seconds.items()}

    def resume(self, saved: Mapping[str, float]) -> None:
        """Continues from saved ``seconds``; older versions of rlframe saved none."""
        self._seconds |= {kind: float(saved.get(kind, 0.0)) for kind in KINDS}
