"""Rows on a device are those of a ring in main memory, whatever is pushed, drawn, saved and resumed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from buffer_helpers import assert_same, leaves, tensors
from error_texts import raises
from hypothesis import given, settings
from hypothesis import strategies as st
from ray_runs import config_of
from runs import differences
from test_frames import trained

from rlframe.data import Batch
from rlframe.errors import ConfigError, DeviceError, ResourceError
from rlframe.pipeline import build, memory_needs
from rlframe.run import machine
from rlframe.worker.replay_buffer import NaiveReplayBuffer, create_buffer
from rlframe.worker.replay_buffer import device as device_store
from rlframe.worker.replay_buffer.ring import RingStorage

CPU = torch.device('cpu')
FIELDS = np.dtype(
    {'names': ['image', 'rest'], 'formats': [('u1', (2, 3)), [('0', '<f4'), ('1', '<i8', (2,))]]}, align=True
)


def rows(rng: np.random.Generator, count: int) -> Batch:
    """Returns rows of columns of many kinds, those that n-step transitions have among them."""
    obs = np.zeros((2, count), FIELDS)
    obs['image'] = rng.integers(0, 256, (2, count, 2, 3))
    obs['rest']['0'], obs['rest']['1'] = rng.random((2, count)), rng.integers(0, 9, (2, count, 2))
    return Batch(
        obs=obs[0],
        next_obs=obs[1],
        screen=rng.integers(0, 256, (count, 4, 3, 3), np.uint8),
        action=rng.integers(0, 9, count, np.uint16),
        reward=rng.standard_normal(count, np.float32),
        value_gamma=rng.random(count).astype(np.float16),
        terminated=rng.random(count) < 0.5,
        collect_iter=rng.integers(0, 99, count),
        nested=Batch(speed=rng.random((count, 1)), deeper=Batch(x=rng.integers(-9, 9, count))),
    )


@settings(max_examples=15, deadline=None, derandomize=True)
@given(data=st.data())
def test_rows_are_those_of_a_ring_in_main_memory(data: st.DataObject) -> None:
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    capacity, chunk = draw(st.integers(1, 30)), device_store.CHUNK_BYTES
    host: Any = RingStorage(capacity)
    there: Any = RingStorage(capacity, CPU)
    device_store.CHUNK_BYTES = draw(st.sampled_from([30, 200, chunk]))
    try:
        for what in draw(
            st.lists(st.sampled_from(['push', 'push', 'push', 'drop', 'clear', 'load']), max_size=9)
        ):
            host, there = changed(what, host, there, rng, draw)
            assert (there.first, there.stop) == (host.first, host.stop)
            slot = host.window()
            if not len(slot):
                continue
            slot = rng.choice(slot, draw(st.integers(1, 12)))
            sampled = there.gather(slot)
            assert_same(host.gather(slot), sampled)
            assert {*sampled.keys()} - tensors(sampled).keys() == {'collect_iter'}
            for name in ('collect_iter', 'screen', 'nested', 'unknown'):
                one, other = host.row_min(name, slot), there.row_min(name, slot)
                assert (one is None and other is None) or one.tobytes() == other.tobytes()
            assert_same(host.state_dict(), there.state_dict())
            assert_same_rows(host.checkpoint_state()['columns'], there.checkpoint_state()['columns'], rng)
    finally:
        device_store.CHUNK_BYTES = chunk


def changed(what: str, host: Any, there: Any, rng: np.random.Generator, draw: Any) -> tuple[Any, Any]:
    """Does the same to both rings and returns them, or those that replace them."""
    if what == 'push':
        block = rows(rng, draw(st.integers(0, 2 * host.capacity)))
        if len(block) or host.stop:
            host.push(block)
            there.push(block)
            for _, column in leaves(block):
                column[...] = 0  # nothing is shared
    elif what == 'drop':
        count = draw(st.integers(0, len(host)))
        host.drop_oldest(count)
        there.drop_oldest(count)
    elif what == 'clear':
        host.clear()
        there.clear()
    elif host.stop and what == 'load':  # each from the state of the other
        states = host.state_dict(), there.state_dict()
        host, there = RingStorage(host.capacity), RingStorage(host.capacity, CPU)
        there.load_state_dict(states[0])
        host.load_state_dict(states[1])
    return host, there


def assert_same_rows(one: Any, other: Any, rng: np.random.Generator) -> None:
    """Makes sure that a checkpoint reads the same rows, a part of them, too."""
    assert (one.first, one.stop, one.nbytes, one.name) == (other.first, other.stop, other.nbytes, other.name)
    first, stop = np.sort(rng.integers(one.first, one.stop + 1, 2)).tolist()
    assert_same(one.read(first, stop), other.read(first, stop))


def test_sampled_tensors_share_no_memory_with_the_ring() -> None:
    ring = RingStorage(4, CPU)
    block = Batch(obs=np.arange(4.0), x=np.arange(4, dtype=np.uint32))
    ring.push(block)
    sampled = ring.gather(np.arange(4))
    for name in ('obs', 'x'):
        sampled[name].view(torch.int64 if name == 'obs' else torch.int32)[:] = 0
    assert_same(ring.gather(np.arange(4)), block)


@pytest.mark.parametrize('dtype', ['>f4', np.longdouble])
def test_columns_of_which_there_are_no_tensors_are_refused_by_name(dtype: Any) -> None:
    ring = RingStorage(4, CPU)
    with raises(ValueError):
        ring.push(Batch(speed=np.zeros(2, dtype)))
    with raises(ValueError):
        ring.push(Batch(name=np.array(['a', 'b'])))
    assert len(ring) == 0


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets the buffers that a function makes keep their columns on the CPU as on a device."""

    def make(function: Any, *args: Any, **kwargs: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(NaiveReplayBuffer, '_find_device', lambda self: CPU)
            return function(*args, **kwargs)

    return make


def buffer_of(kind: str, **options: Any) -> Any:
    return create_buffer({'type': kind, 'replay_buffer_size': 24, **options}, seed=3)


def test_a_device_keeps_no_objects(on_device: Any) -> None:
    there, host = on_device(buffer_of, 'naive'), buffer_of('naive')
    with raises(ConfigError):
        there.push(['text'], 0)
    host.push(['text'], 0)
    with raises(ConfigError):
        there.load_state_dict(host.state_dict())


def test_what_does_not_fit_on_the_device_is_refused_before_it_is_allocated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, 'free_memory', lambda device: 2**30)
    monkeypatch.setattr(device_store.torch, 'empty', lambda *a, **k: pytest.fail('allocated'))
    ring = RingStorage(10**10, torch.device('cuda:1'))
    block = Batch(obs=np.zeros((1, 40), np.uint8))
    with raises(ResourceError):
        ring.push(block)


