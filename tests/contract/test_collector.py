"""What every registered serial collector has to do, also those of modules named in ``RLFRAME_IMPORT``.

To check your own: ``RLFRAME_IMPORT=my_module pytest tests/contract/test_collector.py``.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from checked_names import names_of
from error_texts import raises
from fakes import NUMBER, STEP, FakeBoard, ScriptedPolicy, counting_manager, envs_of, frames_of
from games import counting_players
from tensor_envs import ScriptedTensors, counting_tensors

from rlframe.data import Batch
from rlframe.errors import ConfigError
from rlframe.registry import SERIAL_COLLECTOR_REGISTRY
from rlframe.run.progress import Progress
from rlframe.worker import ISerialCollector, create_serial_collector, get_serial_collector_cls


def names() -> list[str]:
    """Returns the collectors to check: those that step envs."""
    names = names_of(SERIAL_COLLECTOR_REGISTRY)
    return [name for name in names if 'open_data' not in vars(SERIAL_COLLECTOR_REGISTRY.get(name))]


Make = Any


@pytest.fixture(params=names())
def make(request: pytest.FixtureRequest) -> Make:
    """Builds the collector under test around three counting envs."""

    def build(env: Any = None, policy: Any = None, **kwargs: Any) -> ISerialCollector:
        env = env if env is not None else world(request.param, 3, lengths=4)
        policy = policy or scripted(request.param, n_sample=6, n_episode=3)
        return create_serial_collector({'type': request.param}, env=env, policy=policy.collect_mode, **kwargs)

    build.kind = request.param
    return build


def world(kind: str, env_num: int, **options: Any) -> Any:
    """Returns envs that this kind of collector steps; those of several players show each of them the same."""
    if kind == 'tensor':
        return counting_tensors(env_num, **options)
    return (counting_players if kind.endswith('_1v1') else counting_manager)(env_num, **options)


def scripted(kind: str, **facts: Any) -> Any:
    """Returns a policy that this kind of collector can use."""
    return (ScriptedTensors if kind == 'tensor' else ScriptedPolicy)(**facts)


def rows_of(collected: Any) -> list[Any]:
    """Returns single rows of samples or of episodes, of all players."""
    if isinstance(collected, tuple):
        return [row for own in collected[0] for row in rows_of(own)]
    return [row for entry in collected for row in (entry if isinstance(entry, Batch) else [entry])]


def test_rows_are_of_one_step_each_and_envstep_counts_them(make: Make) -> None:
    env = world(make.kind, 3, lengths=4)
    collector = make(env)
    for _ in range(4):
        for row in rows_of(collector.collect()):
            assert row['next_obs'].tolist() == [row['obs'][NUMBER], row['obs'][1], row['obs'][STEP] + 1]
            assert row['terminated'] == (row['next_obs'][STEP] == 4)
    assert collector.envstep == frames_of(env) > 0


def test_the_policy_s_settings_and_train_iter_arrive(make: Make) -> None:
    policy = scripted(make.kind, n_sample=6, n_episode=3)
    collected = make(policy=policy).collect(train_iter=7, policy_kwargs={'eps': 0.25})
    assert policy.given_settings[0] == {'eps': 0.25}
    assert all(row['collect_iter'] == 7 for row in rows_of(collected))


@pytest.mark.parametrize('progress', [None, Progress()], ids=['own', 'shared'])
def test_reset_begins_own_counters_anew_and_takes_over_env_and_policy(
    make: Make, progress: Progress | None
) -> None:
    collector = make(progress=progress)
    collector.collect()
    kept = 0 if progress is None else collector.envstep
    collector.reset()
    assert collector.envstep == kept
    other = world(make.kind, 2, lengths=3)
    collector.reset(scripted(make.kind, n_sample=4, n_episode=2).collect_mode, other)
    collector.collect()
    assert collector.envstep == kept + frames_of(other)


def test_envs_are_seeded_once_and_differently_by_seed_and_rank(make: Make) -> None:
    seen, generators = set(), 0
    for seed, rank in ((0, 0), (0, 1), (1, 0)):
        env = world(make.kind, 3, lengths=4)
        make(env, seed=seed, rank=rank).collect()
        seeds = [e.seeds[0] for e in envs_of(env)]
        assert None not in seeds and all(s is None for e in envs_of(env) for s in e.seeds[1:])
        seen.update(seeds)
        generators += len(seeds)
    assert len(seen) == generators


def test_metrics_are_written_with_the_env_step(make: Make) -> None:
    board = FakeBoard()
    collector = make(tb_logger=board)
    for train_iter in range(0, 500, 50):
        collector.collect(train_iter=train_iter)
    assert 'rollout/ep_rew_mean' in board.tags() and board.last('rollout/ep_len_mean') == 4


def test_state_can_be_saved_loaded_and_is_a_copy(make: Make) -> None:
    collector = make()
    collector.collect()
    state = collector.state_dict()
    before = copy.deepcopy(state['log'])
    collector.collect()
    np.testing.assert_equal(state['log'], before)
    make().load_state_dict(state)


def test_close_may_be_called_twice(make: Make) -> None:
    env = world(make.kind, 2)
    collector = make(env)
    collector.close()
    collector.close()
    assert env.closed


def test_unknown_types_name_the_closest() -> None:
    assert get_serial_collector_cls({'type': 'sample'}).__name__ == 'SampleSerialCollector'
    with raises(ConfigError):
        create_serial_collector({'type': 'sampel'})
