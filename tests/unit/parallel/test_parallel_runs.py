"""What the verbs do with a run of parallel mode: train, eval, export, resume, and a foreign one."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rlframe import config
from rlframe.app.scoring import Request, score
from rlframe.config import compile_config, config_data, split_config
from rlframe.errors import ConfigError, ConfigWarning, UnsafeCheckpointError
from rlframe.export import export_policy
from rlframe.pipeline import SerialPipeline, build, serial_pipeline
from rlframe.pipeline.checkpoints import RunFacts

pytestmark = pytest.mark.usefixtures('cwd')

TOKEN = 'a-secret-of-the-run-0123'
SMALL: dict[str, Any] = {
    'env': {
        'env_id': 'CartPole-v1',
        'collector_env_num': 2,
        'evaluator_env_num': 2,
        'n_evaluator_episode': 2,
    },
    'policy': {
        'model': {'encoder_hidden_size_list': [8]},
        'learn': {'batch_size': 4, 'update_per_collect': 1},
        'collect': {'n_sample': 8},
        'eval': {'evaluator': {'eval_freq': 2}},
    },
    'max_train_iter': 2,
}
ONE = {**SMALL, 'parallel': {'collector_num': 1}}
COMM = {'comm_collector': {'type': 'flask_fs'}, 'comm_learner': {'type': 'flask_fs'}}
PARALLEL = {'policy': {'type': 'dqn'}, 'commander': {'type': 'solo'}, **COMM}


def compiled(*overrides: str, **create: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', ConfigWarning)
        return compile_config(ONE, {**PARALLEL, **create}, overrides=overrides)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a run folder whose checkpoints have a config of parallel mode, with a token."""
    token = f'parallel.coordinator.transport.token={TOKEN}'
    data = config_data(*split_config(compiled(token)))
    monkeypatch.setattr(RunFacts, 'config', lambda facts: data)
    with SerialPipeline(compile_config(SMALL, {'policy': {'type': 'dqn'}})) as pipeline:
        pipeline.run()
        folder: Path = pipeline.folder
    return folder


def test_serial_mode_refuses_a_config_of_parallel_mode_before_anything_is_created(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='-m parallel') as caught:
        serial_pipeline((ONE, PARALLEL))
    assert caught.value.where == 'parallel'
    with pytest.raises(ConfigError, match='-m parallel'):
        SerialPipeline(compiled())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_search_refuses_it_before_ray_starts() -> None:
    from rlframe.tune.tuner import make_tuner

    with pytest.raises(ConfigError, match='-m parallel'):
        make_tuner((ONE, PARALLEL), {'policy.learn.learning_rate': [1e-3]})


def test_run_is_scored_exported_and_started_from(run: Path) -> None:
    assert len(score(run, Request(2))[0]) == 2
    export_policy(run, out=run / 'exported')
    assert (run / 'exported').is_dir()
    cfg = compiled(f'policy.init_from={run}')
    build.make_policy(cfg, build.make_factory(cfg).spec)


def test_evaluation_needs_nothing_of_parallel_mode() -> None:
    data = config_data(*split_config(compiled('parallel.coordinator.host=0.0.0.0')))
    with pytest.raises(UnsafeCheckpointError, match=r'parallel\.coordinator\.host'):
        config.check_trust(data, 'here', trust=False)
    played = config.as_played(data)
    config.check_trust(played, 'here', trust=False)
    assert 'parallel' not in compile_config(played['main_config'], played['create_config'])


def changed(*overrides: str, before: Mapping[str, Any] | None = None, **create: Any) -> list[str]:
    saved = config_data(*split_config(compiled(**(before or {}))))
    lines = config.check_changes(saved, compiled(*overrides, **create), 'here')
    return [line.partition(':')[0] for line in lines]


def test_resumed_run_may_have_other_workers_addresses_and_deadlines() -> None:
    words = (
        *('parallel.collector_num=4', 'commander.collector_task_space=4'),
        *('parallel.coordinator.host=0.0.0.0', 'parallel.coordinator.port=7000', 'parallel.max_restarts=0'),
        *('parallel.coordinator.worker_deadline=60', 'comm_collector.timeout=9', 'comm_learner.host=there'),
        *('parallel.coordinator.transport={"max_workers": 9}', 'parallel_collector.weights_timeout=5'),
        *('commander.eval_interval=9', 'comm_learner.send_policy_freq=3'),
    )
    keys = changed(*words)
    assert {word.partition('=')[0].replace('commander.', 'policy.other.commander.') for word in words} == {
        key.replace('parallel.collector.', 'parallel_collector.').replace('parallel.comm_', 'comm_')
        for key in keys
    }


@pytest.mark.parametrize(
    ('words', 'create'),
    [
        (['commander.lockstep=true'], {}),
        (['policy.nstep=3'], {}),
    ],
)
def test_resumed_run_keeps_what_training_depends_on(words: list[str], create: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match='a resumed run cannot change these keys'):
        changed(*words, **create)
