"""A signal in the middle of an evaluation: it is given up, and the resumed run repeats it."""

from __future__ import annotations

from pathlib import Path

from fakes import config_pair
from runs import assert_same_end

from rlframe.config import compile_config, split_config
from rlframe.pipeline import SerialPipeline
from rlframe.pipeline.resume import resume


def test_evaluation_that_is_given_up_is_repeated_by_the_resumed_run(cwd: Path) -> None:
    straight, stopped = cwd / 'straight', cwd / 'stopped'
    straight.mkdir(), stopped.mkdir()
    cfg = compile_config(*config_pair(evaluator=dict(eval_freq=10), max_train_iter=40), seed=1)
    with SerialPipeline(cfg, straight) as pipeline:
        pipeline.run()
    asked = []

    def interrupted() -> bool:
        asked.append(pipeline.progress.train_iter)
        return len(asked) > 30

    with SerialPipeline(cfg, stopped) as pipeline:
        pipeline.run(lambda p: len(asked) > 30, interrupted)
        at = asked[-1]
        assert at == pipeline.progress.train_iter and pipeline.evaluator.should_eval(at)
        pipeline.checkpoints.save_latest()
    again = resume(stopped, split_config(cfg)).cfg
    with SerialPipeline(again, stopped, resume=stopped / 'ckpt' / 'latest') as pipeline:
        pipeline.run()
    assert_same_end(straight, stopped)
