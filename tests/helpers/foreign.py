"""Runs and artifacts as if somebody else had made them, and bait that must not be swallowed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rlframe.config.components import set_path
from rlframe.export import export_policy
from rlframe.pipeline import serial_pipeline
from rlframe.run.manifest import read_sealed, write_text

MAIN = dict(
    exp_name='small',
    env=dict(
        env_id='CartPole-v1', collector_env_num=2, evaluator_env_num=1, n_evaluator_episode=1, stop_value=1e9
    ),
    policy=dict(
        model=dict(encoder_hidden_size_list=[8]),
        learn=dict(batch_size=8, update_per_collect=1),
        collect=dict(n_sample=8),
        eval=dict(evaluator=dict(eval_freq=1)),
        other=dict(replay_buffer=dict(replay_buffer_size=64)),
    ),
)
CREATE = dict(policy=dict(type='dqn'), replay_buffer=dict(type='naive'))
PAYLOAD = "open({marker!r}, 'w').close()\ndef X(*args, **kwargs): raise SystemExit(3)\n"
"""What a module does that must not be imported."""


def make_small_run() -> Path:
    """Trains a few updates in the working directory, exports the policy, and returns the run folder."""
    serial_pipeline((MAIN, CREATE), max_train_iter=2)
    run = Path('small_seed0').absolute()
    export_policy(run)
    return run


def reseal(folder: Path, edit: Callable[[dict[str, Any]], None] = lambda facts: None) -> Path:
    """Changes what a manifest says and seals it as somebody would who has not this user's key."""
    file = folder / 'manifest.json'
    facts = dict(read_sealed(file))
    edit(facts)
    with patch.dict(os.environ, RLFRAME_TRUST_KEY="somebody else's key, which this user lacks"):
        file.write_bytes(write_text(facts, version=facts['format_version']))
    return folder


def set_config(folder: Path, **values: Any) -> Path:
    """Sets keys of the config in a checkpoint; ``__`` stands for a dot, and ``main_config`` need not be said."""

    def edit(facts: dict[str, Any]) -> None:
        for key, value in values.items():
            path, tree = key.split('__'), facts['config']
            set_path(tree if path[0] in tree else tree['main_config'], path, value)

    return reseal(folder, edit)


def set_policy(artifact: Path, edit: Callable[[dict[str, Any]], None]) -> Path:
    """Changes ``policy.json`` of an artifact, and seals it again as somebody else."""
    file = artifact / 'policy.json'
    said = json.loads(file.read_text(encoding='utf-8'))
    edit(said)
    content = json.dumps(said).encode('utf-8')
    file.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    return reseal(
        artifact, lambda m: m['files'].update({file.name: {'size': len(content), 'sha256': digest}})
    )
