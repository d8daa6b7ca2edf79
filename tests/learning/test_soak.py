"""A long run takes no more memory, files or threads the longer it runs. ``RLFRAME_SOAK`` is its length in train iterations."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from fakes import config_pair

from rlframe import config
from rlframe.pipeline import SerialPipeline

ITERATIONS = int(os.environ.get('RLFRAME_SOAK', '1500'))
MOST_GROWTH = 2000.0
"""Bytes in a train iteration."""


def usage() -> tuple[float, int, int]:
    """Returns the resident bytes, open files and threads of this process."""
    pages = int(Path('/proc/self/statm').read_text().split()[1])
    own = pages * os.sysconf('SC_PAGE_SIZE')
    return own, len(os.listdir('/proc/self/fd')), len(os.listdir('/proc/self/task'))


def measured(folder: Path) -> tuple[list[tuple[float, float, int, int]], int]:
    """Trains in a folder, and returns iteration and usage after the first third, and the rows in the buffer at the end."""
    os.chdir(folder)
    main, create = config_pair(
        evaluator=dict(eval_freq=400), learn=dict(batch_size=64), max_train_iter=ITERATIONS
    )
    samples: list[tuple[float, float, int, int]] = []

    def look(pipeline: SerialPipeline) -> bool:
        if pipeline.progress.train_iter > ITERATIONS / 3:
            samples.append((pipeline.progress.train_iter, *usage()))
        return False

    with SerialPipeline(config.compile_config(main, create)) as pipeline:
        pipeline.run(look)
        assert pipeline.replay_buffer is not None
        return samples, pipeline.replay_buffer.count()


@pytest.mark.slow
def test_memory_files_and_threads_stay_as_they_are(tmp_path: Path) -> None:
    with ProcessPoolExecutor(
        1, get_context('spawn')
    ) as fresh:  # what ran before in this one still moves its memory
        samples, count = fresh.submit(measured, tmp_path).result()
    assert count == 500, 'it is full'
    iteration, resident, files, threads = np.array(samples).T
    growth = float(np.polyfit(iteration, resident, 1)[0])
    shown = f'{growth:.0f} bytes an iteration, {resident[0] / 1e6:.0f} to {resident[-1] / 1e6:.0f} MB'
    print(shown)  # pytest -rP shows it
    assert growth < MOST_GROWTH, shown
    assert set(files) == {files[0]} and set(threads) == {threads[0]}
