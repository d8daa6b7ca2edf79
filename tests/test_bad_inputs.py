"""Every bad input of the table: type and text of the error, exit code, and nothing that is left behind."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from bad_input_table import ELSEWHERE, TABLE
from bad_inputs import Case
from bad_runs import EDITS
from error_texts import check, raises
from fakes import config_pair, counting_manager
from runs import DQN, ROOT

from rlframe import errors
from rlframe.entry.__main__ import main
from rlframe.errors import (
    ActionError,
    CheckpointWriteError,
    EnvContractWarning,
    RegistryError,
    SerializationError,
)
from rlframe.pipeline import serial as pipeline
from rlframe.pipeline import serial_pipeline
from rlframe.registry import POLICY_REGISTRY
from rlframe.run import run_folder
from rlframe.run.write_checkpoint import save_checkpoint


@pytest.fixture(scope='module')
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run, to be copied."""
    folder = tmp_path_factory.mktemp('trained')
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main([*placed(DQN, {}), '--env-step', '60', '--exp-name', 'run']) == 0
    return folder / 'run'


@pytest.fixture(autouse=True)
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_outlives: None) -> Iterator[Path]:
    """An empty working directory and an empty folder for temporary files; no thread, process or temporary file is left."""
    for name in ('cwd', 'tmp', 'file'):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / 'cwd')
    monkeypatch.setenv('TMPDIR', str(tmp_path / 'tmp'))
    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path / 'tmp'))
    monkeypatch.setattr(sys, 'path', list(sys.path))
    yield tmp_path / 'cwd'
    assert list((tmp_path / 'tmp').iterdir()) == []


def placed(words: tuple[str, ...], places: dict[str, Path]) -> list[str]:
    found = []
    for word in words:
        for name, place in places.items():
            word = word.replace(f'<{name}>', str(place))
        found.append(str(ROOT / word) if word.startswith('configs/') else word)
    return found


