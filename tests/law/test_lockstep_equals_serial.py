"""One collector and one learner in lockstep train to the same bits as the serial pipeline: the roles add nothing."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from demonstrations import demonstrations
from parallel_parts import compiled, wait_until
from runs import differences

from rlframe.parallel.comm_collector import BaseCommCollector
from rlframe.parallel.comm_learner import BaseCommLearner
from rlframe.parallel.coordinator.assembly import CoordinatedRun, TrainingData, Version
from rlframe.parallel.coordinator.coordinator import Coordinator
from rlframe.parallel.coordinator.solo_commander import SoloCommander
from rlframe.parallel.parallel_collectors import ZerglingParallelCollector
from rlframe.parallel.roles import collector_maker, evaluator_maker, learner_maker
from rlframe.parallel.transport.answering import InProcessServer
from rlframe.pipeline import SerialPipeline, build
from rlframe.pipeline.reward_models import make_reward_models
from rlframe.run.progress import Progress
from rlframe.utils.seed import set_seed

UPDATES = 20
JUDGED = {
    'airl': 'batch_size=16, update_per_collect=2',
    'gcl': 'batch_size=16, update_per_collect=2',
    'drex': 'updates=5, clone_updates=5, noise=[1.0, 0.0], episodes_per_noise=2',
}
"""Reward models that ask how likely the policy takes actions, or play episodes: some of their options."""
CASES = {
    'dqn': ('cartpole_dqn', 'policy.learn.batch_size=8', 'policy.random_collect_size=30'),
    'ppo': (
        *('cartpole_ppo', 'policy.collect.n_sample=24', 'policy.learn.epoch_per_collect=2'),
        'policy.normalize_obs=true',
        "policy.learn.learning_rate={'type': 'linear', 'start': 0.01, 'end': 0.0001, 'decay': 200}",
        "policy.learn.clip_ratio={'type': 'linear', 'start': 0.3, 'end': 0.01, 'decay': 200}",
    ),
    'ppo counts': ('cartpole_ppo', 'policy.collect.n_sample=24', 'reward_model=dict(counts=dict(cell=0.1))'),
    'dqn rnd': (
        *('cartpole_dqn', 'policy.learn.batch_size=8', 'policy.random_collect_size=30'),
        'reward_model=dict(rnd=dict(batch_size=16), counts=dict(cell=0.1))',
    ),
    **{
        f'ppo {name}': (
            *('cartpole_ppo', 'policy.collect.n_sample=24'),
            f"reward_model=dict(type={name!r}, data='DATA', hidden_size_list=[8], {options})",
        )
        for name, options in JUDGED.items()
    },
    'sac_discrete airl': (
        *('cartpole_sac_discrete', 'policy.learn.batch_size=16', 'policy.random_collect_size=100'),
        *('policy.collect.n_sample=8', 'policy.learn.update_per_collect=1'),
        f"reward_model=dict(type='airl', data='DATA', hidden_size_list=[8], {JUDGED['airl']})",
    ),
    'impala': ('cartpole_impala', 'policy.collect.n_sample=24', 'policy.model.core=gru'),
    'sac': ('pendulum_sac', 'policy.learn.batch_size=8', 'policy.random_collect_size=16'),
}


class Run(CoordinatedRun):
    def __init__(self) -> None:
        self.scores: list[tuple[int, float]] = []

    def is_spent(self, progress: Progress, updates_due: int) -> bool:
        return progress.train_iter >= UPDATES

    def evaluated(self, facts: Mapping[str, Any], weights: Version | None, is_best: bool) -> None:
        self.scores.append((facts['train_iter'], facts['score']))


def in_lockstep(cfg: Any) -> tuple[Any, Coordinator, Run]:
    """Trains with a coordinator, a collector and a learner, each in its thread; returns the learner's policy."""
    set_seed(cfg.seed)
    factory, run, server = build.make_factory(cfg), Run(), InProcessServer()
    policy = build.make_policy(cfg, factory.spec)
    learn = cfg.policy.learn
    commander = SoloCommander(
        {'lockstep': True},
        policy=policy.command_mode,
        seed=cfg.seed,
        eval_freq=cfg.policy.eval.evaluator.eval_freq,
        stop_value=None,
        random_collect_size=cfg.policy.random_collect_size,
    )
    data = TrainingData(
        build.make_buffer(cfg, build.make_factory(cfg)),
        learn.get('batch_size') or 1,
        learn.get('update_per_collect') or 1,
    )
    data.pay_by(make_reward_models(cfg, policy, factory), policy)
    own = {'parallel': {'coordinator': {'wait': 0.002}}}
    coordinator = Coordinator(own, server=server, commander=commander, data=data, run=run)
    coordinator.start()
    learner = BaseCommLearner(make_learner=learner_maker(cfg), transport=server.connect(), name='l')
    driver = ZerglingParallelCollector({}, collector_maker(cfg), evaluator_maker(cfg))
    collector = BaseCommCollector({}, collector=driver, transport=server.connect(), name='c')
    collector.start()
    learner.start()
    try:
        wait_until(lambda: coordinator.check() or coordinator.system_shutdown_flag)
    finally:
        collector.close()
        learner.close()
        coordinator.close()
    return learner.learner, coordinator, run


def serial(
    cfg: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[SerialPipeline, list[tuple[int, float]]]:
    monkeypatch.chdir(folder)
    pipeline, scores = SerialPipeline(cfg), []
    submit = pipeline.evaluator.submit

    def noted(*args: Any) -> None:
        submit(*args)
        scores.append((pipeline.progress.train_iter, pipeline.evaluator.score))

    pipeline.evaluator.submit = noted  # type: ignore[method-assign]
    pipeline.run()
    pipeline.cleanup()
    return pipeline, scores


@pytest.mark.parametrize(
    'case',
    [
        *(
            'dqn',
            'dqn rnd',
            'ppo',
            'ppo counts',
            'ppo airl',
            'ppo gcl',
            'ppo drex',
            'sac_discrete airl',
            'impala',
        ),
        pytest.param('sac', marks=pytest.mark.slow),
    ],
)
def test_lockstep_equals_serial(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = demonstrations(tmp_path / 'expert.npz')
    name, *overrides = (word.replace('DATA', data) for word in CASES[case])
    options = (f'max_train_iter={UPDATES}', 'policy.eval.evaluator.eval_freq=8', 'env.stop_value=1e9')
    cfg = compiled(name, *overrides, *options)
    learner, coordinator, run = in_lockstep(copy.deepcopy(cfg))
    pipeline, scores = serial(cfg, tmp_path, monkeypatch)
    assert coordinator.progress.envstep == pipeline.progress.envstep
    assert learner.train_iter == pipeline.progress.train_iter >= UPDATES
    ours, theirs = learner.policy.state_dict()['model'], pipeline.policy.learn_mode.state_dict()['model']
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in theirs)
    assert run.scores == scores
    if pipeline.replay_buffer is not None:
        one, other = coordinator.data.buffer.state_dict(), pipeline.replay_buffer.state_dict()
        assert differences(one, other) == []
    if pipeline.reward_models is not None:
        paid = coordinator.data.reward_models.state_dict(), pipeline.reward_models.state_dict()
        assert differences(*paid) == []
