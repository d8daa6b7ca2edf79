"""What ``export`` writes: the folder and its description, other formats, and what is refused before anything is written."""

from __future__ import annotations

import importlib.util
import json
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import safetensors.numpy
import torch
from checkpoint_helpers import facts_of, payload
from error_texts import raises
from exported import as_eval_builds_it, same, trained
from zoo import SampledEnv

import rlframe
from rlframe.data import EnvSpec
from rlframe.data.space_json import space_from_json, space_to_json
from rlframe.entry.__main__ import main
from rlframe.errors import (
    CheckpointCorruptError,
    CheckpointError,
    CheckpointMismatchError,
    CheckpointNotFoundError,
    CheckpointVersionError,
    CheckpointWriteError,
    ConfigError,
    IncompatibleError,
    MissingDependencyError,
    ResourceError,
    UnsafeCheckpointError,
)
from rlframe.export import FORMATS, export_policy
from rlframe.export import artifact as artifacts
from rlframe.export.function import action_function
from rlframe.run.checkpoint_files import MANIFEST
from rlframe.run.checkpoint_tree import BAD_TREE
from rlframe.run.manifest import read_manifest, write_text
from rlframe.run.read_checkpoint import load_checkpoint
from rlframe.utils.files import LimitExceededError

Change = Callable[[dict[str, Any]], Any]
MEMBERS = ('README.md', 'manifest.json', 'policy.json', 'weights.safetensors')


@pytest.fixture(scope='module')
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with a trained and exported policy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp('made'))
        run = trained('ppo', dict(env_id=SampledEnv, kwargs=dict(action='Box')), dict(normalize_obs=True))
    export_policy(run)
    return run.parents[1]


@pytest.fixture
def run(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(made, tmp_path / 'run', symlinks=True))


@pytest.fixture
def artifact(run: Path) -> Path:
    return run / 'export' / 'artifact'


def test_the_artifact_under_test_has_these_members_and_is_found_in_its_run(run: Path, artifact: Path) -> None:
    assert sorted(path.name for path in artifact.iterdir()) == sorted(MEMBERS)
    for path in (artifact, artifact.parent, run, str(run)):
        assert rlframe.load(path).path == artifact.resolve()


def test_the_card_says_what_it_is_what_it_reached_and_how_to_use_it(
    made: Path, run: Path, artifact: Path
) -> None:
    card = (artifact / 'README.md').read_text(encoding='utf-8')
    _, manifest = load_checkpoint(run / 'ckpt' / 'latest', buffer=False)
    assert card.startswith('# ppo on SampledEnv\n') and manifest['score'] > 0
    progress = manifest['progress']
    for text in (
        f'{manifest["score"]:g} |',
        f'{progress["envstep"]} env steps, {progress["train_iter"]} updates',
        f'torch {torch.__version__}',
        f'rlframe {rlframe.__version__}',
        "rlframe.load('path/of/this/folder')\naction = policy.act(obs)\n",
    ):
        assert text in card, text
    assert 'reset' not in card and str(made) not in card


def test_weights_alone_are_a_state_dict(run: Path) -> None:
    written = export_policy(run, ['state_dict'], run / 'out')
    assert list(written) == ['state_dict'] and [path.name for path in (run / 'out').iterdir()] == [
        'state_dict.safetensors'
    ]
    weights = safetensors.numpy.load_file(written['state_dict'])
    model = as_eval_builds_it(run).model.state_dict()
    assert set(weights) == set(model)
    for name, tensor in model.items():
        same(weights[name], tensor.numpy())


# damage