@pytest.mark.slow
def test_training_on_a_device_goes_on_elsewhere_to_the_same_bits(on_device: Any, tmp_path: Path) -> None:
    there = on_device(trained, tmp_path / 'there', 'dqn advanced', 10)
    assert there['replay_buffer']['kind'] == 'FrameStorage'
    on_device(trained, tmp_path / 'parts', 'dqn advanced', 5)
    latest = (tmp_path / 'parts' / 'ckpt' / 'latest').resolve()
    resumed = trained(tmp_path / 'parts', 'dqn advanced', 10, resume=latest)
    for part in ('policy', 'replay_buffer'):
        assert differences(there[part], resumed[part]) == []


KEY = 'policy.other.replay_buffer.device'
AUTO = 'policy.cuda=None'
"""The cases of tests are on the CPU by ``policy.cuda``; this leaves the choice to ``policy.device``."""
Gpus = Callable[..., None]


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Gpus:
    """Lets torch believe that there are GPUs, which only refusals do with impunity."""

    def pretend(count: int, free: int = 2**30) -> None:
        monkeypatch.setattr(torch.cuda, 'is_available', lambda: count > 0)
        monkeypatch.setattr(torch.cuda, 'device_count', lambda: count)
        monkeypatch.setattr(torch.cuda, 'current_device', lambda: 0)
        monkeypatch.setattr(torch.cuda, 'mem_get_info', lambda device: (free, 2**40))

    return pretend


