"""Configs in checkpoints and artifacts of somebody else, changed at random: nothing is reached, whatever they say."""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from error_texts import raises
from foreign import PAYLOAD, reseal, set_policy
from tripwire import armed

import rlframe
from rlframe import config
from rlframe.app.scoring import Request, score
from rlframe.errors import RLFrameError
from rlframe.export.artifact import open_source
from rlframe.pipeline import build
from rlframe.pipeline.resume import resume
from rlframe.registry import REGISTRIES
from rlframe.run.read_checkpoint import verify_checkpoint

pytestmark = pytest.mark.slow

BAIT: tuple[Any, ...] = (
    'cartpole', 'zergling', ['dizoo.classic_control.cartpole.envs.cartpole_env'], ['ding.x', 'payload'],
    'payload', 'payload:X', 'payload:1', 'payload:', 'payload: X', ':payload', 'payload.X',
    'payload:CartPole-v1', 'antigravity', 'this', 'this:s', '../payload', '/elsewhere/file', '~/file',
    'file:///x', 'http://localhost/x', ['payload'], ('payload',), ['payload:X'], {'payload': 1}, {1: 'payload'},
    [['payload']], [{'import_names': 'payload'}], {'type': 'payload:X'}, [{'type': 'payload:X'}],
    {'type': 'payload', 'import_names': ['payload']}, [None], ['RecordVideo'],
    [{'type': 'RecordVideo', 'video_folder': '/elsewhere'}], {'xml_file': 'payload'},
    {'load_ckpt_before_run': '/elsewhere'}, {'x': {'type': 'load_ckpt', 'load_path': '/elsewhere'}},
    {'x': {'type': 'payload', 'import_names': {'payload': 1}}},
    {'runtime_env': {'py_executable': 'touch X;python'}}, {'address': '127.0.0.1:6379'}, {'address': 'auto'},
    'ray', None, True, False, 0, 1, -1, 2**31, 0.5, float('inf'), float('nan'), '', 'x', [], {}, 'auto',
    'GymV26Environment-v0',
)  # fmt: skip
KEYS = (
    'import_names', 'type', 'env_id', 'kwargs', 'wrappers', 'data', 'hook', 'init_from', 'figure_path',
    'backend', 'ray_init_config', 'remote_configs', 'remote_config', 'set_buffer_size',
    'enable_track_used_data', 'load_path', 'cfg_type', 'model', 'collector', 'evaluator', 'manager',
    'replay_buffer', 'render', 'x', 'exp_name', 'seed',
)  # fmt: skip
HARMLESS = {'discount_factor': 0.5, 'double': False, 'nstep': 2, 'batch_size': 4, 'learning_rate': 0.01}
"""Valid values of options that reach nothing."""
TYPES = sorted({name for registry in REGISTRIES.values() for name in registry.names()})


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the path of every value in a tree."""
    pairs = tree.items() if isinstance(tree, Mapping) else enumerate(tree) if isinstance(tree, list) else ()
    for name, value in pairs:
        yield (*path, name)
        yield from places(value, (*path, name))


def mutated(tree: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Returns a copy with one to three changes: values replaced, keys added, taken away or put elsewhere."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        found = list(places(tree))
        *above, name = rng.choice(found)
        section = tree
        for step in above:
            section = section[step]
        kind = rng.random()
        if kind < 0.5:
            section[name] = copy.deepcopy(rng.choice(BAIT))
        elif kind < 0.8:
            target = section[name] if isinstance(section[name], dict) else section
            if isinstance(target, dict):
                target[rng.choice(KEYS)] = copy.deepcopy(rng.choice(BAIT))
        elif kind < 0.9 and isinstance(section, dict):
            section['type'] = rng.choice(TYPES)
        elif kind < 0.95:
            del section[name]
        elif isinstance(section, dict):
            section[rng.choice(KEYS)] = section.pop(name)
        if not tree:
            break
    return tree


def harmlessly_changed(tree: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Returns a copy in which one option has another valid value, which reaches nothing."""
    tree, chosen = copy.deepcopy(tree), rng.choice(sorted(HARMLESS))
    (path,) = (path for path in places(tree) if path[-1] == chosen)
    *above, name = path
    section = tree
    for step in above:
        section = section[step]
    section[name] = HARMLESS[name]
    return tree


@pytest.fixture
def work(small_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a copy of a run, and a module that must not be imported."""
    folder = tmp_path / 'work'
    shutil.copytree(small_run, folder / 'run', symlinks=True)
    (folder / 'payload.py').write_text(PAYLOAD.format(marker=str(tmp_path / 'marker')), encoding='utf-8')
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    return folder


def act_on(what: str, path: Path) -> None:
    """Does what a command would do with a checkpoint or an artifact, up to the end of evaluation and export."""
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        if what == 'resume':
            build.make_factory(resume(path).cfg)
        elif what == 'eval':
            score(path, Request(1))
        elif what == 'export':
            open_source(path)
        else:
            rlframe.load(path)


def check_mutations(work: Path, number: int, seed: int) -> dict[str, int]:
    """Makes sure that changed configs reach nothing; returns how many were refused, and how many passed.

    One in nine is changed harmlessly, so that some of each kind pass, whatever the generator draws for the others.
    """
    rng, counts = random.Random(seed), {'refused': 0, 'done': 0}
    checkpoint, artifact = (work / 'run' / 'ckpt' / 'latest').resolve(), work / 'run' / 'export' / 'artifact'
    facts, said = verify_checkpoint(checkpoint), json.loads((artifact / 'policy.json').read_text())
    for i in range(number):
        what = ('resume', 'eval', 'export', 'load')[i % 4]
        change = mutated if i % 9 else harmlessly_changed
        if what == 'load':
            changed = {**said, 'policy': change(said['policy'], rng)}
            if any(not isinstance(place[-1], str | int) for place in places(changed)):
                continue
            set_policy(artifact, lambda now, changed=changed: now.update(changed))
            path = artifact
        else:
            changed = {'config': change(facts['config'], rng)}
            path = reseal(checkpoint, lambda now, changed=changed: now.update(changed))
        with armed(work.parent) as found:
            try:
                act_on(what, path)
                counts['done'] += 1
            except RLFrameError:
                counts['refused'] += 1
        assert found == [] and 'payload' not in sys.modules, (i, what, changed)
    assert not (work.parent / 'marker').exists()
    assert sorted(entry.name for entry in work.iterdir() if entry.name != '__pycache__') == [
        'payload.py',
        'run',
    ]
    return counts


def test_changed_configs_reach_nothing(work: Path) -> None:
    number = int(os.environ.get('RLFRAME_EXAMPLES', '100'))
    counts = check_mutations(work, number, seed=0)
    assert counts['refused'] > 0.3 * number and counts['done'] > 0.05 * number, 'both ways are gone'


def test_the_tripwire_sees_what_it_must(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the check, changed configs do reach something, and the wire tells."""
    monkeypatch.setattr(config, 'check_trust', lambda *args, **kwargs: None)
    checkpoint = (work / 'run' / 'ckpt' / 'latest').resolve()

    def edit(facts: dict[str, Any]) -> None:
        facts['config']['main_config']['env']['env_id'] = 'payload:X'

    with armed(work.parent) as found, raises(RLFrameError):
        act_on('eval', reseal(checkpoint, edit))
    sys.modules.pop('payload')
    assert 'import of payload' in found and (work.parent / 'marker').exists()
    with armed(work) as found:
        (work.parent / 'other').write_text('x')
        os.system('true')
    assert len(found) == 2 and 'os.system' in found[1]
