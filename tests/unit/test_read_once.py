"""Whatever uses a checkpoint opens each of its files once, so what was verified is what is used."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from runs import DQN, ROOT, Run

import rlframe
from rlframe.app.scoring import Request, score
from rlframe.entry.__main__ import main
from rlframe.errors import CheckpointCorruptError
from rlframe.export import export_policy
from rlframe.run.read_checkpoint import OpenCheckpoint, load_checkpoint

pytestmark = pytest.mark.filterwarnings('ignore::rlframe.errors.ConfigWarning')

WORDS = (
    *DQN,
    'checkpoint.replay_buffer=incremental',
    'policy.learn.learner.hook.save_ckpt_after_iter=20',
    *('--train-iter', '40'),
)
NAME = 'cartpole_dqn_seed0'
Opened = Callable[[], Counter[str]]
_watching: list[Counter[str]] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event == 'open' and _watching and isinstance(arguments[0], str):
        _watching[-1][arguments[0]] += 1


sys.addaudithook(_hook)  # cannot be removed, but does nothing unless a test watches


@pytest.fixture(scope='module')
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run of 40 train iterations, with checkpoints at 20 and 40, and its export."""
    folder = tmp_path_factory.mktemp('trained')
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        words = [str(ROOT / word) if word.startswith('configs/') else word for word in WORDS]
        assert main(words) == 0
    export_policy(folder / NAME)
    return folder / NAME


@pytest.fixture
def opened(trained: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    """Returns how often each file of the run's checkpoints, and of its export, has been opened."""
    monkeypatch.chdir(trained.parent)
    counts: Counter[str] = Counter()
    roots = [trained / name for name in ('ckpt', 'export')]
    files = {
        path: str(path.relative_to(trained)) for root in roots for path in root.rglob('*') if path.is_file()
    }
    _watching.append(counts)
    yield lambda: Counter(
        {
            files[file]: number
            for file in files
            if (number := sum(n for name, n in counts.items() if Path(name).absolute() == file))
        }
    )
    _watching.clear()


def names_of(path: Path) -> set[str]:
    return {str(file.relative_to(path.parents[1])) for file in path.iterdir()}


def test_resume_of_a_run_opens_each_file_once(run: Run, trained: Path, opened: Opened) -> None:
    assert main(['--resume', str(trained)]) == 0
    counts = opened()
    assert names_of(trained / 'ckpt' / 'iteration_40') <= counts.keys(), 'the replay buffer, too'
    assert len([name for name in counts if name.startswith('ckpt/iteration_40/replay_buffer')]) >= 3
    assert set(counts.values()) == {1}


def test_resume_of_an_older_checkpoint_opens_each_file_once(trained: Path, opened: Opened) -> None:
    assert main(['--resume', str(trained / 'ckpt' / 'iteration_20'), '--train-iter', '20']) == 0
    counts = opened()
    assert names_of(trained / 'ckpt' / 'iteration_20') <= counts.keys() and set(counts.values()) == {1}


WITHOUT_BUFFER = ('manifest.json', 'state.json', 'tensors.safetensors')


def test_eval_and_export_open_each_file_once(trained: Path, opened: Opened, tmp_path: Path) -> None:
    best = (trained / 'ckpt' / 'best').resolve().name
    whole = {f'ckpt/{best}/{name}': 1 for name in WITHOUT_BUFFER}
    before = opened()
    for use in (
        lambda: main(['eval', str(trained), '-n', '1']),
        lambda: main(['export', str(trained), '--out', str(tmp_path / 'out')]),
        lambda: score(trained, Request(1)),
        lambda: export_policy(trained, out=tmp_path / 'again'),
    ):
        use()
        after = opened()
        assert after - before == whole
        before = after


def test_exported_policy_is_loaded_by_opening_each_file_once(trained: Path, opened: Opened) -> None:
    rlframe.load(trained)
    folder = trained / 'export' / 'artifact'
    assert opened() == {str(file.relative_to(trained)): 1 for file in folder.iterdir()}


def test_verified_bytes_are_used_even_if_the_files_change_afterwards(trained: Path) -> None:
    path = trained / 'ckpt' / 'iteration_40'
    expected, _ = load_checkpoint(path)
    saved = OpenCheckpoint(path)
    saved.verify()
    contents = {file: file.read_bytes() for file in path.iterdir()}
    for file in contents:
        file.write_bytes(b'something else')
    try:
        state = saved.state()
        with pytest.raises(CheckpointCorruptError):
            saved.state()  # the bytes were released, and those on disk are not the verified ones
    finally:
        for file, content in contents.items():
            file.write_bytes(content)
    assert state['progress'] == expected['progress'] and state['rng']['numpy'] == expected['rng']['numpy']
