"""The training doctor: each check finds its disease in a run that has it, and nothing in one that has not."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

from rlframe import config
from rlframe.config.schema import find_schema
from rlframe.data import Batch, EnvSpec
from rlframe.pipeline import SerialPipeline
from rlframe.registry import HOOK_REGISTRY
from rlframe.run.progress import Progress
from rlframe.utils.field import to_plain
from rlframe.worker.hooks import DoctorHook, RunView
from rlframe.worker.hooks.doctor import CHECKS

ROOT = Path(__file__).parents[3]
KEY = re.compile(r'\b(?:policy|env|parallel|hooks)(?:\.[a-zA-Z_]+)+')
DISCRETE, BOX = gymnasium.spaces.Discrete(4), gymnasium.spaces.Box(-1, 1, (2,), np.float32)
NUMBERS = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
NAMES = {check.name for check in CHECKS}


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
        collector = SimpleNamespace(mean_return=lambda: self.trained)
        self.board, self.trained = SimpleNamespace(latest={}, write=self.write), float('nan')
        self.run = RunView(self.cfg, Path('.'), Progress(), evaluator, spec, self.board, collector=collector)
        self.logged: dict[str, float] = {}
        self.said: list[str] = []

    def write(self, values: Any, step: int, **facts: Any) -> None:
        self.logged |= values

    def collect(self, **columns: Any) -> Patient:
        self.run.collected = Batch({name: np.asarray(column) for name, column in columns.items()})
        self.doctor.after_collect(self.run)
        return self

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
    patient = Patient().collect(reward=np.ones(8, np.float32))  # 1 / (1 - 0.99) = 100
    assert patient.evaluate(50, q_value=value).found() == found


def test_q_values_may_be_as_large_as_returns_and_the_entropy_bonus() -> None:
    assert Patient().evaluate(500, q_value=1400.0).found() == set()
    bonus = Patient('pendulum_sac', BOX).collect(reward=np.ones(8, np.float32))
    assert bonus.evaluate(-50, q_value=400.0, alpha=1.0, entropy=-2.0).found() == set()
    normalised = Patient(set=['policy.normalize_reward=True']).collect(reward=np.ones(8, np.float32))
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


def test_all_episodes_truncated() -> None:
    def found(scores: Sequence[float], length: int) -> set[str]:
        patient = Patient(truncated=4)
        for score in scores:
            patient.evaluate(score, [length] * 2)
        return patient.found()

    assert found([-200] * 4, 200) == {'truncated'}
    assert found([-200] * 3, 200) == found([-200] * 4, 199) == found([-200, -200, -190, -200], 200) == set()


def test_saturated_actions() -> None:
    def found(action: float, scores: Sequence[float]) -> set[str]:
        patient = Patient('pendulum_sac', BOX).collect(action=np.full((80, 2), action, np.float32))
        for score in scores:
            patient.evaluate(score)
        return patient.found()

    assert found(1.0, [-900, -800, -900, -900, -900]) == {'saturation'}
    assert found(-0.5, [-900, -800, -900, -900, -900]) == found(1.0, [-900, -800, -700, -600, -500]) == set()


def test_replay_ratio_drift() -> None:
    def found(*ratios: float, set: Sequence[str] = ()) -> Any:
        patient = Patient(set=set)
        for ratio in ratios:
            patient.run.progress.envstep += 1000
            patient.run.progress.train_iter += int(1000 * ratio)
            patient.evaluate()
        return patient.found()

    # 5 / 8 is planned; the first window fills the buffer
    assert found(0.2, 0.625, 0.625, 0.5) == found(0.625) == set()
    assert found(0.625, 0.625, 0.2) == found(0.625, 2.0) == {'replay_ratio'}
    unplanned = [
        'policy.collect.n_sample=None',
        'policy.collect.n_episode=4',
        'collector.type=episode',
        'collector.get_train_sample=True',
    ]
    assert found(0.2, 2.0, 1.9, set=unplanned) == set() and found(0.2, 2.0, 0.5, set=unplanned) == {
        'replay_ratio'
    }


@pytest.mark.parametrize(('collected_at', 'found'), [(990, set()), (700, {'stale_weights'})])
def test_stale_weights(collected_at: int, found: set[str]) -> None:
    patient = Patient()
    patient.run.progress.train_iter = 1000
    patient.collect(collect_iter=np.full(8, collected_at, np.int32))
    patient.run.progress.train_iter = 5000  # since then, it was trained
    assert patient.evaluate().found() == found
    patient = Patient('cartpole_dqn_parallel')
    patient.board.latest['parallel/staleness'] = 1000.0 - collected_at
    assert patient.evaluate().found() == found


def test_return_below_random() -> None:
    def found(random: float, *scores: float) -> set[str]:
        patient = Patient(below_random=3)
        patient.trained, patient.run.progress.episodes = random, 20
        for score in scores:
            patient.evaluate(score)
            patient.run.progress.episodes = 500
        return patient.found()

    assert found(20.0, 5, 9, 9, 9) == found(-200.0, -400, -300, -300, -290) == {'below_random'}
    assert found(20.0, 5, 19, 9, 19) == found(20.0, 9, 9) == found(float('nan'), 9, 9, 9) == set()


def test_dead_units() -> None:
    with SerialPipeline(
        config.compile_config(
            *config.read_config(ROOT / 'configs' / 'cartpole_dqn.py'), overrides=['policy.learn.batch_size=8']
        )
    ) as pipeline:
        patient = Patient()
        patient.run.policy = pipeline.policy
        rng = np.random.default_rng(0)
        patient.collect(obs=rng.normal(size=(100, 4)).astype(np.float32))
        assert patient.evaluate().found() == set()
        next(iter(pipeline.policy.get_attribute('model').encoder.layers)).bias.data.fill_(-100.0)
        assert patient.evaluate().found() == {'dead_units'}


@pytest.fixture(autouse=True)
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_warning_comes_once_in_a_number_of_evaluations_and_every_finding_counts() -> None:
    patient = Patient('cartpole_ppo', repeat_every=3)
    for _ in range(7):
        patient.evaluate(approx_kl=1.0)
    assert len(patient.said) == 3 and patient.logged == {'doctor/kl': 7}
    assert Patient('cartpole_ppo', kl=None).evaluate(approx_kl=1.0).found() == set()


def test_a_doctor_goes_on_with_its_state() -> None:
    one, other = Patient('cartpole_ppo'), Patient('cartpole_ppo')
    for _ in range(4):
        one.evaluate(approx_kl=1.0, entropy=0.01)
    other.doctor.load_state_dict(one.doctor.state_dict())
    assert other.doctor.state_dict() == one.doctor.state_dict()
    assert other.evaluate(approx_kl=1.0, entropy=0.01).said == [] and other.logged == {
        'doctor/entropy': 2,
        'doctor/kl': 5,
    }


def test_every_check_says_what_it_looks_at_and_where_from() -> None:
    assert HOOK_REGISTRY.get('doctor') is DoctorHook and len(NAMES) == 10
    for check in CHECKS:
        assert 'Source:' in (check.__doc__ or ''), check
    assert set(DoctorHook.config_fields()) == {*NAMES, 'repeat_every'}


@pytest.mark.parametrize('blocks', [[8] * 70, [600, 8], [2048], [100, 0], []], ids=str)
def test_a_restored_doctor_sees_the_rows_that_the_saved_one_saw(blocks: list[int]) -> None:
    one, other = Patient('cartpole_ppo'), Patient('cartpole_ppo')
    rng = np.random.default_rng(0)

    def rows(count: int) -> dict[str, Any]:
        stamps = rng.integers(0, 50, count)
        return dict(
            obs=rng.random((count, 4), np.float32), reward=rng.random(count, np.float32), collect_iter=stamps
        )

    for count in blocks:
        one.collect(**rows(count))
    state = one.doctor.state_dict()
    assert sum(column.nbytes for column in state['recent']['columns'].values()) <= 512 * 32
    other.doctor.load_state_dict(state)
    for more in (0, 8, 500):
        if more:
            new = rows(more)
            one.collect(**new)
            other.collect(**new)
        mine, others = one.doctor._recent, other.doctor._recent
        for name in ('obs', 'reward', 'action'):
            np.testing.assert_array_equal(mine.column(name), others.column(name))
        np.testing.assert_array_equal(mine.staleness(), others.staleness())
