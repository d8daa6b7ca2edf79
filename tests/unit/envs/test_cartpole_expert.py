"""The records of the hand-written controller, and cloning it from the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlframe.entry.__main__ import main
from rlframe.envs.cartpole_expert import demonstrations, expert, held_out, record

pytestmark = pytest.mark.slow

BC = ('-c', 'configs/cartpole_bc.py', 'env.n_evaluator_episode=2', 'env.evaluator_env_num=2')
DATA = 'rlframe.envs.cartpole_expert:held_out'


def test_records_are_what_the_expert_saw_and_did_and_it_never_fails() -> None:
    shown, held = demonstrations(), held_out()
    for columns, episodes in ((shown, 20), (held, 5)):
        assert columns['obs'].shape == (500 * episodes, 4) and columns['obs'].dtype == np.float32
        assert columns['action'].shape == (500 * episodes,) and set(columns['action'].tolist()) == {0, 1}
        assert [expert(obs) for obs in columns['obs'][:300]] == columns['action'][:300].tolist()
    np.testing.assert_array_equal(record([3])['obs'], shown['obs'][1500:2000])
    first = {tuple(obs) for obs in shown['obs'][::500].tolist()}
    assert len(first) == 20 and not first & {tuple(obs) for obs in held['obs'][::500].tolist()}


def test_cloning_leaves_its_run_folder_alone_and_goes_on_from_anywhere(
    cwd: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hook = 'policy.learn.learner.hook.save_ckpt_after_run=true'
    assert main([*BC, '--train-iter', '50', hook, 'policy.eval.evaluator.eval_freq=25']) == 0
    assert [path.name for path in cwd.iterdir()] == ['cartpole_bc_seed0']
    assert 'eval cartpole_bc_seed0\n' in capsys.readouterr().out, 'no code need be allowed to play'
    assert main(['eval', 'cartpole_bc_seed0', '--episodes', '2']) == 0
    assert main(['--resume', 'cartpole_bc_seed0', '--train-iter', '60']) == 0
    assert '60 updates' in capsys.readouterr().out
