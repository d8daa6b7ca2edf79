"""Frames that are kept once are those of stacks that are copied, whatever is pushed, drawn, saved and resumed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from buffer_helpers import assert_same, tensors
from error_texts import raises
from hypothesis import given, settings
from hypothesis import strategies as st
from ray_runs import config_of
from runs import differences

from rlframe.data import Array, Batch
from rlframe.errors import CheckpointCorruptError, CheckpointStateError, ConfigError, ResourceError
from rlframe.pipeline import SerialPipeline
from rlframe.pipeline.memory_needs import buffer_nbytes, check_frames
from rlframe.run import machine
from rlframe.run.checkpoint_tree import parse_segment
from rlframe.run.manifest import read_manifest
from rlframe.run.read_checkpoint import load_checkpoint
from rlframe.run.write_checkpoint import publish_checkpoint
from rlframe.worker.replay_buffer import create_buffer, frames
from rlframe.worker.replay_buffer.frames import FrameStorage, slots_of
from rlframe.worker.replay_buffer.ring import RingStorage

STACK, SIDE = 3, 4


def stacks_of(images: Array) -> Array:
    """Returns the stack after each image; before the first, it is repeated."""
    return images[np.maximum(np.arange(len(images))[:, None] - np.arange(STACK)[::-1], 0)]


def rows_of_episode(rng: np.random.Generator, steps: int, nstep: int, colors: int) -> Batch:
    """Returns the rows of an episode of random images, few of which differ if there are few colors."""
    stacks = stacks_of(rng.integers(0, colors, (steps + 1, SIDE, SIDE), np.uint8))
    end = np.minimum(np.arange(steps) + nstep, steps)
    done = np.arange(steps) == steps - 1
    terminated = done & (rng.random() < 0.5)
    rows = dict(obs=stacks[:-1], next_obs=stacks[end], action=rng.integers(0, 9, steps))
    return Batch(
        rows, reward=rng.random(steps, np.float32), terminated=terminated, truncated=done & ~terminated
    )


def interleaved(episodes: list[Batch], rng: np.random.Generator) -> Batch:
    """Returns the rows of episodes of several envs in an order in which they may come."""
    rows = [
        (key, batch[i : i + 1]) for batch in episodes for i, key in enumerate(np.sort(rng.random(len(batch))))
    ]
    return Batch.cat([row for _, row in sorted(rows, key=lambda row: float(row[0]))])


@settings(max_examples=20, deadline=None, derandomize=True)
@given(data=st.data())
def test_rows_are_those_of_a_ring_that_copies(data: st.DataObject) -> None:
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    capacity, nstep = draw(st.integers(1, 60)), draw(st.integers(1, 5))
    colors = draw(st.sampled_from([1, 2, 256]))
    device = draw(st.sampled_from([None, torch.device('cpu')]))
    once: Any = FrameStorage(capacity, STACK, device)
    copied: Any = RingStorage(capacity)
    for what in draw(
        st.lists(st.sampled_from(['push', 'push', 'push', 'drop', 'clear', 'load']), max_size=12)
    ):
        if what == 'push':
            lengths = draw(st.lists(st.integers(1, 20), min_size=1, max_size=4))
            block = interleaved([rows_of_episode(rng, steps, nstep, colors) for steps in lengths], rng)
            once.push(block)
            copied.push(block)
        elif what == 'drop':
            count = draw(st.integers(0, len(copied)))
            once.drop_oldest(count)
            copied.drop_oldest(count)
        elif what == 'clear':
            once.clear()
            copied.clear()
        elif not copied.stop:
            continue
        else:
            saved, once = once.state_dict(), FrameStorage(once.capacity, device=device)
            once.load_state_dict(saved)
            assert differences(once.state_dict(), saved) == []
        assert (once.first, once.stop) == (copied.first, copied.stop)
        if len(copied):
            sampled, slot = once.gather(once.window()), copied.window()
            assert_same(sampled, copied.gather(slot))
            assert list(tensors(sampled)) == (['obs', 'next_obs'] if device else [])


def filled(steps: int, capacity: int = 10_000) -> FrameStorage:
    storage = FrameStorage(capacity, STACK)
    rng = np.random.default_rng(0)
    for _ in range(steps // 100):
        storage.push(rows_of_episode(rng, 100, 3, 256))
    return storage


def test_images_that_the_table_mixes_up_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    block = rows_of_episode(rng, 40, 1, 256)
    once, copied = FrameStorage(30, STACK), RingStorage(30)
    once.push(block[:1])
    copied.push(block[:1])
    assert once._pool is not None
    once._pool._weight[:] = 1 << 40  # every image is at the same place of the table
    for one in (once, copied):
        one.push(block)
    assert_same(once.gather(once.window()), copied.gather(copied.window()))


def test_frames_in_no_other_stack_make_the_pool_grow_until_memory_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (200, STACK, SIDE, SIDE), np.uint8)
    block = Batch(obs=image[:100], next_obs=image[100:])
    storage, copied = FrameStorage(100, STACK), RingStorage(100)
    for one in (storage, copied):
        one.push(block)
    assert_same(storage.gather(storage.window()), copied.gather(copied.window()))
    monkeypatch.setattr(machine, 'available_memory', lambda: 10_000)
    fresh = Batch(obs=image[100:].copy() ^ 1, next_obs=image[:100] ^ 1)
    with raises(ResourceError):
        for _ in range(20):
            fresh = fresh.map(lambda column: rng.permuted(column))
            storage.push(fresh)


def test_other_images_are_refused_and_nothing_is_written() -> None:
    storage = filled(100)
    before = storage.state_dict()
    for bad in (np.zeros((2, STACK, SIDE, SIDE + 1), np.uint8), np.zeros((2, STACK, SIDE, SIDE), np.int16)):
        block = rows_of_episode(np.random.default_rng(0), 2, 1, 9).replace(next_obs=bad)
        with raises(ValueError):
            storage.push(block)
    with raises(ValueError):
        block = rows_of_episode(np.random.default_rng(0), 2, 1, 9)
        storage.push(Batch({name: block[name] for name in list(block.keys()) if name != 'next_obs'}))
    assert differences(storage.state_dict(), before) == []


@pytest.mark.parametrize(
    'change',
    [
        lambda state: state['columns'].update(obs=state['columns']['obs'] + 1000),
        lambda state: state['columns'].update(obs=state['columns']['obs'] - 1000),
        lambda state: state['columns'].update(obs=state['columns']['obs'][:, :1]),
        lambda state: state['frames'].update(columns={'image': state['frames']['columns']['image'][1:]}),
        lambda state: state['frames'].update(columns={'image': state['frames']['columns']['image'] * 1.0}),
        lambda state: state.update(stacked=['reward']),
        lambda state: state.pop('frames'),
    ],
)
def test_states_of_other_frames_are_refused(change: Any) -> None:
    buffer = create_buffer({'type': 'naive', 'replay_buffer_size': 50, 'frame_stack': STACK})
    buffer.push(rows_of_episode(np.random.default_rng(0), 60, 1, 256), 0)
    state = buffer.state_dict()
    change(state['storage'])
    with pytest.raises(CheckpointStateError):
        create_buffer({'type': 'naive', 'replay_buffer_size': 50}).load_state_dict(state)


def draws(buffer: Any, kind: str) -> Iterator[Any]:
    for step in range(6):
        rows = buffer.sample(4, *([5] if kind == 'sequence' else []), step)
        if kind == 'advanced':
            info: Mapping[str, Any] = {name: rows[name] for name in ('replay_unique_id', 'replay_buffer_idx')}
            buffer.update({**info, 'priority': 1.0 + np.arange(4)})
        yield rows


@pytest.mark.parametrize('kind', ['advanced', 'sequence'])
def test_every_buffer_samples_what_it_samples_from_copies(kind: str) -> None:
    options = {'type': kind, 'replay_buffer_size': 40}
    once = create_buffer({**options, 'frames': 'once', 'frame_stack': STACK})
    copied = create_buffer({**options, 'frames': 'copied', 'frame_stack': STACK})
    auto = create_buffer({**options, 'frame_stack': STACK})
    for buffer in (once, copied, auto):
        rng = np.random.default_rng(0)
        for _ in range(9):
            episode = rows_of_episode(rng, int(rng.integers(1, 12)), 1, 256)
            buffer.push(episode, 0)
    assert isinstance(once._storage, FrameStorage) and isinstance(auto._storage, FrameStorage)  # type: ignore[attr-defined]
    assert not isinstance(copied._storage, FrameStorage)  # type: ignore[attr-defined]
    for one, other, third in zip(draws(once, kind), draws(copied, kind), draws(auto, kind), strict=True):
        assert_same(one, other)
        assert_same(third, other)


def test_incremental_checkpoints_write_new_frames_only(tmp_path: Path) -> None:
    buffer = create_buffer({'type': 'naive', 'replay_buffer_size': 120, 'frame_stack': STACK})
    rng, sizes = np.random.default_rng(0), []
    for number in range(1, 7):
        buffer.push(rows_of_episode(rng, 30, 1, 256), 0)
        path = publish_checkpoint(
            tmp_path / f'iteration_{number}',
            {'progress': {'train_iter': number}},
            buffer=buffer.checkpoint_state(),
            options={'replay_buffer': 'incremental', 'keep_last': 2},
        )
        parts = [one for one in map(parse_segment, read_manifest(path)['files']) if one is not None]
        sizes.append({one.rows: max(p.stop for p in parts if p.rows == one.rows) for one in parts})
        newest = [one for one in parts if one.rows == 'replay_frames'][-1]
        assert newest.stop - newest.first == 31, 'one frame a step, and the first'
        other = create_buffer({'type': 'naive', 'replay_buffer_size': 120, 'frame_stack': STACK})
        other.load_state_dict(load_checkpoint(path)[0]['replay_buffer'])
        assert differences(other.state_dict(), buffer.state_dict()) == []
        if number == 3:
            buffer = other  # go on from a checkpoint
    assert [size['replay_frames'] for size in sizes] == [31 * number for number in range(1, 7)]
    state, _ = load_checkpoint(path)
    text = (path / 'replay_buffer.json').read_text()
    names = [one.name for one in parts]
    assert all(name in text for name in names) and len(
        state['replay_buffer']['storage']['frames']['columns']['image']
    )


def test_file_of_rows_that_is_listed_twice_is_refused(tmp_path: Path) -> None:
    import json

    from checkpoint_helpers import forge

    buffer = create_buffer({'type': 'naive', 'replay_buffer_size': 50, 'frame_stack': STACK})
    buffer.push(rows_of_episode(np.random.default_rng(0), 60, 1, 256), 0)
    path = publish_checkpoint(tmp_path / 'iteration_1', {'progress': {}}, buffer=buffer.checkpoint_state())
    content = json.loads((path / 'replay_buffer.json').read_text())
    content['rows'].append(content['rows'][0])
    forge(path, 'replay_buffer.json', json.dumps(content).encode())
    with raises(CheckpointCorruptError):
        load_checkpoint(path)


IMAGES = (
    *('env.env_id=zoo:Dot', 'env.frame_stack=4', 'policy.model.encoder_hidden_size_list=[8]'),
    *(
        'policy.nstep=3',
        'policy.other.replay_buffer.replay_buffer_size=90',
        'policy.eval.evaluator.eval_freq=5',
    ),
)


def trained(
    folder: Path, case: str, train_iter: int, *words: str, resume: Path | None = None
) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    cfg = config_of(case, *IMAGES, *words, f'max_train_iter={train_iter}')
    with SerialPipeline(cfg, folder, resume=resume) as pipeline:
        pipeline.run()
        pipeline.checkpoints.save_latest()
    return load_checkpoint(folder / 'ckpt' / 'latest')[0]


def buffer_and_spec(*words: str) -> Any:
    """Returns the section of the replay buffer, and the spec of the env."""
    from rlframe.pipeline import build

    cfg = config_of('dqn naive', *words)
    return cfg.policy.other.replay_buffer, build.make_factory(cfg).spec


@pytest.mark.parametrize(
    'words',
    [
        ('env.env_id=zoo:Dot',),
        ('env.env_id=zoo:Dot', 'env.frame_stack=4', 'env.kwargs={"dtype": "float32"}'),
    ],
)
def test_frames_that_cannot_be_shared_are_refused_before_anything_starts(words: tuple[str, ...]) -> None:
    section, spec = buffer_and_spec(*words, 'policy.other.replay_buffer.frames=once')
    with raises(ConfigError) as caught:
        check_frames(section, spec)
    assert caught.value.where == 'policy.other.replay_buffer.frames'
    check_frames(*buffer_and_spec(*words))


def test_pushed_blocks_without_stacks_are_refused() -> None:
    buffer = create_buffer({'type': 'naive', 'replay_buffer_size': 9, 'frames': 'once', 'frame_stack': 5})
    with raises(ConfigError):
        buffer.push(rows_of_episode(np.random.default_rng(0), 3, 1, 9), 0)


def test_memory_is_forecast_with_shared_frames() -> None:
    words = (
        'env.env_id=zoo:Dot',
        'env.frame_stack=4',
        'policy.other.replay_buffer.replay_buffer_size=100_000',
    )
    once, copied = (
        buffer_nbytes(*buffer_and_spec(*words, f'policy.other.replay_buffer.frames={how}'))
        for how in ('auto', 'copied')
    )
    assert copied == 100_000 * (2 * 4 * 144 + 1 + 4 + 2 + 4)
    assert once == 100_000 * (2 * 4 * 8 + 1 + 4 + 2 + 4) + slots_of(100_000) * 144
    assert frames.window_of(100_000) == 4096
