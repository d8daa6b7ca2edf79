"""n steps, saving, loading into envs that were made anew, and n steps are 2n steps: statistics of wrappers included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import env_zoo
import gymnasium
import numpy as np
import pytest
from fakes import config_pair
from gymnasium import wrappers
from gymnasium.wrappers import vector

from rlframe import config
from rlframe.envs.env_manager import BaseEnvManager
from rlframe.envs.vector_env import GymVectorEnvManager
from rlframe.pipeline import SerialPipeline
from rlframe.run.manifest import read_manifest
from rlframe.run.read_checkpoint import load_checkpoint
from rlframe.run.write_checkpoint import save_checkpoint


def wrapped() -> Any:
    env = wrappers.RecordEpisodeStatistics(gymnasium.make('CartPole-v1'))
    return wrappers.NormalizeReward(wrappers.NormalizeObservation(wrappers.DelayObservation(env, 1)))


def sync() -> Any:
    return gymnasium.vector.SyncVectorEnv([wrapped] * 3)


def whole() -> Any:
    envs = gymnasium.make_vec('CartPole-v1', 3, vectorization_mode='vector_entry_point')
    return vector.NormalizeReward(vector.NormalizeObservation(vector.RecordEpisodeStatistics(envs)))


MANAGERS = {
    'vector of wrapped envs': lambda: GymVectorEnvManager(sync),
    'wrapped native vector': lambda: GymVectorEnvManager(whole),
}


def play(manager: Any, steps: int, rng: np.random.Generator) -> list[Any]:
    told = []
    for _ in range(steps):
        ready = manager.ready
        step = manager.step(rng.integers(2, size=len(ready)), ready)
        told += [step.obs.copy(), step.reward.copy(), step.done.copy()]
        if step.done.any():
            manager.reset(step.env_id[step.done])
    return told


@pytest.mark.parametrize('name', MANAGERS)
def test_2n_steps_equal_n_steps_saved_loaded_and_n_steps(name: str, tmp_path: Path) -> None:
    manager, other = MANAGERS[name](), MANAGERS[name]()
    try:
        manager.reset(seed=[1, 2, 3])
        play(manager, 60, np.random.default_rng(1))
        assert manager.restart_lost().tolist() == []
        assert not manager.unsaved
        saved = save_checkpoint(tmp_path / 'saved', {'env': manager.state_dict()})
        assert other.load_state_dict(load_checkpoint(saved)[0]['env']).tolist() == []
        assert not other.unsaved
        one, two = (play(each, 60, np.random.default_rng(2)) for each in (manager, other))
        for a, b in zip(one, two, strict=True):
            np.testing.assert_array_equal(a, b)
    finally:
        manager.close()
        other.close()


def test_envs_that_their_saved_state_does_not_fit_begin_anew_and_say_why() -> None:
    manager, other = (BaseEnvManager([env_zoo.SAVED[name]] * 2) for name in ('Functions', 'Spaces'))
    manager.reset(seed=[1, 2])
    play(manager, 3, np.random.default_rng(1))
    assert other.load_state_dict(manager.state_dict()).tolist() == [0, 1]
    assert other.unsaved[0] == 'Functions is missing'


def test_a_checkpoint_says_which_envs_are_not_saved_and_why(
    cwd: Path, caplog: pytest.LogCaptureFixture
) -> None:
    main, create = config_pair(env={'env_id': 'zoo:ClosedCartPole', 'collector_env_num': 2})
    with SerialPipeline(config.compile_config(main, create, seed=1)) as pipeline:
        for _ in range(3):
            pipeline.step()
        pipeline.save_checkpoint(cwd / 'saved')
    told = read_manifest(cwd / 'saved')['unsaved']
    assert set(told) == {'0', '1'}
    assert told['0'].startswith('ClosedCartPole.handle (tuple_iterator)')
    assert 'env 0, 1: ClosedCartPole.handle' in caplog.text