def policy_on(device: str) -> Any:
    """Stands for a policy on a device that this machine may lack."""
    return SimpleNamespace(get_attribute={'device': torch.device(device)}.get)


@pytest.mark.parametrize(
    'words',
    [(AUTO, 'policy.normalize_obs=True'), (AUTO, 'env.env_id=zoo:Dot', 'policy.learn.random_shift=2')],
)
def test_options_that_contradict_a_device_are_refused(words: tuple[str, ...]) -> None:
    with raises(ConfigError) as caught:
        config_of('dqn naive', *words, f'{KEY}=cuda:1')
    assert caught.value.where == KEY


@pytest.mark.parametrize(('policy', 'buffer'), [('cuda', 'cuda:0'), ('cuda:0', 'cuda'), ('auto', 'cuda')])
def test_the_first_gpu_has_two_names(policy: str, buffer: str, gpus: Gpus) -> None:
    cfg = config_of('dqn naive', AUTO, f'policy.device={policy}', f'{KEY}={buffer}')
    gpus(1)
    spec = build.make_factory(cfg).spec
    memory_needs.check_memory(cfg, spec, policy_on('cuda:0'))
    memory_needs.check_memory(cfg, spec, policy_on('cuda'))


@pytest.mark.parametrize('bad', ['auto', 'cuda:x', ''])
def test_devices_of_other_names_are_refused(bad: str) -> None:
    with raises(ConfigError) as caught:
        create_buffer({'type': 'naive', 'device': bad})
    assert caught.value.where.endswith('device')


def test_buffers_of_sequences_and_episodes_are_in_main_memory(gpus: Gpus) -> None:
    gpus(1)
    for kind in ('sequence', 'episode'):
        with raises(ConfigError):
            create_buffer({'type': kind, 'device': 'cuda'})
    with raises(ConfigError) as caught:
        config_of('r2d2', AUTO, f'{KEY}=cuda')
    assert caught.value.where == KEY


@pytest.mark.parametrize(('count', 'name'), [(0, 'cuda'), (1, 'cuda:1')])
def test_a_device_that_does_not_exist_is_refused(count: int, name: str, gpus: Gpus) -> None:
    gpus(count)
    cfg = config_of('dqn naive', AUTO, f'{KEY}={name}')
    with raises(DeviceError) as caught:
        memory_needs.check_memory(cfg, build.make_factory(cfg).spec, policy_on('cpu'))
    assert caught.value.where == KEY
    with raises(DeviceError):
        create_buffer({'type': 'advanced', 'device': name})


def test_main_memory_is_needed_only_for_columns_that_are_there_and_for_frames(
    gpus: Gpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 'policy.other.replay_buffer.replay_buffer_size=1_000_000'
    images = ('env.env_id=zoo:Dot', 'env.frame_stack=4', 'policy.model.encoder_hidden_size_list=[8]')
    for module in (machine, memory_needs):
        monkeypatch.setattr(module, 'available_memory', lambda: 10**6)
    gpus(1)
    there = config_of('dqn naive', AUTO, size, f'{KEY}=cuda')
    memory_needs.check_memory(there, build.make_factory(there).spec, policy_on('cuda'))
    for words in ((), (*images, f'{KEY}=cuda')):
        cfg = config_of('dqn naive', AUTO, size, *words)
        with raises(ResourceError) as caught:
            memory_needs.check_memory(cfg, build.make_factory(cfg).spec, policy_on('cuda'))
        assert caught.value.where == 'policy.other.replay_buffer.replay_buffer_size'


def test_parallel_mode_refuses_a_device() -> None:
    from rlframe.config.parallel_rules import parallel_errors

    (error,) = parallel_errors({KEY: 'cuda'})
    assert (error.where, error.expected) == (KEY, "'cpu'")
    assert parallel_errors({KEY: 'cpu'}) == []
