"""Pixels are bytes from the env to the network: in collection, the replay buffer and updates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from fakes import config_pair

from rlframe.config import compile_config
from rlframe.data import Batch
from rlframe.model.encoder import ImageEncoder
from rlframe.pipeline import SerialPipeline


def test_pixels_are_bytes_until_the_network(cwd: Path, monkeypatch: Any) -> None:
    read, forward = [], ImageEncoder.forward
    monkeypatch.setattr(
        ImageEncoder, 'forward', lambda self, obs: read.append(obs.dtype) or forward(self, obs)
    )
    pair = config_pair('dqn', 'image_env:Dot', env=dict(frame_stack=4), learn=dict(random_shift=2))
    with SerialPipeline(compile_config(*pair, seed=0)) as pipeline:
        for _ in range(3):
            pipeline.step()
        assert pipeline.collector._env.obs.dtype == np.uint8
        rows = pipeline.collector.collect(n_sample=8)
        sampled = Batch(pipeline.replay_buffer.sample(4, 0))
        columns = [batch[name] for batch in (rows, sampled) for name in ('obs', 'next_obs')]
        assert {column.dtype for column in columns} == {np.dtype(np.uint8)}
    assert len(read) > 3 and set(read) == {torch.uint8}
