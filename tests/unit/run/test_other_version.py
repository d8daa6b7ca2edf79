"""A run that another version of rlframe made: errors say so first, and what only needs the network works."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_helpers import edit_manifest
from error_texts import raises
from foreign import CREATE, MAIN, reseal, set_policy

import rlframe
from rlframe._version import __version__
from rlframe.app.play import play_run
from rlframe.app.scoring import Request
from rlframe.config.components import set_path
from rlframe.errors import ConfigError, RLFrameError
from rlframe.export import export_policy
from rlframe.pipeline import serial_pipeline
from rlframe.pipeline.resume import resume
from rlframe.run.read_checkpoint import open_checkpoint

GONE = (
    'gone',
    'env.gone',
    'policy.gone',
    'policy.model.gone',
    'policy.learn.gone',
    'policy.learn.learner.gone.x',
)
"""Options that only another version has."""


@pytest.fixture(params=['0.0.9', __version__])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def run(cwd: Path, version: str) -> Path:
    serial_pipeline((MAIN, CREATE), max_train_iter=2)

    def edit(facts: dict[str, Any]) -> None:
        facts['rlframe'] = version
        for key in GONE:
            set_path(facts['config']['main_config'], key.split('.'), 3)

    for path in (cwd / 'small_seed0' / 'ckpt').iterdir():
        if not path.is_symlink():
            edit_manifest(path, edit)
    return cwd / 'small_seed0'


def with_unknown_options(artifact: Path, version: str) -> Path:
    """Returns an exported policy as another version would have written it."""

    def edit(said: dict[str, Any]) -> None:
        options = said['policy']['options']
        options |= {'gone': 1, 'model': {**options['model'], 'gone': 1}}

    return reseal(set_policy(artifact, edit), lambda manifest: manifest.update(rlframe=version))


def test_what_needs_only_the_network_works_and_a_resume_says_the_version_first(
    run: Path, version: str, caplog: pytest.LogCaptureFixture
) -> None:
    says = f'rlframe {version} made this'
    with pytest.raises(ConfigError) as caught:
        resume(run)
    assert says in str(caught.value).splitlines()[0] and 'can act by its policy' in str(caught.value)
    opened = rlframe.open_run(run)
    with raises(RLFrameError):
        opened.resume(max_train_iter=4)
    uses = {
        'evaluate': lambda: opened.evaluate(2),
        'act': lambda: opened.policy.act(np.zeros(4, np.float32)),
        'play': lambda: play_run(open_checkpoint(run), Request(1), lambda text: None),
        'export': lambda: export_policy(run),
        'load': lambda: rlframe.load(with_unknown_options(run / 'export' / 'artifact', version)),
    }
    for use, call in uses.items():
        caplog.clear()
        call()
        told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert says in told[0] and 'model.gone' in told[0], use
