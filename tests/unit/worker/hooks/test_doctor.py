"""The training doctor: each check finds its disease in a run that has it, and nothing in one that has not, also in real ones."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from runs import ROOT

from rlframe import config
from rlframe.config.components import find_schema
from rlframe.data import EnvSpec
from rlframe.parallel.pipeline import ParallelPipeline
from rlframe.pipeline import SerialPipeline
from rlframe.run.progress import Progress
from rlframe.utils.field import to_plain
from rlframe.worker.hooks import DoctorHook, RunView

KEY = re.compile(r'\b(?:policy|env|parallel|hooks)(?:\.[a-zA-Z_]+)+')
DISCRETE, BOX = gymnasium.spaces.Discrete(4), gymnasium.spaces.Box(-1, 1, (2,), np.float32)
NUMBERS = gymnasium.spaces.Box(-1, 1, (3,), np.float32)


class Patient:
    """A run that consists of what its evaluations show, with the config of a shipped example."""

    def __init__(
        self, policy: str = 'cartpole_dqn', space: Any = DISCRETE, obs: Any = NUMBERS, **options: Any
    ) -> None:
        self.cfg = config.compile_config(
            *config.read_config(ROOT / 'configs' / f'{policy}.py'), overrides=options.pop('set', ())
        )
        self.doctor = DoctorHook(options)
        spec = EnvSpec(obs, space, name='x', max_episode_steps=200)
        evaluator = SimpleNamespace(stop_value=475.0, scores_returns=True)
        self.board = SimpleNamespace(latest={}, write=self.write)
        self.run = RunView(self.cfg, Path('.'), Progress(), evaluator, spec, self.board)
        self.logged: dict[str, float] = {}
        self.said: list[str] = []

    def write(self, values: Any, step: int, **facts: Any) -> None:
        self.logged |= values

    def evaluate(
        self, score: float = 10.0, lengths: Sequence[int] = (20, 30), returns: Any = None, **metrics: float
    ) -> Patient:
        """Goes on to the next evaluation; metrics are those of training."""
        self.board.latest |= {f'train/{name}': value for name, value in metrics.items()}
        info = {
            'eval_episode_return': [score] * len(lengths) if returns is None else returns,
            'eval_episode_len': list(lengths),
            'eval_episode_cut': [False] * len(lengths),
        }
        self.run.evaluation = SimpleNamespace(score=score, info=info)
        handler = logging.Handler()
        handler.emit = lambda record: self.said.append(record.getMessage())  # type: ignore[method-assign]
        log = logging.getLogger('rlframe.doctor')
        log.addHandler(handler)
        self.doctor.after_eval(self.run)
        log.removeHandler(handler)
        return self

    def found(self) -> set[str]:
        """Returns the names of the findings, after making sure that each warning is one line with options that there are."""
        known = {key for key, _ in keys_of(find_schema(to_plain(self.cfg), [])[1])}
        for line in self.said:
            assert '\n' not in line and set(KEY.findall(line)) <= known | {'env.wrappers'}, line
        return {tag.removeprefix('doctor/') for tag in self.logged}


def keys_of(options: Any, prefix: str = '') -> Any:
    for name, option in options.items():
        yield prefix + name, option
        if isinstance(option, dict):
            yield from keys_of(option, f'{prefix}{name}.')


def entropy(value: float, scores: Sequence[float], **options: Any) -> set[str]:
    patient = Patient('cartpole_ppo', **options)
    for score in scores:
        patient.evaluate(score, entropy=value)
    return patient.found()


def test_entropy_collapse() -> None:
    flat, rising, solved = [10, 12, 11, 12, 9], [10, 12, 14, 16, 18], [480, 500, 500, 500, 500]
    assert entropy(0.01, flat) == {'entropy'}
    assert entropy(0.01, rising) == entropy(0.01, solved) == entropy(0.5, flat) == set()
    assert entropy(-6.0, flat, space=BOX) == {'entropy'}  # two Gaussians, each of 0.01 half-ranges
    assert entropy(0.0, flat, space=BOX) == set()
    assert entropy(0.01, flat, space=gymnasium.spaces.MultiBinary(3)) == {'entropy'}
    assert entropy(0.01, flat, space=gymnasium.spaces.MultiDiscrete([3, 2])) == {'entropy'}
    forced = gymnasium.spaces.Dict(observation=NUMBERS, action_mask=gymnasium.spaces.MultiBinary(4))
    assert entropy(0.01, flat, obs=forced) == set(), 'its masks may leave hardly a choice'


@pytest.mark.parametrize(
    ('value', 'found'), [(99.0, set()), (290.0, set()), (310.0, {'q_value'}), (-1e5, {'q_value'})]
)
def test_exploding_q(value: float, found: set[str]) -> None:
    patient = Patient()  # rewards of 1 in 50 env steps: 1 / (1 - 0.99) = 100
    assert patient.evaluate(50, (50, 50), q_value=value).found() == found


def test_q_values_may_be_as_large_as_returns_and_the_entropy_bonus() -> None:
    assert Patient().evaluate(500, q_value=1400.0).found() == set()
    bonus = Patient('pendulum_sac', BOX)
    assert bonus.evaluate(-50, (50, 50), q_value=400.0, alpha=1.0, entropy=-2.0).found() == set()
    normalised = Patient(set=['policy.normalize_reward=True'])
    assert normalised.evaluate(50, q_value=1e6).found() == set()


@pytest.mark.parametrize(('value', 'found'), [(0.03, set()), (0.2, {'kl'})])
def test_kl_blow_up(value: float, found: set[str]) -> None:
    assert Patient('cartpole_ppo').evaluate(approx_kl=value).found() == found


@pytest.mark.parametrize(
    ('returns', 'length', 'found'),
    [
        ((-1500, -900), 200, set()),
        ((0.0, 0.0), 200, set()),
        ((0.0, 0.9), 99, set()),
        ((1e5, 2e5), 20, {'reward_scale'}),
        ((1e-4, 0.0), 9, {'reward_scale'}),
    ],
)
def test_reward_scale_mismatch(returns: Any, length: int, found: set[str]) -> None:
    assert Patient().evaluate(float(np.mean(returns)), [length] * 2, returns).found() == found
    assert Patient(set=['policy.normalize_reward=True']).evaluate(1.0, [length] * 2, returns).found() == set()


def test_a_warning_comes_once_in_a_number_of_evaluations_and_every_finding_counts() -> None:
    patient = Patient('cartpole_ppo', repeat_every=3)
    for _ in range(7):
        patient.evaluate(approx_kl=1.0)
    assert len(patient.said) == 3 and patient.logged == {'doctor/kl': 7}
    assert Patient('cartpole_ppo', kl=None).evaluate(approx_kl=1.0).found() == set()


def test_a_doctor_goes_on_with_its_state() -> None:
    one, other = Patient('cartpole_ppo'), Patient('cartpole_ppo')
    for _ in range(4):
        one.evaluate(approx_kl=1.0, entropy=0.01, q_value=1e4)
    state = one.doctor.state_dict()
    assert state['largest_reward'] == 0.5 and state['largest_return'] == 10
    other.doctor.load_state_dict(state)
    assert other.doctor.state_dict() == state
    assert other.evaluate(approx_kl=1.0, entropy=0.01, q_value=1e4).said == []
    assert other.logged == {'doctor/entropy': 2, 'doctor/kl': 5, 'doctor/q_value': 5}


FEW = (
    'env.evaluator_env_num=2',
    'env.n_evaluator_episode=2',
    'policy.learn.learner.hook.log_show_after_iter=20',
)
DQN = ('cartpole_dqn', 'max_train_iter=600', 'policy.eval.evaluator.eval_freq=100', *FEW)
PPO = ('cartpole_ppo', 'max_train_iter=160', 'policy.eval.evaluator.eval_freq=20', *FEW)
SAC = (
    'pendulum_sac',
    'max_train_iter=120',
    'policy.eval.evaluator.eval_freq=40',
    'policy.random_collect_size=100',
    *FEW,
)


def trained(name: str, *overrides: str) -> tuple[set[str], str]:
    """Trains a shipped config for a while, and returns the findings and the log."""
    cfg = config.compile_config(
        *config.read_config(ROOT / 'configs' / f'{name}.py'), overrides=overrides, seed=0
    )
    with SerialPipeline(cfg) as pipeline:
        pipeline.run()
    records = [json.loads(line) for line in (pipeline.folder / 'metrics.jsonl').read_text().splitlines()]
    found = {tag.removeprefix('doctor/') for record in records for tag in record if tag.startswith('doctor/')}
    return found, (pipeline.folder / 'log.txt').read_text()


@pytest.mark.slow
@pytest.mark.usefixtures('cwd')
@pytest.mark.parametrize('run', [PPO, SAC], ids=['ppo', 'sac'])
def test_nothing_is_found_in_a_healthy_run(run: tuple[str, ...]) -> None:
    found, log = trained(*run)
    assert found == set() and 'doctor' not in log


@pytest.mark.slow
@pytest.mark.usefixtures('cwd')
def test_a_disease_of_a_run_is_found() -> None:
    found, log = trained(*DQN, 'policy.learn.learning_rate=0.5', 'policy.learn.target_update_freq=1')
    assert 'q_value' in found
    assert log.count('WARNING') <= len(found) + log.count('cannot be repeated') + 1


@pytest.mark.slow
@pytest.mark.usefixtures('cwd')
def test_hooks_of_a_parallel_run_get_its_evaluations_and_may_end_it(caplog: pytest.LogCaptureFixture) -> None:
    env = dict(env_id='CartPole-v1', collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2)
    main = dict(
        env=env,
        policy=dict(
            cuda=False,
            learn=dict(batch_size=16),
            collect=dict(n_sample=8),
            eval=dict(evaluator=dict(eval_freq=20)),
        ),
        hooks=dict(early_stop=dict(patience=2, min_delta=1e6), doctor=dict(kl=None)),
        parallel=dict(coordinator=dict(wait=0.005)),
    )
    create: dict[str, Any] = {name: dict(type='in_process') for name in ('comm_collector', 'comm_learner')}
    cfg = config.compile_config(main, {**create, 'policy': dict(type='dqn')}, parallel=True)
    with caplog.at_level(logging.INFO), ParallelPipeline(cfg) as pipeline:
        pipeline.run()
        state = pipeline.checkpoints._parts['hooks?'].state_dict()
    assert pipeline.hooks.stop_reason.startswith('no better evaluation in 2 (hooks.early_stop.patience)')
    assert pipeline.hooks.run.outcome == 'stopped' and pipeline.hooks.run.checkpoint is not None
    assert state['hooks']['early_stop']['worse'] >= 2 and np.isfinite(pipeline.hooks.run.evaluation.score)
