"""Seeds that share a process are, each of them, the run that they are alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from error_texts import raises
from parallel_parts import compiled

from rlframe.errors import ConfigError, EnvError, NonFiniteError
from rlframe.pipeline import SerialPipeline
from rlframe.pipeline.stacked_seeds import StackedSeeds, check_seeds
from rlframe.policy.parts.stacked import StackedUpdate
from rlframe.worker.evaluator import InteractionSerialEvaluator

UPDATES = 60
PPO = 'cartpole_ppo', 'policy.collect.n_sample=96'
SAC = 'pendulum_sac', 'policy.random_collect_size=30'
RUNS = {
    'dqn': ('cartpole_dqn', 'policy.learn.grad_clip_norm=0.5', 'env.n_evaluator_episode=4'),
    'success': ('bitflip_dqn', 'env.n_evaluator_episode=4'),
    'ppo': (*PPO, 'policy.learn.value_norm=true', 'policy.normalize_obs=true'),
    'a2c': (*PPO, 'policy.type=a2c', 'policy.learn.batch_size=null'),
    'sac': SAC,
    'td3': ('pendulum_td3', 'policy.random_collect_size=30'),
}
CLOSE = 1e-5
"""What rounding makes of numbers in as many updates."""


def config(case: str, seed: int, *more: str) -> Any:
    end = f'max_train_iter={UPDATES}', 'policy.eval.evaluator.eval_freq=25'
    return compiled(*RUNS[case], f'seed={seed}', *end, *more)


class Trained:
    """Runs of some seeds, by seed: what each has at its end, or the error that ended it."""

    def __init__(self) -> None:
        self.facts: dict[int, tuple[Any, ...]] = {}
        self.weights: dict[int, dict[str, torch.Tensor]] = {}
        self.errors: dict[int, Exception] = {}

    def train(self, cfg: Any, join: Callable[[Any], None], begin: Callable[[Any], Any], **given: Any) -> None:
        try:
            with SerialPipeline(cfg, **given) as pipeline:
                join(pipeline)
                pipeline.run(begin(pipeline))
                scores = float(pipeline.evaluator.latest), float(pipeline.evaluator.best)
                self.facts[cfg.seed] = (pipeline.progress.envstep, pipeline.progress.train_iter, *scores)
                self.weights[cfg.seed] = {
                    name: tensor.clone() for name, tensor in pipeline.policy.model.state_dict().items()
                }
        except Exception as error:
            self.errors[cfg.seed] = error


def together(cfgs: Sequence[Any], begin: Callable[[Any], Any] = lambda pipeline: None) -> Trained:
    trained, seeds = Trained(), StackedSeeds(cfgs[0])
    seeds.run([partial(trained.train, cfg, seeds.join, begin) for cfg in cfgs])
    return trained


def alone(cfg: Any, begin: Callable[[Any], Any] = lambda pipeline: None, **given: Any) -> Trained:
    trained = Trained()
    trained.train(cfg, lambda pipeline: None, begin, **given)
    return trained


def assert_same(found: Trained, wanted: Trained, seed: int) -> None:
    assert found.facts[seed] == pytest.approx(wanted.facts[seed], rel=CLOSE)
    for name, weight in wanted.weights[seed].items():
        torch.testing.assert_close(found.weights[seed][name], weight, atol=CLOSE, rtol=0)


@pytest.fixture
def stacked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds in each update that was made together."""
    sizes: list[int] = []
    step = StackedUpdate.step

    def counted(self: StackedUpdate, rows: Any, turn: bool) -> Any:
        sizes.append(len(rows))
        return step(self, rows, turn)

    monkeypatch.setattr(StackedUpdate, 'step', counted)
    return sizes


@pytest.mark.parametrize(
    'case',
    [
        'dqn',
        'success',
        *(pytest.param(case, marks=pytest.mark.slow) for case in ('ppo', 'a2c', 'sac', 'td3')),
    ],
)
def test_each_seed_equals_its_run_alone(case: str, stacked: list[int], cwd: Path) -> None:
    cfgs = [config(case, seed) for seed in (0, 1, 2)]
    found = together(cfgs)
    assert not found.errors
    assert stacked == [3] * (found.facts[0][1] - 1)  # the first updates are made alone
    for cfg in cfgs[::2]:
        assert_same(found, alone(cfg), cfg.seed)


