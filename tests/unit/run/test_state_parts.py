"""Checkpoints whose parts are missing or of another kind, sealed as they should be: each is refused by name, or harmless."""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from checkpoint_helpers import edit_manifest, forge
from error_texts import raises
from runs import DQN, PPO, ROOT

from rlframe import config
from rlframe.errors import CheckpointCorruptError, CheckpointError
from rlframe.pipeline import SerialPipeline
from rlframe.run.read_checkpoint import load_checkpoint

CASES = {
    'dqn': (
        *DQN,
        'replay_buffer.type=advanced',
        'policy.priority=true',
        'policy.priority_IS_weight=true',
        'policy.nstep=3',
    ),
    'ppo': (*PPO, 'policy.normalize_obs=true', 'policy.normalize_reward=true'),
}
OTHERS: tuple[Any, ...] = (None, True, -1, 1.5, 'x', [], {}, [1, 'x'], {'x': [None]})
STATE, BUFFER = 'state.json', 'replay_buffer.json'
Saved = tuple[SerialPipeline, Path]
Path_ = tuple[Any, ...]


def only(case: str) -> Any:
    """Runs a test on one case instead of all."""
    return pytest.mark.parametrize('saved', [case], indirect=True)


@pytest.fixture(scope='module', params=CASES)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Saved]:
    """A pipeline, and a checkpoint that it saved."""
    words = CASES[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    pair = config.read_config(ROOT / words[1])
    overrides = [*words[2:], 'env.collector_env_num=2']
    cfg = config.compile_config(*pair, overrides=overrides, seed=0, max_train_iter=1000)
    with SerialPipeline(cfg, folder) as pipeline:
        while pipeline.progress.train_iter < 2:
            pipeline.step()
        path = pipeline.save_checkpoint(folder / 'ckpt' / 'iteration_2')
        yield pipeline, path


@pytest.fixture
def changed(saved: Saved, tmp_path: Path) -> Callable[[str, Callable[[Any], None]], Path]:
    """Returns a copy of the checkpoint with a change of the JSON in one of its files, sealed."""
    _, path = saved
    copied = tmp_path / 'ckpt' / path.name
    shutil.copytree(path, copied, copy_function=os.link)

    def change(name: str, edit: Callable[[Any], None]) -> Path:
        tree = json.loads((path / name).read_bytes())
        edit(tree)
        for file in (STATE, BUFFER, 'manifest.json'):  # copies, as the others are links
            if (path / file).exists():
                (copied / file).unlink()
                shutil.copyfile(path / file, copied / file)
        forge(copied, name, json.dumps(tree).encode())
        return copied

    return change


def places(tree: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Yields the way to everything in a tree; of long lists only to the ends."""
    if path:
        yield path
    if isinstance(tree, dict):
        for name, below in tree.items():
            yield from places(below, (*path, name))
    elif isinstance(tree, list):
        for i in range(len(tree)) if len(tree) < 8 else (0, len(tree) - 1):
            yield from places(tree[i], (*path, i))


def at(tree: Any, path: Path_) -> Any:
    for name in path:
        tree = tree[name]
    return tree


def deleted(path: Path_) -> Callable[[Any], None]:
    def edit(tree: Any) -> None:
        del at(tree, path[:-1])[path[-1]]

    return edit


def replaced(path: Path_, value: Any) -> Callable[[Any], None]:
    def edit(tree: Any) -> None:
        at(tree, path[:-1])[path[-1]] = copy.deepcopy(value)

    return edit


def changes(path: Path) -> list[tuple[str, Path_, str, Callable[[Any], None]]]:
    """Returns, for every part of the JSON files of a checkpoint, its deletion or another type."""
    found, draw = [], random.Random(0)
    for name in (STATE, BUFFER):
        if (path / name).exists():
            tree = json.loads((path / name).read_bytes())
            for way in places(tree):
                others = [other for other in OTHERS if type(other) is not type(at(tree, way))]
                other = draw.choice(others)
                is_deleted = draw.random() < 0.25
                edit = deleted(way) if is_deleted else replaced(way, other)
                found.append((name, way, 'deleted' if is_deleted else repr(other), edit))
    return found


def outcome(pipeline: SerialPipeline, path: Path, what: Any) -> str:
    """Loads a checkpoint and returns what came of it: it was named, it was harmless, or what is wrong."""
    try:
        pipeline.load_checkpoint(path)
    except CheckpointError as error:
        assert str(path) in str(error) or 'replay_buffer_size' in error.where, (what, error)
        names = {
            *what[1],
            'normalised' if 'normalizer' in what[1] else '',
            'columns' if 'rows' in what[1] else '',
        } - {''}
        is_named = any(name in str(error) for name in names if isinstance(name, str))
        is_named = is_named or 'the file is not what rlframe wrote' in str(error)
        return 'named' if is_named else f'refused without a name: {what} {error}'
    except Exception as error:
        return f'{what}: {type(error).__name__}: {error}'
    return 'harmless'


@pytest.mark.slow
def test_every_missing_or_retyped_part_is_refused_by_name_or_harmless(saved: Saved, changed: Any) -> None:
    pipeline, path = saved
    found = Counter(
        outcome(pipeline, changed(name, edit), (name, way, how)) for name, way, how, edit in changes(path)
    )
    assert found.keys() <= {'named', 'harmless'}, '\n'.join(found)
    assert found['named'] > sum(found.values()) / 2, found


@only('dqn')
@pytest.mark.parametrize(
    ('way', 'value'),
    [
        (('progress', 'envstep'), 'x'),
        (('policy', 'rng', 'state', 'state'), None),
        (('policy', 'model'), {}),
        (('collector', 'env', 'steps'), [1, 2]),
        (('collector', 'env', 'faults'), {}),
        (('round', 'warm'), 1),
    ],
)
def test_the_part_is_named_with_what_was_expected(saved: Saved, changed: Any, way: Path_, value: Any) -> None:
    path = changed(STATE, replaced(way, value))
    with raises(CheckpointError):
        saved[0].load_checkpoint(path)


@only('dqn')
@pytest.mark.parametrize('fact', ['policy', 'progress', 'score', 'logs'])
def test_facts_of_the_manifest_of_another_kind_are_named(saved: Saved, changed: Any, fact: str) -> None:
    path = changed(STATE, lambda tree: None)
    edit_manifest(path, lambda manifest: manifest.update({fact: [object.__name__]}))
    with raises(CheckpointCorruptError):
        load_checkpoint(path)


@only('dqn')
def test_numbers_that_json_does_not_know_equal_keys_and_depth_are_refused(saved: Saved, changed: Any) -> None:
    path = changed(STATE, lambda tree: None)
    text = (path / STATE).read_text()
    for other in (
        text.replace('"warm":true', '"warm":NaN').replace('"warm": true', '"warm": NaN'),
        text[:-1] + ', "round": {}}',
        text[:-1] + ', "x": 1e999}',
        text[:-1] + f', "x": {"[" * 100_000}{"]" * 100_000}}}',
        text[:-1] + f', "x": {"[" * 200}{"]" * 200}}}',
    ):
        assert other != text
        (path / STATE).unlink()
        forge(path, STATE, other.encode())
        with raises(CheckpointCorruptError):
            load_checkpoint(path)


@only('dqn')
def test_what_is_too_large_is_refused_unread_and_says_how_to_raise_the_limit(
    saved: Saved, changed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = changed(STATE, lambda tree: None)
    manifest = (path / 'manifest.json').read_bytes()
    (path / 'manifest.json').unlink()
    (path / 'manifest.json').write_bytes(manifest)
    with open(path / 'manifest.json', 'ab') as file:
        file.truncate(2**40)  # without a block on the disk
    with raises(CheckpointCorruptError):
        load_checkpoint(path)
    (path / 'manifest.json').write_bytes(manifest)
    monkeypatch.setenv('RLFRAME_MAX_STATE_VALUES', '10')
    with raises(CheckpointCorruptError):
        load_checkpoint(path)
    monkeypatch.setenv('RLFRAME_MAX_STATE_BYTES', '100')
    with raises(CheckpointCorruptError):
        load_checkpoint(path)
    with raises(CheckpointError):
        saved[0].save_checkpoint(path.parent / 'other')
    assert not (path.parent / 'other').exists()
