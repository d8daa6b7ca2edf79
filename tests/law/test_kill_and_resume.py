"""A run that is killed and resumed ends with the same bits as one that was not, wherever the kill struck."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from runs import (
    CASES,
    DQN,
    MANAGERS,
    TORCH_PPO,
    assert_same_end,
    every,
    finish,
    kill_after_a_checkpoint,
    killed_and_straight,
    records,
    train,
)

LENGTH = ('--train-iter', '200')
CELLS = [
    ('dqn advanced', 'gym_vector', 'incremental'),
    ('ppo parts', 'subprocess', 'every'),
    ('sac', 'base', 'incremental'),
    ('r2d2', 'subprocess', 'every'),
]
"""Kinds of policies, managers and ways to save the replay buffer; the run below has the default ones."""


@pytest.mark.usefixtures('copies')
@pytest.mark.slow
@pytest.mark.parametrize(('case', 'manager', 'saved'), CELLS)
def test_killed_and_resumed_run_ends_with_the_same_bits(
    case: str, manager: str, saved: str, tmp_path: Path
) -> None:
    words = (*CASES[case], *MANAGERS[manager], *LENGTH, every(51), f'checkpoint.replay_buffer={saved}')
    straight, resumed = killed_and_straight(tmp_path, *words)
    assert_same_end(straight, resumed)


@pytest.mark.usefixtures('copies')
@pytest.mark.slow
def test_intervals_in_env_steps_go_on_with_the_same_bits(tmp_path: Path) -> None:
    hook = 'policy.learn.learner.hook'
    words = (
        *(
            *CASES['dqn naive'],
            *LENGTH,
            'policy.random_collect_size=40',
            'evaluator.eval_freq=100 env steps, later 40 %',
        ),
        *(f'{hook}.log_show_after_iter=70 env steps', f'{hook}.save_ckpt_after_iter=160 env steps'),
        'collector.collect_print_freq=90 env steps',
    )
    straight, resumed = killed_and_straight(tmp_path, *words)
    assert_same_end(straight, resumed)
    evaluated = [record['envstep'] for record in records(straight) if 'eval/mean_reward' in record]
    assert evaluated == [42, 144, 246, 348, 492, 642]
    learned = [record['envstep'] for record in records(straight) if 'train/total_loss' in record]
    assert learned == [72, 144, 210, 282, 354, 420, 492, 564, 630]


@pytest.mark.slow
def test_it_does_so_in_processes_that_have_nothing_in_common(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (*CASES['dqn naive'], *LENGTH, every(51))
    folders = []
    for hash_seed in ('1', '2'):
        monkeypatch.setenv('PYTHONHASHSEED', hash_seed)
        cwd = tmp_path / hash_seed
        cwd.mkdir()
        folders.append(cwd)
        if hash_seed == '1':
            finish(train(cwd, *words))
        else:
            killed = kill_after_a_checkpoint(cwd, *words, extra=0.02)
            finish(train(cwd, '--resume', str(killed)))
    assert_same_end(*(next(folder.iterdir()) for folder in folders))


@pytest.mark.usefixtures('copies')
@pytest.mark.slow
def test_env_without_a_state_begins_anew_at_checkpoints_in_both_runs(tmp_path: Path) -> None:
    words = (*DQN, *LENGTH, every(51), 'env.env_id=zoo:ClosedCartPole')
    straight, resumed = killed_and_straight(tmp_path, *words)
    assert_same_end(straight, resumed)


@pytest.mark.usefixtures('copies')
@pytest.mark.slow
def test_envs_of_tensors_and_their_rows_go_on_with_the_same_bits(tmp_path: Path) -> None:
    words = (*TORCH_PPO, *LENGTH, every(51), 'env.env_id=rlframe.envs.tensor:TorchPendulum')
    assert_same_end(*killed_and_straight(tmp_path, *words))


@pytest.mark.usefixtures('copies')
@pytest.mark.slow
def test_kill_lottery(tmp_path: Path) -> None:
    """Runs that save after every other round are killed at random moments, resumed, killed again, and at last finish."""
    words = (*CASES['dqn advanced'], *LENGTH, every(4))
    straight = tmp_path / 'straight'
    straight.mkdir()
    start = time.monotonic()
    finish(train(straight, *words))
    whole, rng, inside = time.monotonic() - start, random.Random(7), 0
    for draw in range(int(os.environ.get('RLFRAME_LOTTERY', '1'))):
        cwd = tmp_path / f'draw{draw}'
        cwd.mkdir()
        how = f'checkpoint.replay_buffer={("incremental", "every")[draw % 2]}'
        for _ in range(3):
            process = train(cwd, *words, how, '--resume', 'auto')
            time.sleep(rng.uniform(0.3 * whole, whole))
            process.kill()
            process.communicate()
            inside += bool(list(cwd.glob('*/ckpt/.tmp*')))
        finish(train(cwd, *words, how, '--resume', 'auto'))
        ended = [folder for folder in cwd.iterdir() if records(folder) == records(next(straight.iterdir()))]
        assert len(ended) == 1
        assert_same_end(next(straight.iterdir()), ended[0])
        assert not list(ended[0].glob('ckpt/.tmp*')), 'leftovers of a killed save'
    print(f'{inside} kills struck inside a save')
