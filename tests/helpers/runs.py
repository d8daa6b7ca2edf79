"""Training runs as processes, to be killed and resumed, and what is left of them in a form that can be compared."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fork_server
import numpy as np
import torch

from rlframe.run.read_checkpoint import load_checkpoint

ROOT = Path(__file__).parents[2]
HELPERS = ROOT / 'tests' / 'helpers'
Run = Callable[..., tuple[int, str, str]]
"""Runs a command line and returns its exit code, what it printed, and its errors."""

SMALL = (
    'env.collector_env_num=3',
    'env.evaluator_env_num=2',
    'env.n_evaluator_episode=2',
    'env.stop_value=1e9',
    'policy.model.encoder_hidden_size_list=[16]',
    'policy.eval.evaluator.eval_freq=60',
    'policy.learn.learner.hook.log_show_after_iter=20',
)
"""Overrides that make a config of CartPole quick."""
DQN = (
    *('-c', 'configs/cartpole_dqn.py', *SMALL, 'policy.learn.batch_size=16', 'policy.collect.n_sample=6'),
    *('policy.learn.update_per_collect=2', 'policy.other.replay_buffer.replay_buffer_size=500'),
)
PPO = (
    *('-c', 'configs/cartpole_ppo.py', *SMALL, 'policy.learn.batch_size=16', 'policy.collect.n_sample=48'),
    'policy.learn.epoch_per_collect=2',
)
TORCH_PPO = (
    *(
        '-c',
        'configs/cartpole_torch_ppo.py',
        *SMALL,
        'policy.learn.batch_size=16',
        'policy.collect.n_sample=48',
    ),
    'policy.learn.epoch_per_collect=2',
)
PENDULUM = (
    *('-c', 'configs/pendulum_ddpg.py', *SMALL, 'policy.learn.batch_size=16', 'policy.collect.n_sample=6'),
    *('policy.learn.update_per_collect=2', 'policy.other.replay_buffer.replay_buffer_size=500'),
    'policy.random_collect_size=30',
)
R2D2 = (
    *(
        '-c',
        'configs/cartpole_novel_r2d2.py',
        *SMALL,
        'policy.learn.batch_size=8',
        'policy.collect.n_sample=6',
    ),
    *('policy.model.lstm_hidden_size=16', 'policy.other.replay_buffer.replay_buffer_size=500'),
)
CASES = {
    'dqn naive': DQN,
    'dqn advanced': (
        *DQN,
        *('replay_buffer.type=advanced', 'policy.priority=true', 'policy.priority_IS_weight=true'),
        'policy.nstep=3',
    ),
    'ppo': PPO,
    'sac': (*PENDULUM, 'policy.type=sac', 'policy.collect.noise_correlation=0.9'),
    'r2d2': R2D2,
    'ppo parts': (
        *(*PPO, 'env.env_id=space_envs:SpaceEnv', 'env.kwargs.action=Dict', 'env.kwargs.mask=info'),
        "env.schedule={'bonus': {'type': 'success', 'stages': [0.0, 0.5, 1.0], 'goal': 1.0, 'episodes': 10}}",
    ),
}
MANAGERS = {
    'base': ('env_manager.type=base',),
    'gym_vector': ('env_manager.type=gym_vector',),
    'subprocess': ('env_manager.type=subprocess', 'env_manager.worker_num=2'),
}


def train(cwd: Path, *words: str, **options: Any) -> subprocess.Popen[str]:
    """Starts the command line in a folder; as a copy of the fork server, if this process has one."""
    path = os.pathsep.join([str(ROOT), str(HELPERS), os.environ.get('PYTHONPATH', '')])
    given = [str(ROOT / word) if word.startswith('configs/') else word for word in words]
    pipes = {'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, **options}
    return fork_server.popen(
        ['-m', 'rlframe.entry', *given], text=True, cwd=cwd, env={**os.environ, 'PYTHONPATH': path}, **pipes
    )


def finish(process: subprocess.Popen[str], code: int = 0, seconds: float = 300) -> tuple[str, str]:
    """Waits for the end of a process and returns what it printed."""
    try:
        out, err = process.communicate(timeout=seconds)
    finally:
        process.kill()
    assert process.returncode == code, f'{process.returncode}\n{out}\n{err}'
    return out, err


def child_processes() -> set[str]:
    """Returns the ids of the children of this process; those of other tests, such as a fork server, may be there."""
    return {pid for path in Path('/proc/self/task').glob('*/children') for pid in path.read_text().split()}


def records(folder: Path, *, with_changes: bool = False) -> list[dict[str, Any]]:
    """Returns the metrics of a run folder but for times, and for what a resume changed unless asked for."""
    lines = (folder / 'metrics.jsonl').read_text(encoding='utf-8').splitlines()
    found = [{k: v for k, v in json.loads(line).items() if not k.startswith('time')} for line in lines]
    return [record for record in found if with_changes or 'changed' not in record]


def when_and_what(record: dict[str, Any]) -> tuple[Any, ...]:
    """Returns by what the records of a run are put in order: their iteration and their names."""
    return record['train_iter'], sorted(record)


def end_state(folder: Path) -> dict[str, Any]:
    """Returns everything that the last checkpoint of a run folder holds but for times."""
    state, _ = load_checkpoint(folder / 'ckpt' / 'latest')
    state['progress'] |= {'wall_time': 0}
    return state


def bits(array: torch.Tensor | np.ndarray) -> bytes:
    """Returns the bytes of an array; numpy has no bfloat16."""
    if isinstance(array, torch.Tensor):
        array = array.detach().reshape(-1).view(torch.uint8).numpy()
    return array.tobytes()


def differences(one: Any, other: Any, path: str = '') -> list[str]:
    """Returns where two trees differ, bit by bit."""
    if isinstance(one, dict) and isinstance(other, dict):
        names = [f'{path}.{name}: only in one' for name in one.keys() ^ other.keys()]
        return names + [
            line
            for name in one.keys() & other.keys()
            for line in differences(one[name], other[name], f'{path}.{name}')
        ]
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        if len(one) != len(other):
            return [f'{path}: {len(one)} items and {len(other)}']
        return [
            line
            for i, pair in enumerate(zip(one, other, strict=True))
            for line in differences(*pair, f'{path}.{i}')
        ]
    if isinstance(one, torch.Tensor | np.ndarray):
        same = one.shape == other.shape and one.dtype == other.dtype
        return [] if same and bits(one) == bits(other) else [f'{path}: {one} and {other}']
    return [] if one == other or (one != one and other != other) else [f'{path}: {one!r} and {other!r}']


def assert_same_end(straight: Path, resumed: Path) -> None:
    """Makes sure that two run folders ended with the same bits and the same metrics.

    An evaluation in another process is written when it arrives, so the order of the lines is left out.
    """
    state = end_state(straight)
    assert state['progress']['train_iter'] > 0
    assert differences(state, end_state(resumed)) == []
    one, other = (sorted(records(folder), key=when_and_what) for folder in (straight, resumed))
    assert one == other


def end_of(cfg: Any, folder: Path, *parts: str, resume: Path | None = None) -> dict[str, Any]:
    """Runs a config to its end in a new folder, perhaps from the end of a run in another one; returns parts of its last state."""
    from rlframe.pipeline import SerialPipeline

    folder.mkdir()
    with SerialPipeline(cfg, folder, resume=resume and resume / 'ckpt' / 'latest') as pipeline:
        pipeline.run()
        pipeline.checkpoints.save_latest()
    state, _ = load_checkpoint(folder / 'ckpt' / 'latest')
    return {name: state[name] for name in parts}


def every(iterations: int) -> str:
    return f'policy.learn.learner.hook.save_ckpt_after_iter={iterations}'


def kill_after_a_checkpoint(cwd: Path, *words: str, extra: float = 0.0) -> Path:
    """Trains until a checkpoint is there and kills the process by SIGKILL, ``extra`` seconds later."""
    process = train(cwd, *words)
    limit = time.monotonic() + 300
    while not list(cwd.glob('*/ckpt/latest')):
        assert process.poll() is None and time.monotonic() < limit, process.communicate()
        time.sleep(0.002)
    time.sleep(extra)
    assert process.poll() is None, 'ended before it could be killed'
    process.kill()
    process.communicate()
    return next(cwd.glob('*_seed0'))


def killed_and_straight(tmp_path: Path, *words: str) -> tuple[Path, Path]:
    """Returns the folder of a run that was killed, resumed and finished, and that of one that was not."""
    one, other = tmp_path / 'straight', tmp_path / 'killed'
    one.mkdir(), other.mkdir()
    finish(train(one, *words))
    folder = kill_after_a_checkpoint(other, *words, extra=0.02)
    out, _ = finish(train(other, '--resume', str(folder)))
    assert 'resumes from' in out and [folder] == list(other.iterdir())
    return next(one.iterdir()), folder


def free_port() -> int:
    """Returns a port on which nobody listens."""
    with socket.create_server(('127.0.0.1', 0)) as probe:
        return int(probe.getsockname()[1])