def prepare(case: Case, tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Makes what a case is given and returns where it is."""
    places = {'file': tmp_path / 'file', 'run': tmp_path / 'run'}
    for name, text in case.files:
        (places['file'] / name).write_bytes(b'\xe9: 1' if case.edit == 'latin' else text.encode())
    if any('<run>' in word for word in case.words):
        shutil.copytree(trained, places['run'], symlinks=True)
    if any('.npz' in word for word in case.words):
        write_data(places['file'])
    if case.absent:
        hide(case.absent, monkeypatch)
    if case.edit in EDITS:
        EDITS[case.edit](places['run'])
    elif case.edit == 'impatient':
        monkeypatch.setattr(pipeline, 'MAX_IDLE_ROUNDS', 3)
    elif case.edit == 'ray tmp':
        monkeypatch.setenv('RAY_TMPDIR', '/proc/nowhere')
    elif case.edit == 'proc':
        monkeypatch.chdir('/proc')
    elif case.edit == 'named':
        Path('run').mkdir()
        Path('run', 'config.json').touch()
    return places


def hide(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a package, and the envs that it has registered if another test imported it, unknown."""
    monkeypatch.setitem(sys.modules, package, None)
    for env_id, spec in list(gymnasium.registry.items()):
        if str(spec.entry_point).startswith(package):
            monkeypatch.delitem(gymnasium.registry, env_id)


def write_data(folder: Path) -> None:
    obs, action = np.zeros((5, 4), np.float32), np.zeros(5, np.int64)
    bad_obs, bad_action = obs.copy(), action.copy()
    bad_obs[3, 1], bad_action[[2, 4]] = np.nan, (7, -1)
    np.savez(folder / 'few.npz', obs=obs)
    np.savez(folder / 'objects.npz', obs=np.array([None] * 5), action=action)
    np.savez(folder / 'nan.npz', obs=bad_obs, action=action)
    np.savez(folder / 'action.npz', obs=obs, action=bad_action)


@pytest.mark.parametrize('row', TABLE)
def test_bad_input(
    row: str,
    cwd: Path,
    tmp_path: Path,
    trained: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = TABLE[row]
    places = prepare(case, tmp_path, trained, monkeypatch)
    release: Callable[[], None] = run_folder.lock(places['run']) if case.edit == 'locked' else lambda: None
    before = {path for path in places['run'].rglob('*')} if places['run'].exists() else set()
    capsys.readouterr()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter('always', EnvContractWarning)
            code: Any = main(placed(case.words, places))
    except SystemExit as error:
        code = error.code
    finally:
        release()
    err = capsys.readouterr().err
    text = err + ''.join(f'{warning.message}\n' for warning in caught)
    assert code == case.code and 'Traceback' not in err, err
    if case.error and case.code:
        (line,) = [line for line in err.splitlines() if line.startswith('rlframe: ') and 'Error' in line]
        assert line.startswith(f'rlframe: {case.error}: ')
        assert getattr(errors, case.error).exit_code == case.code
    check(text)
    if case.edit != 'proc':
        left = {'run'} if case.edit == 'named' else set(case.leaves)
        assert {path.name for path in cwd.iterdir()} == left
        assert not [path for path in cwd.rglob('*') if path.name == '.lock' or 'tmp' in path.name]
    if before:
        assert {path for path in places['run'].rglob('*')} - {places['run'] / '.lock'} == before - {
            places['run'] / '.lock'
        }


def test_every_row_of_the_table_is_there() -> None:
    rows = {int(row.split()[0]) for row in (*TABLE, *ELSEWHERE) if row.split()[0].isdigit()}
    assert rows == set(range(1, 71))


def test_registered_twice(tmp_path: Path, cwd: Path) -> None:
    """Row 17."""
    sys.path.insert(0, str(tmp_path / 'file'))
    source = "from rlframe.registry import POLICY_REGISTRY\n\n@POLICY_REGISTRY.register('twin')\nclass P:\n    pass\n"
    try:
        for name in ('bad_twin_1', 'bad_twin_2'):
            (tmp_path / 'file' / f'{name}.py').write_text(source)
        with raises(RegistryError):
            for name in ('bad_twin_1', 'bad_twin_2'):
                importlib.import_module(name)
    finally:
        POLICY_REGISTRY._classes.pop('twin', None)
        for name in ('bad_twin_1', 'bad_twin_2'):
            sys.modules.pop(name, None)


@pytest.mark.filterwarnings('ignore:only this program has')
@pytest.mark.parametrize('where', ['env.manager', 'collector', 'evaluator'])
def test_unpicklable_closure(where: str, cwd: Path, tmp_path: Path) -> None:
    """Row 36: told before Ray or a process is started and a run folder is made."""
    with open(tmp_path / 'file' / 'open', 'w') as handle:

        def make() -> Any:
            raise AssertionError(handle)

        sections: dict[str, Any] = {
            'env.manager': {'manager': 'subprocess'},
            'collector': {'collector': {'backend': 'ray'}},
            'evaluator': {'evaluator': {'backend': 'ray'}, 'env_id': lambda: (handle, Stepper())[1]},
        }
        main_config, create_config = config_pair(**{'env_id': make, **sections[where]})
        with raises(SerializationError):
            serial_pipeline((main_config, create_config), max_env_step=10)
    assert list(cwd.iterdir()) == []


def Stepper() -> Any:
    import gymnasium

    return gymnasium.make('CartPole-v1')


def test_action_outside_the_space() -> None:
    """Row 46."""
    manager = counting_manager(2)
    manager.reset(seed=[0, 1])
    with raises(ActionError) as caught:
        manager.step(np.array([0, 5]), np.arange(2))
    assert caught.value.exit_code == 1 and manager.closed


def test_disk_full(cwd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 61."""
    usage = shutil.disk_usage(cwd)._replace(free=1000)
    monkeypatch.setattr(shutil, 'disk_usage', lambda path: usage)
    with raises(CheckpointWriteError) as caught:
        save_checkpoint(cwd / 'iteration_1', {'policy': {'big': np.zeros(10**5)}})
    assert caught.value.exit_code == 1 and list(cwd.iterdir()) == []


@pytest.mark.parametrize('given', [None, 3, ({},)])
def test_no_config(given: Any, cwd: Path) -> None:
    with raises(errors.ConfigError):
        serial_pipeline(given)
    assert list(cwd.iterdir()) == []


def test_temporary_files_are_where_they_are_looked_for() -> None:
    assert tempfile.gettempdir() == os.environ['TMPDIR']
