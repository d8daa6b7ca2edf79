"""Networks that are built: from a checkpoint, or refused for one of something else; pixels stay bytes until they get there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from error_texts import raises
from fakes import config_pair

from rlframe import config
from rlframe.config import compile_config
from rlframe.data import Batch
from rlframe.errors import CheckpointMismatchError, ConfigError, UnsafeCheckpointError
from rlframe.model.encoder import ImageEncoder
from rlframe.pipeline import SerialPipeline, build
from rlframe.policy import Policy
from rlframe.run.write_checkpoint import save_checkpoint


def make(path: Path | None = None, **sections: Any) -> tuple[Policy, Any]:
    main, create = config_pair(**sections)
    overrides = [f'policy.init_from={path}'] if path is not None else []
    cfg = config.compile_config(main, create, seed=0, overrides=overrides)
    return build.make_policy(cfg, build.make_factory(cfg).spec), cfg


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A checkpoint of a DQN with 16 hidden units, as a pipeline writes it."""
    policy, cfg = make()
    facts = {'policy': 'dqn', 'config': config.config_data(*config.split_config(cfg))}
    return save_checkpoint(tmp_path / 'saved', {'policy': policy.learn_mode.state_dict()}, facts)


def test_the_weights_of_pipelines_and_learners_are_taken(saved: Path, tmp_path: Path) -> None:
    from rlframe.run.read_checkpoint import load_checkpoint

    state, _ = load_checkpoint(saved)
    learners = save_checkpoint(tmp_path / 'of_learner', {'learner': state})
    for path in (saved, learners):
        policy, _ = make(path)
        for model in (policy.model, policy.update.targets.network):
            assert all(
                torch.equal(t, state['policy']['model'][name]) for name, t in model.state_dict().items()
            )


def test_what_holds_no_network_is_refused(tmp_path: Path) -> None:
    for state in ({}, {'policy': {}}, {'learner': {'progress': {}}}):
        path = save_checkpoint(tmp_path / 'saved', state)
        with raises(CheckpointMismatchError) as caught:
            make(path)
        assert caught.value.where == str(path)


def test_a_hook_that_is_to_load_a_pickle_is_refused_with_the_config(tmp_path: Path) -> None:
    torch.save({'weight': torch.ones(1)}, tmp_path / 'model.pt')
    hook = dict(load_ckpt_before_run=str(tmp_path / 'model.pt'))
    with pytest.raises(ConfigError) as caught:
        make(learn=dict(batch_size=16, learner=dict(hook=hook)))
    assert type(caught.value) is UnsafeCheckpointError and 'model.pt: this file contains a pickle' in str(
        caught.value
    )


@pytest.mark.slow
def test_pixels_are_bytes_until_the_network(cwd: Path, monkeypatch: Any) -> None:
    read, forward = [], ImageEncoder.forward
    monkeypatch.setattr(
        ImageEncoder, 'forward', lambda self, obs: read.append(obs.dtype) or forward(self, obs)
    )
    pair = config_pair('dqn', 'zoo:Dot', env=dict(frame_stack=4), learn=dict(random_shift=2))
    with SerialPipeline(compile_config(*pair, seed=0)) as pipeline:
        for _ in range(3):
            pipeline.step()
        assert pipeline.collector._env.obs.dtype == np.uint8
        rows = pipeline.collector.collect(n_sample=8)
        sampled = Batch(pipeline.replay_buffer.sample(4, 0))
        columns = [batch[name] for batch in (rows, sampled) for name in ('obs', 'next_obs')]
        assert {column.dtype for column in columns} == {np.dtype(np.uint8)}
    assert len(read) > 3 and set(read) == {torch.uint8}
