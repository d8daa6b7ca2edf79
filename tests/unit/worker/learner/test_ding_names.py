"""Hooks and checkpoint names of programs that were written for DI-engine."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path

from error_texts import raises
from fakes import ScriptedPolicy, config_pair
from test_hooks import NO_HOOKS, learner_with

from rlframe import config
from rlframe.errors import CheckpointNotFoundError
from rlframe.pipeline import SerialPipeline
from rlframe.pipeline.resume import resume
from rlframe.run.read_checkpoint import find_checkpoint, load_checkpoint
from rlframe.worker import BaseLearner, LearnerHook


class SaveBest(LearnerHook):
    """Saves under the name that DI-engine's evaluators use."""

    position = 'after_iter'

    def __call__(self, engine: BaseLearner) -> None:
        if engine.last_iter.val == 3:
            engine.save_checkpoint('ckpt_best.pth.tar')


def test_last_iter_is_a_number_and_a_counter() -> None:
    learner = learner_with()
    learner.train({})
    counter = learner.last_iter
    assert counter == 1 == counter.val and counter % 100 == 1 and json.dumps(counter) == '1'
    learner.train({})
    assert counter.val == 2 == learner.last_iter.val
    learner.last_iter.add(5)
    assert learner.train_iter == learner.last_iter == counter.val == 7
    counter.update(40)
    assert learner.learn_info['learner_step'] == 40 == learner.last_iter.val
    with raises(ValueError):
        counter.add(-41)
    for twin in (copy.deepcopy(counter), pickle.loads(pickle.dumps(counter))):
        assert type(twin) is int and twin == 1


def test_what_a_hook_saves_as_ckpt_best_is_found_under_that_name(tmp_path: Path) -> None:
    learner = BaseLearner({'hook': NO_HOOKS}, ScriptedPolicy().learn_mode, exp_name=str(tmp_path))
    learner.register_hook(SaveBest())
    for _ in range(5):
        learner.train({})
    for path in ('ckpt/ckpt_best.pth.tar', 'ckpt/ckpt_best', 'ckpt', '.'):
        assert find_checkpoint(tmp_path / path) == tmp_path / 'ckpt' / 'ckpt_best'
    other_policy = ScriptedPolicy()
    hook = NO_HOOKS | {'load_ckpt_before_run': str(tmp_path / 'ckpt' / 'ckpt_best.pth.tar')}
    other = BaseLearner({'hook': hook}, other_policy.learn_mode)
    other.call_hook('before_run')
    assert other.train_iter == other_policy.state == 3
    learner.save_checkpoint('iteration_5.pth.tar')
    assert load_checkpoint(tmp_path / 'ckpt' / 'iteration_5.pth.tar')[0]['learner']['policy'] == {'state': 5}
    with raises(CheckpointNotFoundError):
        find_checkpoint(tmp_path / 'ckpt' / 'iteration_6.pth.tar')


def test_in_a_run_ckpt_best_is_what_was_saved_so_or_else_the_best(cwd: Path) -> None:
    with SerialPipeline(config.compile_config(*config_pair(max_env_step=200))) as pipeline:
        ckpt = pipeline.folder / 'ckpt'
        pipeline.step()
        assert find_checkpoint(ckpt / 'ckpt_best.pth.tar') == find_checkpoint(ckpt / 'best')
        pipeline.learner.register_hook(SaveBest())
        pipeline.run()
    found = find_checkpoint(ckpt / 'ckpt_best.pth.tar')
    assert found == ckpt / 'ckpt_best' and load_checkpoint(found)[1]['progress']['train_iter'] >= 3
    assert resume(ckpt / 'ckpt_best.pth.tar').checkpoint == found
    assert find_checkpoint(pipeline.folder) == find_checkpoint(ckpt / 'best') != found
