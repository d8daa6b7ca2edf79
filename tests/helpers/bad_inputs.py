"""Bad inputs, each with the class of the error that a user is to see: what the command line is given, by the number of the row.

A text in angle brackets is put in: <file> is a file of the case, <run> a trained run of its own.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from runs import DQN

PENDULUM = ('-c', 'configs/pendulum_sac.py')
BC = ('-c', 'configs/cartpole_bc.py')
ENV = "dict(env=dict(env_id='CartPole-v1'))"
CREATE = "dict(policy=dict(type='dqn'))"


def pair(main: str = ENV, create: str = CREATE) -> str:
    """Returns the text of a config file."""
    return f"nan, inf = float('nan'), float('inf')\nmain_config = {main}\ncreate_config = {create}\n"


@dataclasses.dataclass(frozen=True)
class Case:
    """A bad input.

    Args:
        error: Name of the error's class; empty where argparse refuses it, 'ConfigWarning' for a warning.
        words: The command line.
        code: Exit code.
        files: Names and contents of files that are given.
        edit: Name of what is done to the run that is given, a function of ``bad_runs``.
        absent: A package that cannot be imported.
        leaves: Names of what may be left in the working directory.
    """

    error: str
    words: tuple[str, ...]
    code: int = 2
    files: tuple[tuple[str, str], ...] = ()
    edit: str = ''
    absent: str = ''
    leaves: tuple[str, ...] = ()


def option(override: str, error: str = 'ConfigError', base: tuple[str, ...] = DQN, **more: Any) -> Case:
    """Returns the case of an override."""
    return Case(error, (*base, override), **more)


def file(text: str, name: str = 'mine.py', **more: Any) -> Case:
    """Returns the case of a config file."""
    return Case('ConfigError', ('-c', f'<file>/{name}'), files=((name, text),), **more)


def broken(fault: str, error: str = 'EnvContractError', at: int = 57, **kwargs: Any) -> Case:
    """Returns the case of an env that is wrong long after it was checked in full."""
    env = f'env.kwargs={ {"fault": fault, "at": at, **kwargs}!r}'
    words = (
        *DQN,
        '--env-step',
        '2000',
        'env.env_id=broken_envs:BrokenEnv',
        'evaluator.eval_freq=100000',
        env,
    )
    return Case(error, words, 1, leaves=('cartpole_dqn_seed0',))


def tune(*words: str) -> tuple[str, ...]:
    return ('tune', '-c', 'configs/cartpole_dqn.py', '-n', '2', *words)


class BadEnv(gymnasium.Env):
    """Answers wrongly from the first call on.

    Args:
        fault: 'reset' without info, 'step' with four values, a 'mask' that allows nothing, 'start': its constructor raises,
            'text', 'graph', 'image', 'unbounded' or 'empty': a space; or nothing.
    """

    def __init__(self, fault: str = '') -> None:
        if fault == 'start':
            raise RuntimeError('the simulator is not licensed')
        self.observation_space: Any = {
            'text': spaces.Dict(mission=spaces.Text(9), image=spaces.Box(0, 1, (3,), np.float32)),
            'image': spaces.Box(0, 255, (84, 84, 3), np.uint8),
            'graph': spaces.Graph(spaces.Box(0, 1, (2,)), None),
        }.get(fault, spaces.Box(0, 1, (3,), np.float32))
        box = {'unbounded': np.inf, 'empty': 1.0}.get(fault)
        self.action_space: Any = (
            spaces.Discrete(2) if box is None else spaces.Box(-box, box, (2,), np.float32)
        )
        if fault == 'empty':
            self.action_space.low[1] = 2.0
        self._fault = fault

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        obs = np.zeros(self.observation_space.shape, self.observation_space.dtype)
        if self._fault == 'mask':
            return obs, {'action_mask': np.zeros(2, np.int8)}
        return obs if self._fault == 'reset' else (obs, {})

    def step(self, action: Any) -> Any:
        obs = np.zeros(self.observation_space.shape, self.observation_space.dtype)
        return (obs, 0.0, True, {}) if self._fault == 'step' else (obs, 0.0, True, False, {})


def bad_env(fault: str, error: str, base: tuple[str, ...] = DQN, code: int = 2, **more: Any) -> Case:
    words = (*base, 'env.env_id=bad_inputs:BadEnv', f'env.kwargs={ {"fault": fault}!r}')
    return Case(error, words, code, **more)


RUN = ('cartpole_dqn_seed0',)
