"""What only one program has is told of when a run is configured, and can be handed over again when it is scored."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fakes import CountingEnv, config_pair
from runs import DQN, ROOT

from rlframe.app.scoring import Request, score
from rlframe.entry.__main__ import main
from rlframe.errors import ConfigWarning, RLFrameError
from rlframe.export import export_policy
from rlframe.pipeline import serial_pipeline
from rlframe.pipeline.resume import resume

pytestmark = pytest.mark.usefixtures('cwd')


def network(sizes: tuple[int, ...] = (3, 2)) -> Any:
    import torch

    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(*sizes))


@pytest.mark.filterwarnings('ignore:CountingEnv. two calls of reset')
def test_env_and_network_of_a_script_are_told_of_scored_exported_and_resumed(cwd: Path) -> None:
    def make_env(**options: Any) -> CountingEnv:
        return CountingEnv(lengths=5)

    pair = config_pair(env_id=make_env, max_train_iter=5, evaluator=dict(eval_freq=2))
    with pytest.warns(ConfigWarning) as told:
        serial_pipeline(pair, model=network())
    (text,) = [str(warning.message) for warning in told if warning.category is ConfigWarning]
    for word in ('the network', 'env.env_id', 'make_env', 'model= and env=', 'import_names', "'module:Name'"):
        assert word in text, text
    folder = next(cwd.iterdir())
    assert ' at 0x' not in (folder / 'config.json').read_text()
    with pytest.raises(RLFrameError):
        score(folder, Request(3, trust=True))
    returns, lengths = score(folder, Request(3, trust=True, model=network(), env=make_env))[:2]
    assert lengths == [5] * 3 and len(returns) == 3
    assert export_policy(folder, ['state_dict'], model=network(), env=make_env, trust=True)
    with pytest.warns(ConfigWarning):
        serial_pipeline(pair, model=network(), resume_from=folder, max_train_iter=7)
    assert resume(folder, pair).folder == folder, 'the same config, whatever the addresses of its functions'


@pytest.mark.slow
def test_script_is_warned_of_what_it_registers_and_defines(cwd: Path) -> None:
    (cwd / 'script.py').write_text(
        'from rlframe.config import compile_config\n'
        'from rlframe.config.reader import own_parts\n'
        'from rlframe.policy.dqn import DQNPolicy\n'
        'from rlframe.registry import POLICY_REGISTRY\n'
        'import gymnasium\n'
        "@POLICY_REGISTRY.register('mine')\n"
        'class Mine(DQNPolicy):\n    pass\n'
        'class MyEnv(gymnasium.Env):\n    pass\n'
        "cfg = compile_config(dict(env=dict(env_id=MyEnv)), dict(policy=dict(type='mine')))\n"
        "print('\\n'.join(own_parts(cfg)))\n"
    )
    done = subprocess.run(
        [sys.executable, 'script.py'], capture_output=True, text=True, check=False, env=_env()
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ['env.env_id (MyEnv)', "policy.type='mine'"]


def _env() -> dict[str, str]:
    return {**os.environ, 'PYTHONPATH': str(ROOT)}


@pytest.mark.slow
def test_printed_command_scores_a_run_whose_own_modules_are_on_the_path(cwd: Path) -> None:
    words = [word for word in DQN if '=' in word and 'model' not in word]
    command = [sys.executable, '-m', 'rlframe.entry', '-c', str(ROOT / 'docs/examples/cartpole_extended.py')]
    environment = _env()
    out = subprocess.run(
        [*command, *words[:4], '--train-iter', '2'],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    ).stdout
    line = re.search(r'evaluate: (.*)', out)
    assert line is not None and line[1].startswith('python -m')
    environment['PYTHONPATH'] += os.pathsep + str(ROOT / 'docs/examples')
    again = line[1].replace('python -m', f'{sys.executable} -m') + ' -n 2 --json'
    done = subprocess.run(again, shell=True, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0 and '"episodes": 2' in done.stdout, done.stderr


def test_long_evaluation_of_the_command_line_tells_of_itself_and_of_what_it_cut(
    cwd: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = str(ROOT / 'configs' / 'cartpole_dqn.py')
    assert main(['-c', config, '--train-iter', '5', *[word for word in DQN if '=' in word]]) == 0
    monkeypatch.setattr('rlframe.app.scoring.PROGRESS_SECONDS', -1.0)
    capsys.readouterr()
    folder = 'cartpole_dqn_seed0'
    assert main(['eval', folder, '-n', '3', '--json', 'evaluator.max_episode_len=4']) == 0
    out, err = capsys.readouterr()
    assert '"cut": 3' in out and '"mean_length": 4.0' in out
    assert 'rlframe: evaluating: 0 of 3 episodes' in err
