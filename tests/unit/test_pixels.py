"""Pixels are bytes from the env to the network: in collection, the replay buffer, checkpoints and updates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from rlframe.config import compile_config
from rlframe.data import Batch
from rlframe.model.encoder import ImageEncoder
from rlframe.pipeline import SerialPipeline
from rlframe.run.read_checkpoint import load_checkpoint


class Pictures(gymnasium.Env[np.ndarray, int]):
    """Shows noise."""

    observation_space = gymnasium.spaces.Box(0, 255, (20, 20), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return self._picture(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return self._picture(), 1.0, False, bool(self.np_random.random() < 0.2), {}

    def _picture(self) -> np.ndarray:
        return self.np_random.integers(0, 256, (20, 20), np.uint8)


def images(tree: Any) -> list[np.ndarray]:
    """Returns the arrays of pictures in a state."""
    if isinstance(tree, dict | list | tuple):
        return [
            found for part in (tree.values() if isinstance(tree, dict) else tree) for found in images(part)
        ]
    if isinstance(tree, Batch):
        return images(dict(tree.items()))
    tree = tree.numpy() if isinstance(tree, torch.Tensor) else tree
    return [tree] if isinstance(tree, np.ndarray) and tree.shape[-2:] == (20, 20) else []


def test_pixels_are_bytes_until_the_network(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    read, forward = [], ImageEncoder.forward
    monkeypatch.setattr(
        ImageEncoder, 'forward', lambda self, obs: read.append(obs.dtype) or forward(self, obs)
    )
    env = dict(env_id=Pictures, frame_stack=4, collector_env_num=2, evaluator_env_num=1, stop_value=1e9)
    policy = dict(
        device='cpu',
        model=dict(encoder_hidden_size_list=[8]),
        learn=dict(batch_size=4, random_shift=2),
        other=dict(replay_buffer=dict(replay_buffer_size=50)),
    )
    cfg = compile_config(
        dict(exp_name='pictures', env=env, policy=policy), dict(policy=dict(type='dqn')), seed=0
    )
    with SerialPipeline(cfg) as pipeline:
        for _ in range(3):
            pipeline.step()
        assert pipeline.collector._env.obs.dtype == np.uint8
        rows = pipeline.collector.collect(n_sample=8)
        sampled = Batch(pipeline.replay_buffer.sample(4, 0))
        columns = [batch[name] for batch in (rows, sampled) for name in ('obs', 'next_obs')]
        assert {column.dtype for column in columns} == {np.dtype(np.uint8)}
        pipeline.save_checkpoint(tmp_path / 'saved')
    state, _ = load_checkpoint(tmp_path / 'saved')
    kept = images(state)
    assert len(kept) >= 2 and {column.dtype for column in kept} == {np.dtype(np.uint8)}
    assert len(read) > 10 and set(read) == {torch.uint8}
