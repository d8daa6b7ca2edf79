"""Envs of tensors on a device: a round of collection and updates waits for it a few times, however many steps it has."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu_cells import host_waits, why_no_cuda
from runs import ROOT

from rlframe.config import compile_config, read_config
from rlframe.pipeline import SerialPipeline

CONFIG = ROOT / 'configs' / 'cartpole_torch_ppo.py'
ENVS = 16


@pytest.mark.slow
@pytest.mark.parametrize('device', ['cpu', pytest.param('cuda', marks=pytest.mark.gpu)])
def test_a_round_with_more_steps_waits_no_more_often(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device == 'cuda' and (why := why_no_cuda()):
        pytest.skip(why)
    monkeypatch.chdir(tmp_path)
    short, long = (waits_of_a_round(device, steps) for steps in (8, 64))
    assert long <= short + 2, 'an epoch of updates may read whether its losses were finite'


def waits_of_a_round(device: str, steps: int) -> int:
    """Returns how often the third round of a run waits for the device."""
    overrides = {
        'env.collector_env_num': ENVS,
        'env.kwargs': {'device': device},
        'policy.device': device,
        'policy.collect.n_sample': ENVS * steps,
        'policy.learn.batch_size': ENVS * steps,
        'policy.learn.nan_policy': 'ignore' if device == 'cpu' else 'raise',
        'policy.learn.learner.hook': dict(log_show_after_iter=10**9, save_ckpt_after_run=False),
        'policy.eval.evaluator.eval_freq': 10**6,
    }
    with SerialPipeline(compile_config(*read_config(CONFIG), overrides=overrides, seed=0)) as pipeline:
        pipeline.evaluator.should_eval = lambda *_: False  # type: ignore[method-assign]
        for _ in range(2):
            pipeline.step()
        with host_waits(device) as places:
            pipeline.step()
    return len(places)
