"""A run whose env needs secrets: none of them is in the files with its config, and who goes on is told which to give again."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from runs import ROOT, SMALL, Run

pytestmark = pytest.mark.slow

KEY, PASSWORD, BEARER = 'sk-hunter2-key', 'pa55-hunter2', 'hunter2-bearer-token'
URL = f'postgres://user:{PASSWORD}@host/db'
KWARGS = (f'env.kwargs.api_key={KEY}', f'env.kwargs.url={URL}', f'env.kwargs.auth=["Bearer {BEARER}"]')
ENV_ID = 'tests/SecretCartPole-v0'


class SecretCartPole(gymnasium.Wrapper):
    """A CartPole that needs a key and keeps none of what it was given."""

    made: list[dict[str, Any]] = []

    def __init__(self, api_key: str, url: str, auth: list[str]) -> None:
        super().__init__(gymnasium.make('CartPole-v1'))
        given = {'api_key': api_key, 'url': url, 'auth': auth}
        assert '***' not in repr(given)
        self.made.append(given)


@pytest.fixture(autouse=True)
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    gymnasium.register(ENV_ID, SecretCartPole)
    SecretCartPole.made.clear()
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    del gymnasium.registry[ENV_ID]


WORDS = (
    *('-c', str(ROOT / 'configs/cartpole_dqn.py'), *SMALL, f'env.env_id={ENV_ID}', '--env-step', '60'),
    *(
        'policy.learn.batch_size=16',
        'policy.collect.n_sample=12',
        'policy.learn.learner.hook.save_ckpt_after_iter=2',
    ),
)


def hidden_in(folder: Path) -> list[str]:
    """Returns files with a secret in them."""
    forms = [text.encode() for text in (KEY, PASSWORD, BEARER)]
    files = [file for file in folder.rglob('*') if file.is_file()]
    assert files
    return [str(file) for file in files if any(form in file.read_bytes() for form in forms)]


def test_no_file_of_a_run_holds_its_secrets_and_who_goes_on_has_to_give_them_again(
    cwd: Path, run: Run
) -> None:
    code, _, err = run(*WORDS, *KWARGS)
    assert code == 0, err
    (folder,) = cwd.glob('*_seed0')
    assert hidden_in(folder) == []
    private = (
        'config.json',
        'total_config.py',
        'log.txt',
        *(f'ckpt/latest/{n}.json' for n in ('state', 'manifest')),
    )
    assert {stat.S_IMODE((folder / name).stat().st_mode) for name in private} == {0o600}

    made = len(SecretCartPole.made)
    before = {file: file.stat().st_mtime_ns for file in folder.rglob('*')}
    for words in (
        ('--resume', str(folder), '--env-step', '90'),
        ('eval', str(folder), '-n', '1'),
        ('export', str(folder)),
        ('-c', str(folder / 'total_config.py'), '--exp-name', 'other'),
        ('-c', str(folder / 'config.json'), '--exp-name', 'other'),
    ):
        code, _, err = run(*words)
        assert code == 2, words
        for option in ('env.kwargs.api_key=...', 'env.kwargs.url=...', 'env.kwargs.auth=[...]'):
            assert option in err, words
        assert len(SecretCartPole.made) == made and not (cwd / 'other').exists()
    assert {file: file.stat().st_mtime_ns for file in folder.rglob('*')} == before

    for words in (
        ('eval', str(folder), '-n', '1'),
        ('export', str(folder)),
        ('-c', str(folder / 'total_config.py'), '--exp-name', 'other'),
        ('--resume', str(folder), '--env-step', '90'),
    ):
        code, _, err = run(*words, *KWARGS)
        assert code == 0, (words, err)
    assert SecretCartPole.made[-1] == {'api_key': KEY, 'url': URL, 'auth': [f'Bearer {BEARER}']}
    assert hidden_in(cwd) == []
