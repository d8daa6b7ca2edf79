"""A policy learns a game by playing with itself, through the same pipeline and checkpoints as any other run."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from error_texts import raises
from fakes import config_pair
from runs import ROOT, differences

from rlframe import config
from rlframe.entry.__main__ import main
from rlframe.errors import ConfigError
from rlframe.pipeline import SerialPipeline
from rlframe.run.read_checkpoint import load_checkpoint

pytestmark = pytest.mark.usefixtures('cwd')


def nim(policy: str = 'dqn', collector: Any = None, **sections: Any) -> tuple[Any, Any]:
    """Returns a config for self-play of Nim."""
    sections['env'] = dict(n_evaluator_episode=60, collector_env_num=4) | sections.get('env', {})
    pair = config_pair(policy, 'games:Nim', collector=collector or dict(type='sample_1v1'), **sections)
    pair[1]['env'] = dict(type='pettingzoo')
    pair[1]['evaluator'] = dict(type='battle_interaction')
    return pair


DQN: dict[str, Any] = dict(
    learn=dict(batch_size=64, learning_rate=3e-3, target_update_freq=50, update_per_collect=4),
    other=dict(eps=dict(type='linear', start=1.0, end=0.2, decay=3000)),
    policy_=dict(discount_factor=0.9),
    model=dict(encoder_hidden_size_list=[32]),
    evaluator=dict(eval_freq=10**6),
)


def run(pair: Any, **given: Any) -> tuple[SerialPipeline, dict[str, Any]]:
    """Trains, and returns what an evaluation says afterwards."""
    with SerialPipeline(config.compile_config(*pair, seed=0, **given)) as pipeline:
        pipeline.run()
        return pipeline, pipeline.evaluator.eval()[1]


def loses_by_right(left: int) -> bool:
    return left % 4 == 0


@pytest.mark.slow
def test_dqn_learns_to_win_a_game_from_both_seats() -> None:
    pipeline, info = run(nim(**DQN), max_env_step=3000)
    chosen = pipeline.policy.eval_mode.forward(np.eye(11, dtype=np.float32), np.arange(11))['action']
    winning = [left for left in range(1, 11) if not loses_by_right(left)]
    assert [left for left in winning if not loses_by_right(max(0, left - 1 - chosen[left]))] == []
    assert info['win_mean'] >= 0.85 and sorted(set(info['seat'])) == [0, 1]


@pytest.mark.slow
def test_a_resumed_run_is_the_same_as_one_that_was_not_interrupted() -> None:
    policy = dict(discount_factor=0.9, nstep=2, normalize_obs=True, random_collect_size=20)
    pair = nim(**{**DQN, 'evaluator': dict(eval_freq=40), 'policy_': policy})
    cfg = config.compile_config(*pair, seed=3)
    with SerialPipeline(cfg) as whole:
        for _ in range(12):
            whole.step()
        path = whole.save_checkpoint(Path('saved').absolute())
        for _ in range(12):
            whole.step()
        expected = whole.save_checkpoint(Path('whole').absolute())
    with SerialPipeline(cfg) as resumed:
        resumed.load_checkpoint(path)
        for _ in range(12):
            resumed.step()
        assert resumed.exact
        again = resumed.save_checkpoint(Path('again').absolute())
    one, two = (load_checkpoint(p)[0] for p in (expected, again))
    for state in (one, two):
        state['progress'].pop('wall_time')
        state.pop('monitor')
    assert list(itertools.islice(differences(one, two), 5)) == []


@pytest.mark.slow
def test_a_real_game_is_played_and_learnt() -> None:
    pytest.importorskip('pettingzoo.classic.tictactoe_v3')
    pair = config.read_config(str(ROOT / 'configs' / 'tictactoe_selfplay_dqn.py'))
    overrides = ['policy.learn.learner.hook.save_ckpt_after_run=false', 'env.n_evaluator_episode=100']
    _, info = run(pair, overrides=overrides, max_env_step=5000)
    assert info['seat'].count(0) == info['seat'].count(1) == 50
    assert all(sum(ends) == 1 for ends in zip(info['win'], info['draw'], info['loss'], strict=True))
    assert info['win_mean'] >= 0.7, 'random moves win less than half of the games'


@pytest.mark.slow
def test_the_command_line_trains_and_scores() -> None:
    Path('nim.py').write_text(
        f'main_config, create_config = {nim(**{**DQN, "evaluator": dict(eval_freq=50)})!r}\n',
        encoding='utf-8',
    )
    assert main(['-c', 'nim.py', '--env-step', '300', 'env.n_evaluator_episode=4']) == 0
    assert main(['eval', 'toy_seed0', '--episodes', '6']) == 0
    assert main(['eval', 'toy_seed0', '--episodes', '6', '--video', 'films']) == 2


def test_configs_that_cannot_work_are_refused_with_what_can() -> None:
    pair = nim(**DQN)
    pair[1]['collector'] = dict(type='sample')
    with raises(ConfigError):
        config.compile_config(*pair)
    pair = nim(**DQN)
    del pair[1]['evaluator']
    with raises(ConfigError):
        config.compile_config(*pair)
    with raises(ConfigError):
        config.compile_config(*nim('ppo'))
    with raises(ConfigError):
        config.compile_config(
            *nim(collector=dict(type='episode_1v1'), collect=dict(n_sample=None, n_episode=2))
        )
    with raises(ConfigError):
        config.compile_config(*nim(collect=dict(n_sample=None, n_episode=2)))
