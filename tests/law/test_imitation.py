"""Runs that are paid by demonstrations resume bit for bit, and name what is wrong with their data before a folder exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from demonstrations import demonstrations
from parallel_parts import compiled
from runs import differences, end_of

from rlframe.data.timestep import Batch
from rlframe.envs.cartpole_expert import record
from rlframe.errors import RLFrameError
from rlframe.pipeline import SerialPipeline

PPO = ('cartpole_ppo', 'policy.collect.n_sample=48', 'policy.learn.epoch_per_collect=2')
SAC = ('cartpole_sac_discrete', 'policy.random_collect_size=100', 'policy.learn.batch_size=16')
REPLAYED = (
    *('lunarlander_ppo_offpolicy', 'env.env_id=CartPole-v1', 'env.collector_env_num=8', 'env.stop_value=500'),
    *('policy.collect.n_sample=48', 'policy.learn.batch_size=16', 'policy.learn.update_per_collect=4'),
)
ADVERSARIAL = 'batch_size=16, hidden_size_list=[8], update_per_collect=2'
CASES = {
    'gail': (PPO, f"type='gail', {ADVERSARIAL}"),
    'gail off-policy': (SAC, f"type='gail', {ADVERSARIAL}"),
    'gail of replayed rounds': (
        REPLAYED,
        f"type='gail', {ADVERSARIAL}",
    ),
    'airl': (PPO, f"type='airl', {ADVERSARIAL}"),
    'airl off-policy': (SAC, f"type='airl', {ADVERSARIAL}"),
    'gcl': (PPO, f"type='gcl', {ADVERSARIAL}"),
    'pwil': (SAC, "type='pwil'"),
    'red': (PPO, "type='red', updates=5, hidden_size_list=[8]"),
    'pdeil': (SAC, "type='pdeil'"),
    'trex': (PPO, "type='trex', updates=5, hidden_size_list=[8], ensemble=2"),
    'drex': (
        PPO,
        "type='drex', updates=5, hidden_size_list=[8], clone_updates=5, noise=[1.0, 0.0], episodes_per_noise=2",
    ),
}


FAST = 'gail', 'pwil', 'drex'


def trained(
    folder: Path, data: str, case: str, updates: int, *more: str, resume: Path | None = None
) -> dict[str, Any]:
    words, options = CASES[case]
    model = f'reward_model=dict({options}, data={data!r})'
    cfg = compiled(*words, *more, model, 'evaluator.eval_freq=10', f'max_train_iter={updates}')
    return end_of(cfg, folder, 'policy', 'reward_models', resume=resume)


@pytest.mark.parametrize(
    'case', [pytest.param(name, marks=() if name in FAST else (pytest.mark.slow,)) for name in CASES]
)
def test_a_resumed_run_ends_with_the_bits_of_an_uninterrupted_one(case: str, tmp_path: Path) -> None:
    data = demonstrations(tmp_path / 'expert.npz')
    straight = trained(tmp_path / 'straight', data, case, 24)
    trained(tmp_path / 'half', data, case, 12)
    assert differences(straight, trained(tmp_path / 'whole', data, case, 24, resume=tmp_path / 'half')) == []


@pytest.mark.slow
@pytest.mark.parametrize('case', ['airl', 'pwil'])
def test_steps_of_a_process_are_paid_as_those_collected_here(case: str, tmp_path: Path) -> None:
    data = demonstrations(tmp_path / 'expert.npz')
    here = trained(tmp_path / 'here', data, case, 12)
    assert differences(here, trained(tmp_path / 'there', data, case, 12, 'collector.backend=process')) == []


BAD = {
    'none': (PPO, "type='gail'", 'reward_model.gail.data', 'has none'),
    'missing': (PPO, "type='red', data='expart.npz'", 'reward_model.red.data', "Did you mean 'expert.npz'"),
    'another env': (
        PPO,
        "type='pwil', data='pendulum.npz'",
        'reward_model.pwil.data',
        'do not fit CartPole-v1',
    ),
    'one rank': (PPO, "type='trex', data='alike.npz'", 'reward_model.trex.data', 'equally good'),
    'no likelihood': (
        ('cartpole_dqn',),
        "type='airl', data='expert.npz'",
        'policy.type',
        "and the policy cannot say it; got 'dqn'",
    ),
    'noise': (PPO, "type='drex', data='expert.npz', noise=[0.5]", 'reward_model.drex.noise', 'two different'),
    'weight': (PPO, "type='gail', data='expert.npz', weight=0", 'reward_model.gail.weight', '(0, inf)'),
}


@pytest.mark.parametrize('case', BAD)
def test_bad_demonstrations_are_named_before_a_folder_exists(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    demonstrations(tmp_path / 'expert.npz')
    rows = Batch(obs=np.zeros((4, 3), np.float32), action=np.zeros((4, 1), np.float32))
    np.savez('pendulum.npz', **rows.columns)
    equal = dict(record(range(1)))
    length = len(equal['obs'])
    flags = {'terminated': np.arange(length) % 50 == 49, 'truncated': np.zeros(length, bool)}
    np.savez('alike.npz', **equal, **flags, next_obs=equal['obs'], reward=np.ones(length, np.float32))
    words, options, where, said = BAD[case]
    before = sorted(tmp_path.iterdir())
    with pytest.raises(RLFrameError, match=re.escape(said)) as found:
        SerialPipeline(compiled(*words, f'reward_model=dict({options})'))
    assert where in str(found.value)
    assert sorted(tmp_path.iterdir()) == before
