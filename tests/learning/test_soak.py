"""A long run takes no more memory, files or threads the longer it runs. ``RLFRAME_SOAK`` is its length in seconds."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest
from fakes import config_pair

from rlframe import config
from rlframe.pipeline import SerialPipeline

SECONDS = float(os.environ.get('RLFRAME_SOAK', '40'))
MOST_GROWTH, WINDOW = 20e6, 300.0
"""Bytes, and the seconds in which they may be added."""


def usage() -> tuple[float, int, int]:
    """Returns the resident bytes, open files and threads of this process."""
    pages = int(Path('/proc/self/statm').read_text().split()[1])
    own = pages * os.sysconf('SC_PAGE_SIZE')
    return own, len(os.listdir('/proc/self/fd')), len(os.listdir('/proc/self/task'))


@pytest.mark.slow
def test_memory_files_and_threads_stay_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    caplog.set_level('WARNING', 'rlframe')  # pytest keeps every record
    main, create = config_pair(evaluator=dict(eval_freq=2000), learn=dict(batch_size=64))
    begin = time.monotonic()
    samples: list[tuple[float, float, int, int]] = []

    def look(pipeline: SerialPipeline) -> bool:
        """Notes the usage every second, and ends the run when it is time to."""
        passed = time.monotonic() - begin
        if not samples or passed - samples[-1][0] >= 1:
            samples.append((passed, *usage()))
        return passed > SECONDS

    with SerialPipeline(config.compile_config(main, create)) as pipeline:
        pipeline.run(look)
        assert pipeline.replay_buffer is not None and pipeline.replay_buffer.count() == 500, 'it is full'
        assert pipeline.progress.train_iter > 2000, 'there was more than one evaluation'
    second, resident, files, threads = np.array([s for s in samples if s[0] > SECONDS / 3]).T
    growth = float(np.polyfit(second, resident, 1)[0]) * WINDOW
    shown = (
        f'{growth / 1e6:.2f} MB per {WINDOW:.0f} s, {resident[0] / 1e6:.0f} to {resident[-1] / 1e6:.0f} MB'
    )
    print(shown)  # pytest -rP shows it
    assert growth < MOST_GROWTH, shown
    assert set(files) == {files[0]} and set(threads) == {threads[0]}
