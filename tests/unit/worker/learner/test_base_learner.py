"""The learner counts, measures, pairs priorities, fetches and saves, also by the names of DI-engine."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from error_texts import raises
from fakes import FakeBoard, ScriptedPolicy, config_pair
from test_hooks import NO_HOOKS, Note, learner_with

from rlframe import config
from rlframe.data import Batch
from rlframe.errors import BufferUnderflowError, CheckpointNotFoundError
from rlframe.pipeline import SerialPipeline
from rlframe.pipeline.resume import resume
from rlframe.run.progress import Progress
from rlframe.run.read_checkpoint import find_checkpoint, load_checkpoint
from rlframe.worker import BaseLearner, LearnerHook


def test_counters_are_shared_with_the_other_workers() -> None:
    progress = Progress(envstep=70)
    learner = BaseLearner({'hook': NO_HOOKS}, ScriptedPolicy().learn_mode, progress=progress)
    assert learner.collector_envstep == 70
    learner.train({}, envstep=80)
    assert progress.train_iter == 1 and learner.collector_envstep == 80
    assert learner.learn_info == {'learner_step': 1, 'priority_info': {}, 'learner_done': False}
    learner.collector_envstep = 90
    assert learner.collector_envstep == 90


def test_log_show_writes_means_since_the_last_record() -> None:
    losses = iter(range(1, 100))
    board = FakeBoard()
    policy = ScriptedPolicy(lambda data: {'total_loss': torch.tensor(float(next(losses))), 'cur_lr': 0.5})
    learner = BaseLearner({'hook': NO_HOOKS | {'log_show_after_iter': 4}}, policy.learn_mode, board)
    for i in range(10):
        learner.train({}, envstep=10 * i)
    assert [(value, step) for tag, value, step in board.scalars if tag == 'train/total_loss'] == [
        (2.5, 30),
        (6.5, 70),
    ]
    assert board.last('train/learning_rate') == 0.5
    assert learner.monitor.means() == {'total_loss': 9.5, 'cur_lr': 0.5}
    learner.policy = ScriptedPolicy().learn_mode
    assert learner.monitor.means() == {}


def test_marked_variables_go_to_their_own_buffers() -> None:
    board = FakeBoard()
    policy = ScriptedPolicy({'[histogram]q': [1, 2], '[scalars]grad': {'a': 1}, 'total_loss': 2.0})
    learner = BaseLearner({'hook': NO_HOOKS | {'log_show_after_iter': 1}}, policy.learn_mode, board)
    learner.train({})
    assert learner.log_buffer == {
        'scalar': {'total_loss': 2.0},
        'scalars': {'grad': {'a': 1}},
        'histogram': {'q': [1, 2]},
    }
    assert board.tags() == {'train/total_loss'} and [tag for tag, _, _ in board.histograms] == ['train/q']


def test_only_rank_0_logs_and_saves_unless_told_otherwise(tmp_path: Path) -> None:
    hook = NO_HOOKS | {'log_show_after_iter': 1, 'save_ckpt_after_iter': 1}
    for cfg, rank, logs in (
        ({}, 0, True),
        ({}, 1, False),
        ({'only_monitor_rank0': False}, 1, True),
        ({'is_multitask_pipeline': True}, 1, True),
    ):
        board, saved = FakeBoard(), []
        learner = BaseLearner({'hook': hook} | cfg, ScriptedPolicy().learn_mode, board, (rank, 1))
        learner.checkpoint_fn = saved.append
        learner.train({})
        assert bool(board.scalars) == logs and saved == ([] if rank else ['iteration_1'])


def test_reducing_in_one_process_changes_nothing_and_is_there_in_several() -> None:
    learner = BaseLearner({'hook': NO_HOOKS | {'log_reduce_after_iter': True}}, ScriptedPolicy().learn_mode)
    learner.train({})
    assert learner.monitor.means() == {'total_loss': 1.0}
    several = BaseLearner({'hook': NO_HOOKS}, ScriptedPolicy().learn_mode, dist_info=(1, 2))
    assert [hook.name for hook in several.hooks['after_iter']] == ['log_reduce_after_iter']
    assert (several.rank, several.world_size) == (1, 2)


def test_priorities_are_paired_with_the_places_of_their_batch() -> None:
    learner = learner_with(updates={'total_loss': 1.0, 'priority': np.array([0.5, 0.25])})
    batch = Batch(
        obs=np.zeros((2, 3)), replay_buffer_idx=np.array([4, 7]), replay_unique_id=np.array([14, 17])
    )
    (out,) = learner.train(batch)
    assert 'priority' not in out
    assert learner.priority_info['priority'].tolist() == [0.5, 0.25]
    assert learner.priority_info['replay_buffer_idx'].tolist() == [4, 7]
    assert learner.priority_info['replay_unique_id'].tolist() == [14, 17]
    rows = [
        {'replay_buffer_idx': 4, 'replay_unique_id': 'a'},
        {'replay_buffer_idx': 7, 'replay_unique_id': 'b'},
    ]
    learner.train(rows)
    assert learner.priority_info['replay_unique_id'] == ['a', 'b']
    assert learner.learn_info['priority_info'] is learner.priority_info
    plain = learner_with()
    plain.train(batch)
    assert plain.priority_info == {}


def test_start_trains_on_what_get_data_gives_in_order() -> None:
    seen: list[Any] = []
    learner = learner_with(
        updates=lambda data: seen.append(data) or {'total_loss': 0.0},
        train_iterations=5,
        dataloader={'num_workers': 2},
    )
    learner.policy.set_attribute('batch_size', 32)
    with raises(ValueError):
        learner.start()
    sizes: list[int] = []
    learner.get_data = lambda size: sizes.append(size) or len(sizes)
    learner.start()
    learner.close()
    learner.close()
    assert seen == [1, 2, 3, 4, 5] and set(sizes) == {32} and len(sizes) == 5
    assert learner.learn_info['learner_done'] and learner.train_iter == 5


def test_no_data_ends_start_with_an_error_that_names_get_data() -> None:
    learner = learner_with(train_iterations=9)
    learner.policy.set_attribute('batch_size', 4)
    batches = iter([{}, {}, None])
    learner.get_data = lambda size: next(batches)
    with raises(BufferUnderflowError):
        learner.start()
    learner.close()


def test_an_error_of_get_data_reaches_the_caller_and_close_ends_the_run() -> None:
    learner = learner_with(train_iterations=9)
    learner.policy.set_attribute('batch_size', 1)

    def broken(size: int) -> Any:
        raise OSError('no data')

    learner.get_data = broken
    with pytest.raises(OSError, match='no data'):
        learner.start()
    learner.close()

    class CloseAtThree(Note):
        def __call__(self, learner: BaseLearner) -> None:
            if learner.train_iter == 3:
                learner.close()

    learner = learner_with(CloseAtThree([]), train_iterations=9)
    learner.policy.set_attribute('batch_size', 1)
    learner.get_data = lambda size: {}
    learner.start()
    assert learner.train_iter == 3


def test_checkpoints_hold_policy_and_counters(tmp_path: Path) -> None:
    policy = ScriptedPolicy()
    learner = BaseLearner(
        {'hook': NO_HOOKS | {'save_ckpt_after_iter': 2}}, policy.learn_mode, exp_name=str(tmp_path)
    )
    for _ in range(5):
        learner.train({}, envstep=50)
    assert sorted(p.name for p in (tmp_path / 'ckpt').iterdir()) == ['iteration_2', 'iteration_4']
    learner.save_checkpoint('mine.pth.tar')
    assert learner.ckpt_name == 'mine'
    other_policy = ScriptedPolicy()
    path = str(tmp_path / 'ckpt' / 'mine')
    other = BaseLearner({'hook': NO_HOOKS | {'load_ckpt_before_run': path}}, other_policy.learn_mode)
    other.call_hook('before_run')
    assert (other.train_iter, other_policy.state) == (5, 5)
    with raises(CheckpointNotFoundError):
        BaseLearner({'hook': {'load_ckpt_before_run': str(tmp_path / 'no')}}, other_policy.learn_mode)


def test_a_checkpoint_function_saves_in_the_learner_s_stead() -> None:
    saved: list[str] = []
    learner = learner_with()
    learner.checkpoint_fn = saved.append
    learner.save_checkpoint()
    learner.save_checkpoint('best.pth.tar')
    assert saved == ['iteration_0', 'best'] and learner.ckpt_name == 'best'


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