@pytest.mark.slow
def test_evaluations_that_are_due_together_are_played_in_one_rollout(
    monkeypatch: pytest.MonkeyPatch, cwd: Path
) -> None:
    played: list[int] = []
    play = InteractionSerialEvaluator.play

    def counted(self: InteractionSerialEvaluator, episodes: int, *rest: Any) -> Any:
        played.append(episodes)
        return play(self, episodes, *rest)

    monkeypatch.setattr(InteractionSerialEvaluator, 'play', counted)
    for episodes, each in ((4, [12]), (3, [3, 3, 3])):  # three do not share evenly two envs
        played.clear()
        together([config('dqn', seed, f'env.n_evaluator_episode={episodes}') for seed in (0, 1, 2)])
        assert played == each * (len(played) // len(each))


def test_a_seed_whose_evaluation_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch, cwd: Path) -> None:
    seed_of = InteractionSerialEvaluator.seed_of

    def failing(self: InteractionSerialEvaluator, number: int) -> int:
        if self._seed == 1:
            raise EnvError('no such episode')
        return seed_of(self, number)

    monkeypatch.setattr(InteractionSerialEvaluator, 'seed_of', failing)
    cfgs = [config('dqn', seed) for seed in (0, 1, 2)]
    found = together(cfgs)
    assert list(found.errors) == [1] and isinstance(found.errors[1], EnvError)
    assert_same(found, alone(cfgs[2]), 2)


@pytest.mark.slow
def test_a_seed_that_ends_early_leaves_the_others_as_they_are(stacked: list[int], cwd: Path) -> None:
    def until(pipeline: Any) -> Any:
        return lambda _: pipeline.cfg.seed == 1 and pipeline.progress.train_iter >= UPDATES // 2

    cfgs = [config('dqn', seed) for seed in (0, 1, 2)]
    found = together(cfgs, until)
    assert found.facts[1][1] < UPDATES == found.facts[0][1]
    assert set(stacked) == {3, 2}
    assert_same(found, alone(cfgs[2]), 2)
    assert_same(found, alone(cfgs[1], until), 1)


def test_a_seed_alone_resumes_a_run_that_was_stacked(cwd: Path) -> None:
    def until(pipeline: Any) -> Any:
        def save(_: Any) -> bool:
            if is_over := pipeline.progress.train_iter >= UPDATES // 2:
                pipeline.save_checkpoint(cwd / f'saved{pipeline.cfg.seed}')
            return is_over

        return save

    cfgs = [config('dqn', seed) for seed in (0, 1)]
    assert not together(cfgs, until).errors
    found = alone(cfgs[1], resume=cwd / 'saved1')
    assert_same(found, alone(cfgs[1]), 1)


def test_a_seed_that_diverges_fails_alone(stacked: list[int], cwd: Path) -> None:
    def spoil(pipeline: Any) -> Any:
        def at_once(_: Any) -> bool:
            if pipeline.cfg.seed == 1 and pipeline.progress.train_iter >= UPDATES // 2:
                next(pipeline.policy.update.targets.network.parameters()).fill_(float('nan'))
            return False

        return at_once

    cfgs = [config('dqn', seed) for seed in (0, 1, 2)]
    found = together(cfgs, spoil)
    assert list(found.errors) == [1] and isinstance(found.errors[1], NonFiniteError)
    assert set(stacked) == {3, 2}
    assert_same(found, alone(cfgs[2]), 2)


@pytest.mark.parametrize(
    'words',
    [
        (*RUNS['dqn'], 'policy.compile=true'),
        (*RUNS['dqn'], 'policy.precision=bf16'),
        (*RUNS['dqn'], 'policy.learn.nan_policy=skip'),
        (*RUNS['dqn'], 'policy.model.noisy=true'),
        (*RUNS['ppo'], 'policy.model.core=gru', 'policy.learn.unroll_len=8'),
        (*PPO, 'policy.type=trpo'),
        (*SAC, 'policy.type=crossq'),
        (*RUNS['dqn'], 'policy.eval.evaluator.backend=ray'),
    ],
    ids=['compile', 'precision', 'skip', 'noisy', 'core', 'own_step', 'why_alone', 'backend'],
)
def test_what_cannot_be_stacked_is_refused_with_what_to_do_instead(words: tuple[str, ...]) -> None:
    with raises(ConfigError):
        check_seeds(compiled(*words))


def test_seeds_with_different_options_are_refused(cwd: Path) -> None:
    found = together([config('dqn', 0), config('dqn', 1, 'policy.learn.batch_size=8')])
    assert not found.errors.get(0)
    with raises(ConfigError):
        raise found.errors[1]
