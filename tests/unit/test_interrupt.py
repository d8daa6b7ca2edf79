"""Signals in the middle of anything: what is saved, what is repeated, and that a run never hangs because of them."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from fakes import config_pair
from runs import DQN, assert_same_end, finish, records, train

from rlframe import config
from rlframe.pipeline import SerialPipeline

LONG_EVALUATION = ('env.n_evaluator_episode=1000', 'policy.eval.evaluator.eval_freq=30')


def wait_for(condition: object, seconds: float = 60) -> None:
    limit = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < limit
        time.sleep(0.01)


@pytest.mark.slow
def test_evaluation_is_given_up_at_a_signal_and_repeated_on_resume(tmp_path: Path) -> None:
    one, other = tmp_path / 'straight', tmp_path / 'stopped'
    one.mkdir(), other.mkdir()
    words = (*DQN, *LONG_EVALUATION, '--train-iter', '60')
    finish(train(one, *words))
    process = train(other, *words)
    folder = other / 'cartpole_dqn_seed0'
    # the first evaluation is over
    wait_for(lambda: (folder / 'metrics.jsonl').exists() and len(records(folder)) > 2)
    process.send_signal(signal.SIGTERM)
    out, _ = finish(process, 143)
    assert 'interrupted and saved' in out and f'--resume {folder.name}' in out
    finish(train(other, '--resume', str(folder)))
    assert_same_end(next(one.iterdir()), folder)


def test_evaluator_that_is_given_up_asks_for_the_same_evaluation_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    main, create = config_pair(evaluator=dict(eval_freq=10), max_train_iter=40)
    cfg = config.compile_config(main, create, seed=1)
    with SerialPipeline(cfg) as pipeline:
        asked = []

        def interrupted() -> bool:
            asked.append(pipeline.progress.train_iter)
            return len(asked) > 30

        pipeline.run(lambda p: len(asked) > 30, interrupted)
        at = asked[-1]
        assert at == pipeline.progress.train_iter and pipeline.evaluator.should_eval(at)
