"""What an error in the user's code leaves: a checkpoint that every verb can use, if it is named or the only one."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import pytest
from error_texts import raises
from runs import DQN, PPO, ROOT, records

import rlframe
from rlframe import config
from rlframe.config.reader import read_config
from rlframe.errors import CheckpointNotFoundError
from rlframe.pipeline import SerialPipeline
from rlframe.pipeline.resume import resume
from rlframe.worker.hooks import RunHook, RunView
from rlframe.worker.hooks.run_hook import EVENTS

pytestmark = pytest.mark.usefixtures('cwd')
ERRORS = (ArithmeticError, KeyboardInterrupt, SystemExit)
FIRST = ('before_run', 'after_checkpoint', 'after_run')
"""Events that are to fail at once; the others fail at the second one."""
CASES = [
    (place, error, words)
    for place, error, words in zip(
        (*EVENTS[:-1], 'after_step'), cycle(ERRORS), cycle((DQN, PPO)), strict=False
    )
]


def failing(event: str, error: type[BaseException]) -> RunHook:
    """Returns a hook that raises at an event."""
    calls: list[RunView] = []

    def fail(self: RunHook, run: RunView) -> None:
        calls.append(run)
        if len(calls) == (1 if event in FIRST else 2):
            raise error('broken')

    hook: RunHook = type('Failing', (RunHook,), {event: fail} if event in EVENTS else {})()
    return hook


def fail_after_step(error: type[BaseException]) -> Any:
    def after_step(pipeline: SerialPipeline) -> bool:
        raise error('broken')

    return after_step


@pytest.mark.parametrize(('place', 'error', 'words'), CASES)
def test_a_run_that_users_code_ended_goes_on_from_its_emergency_checkpoint(
    place: str, error: type[BaseException], words: tuple[str, ...]
) -> None:
    cfg = config.compile_config(*read_config(ROOT / words[1]), overrides=[*words[2:], 'max_env_step=200'])
    caller = None if place in EVENTS else fail_after_step(error)
    with (
        SerialPipeline(cfg, hooks=[failing(place, error)]) as pipeline,
        pytest.raises(BaseException, match='broken') as caught,
    ):
        pipeline.run(caller)
    folder = pipeline.folder
    (path,) = folder.glob('ckpt/emergency_*')
    assert any(note.endswith(str(path)) for note in caught.value.__notes__)
    with raises(CheckpointNotFoundError):
        resume(folder)

    opened = rlframe.open_run(folder)
    assert opened.progress == pipeline.progress
    opened.resume(progress=False)
    assert opened.finished and opened.folder == folder and opened.progress.envstep >= 200
    steps = [record['envstep'] for record in records(folder)]
    assert steps == sorted(steps), 'the metrics go on'
    assert 'an error ended the run' in (folder / 'log.txt').read_text()
