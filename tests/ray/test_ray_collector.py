"""Actors together: the order of their shares, first ready first served, and what is counted when some of them are lost."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import torch
from fake_ray import make_pool
from fakes import config_pair
from fault_envs import wait_until
from ray_runs import BATTLES, RAY, columns, config_of, is_alive, is_conserved
from runs import differences
from zoo import RankError

from rlframe.backend.ray.backend import MakeCollector
from rlframe.config import compile_config
from rlframe.errors import EnvCrashedError, SerializationError, WorkerLostError
from rlframe.pipeline import SerialPipeline, build
from rlframe.remote.worker import Worker
from rlframe.run.progress import Progress
from rlframe.utils.seed import set_seed

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures('ray_of_tests')]


def compiled(env: Any = None, **sections: Any) -> Any:
    collector = {'backend': 'ray', **sections.pop('collector', {})}
    pair = config_pair(env=env or {}, collector=collector, exp_name='ray', **sections)
    return compile_config(*pair, seed=3)


@contextmanager
def collecting(env: Any = None, **sections: Any) -> Iterator[tuple[Any, Any]]:
    """Makes a collector and its policy, and closes them."""
    with collecting_by(compiled(env, **sections)) as made:
        yield made


@contextmanager
def collecting_by(cfg: Any) -> Iterator[tuple[Any, Any]]:
    """Does the same by a compiled config."""
    set_seed(cfg.seed)
    factory = build.make_factory(cfg)
    backend = build.collector_backend(cfg, factory)
    try:
        policy = build.make_policy(cfg, factory.spec)
        yield backend.make_collector(cfg, policy, progress=Progress()), policy
    finally:
        backend.close()


def telling(folder: Path | str = '', seconds: float = 0.0) -> dict[str, Any]:
    return {
        'env_id': 'zoo:TellingEnv',
        'kwargs': {'folder': str(folder), 'seconds': seconds},
        'collector_env_num': 2,
    }


def learn(policy: Any, turn: int) -> None:
    """Changes the weights as no learner would, and draws from the generator as some do."""
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter += 0.02 * torch.cos(torch.arange(parameter.numel()) + turn).reshape(parameter.shape)
    policy.rng.random(turn)


def pids(collector: Any) -> list[int]:
    return [slot.facts.pid for _, slot in sorted(collector._pool.slots.items())]


def test_shares_of_two_actors_are_those_of_collectors_with_their_ranks_in_order() -> None:
    options = {'collector': {'num_collectors': 2, 'mark_episodes': True}, 'policy_': {'nstep': 2}}
    with collecting(**options) as (remote, policy):
        cfg = compiled(**options)
        parts = [MakeCollector(cfg, build.make_factory(cfg))(rank, 0) for rank in (0, 1)]
        for turn in range(4):
            parts[0].trained.get_attribute('acting').load_state(policy.get_attribute('acting').state())
            shares = []
            for part, size in zip(parts, (7, 6), strict=True):
                part.trained.load_state_dict(policy.collect_mode.state_dict())
                shares.append(
                    columns(part.collector.collect(size, train_iter=turn, policy_kwargs={'eps': 0.4}))
                )
            together = columns(remote.collect(13, train_iter=turn, policy_kwargs={'eps': 0.4}))
            shares[1]['env_id'] += 4  # whose numbers go on where those of the first actor end
            for name, column in together.items():
                expected = np.concatenate([share[name] for share in shares])
                assert column.dtype == expected.dtype and column.tobytes() == expected.tobytes(), name
            assert remote.versions == [turn // 2 + 1] * 2, 'weights are put once per version'
            if turn % 2:
                learn(policy, turn)
        assert remote.envstep == sum(part.progress.envstep for part in parts)
        assert remote.requested == remote.delivered == 52 and is_conserved(remote)


def test_saved_collector_goes_on_acting_with_the_weights_that_its_actors_had() -> None:
    options = {'num_collectors': 2, 'update_after_each_batch': False, 'max_weight_update_interval': 5}
    with collecting(collector=options) as (collector, policy):
        collector.collect(8, train_iter=0)
        learn(policy, 1)
        collector.collect(8, train_iter=1)
        state = collector.state_dict()
        rounds = []
        for _ in range(2):
            rounds.append([])
            for turn in range(4):
                rounds[-1].append((columns(collector.collect(8, train_iter=turn)), collector.versions))
            collector.load_state_dict(state)
    assert [versions for _, versions in rounds[1]] == [[1, 1], [1, 1], [1, 1], [2, 2]]
    assert differences(*rounds) == []


def test_async_returns_exactly_what_is_asked_for_and_keeps_count() -> None:
    options = {'num_collectors': 2, 'sync': False, 'max_in_flight': 2}
    with collecting(telling(), collector=options) as (collector, policy):
        for turn, count in enumerate([8, 1, 13, 30, 2, 50]):
            learn(policy, turn)
            data = collector.collect(count, train_iter=turn)
            assert len(data) == count and is_conserved(collector)
            assert len(collector._pool.calls) <= 4
            assert max(collector.versions) <= turn + 1 and (data['collect_iter'] <= turn).all()
        refs = [call.ticket for call in collector._pool.calls]
        assert len(ray.wait(refs, num_returns=len(refs), timeout=60)[0]) == len(refs)
        data = collector.collect(collector.in_flight)
        assert set(np.asarray(data['obs'])[:, 0]) == set(pids(collector))
        collector.settle()
        assert collector.in_flight == sum(len(ready.data) for ready in collector._ready)
        assert collector.envstep == collector.delivered + collector.carried


@pytest.mark.filterwarnings('ignore:The old environment creation API:DeprecationWarning')  # of PettingZoo
@pytest.mark.parametrize('case', ['battle samples', 'dqn episodes'])
def test_async_keeps_count_of_games_and_of_episodes(case: str) -> None:
    words = ['collector.type=episode', 'collector.get_train_sample=true', 'policy.collect.n_sample=None']
    given = [*words, 'policy.collect.n_episode=4'] if case == 'dqn episodes' else []
    if case in BATTLES:
        pytest.importorskip('pettingzoo')
    name = case if case in BATTLES else 'dqn naive'
    cfg = config_of(name, *given, *RAY, 'collector.num_collectors=2', 'collector.sync=false')
    with collecting_by(cfg) as (collector, _):
        asked_for = 0
        for turn, count in enumerate((5, 3, 7, 1), 1):
            collected = collector.collect(count, train_iter=turn)
            asked_for += count
            assert is_conserved(collector) and collector.delivered >= asked_for
            if case == 'battle samples':
                assert collector.delivered == asked_for
                assert [len(own) for own in collected[0]] == [count, count]
        collector.settle()
        state = collector.state_dict()
        waiting, steps = collector.in_flight, [ready.steps for ready in collector._ready]
        assert waiting > 0
        collector.load_state_dict(state)
        assert collector.in_flight == waiting and is_conserved(collector)
        assert [ready.steps for ready in collector._ready] == steps
        data = collector.training_data(collector.collect(waiting + 2))
        assert len(data) >= waiting + 2 and is_conserved(collector)


def test_actor_that_is_killed_is_replaced_and_what_it_was_at_counts_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with collecting(telling(), collector={'num_collectors': 2, 'sync': False}) as (collector, _):
        first, produced = pids(collector), len(collector.collect(12))
        os.kill(first[1], signal.SIGKILL)
        while collector._pool.restarts == 0 or collector._pool.slots[1].facts is None:
            produced += len(collector.collect(12))
            assert is_conserved(collector)
        produced += len(collector.collect(12))
        assert collector.delivered == produced and is_conserved(collector)
        assert collector.lost == 6
        assert pids(collector)[0] == first[0] and pids(collector)[1] != first[1]
        assert collector._pool.slots[1].incarnation == 1
    assert 'collector 1 (Ray actor) was lost: in collect: ActorDiedError: ' in caplog.text
    assert 'The actor died' in caplog.text


def test_actor_that_takes_another_ones_place_begins_other_episodes() -> None:
    cfg = compiled()
    make = MakeCollector(cfg, build.make_factory(cfg))
    first = {(rank, k): make(rank, k).env.obs.tobytes() for rank in (0, 1) for k in (0, 1)}
    assert len(set(first.values())) == 4 and first[0, 1] == make(0, 1).env.obs.tobytes()


def test_running_statistics_are_those_of_all_that_all_actors_saw() -> None:
    options = {'num_collectors': 2, 'sync': False}
    with collecting(collector=options, policy_={'normalize_obs': True}) as (collector, policy):
        rows = []
        for turn in range(3):
            rows.append(np.array(collector.collect(40, train_iter=turn)['obs'], np.float64))
            learn(policy, turn)
        collector.settle()
        rows += [np.array(ready.data['obs'], np.float64) for ready in collector._ready]
        assert collector.carried == sum(len(ready.data) for ready in collector._ready)
        seen, state = np.concatenate(rows), policy.collect_mode.state_dict()['normalizer']
        assert state['obs.count'] == len(seen) == collector.envstep
        assert np.allclose(state['obs.mean'], seen.mean(0)) and np.allclose(state['obs.var'], seen.var(0))


def test_hung_and_frozen_actors_are_replaced_at_the_deadline(tmp_path: Path) -> None:
    with collecting(telling(tmp_path), collector={'num_collectors': 2, 'collect_timeout': 3.0}) as (
        collector,
        _,
    ):
        hung, frozen = pids(collector)
        (tmp_path / 'hang').write_text(str(hung))
        assert len(collector.collect(12)) == 12 and collector.lost == 6
        os.kill(frozen, signal.SIGSTOP)
        data = collector.collect(12)
        assert len(data) == 12 and collector.lost == 12 and is_conserved(collector)
        assert not {hung, frozen} & set(np.asarray(data['obs'])[:, 0])
        assert wait_until(lambda: not is_alive(hung) and not is_alive(frozen), 30)


def test_more_losses_than_allowed_end_the_run_with_all_causes_and_a_checkpoint(tmp_path: Path) -> None:
    cfg = compiled(
        telling(tmp_path), collector={'num_collectors': 1, 'max_actor_restarts': 1}, max_train_iter=10**6
    )
    folder = tmp_path / 'run'
    folder.mkdir()

    def kill(pipeline: SerialPipeline) -> bool:
        os.kill(pids(pipeline.collector)[0], signal.SIGKILL)
        return False

    with SerialPipeline(cfg, folder) as pipeline, pytest.raises(WorkerLostError) as caught:
        pipeline.run(kill)
    text = str(caught.value)
    assert '2 workers were lost within 600 s, 1 may be replaced' in text.splitlines()[0]
    assert text.count('collector 0 (Ray actor) was lost') == text.count('ActorDiedError') == 2
    assert text.count('Worker exit type') == 2
    assert any('emergency checkpoint' in note for note in caught.value.__notes__), caught.value.__notes__


def test_exception_in_an_actor_comes_with_its_traceback_and_nothing_else_of_that_call(tmp_path: Path) -> None:
    with collecting(telling(tmp_path), collector={'num_collectors': 2}) as (collector, _):
        collector.collect(12)
        with pytest.raises(TypeError, match='unexpected keyword'):
            collector.collect(12, train_iter=1, no_such_option=1)
        data = collector.collect(12, train_iter=2)
        assert len(data) == 12 and (data['collect_iter'] == 2).all() and is_conserved(collector)
        assert collector.lost == 12 and collector.delivered == 24
        pid = pids(collector)[1]
        (tmp_path / 'raise').write_text(str(pid))
        with pytest.raises((EnvCrashedError, RankError)) as caught:
            collector.collect(12)
        told = str(caught.value) + ''.join(caught.value.__notes__)
        assert (
            f'RankError: enough in {pid}' in told
            and 'In collector 1 (Ray actor)' in told
            and 'zoo.py' in told
        )
        assert pids(collector)[1] == pid and is_alive(pid), 'the actor outlives it'


def test_what_cannot_be_made_or_handed_over_is_said_as_it_is() -> None:
    with (
        pytest.raises(Exception, match='no_such_argument') as caught,
        collecting({'kwargs': {'no_such_argument': 1}, 'action_mask': False}),
    ):
        pass
    assert not isinstance(caught.value, WorkerLostError)
    unpicklable = {**telling(), 'kwargs': {'handle': threading.Lock()}}
    with pytest.raises(SerializationError, match=r'handle.* is a lock'), collecting(unpicklable):
        pass


def test_actor_that_cannot_start_says_why() -> None:
    class HomelessActor(Worker):
        def __init__(self, *given: Any) -> None:
            raise ImportError('no simulator on this machine')

    pool = make_pool(HomelessActor, max_actor_restarts=0)
    try:
        with pytest.raises(WorkerLostError) as caught:
            pool.start()
    finally:
        pool.close()
    text = str(caught.value)
    assert 'worker 0 (Ray actor) did not start' in text and 'ActorDiedError' in text
    assert 'ImportError: no simulator on this machine' in text
    assert '\x1b' not in str(caught.value)