@pytest.mark.parametrize('name', MEMBERS)
def test_a_damaged_file_is_named(name: str, artifact: Path) -> None:
    content = bytearray((artifact / name).read_bytes())
    content[len(content) // 2] ^= 1
    (artifact / name).write_bytes(content)
    with pytest.raises(CheckpointCorruptError) as caught:
        rlframe.load(artifact)
    assert caught.value.where == str(artifact / name)


def test_a_missing_file_and_a_pickle_in_its_place_are_named(artifact: Path, tmp_path: Path) -> None:
    file, mark = artifact / 'weights.safetensors', tmp_path / 'ran'
    file.write_bytes(payload(mark))
    with pytest.raises(UnsafeCheckpointError) as caught:
        rlframe.load(artifact)
    assert caught.value.where == str(file) and not mark.exists()
    file.unlink()
    with raises(CheckpointError):
        rlframe.load(artifact)


def rewrite(artifact: Path, **facts: Any) -> None:
    """Writes a manifest that says something else, sealed as it should be."""
    manifest = json.loads((artifact / MANIFEST).read_bytes())
    del manifest['sha256']
    version = facts.pop('format_version', manifest['format_version'])
    (artifact / MANIFEST).write_bytes(write_text({**manifest, **facts}, version=version))


def test_newer_and_unknown_formats_are_refused(artifact: Path) -> None:
    rewrite(artifact, format_version=artifacts.FORMAT_VERSION + 1)
    with raises(CheckpointVersionError):
        rlframe.load(artifact)
    rewrite(artifact, format_version=1, kind='something')
    with pytest.raises(CheckpointMismatchError):
        rlframe.load(artifact)


@pytest.mark.parametrize(
    'change',
    [
        lambda said: said.pop('observation_space'),
        lambda said: said['preprocessing'].update(statistics=3),
        lambda said: said['preprocessing'].pop('frame_stack'),
    ],
)
def test_a_description_that_nobody_wrote_is_refused_even_if_its_sums_are_right(
    change: Change, artifact: Path
) -> None:
    described(artifact, change)
    with pytest.raises(CheckpointCorruptError) as caught:
        rlframe.load(artifact)
    assert caught.value.where == str(artifact / 'policy.json')


def described(artifact: Path, change: Change) -> None:
    """Changes ``policy.json``, and seals it."""
    said = json.loads((artifact / 'policy.json').read_text(encoding='utf-8'))
    change(said)
    (artifact / 'policy.json').write_text(json.dumps(said), encoding='utf-8')
    files = json.loads((artifact / MANIFEST).read_bytes())['files']
    rewrite(artifact, files={**files, 'policy.json': facts_of((artifact / 'policy.json').read_bytes())})


def test_checkpoints_and_policies_are_told_apart(run: Path, artifact: Path) -> None:
    with raises(CheckpointMismatchError):
        load_checkpoint(artifact)
    with raises(CheckpointMismatchError):
        rlframe.load(run / 'ckpt' / 'latest')
    shutil.rmtree(run / 'export')
    with raises(CheckpointNotFoundError):
        rlframe.load(run)
    with raises(CheckpointNotFoundError):
        rlframe.load(run / 'nothing')


# where it is written


def test_an_earlier_export_is_replaced_and_nothing_else_is(run: Path, artifact: Path) -> None:
    (artifact / 'README.md').write_text('mine')
    out = export_policy(run)['artifact']
    assert out == artifact.resolve() and 'mine' not in (artifact / 'README.md').read_text(encoding='utf-8')
    for path in (run / 'ckpt' / 'latest', run / 'ckpt'):
        other = run / 'other'
        shutil.rmtree(other, ignore_errors=True)
        shutil.copytree(path, other / 'artifact')
        with raises(CheckpointWriteError):
            export_policy(run, ['artifact', 'state_dict'], other)
        assert [entry.name for entry in other.iterdir()] == ['artifact']
    with raises(CheckpointWriteError):
        export_policy(run, out=run / 'config.json')
    (run / 'third' / 'state_dict.safetensors').mkdir(parents=True)
    with raises(ConfigError):
        export_policy(run, ['artifact', 'state_dict'], run / 'third')
    assert len(list((run / 'third').iterdir())) == 1


# the command line


def test_bad_formats_are_refused_by_name(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(run.rglob('*'))
    assert main(['export', str(run), '--format', 'artifact', 'torch_exprt']) == 2
    out, err = capsys.readouterr()
    assert out == '' and "Did you mean 'torch_export'?" in err and sorted(run.rglob('*')) == before


def test_onnx_without_its_packages_names_the_extra(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None if name == 'onnx' else find(name))
    with raises(MissingDependencyError):
        export_policy(run, ['onnx'])


def test_observations_that_are_not_one_tensor_are_refused_with_what_is_possible(run: Path) -> None:
    policy = as_eval_builds_it(run)
    spec = EnvSpec(gymnasium.spaces.MultiBinary(3), policy.spec.action_space)
    with raises(IncompatibleError):
        action_function(policy, spec)


def test_the_last_line_says_where_the_policy_is_and_how_to_use_it(run: Path, capsys: Any) -> None:
    out = run / 'out'
    assert main(['export', str(run), '--format', 'artifact', 'state_dict', '--out', str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and lines[0].startswith(
        f'state_dict: {out}/state_dict.safetensors; use it: safetensors'
    )
    place, _, usage = lines[-1].partition('; use it: ')
    assert place == f'artifact: {out}/artifact'
    obs = np.array([0, 0, 0, 3], np.float32)
    same(
        eval(usage, {'rlframe': rlframe, 'obs': obs}),
        as_eval_builds_it(run / 'ckpt' / 'best').eval_mode.forward(obs[None], np.arange(1))['action'][0],
    )
    assert {file.name for file in out.iterdir()} == {
        FORMATS[name].name for name in ('artifact', 'state_dict')
    }


# what is huge: refused before memory is taken, with the limit and how to raise it


@contextmanager
def no_memory() -> Iterator[None]:
    """Makes sure that the process never holds 300 MiB more than at the beginning."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 * 1024


BOX = {'type': 'Box', 'dtype': 'float32', 'low': 0, 'high': 1}
HUGE_SPACES: dict[str, dict[str, Any]] = {
    'Box just too large': {**BOX, 'shape': [2**25]},
    'Discrete': {'type': 'Discrete', 'n': 10**18, 'start': 0, 'dtype': 'int64'},
    'MultiDiscrete': {'type': 'MultiDiscrete', 'nvec': [10**9, 10**9], 'start': [0, 0], 'dtype': 'int64'},
    'MultiBinary': {'type': 'MultiBinary', 'shape': [10**6, 10**6]},
    'Dict': {'type': 'Dict', 'spaces': {str(i): {**BOX, 'shape': [2**23]} for i in range(9)}},
    'Tuple': {'type': 'Tuple', 'spaces': {'0': {**BOX, 'shape': [2**60]}}},
}
BAD_SPACES: tuple[dict[str, Any], ...] = (
    {**BOX, 'shape': [-1, -(10**9)]},
    {**BOX, 'shape': [True]},
    {'type': 'Discrete', 'n': -3, 'start': 0, 'dtype': 'int64'},
    {'type': 'MultiDiscrete', 'nvec': [[1], [2, 3]], 'start': [0], 'dtype': 'int64'},
    {'type': 'Dict', 'spaces': [1]},
)


@pytest.mark.parametrize('kind', HUGE_SPACES)
def test_a_huge_space_is_refused_with_the_limit(kind: str) -> None:
    with no_memory(), raises(LimitExceededError):
        space_from_json(HUGE_SPACES[kind])


@pytest.mark.parametrize('space', BAD_SPACES)
def test_a_space_that_nobody_wrote_is_refused(space: dict[str, Any]) -> None:
    with pytest.raises(BAD_TREE):
        space_from_json(space)


def test_a_huge_space_in_an_artifact_is_refused_with_its_file(artifact: Path) -> None:
    described(artifact, lambda said: said.update(observation_space=HUGE_SPACES['Dict']))
    with no_memory(), raises(CheckpointCorruptError) as caught:
        rlframe.load(artifact)
    assert caught.value.where == str(artifact / 'policy.json')


def test_a_limit_can_be_raised_by_whoever_trusts_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    space = {'type': 'Discrete', 'n': 2**30, 'start': 0, 'dtype': 'int64'}
    with pytest.raises(LimitExceededError):
        space_from_json(space)
    monkeypatch.setenv('RLFRAME_MAX_SPACE_NUMBERS', str(2**30))
    assert space_to_json(space_from_json(space)) == space
    monkeypatch.setenv('RLFRAME_MAX_SPACE_NUMBERS', 'many')
    with raises(ValueError):
        space_from_json(space)


HUGE_NETWORKS = {
    'one wide layer': ([10**9], 'RLFRAME_MAX_NETWORK_WIDTH='),
    'more than a tensor holds': ([2**62, 2**62], 'RLFRAME_MAX_NETWORK_WIDTH='),
    'wide layers within the limit': ([2**19, 2**19, 2**19], 'GiB are free'),
    'many layers': ([1] * 20_000, 'RLFRAME_MAX_NETWORK_OPTIONS='),
}


@pytest.mark.parametrize('kind', ['wide layers within the limit', 'many layers'])
def test_a_huge_network_in_an_artifact_is_refused_by_the_tensors_that_there_are(
    kind: str, artifact: Path
) -> None:
    sizes, says = HUGE_NETWORKS[kind]
    described(
        artifact, lambda said: said['policy']['options']['model'].update(encoder_hidden_size_list=sizes)
    )
    with no_memory(), pytest.raises(ResourceError, match=says):
        rlframe.load(artifact)


@pytest.mark.parametrize(
    ('verb', 'kind'), [('eval', 'more than a tensor holds'), ('--resume', 'one wide layer')]
)
def test_a_huge_network_in_the_config_of_a_checkpoint_is_refused(
    verb: str, kind: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes, says = HUGE_NETWORKS[kind]
    path = run / 'ckpt' / 'latest'
    manifest = read_manifest(path.resolve())
    del manifest['sha256']
    manifest['config']['main_config']['policy']['model']['encoder_hidden_size_list'] = sizes
    (path / MANIFEST).write_bytes(write_text(manifest))
    with no_memory():
        assert main([verb, str(path), '--trust']) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    'change',
    [
        lambda said: said['state'].pop('model'),
        lambda said: said['state']['model'].update({next(iter(said['state']['model'])): 'x'}),
    ],
)
def test_a_part_of_the_state_of_another_kind_is_named(change: Change, artifact: Path) -> None:
    described(artifact, change)
    with raises(CheckpointError):
        rlframe.load(artifact)


def test_a_long_description_is_refused_unread(artifact: Path) -> None:
    files = json.loads((artifact / MANIFEST).read_bytes())['files']
    with open(artifact / 'policy.json', 'ab') as file:
        file.truncate(2**40)  # without a block on the disk
    rewrite(artifact, files={**files, 'policy.json': {**files['policy.json'], 'size': 2**40}})
    with no_memory(), raises(CheckpointCorruptError):
        rlframe.load(artifact)
