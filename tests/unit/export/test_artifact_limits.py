"""Artifacts and checkpoints that describe something huge: refused before memory is taken, with the limit and how to raise it."""

from __future__ import annotations

import json
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from checkpoint_helpers import facts_of
from exported import WideEnv, trained

import rlframe
from rlframe.data.space_json import space_from_json, space_to_json
from rlframe.entry.__main__ import main
from rlframe.errors import CheckpointCorruptError, CheckpointError, ResourceError
from rlframe.export import export_policy
from rlframe.run.checkpoint_files import MANIFEST
from rlframe.run.manifest import read_manifest, write_text
from rlframe.utils.files import LimitExceededError

Change = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope='module')
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with a trained and exported policy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp('made'))
        run = trained('dqn', dict(env_id=WideEnv, kwargs=dict(action='Discrete')))
    export_policy(run, trust=True)
    return run.parents[1]


@pytest.fixture
def run(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(made, tmp_path / 'run', symlinks=True))


@contextmanager
def no_memory() -> Iterator[None]:
    """Makes sure that the process never holds 300 MiB more than at the beginning."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024


def described(run: Path, change: Change) -> Path:
    """Changes ``policy.json`` of the artifact of a run, and seals it."""
    artifact = run / 'export' / 'artifact'
    said = json.loads((artifact / 'policy.json').read_bytes())
    change(said)
    (artifact / 'policy.json').write_text(json.dumps(said), encoding='utf-8')
    manifest = json.loads((artifact / MANIFEST).read_bytes())
    del manifest['sha256']
    manifest['files']['policy.json'] = facts_of((artifact / 'policy.json').read_bytes())
    (artifact / MANIFEST).write_bytes(write_text(manifest, version=manifest['format_version']))
    return artifact


BOX = {'type': 'Box', 'dtype': 'float32', 'low': 0, 'high': 1}
HUGE_SPACES: dict[str, dict[str, Any]] = {
    'Box': {**BOX, 'shape': [10**9, 10**9]},
    'Box just too large': {**BOX, 'shape': [2**25]},
    'Discrete': {'type': 'Discrete', 'n': 10**18, 'start': 0, 'dtype': 'int64'},
    'MultiDiscrete': {'type': 'MultiDiscrete', 'nvec': [10**9, 10**9], 'start': [0, 0], 'dtype': 'int64'},
    'MultiBinary': {'type': 'MultiBinary', 'shape': [10**6, 10**6]},
    'Dict': {'type': 'Dict', 'spaces': {str(i): {**BOX, 'shape': [2**23]} for i in range(9)}},
    'Tuple': {
        'type': 'Tuple',
        'spaces': {'0': {'type': 'Tuple', 'spaces': {'0': {**BOX, 'shape': [2**60]}}}},
    },
}
BAD_SPACES: tuple[dict[str, Any], ...] = (
    {**BOX, 'shape': [-1, -(10**9)]},
    {**BOX, 'shape': 'x'},
    {**BOX, 'shape': [True]},
    {**BOX, 'shape': [1.5]},
    {'type': 'Discrete', 'n': -3, 'start': 0, 'dtype': 'int64'},
    {'type': 'MultiDiscrete', 'nvec': [[1], [2, 3]], 'start': [0], 'dtype': 'int64'},
    {'type': 'Dict', 'spaces': [1]},
)


@pytest.mark.parametrize(
    ('name', 'kind'),
    [('action_space', 'Discrete'), *(('observation_space', kind) for kind in HUGE_SPACES)],
)
def test_a_huge_space_is_refused_with_the_limit(name: str, kind: str, run: Path) -> None:
    artifact = described(run, lambda said: said.update({name: HUGE_SPACES[kind]}))
    with no_memory(), pytest.raises(CheckpointCorruptError, match='RLFRAME_MAX_SPACE_NUMBERS=') as caught:
        rlframe.load(artifact)
    assert f'{2**24:,}' in str(caught.value) and caught.value.where == str(artifact / 'policy.json')


@pytest.mark.parametrize('space', BAD_SPACES)
def test_a_space_that_nobody_wrote_is_refused(space: dict[str, Any], run: Path) -> None:
    artifact = described(run, lambda said: said.update(observation_space=space))
    with pytest.raises(CheckpointCorruptError, match='not what rlframe wrote'):
        rlframe.load(artifact)


def test_a_limit_can_be_raised_by_whoever_trusts_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    space = {'type': 'Discrete', 'n': 2**30, 'start': 0, 'dtype': 'int64'}
    with pytest.raises(LimitExceededError):
        space_from_json(space)
    monkeypatch.setenv('RLFRAME_MAX_SPACE_NUMBERS', str(2**30))
    assert space_to_json(space_from_json(space)) == space
    monkeypatch.setenv('RLFRAME_MAX_SPACE_NUMBERS', 'many')
    with pytest.raises(ValueError, match='RLFRAME_MAX_SPACE_NUMBERS'):
        space_from_json(space)


HUGE_NETWORKS = {
    'one wide layer': ([10**9], 'RLFRAME_MAX_NETWORK_WIDTH='),
    'more than a tensor holds': ([2**62, 2**62], 'RLFRAME_MAX_NETWORK_WIDTH='),
    'wide layers within the limit': ([2**19, 2**19, 2**19], 'GiB are free'),
    'many layers': ([1] * 20_000, 'RLFRAME_MAX_NETWORK_OPTIONS='),
}


@pytest.mark.parametrize('kind', HUGE_NETWORKS)
def test_a_huge_network_in_an_artifact_is_refused_by_the_tensors_that_there_are(kind: str, run: Path) -> None:
    sizes, says = HUGE_NETWORKS[kind]
    artifact = described(
        run, lambda said: said['policy']['options']['model'].update(encoder_hidden_size_list=sizes)
    )
    with no_memory(), pytest.raises(ResourceError, match=says):
        rlframe.load(artifact)


@pytest.mark.parametrize(
    ('verb', 'kind'),
    [('eval', 'more than a tensor holds'), ('export', 'many layers'), ('--resume', 'one wide layer')],
)
def test_a_huge_network_in_the_config_of_a_checkpoint_is_refused(
    verb: str, kind: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes, says = HUGE_NETWORKS[kind]
    path = run / 'ckpt' / 'latest'

    def widen(manifest: dict[str, Any]) -> None:
        manifest['config']['main_config']['policy']['model']['encoder_hidden_size_list'] = sizes

    manifest = read_manifest(path.resolve())
    del manifest['sha256']
    widen(manifest)
    (path / MANIFEST).write_bytes(write_text(manifest))
    with no_memory():
        assert main([verb, str(path), '--trust']) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ('change', 'says'),
    [
        (lambda said: said.pop('state'), 'state'),
        (lambda said: said['state'].pop('model'), r'state\.model.*missing'),
        (lambda said: said['state'].update(model=[1]), r'state\.model.*a dict'),
        (
            lambda said: said['state']['model'].update({next(iter(said['state']['model'])): 'x'}),
            r'state\.model',
        ),
    ],
)
def test_a_part_of_the_state_of_another_kind_is_named(change: Change, says: str, run: Path) -> None:
    artifact = described(run, change)
    with pytest.raises(CheckpointError, match=f'(?s){says}'):
        rlframe.load(artifact)


def test_a_long_description_is_refused_unread(run: Path) -> None:
    artifact = described(run, lambda said: None)
    manifest = json.loads((artifact / MANIFEST).read_bytes())
    del manifest['sha256']
    with open(artifact / 'policy.json', 'ab') as file:
        file.truncate(2**40)  # without a block on the disk
    manifest['files']['policy.json']['size'] = 2**40
    (artifact / MANIFEST).write_bytes(write_text(manifest, version=manifest['format_version']))
    with no_memory(), pytest.raises(CheckpointCorruptError, match='RLFRAME_MAX_POLICY_BYTES='):
        rlframe.load(artifact)
