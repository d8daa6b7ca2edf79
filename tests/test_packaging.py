"""The package that users install: what it contains, what it needs, and that it works outside the repository."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from runs import ROOT

BUILT_WITH = {'opencv-python-headless': 'cv2', 'mkdocs-material': 'material'}
"""Package to the module that it is imported as, where the names differ."""
USER = '''"""A module of a user."""

import numpy as np

import rlframe
from rlframe.data import Batch
from rlframe.utils.field import Section, option
from rlframe.worker import BaseLearner, LearnerHook, register_learner_hook


@register_learner_hook('mine')
class Mine(LearnerHook):
    """A hook."""

    position = 'after_iter'

    def __call__(self, learner: BaseLearner) -> None:
        step: int = learner.train_iter
        batch = Batch(obs=np.zeros((3, 4), np.float32))
        reveal_type(rlframe.load('run'))
        rlframe.load(step)
        len(batch).foo


class Learn(Section):
    lr: float = option(1e-3, unit='per update', doc='step size')


class Config(Section):
    size: int = option('4')
    learn: Learn


def read(cfg: Config) -> None:
    print(cfg.lern.lr, cfg.learn.rl, cfg.learn.lr)
'''


def metadata(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Returns what setup.py passes to ``setup``."""
    import setuptools

    given: dict[str, Any] = {}
    monkeypatch.setattr(setuptools, 'setup', lambda **arguments: given.update(arguments))
    monkeypatch.chdir(ROOT)
    exec(compile((ROOT / 'setup.py').read_text(encoding='utf-8'), 'setup.py', 'exec'), {})
    return given


IMPORT = re.compile(
    r'^ *(?:from ([\w.]+) import |import ([\w.]+)(?: as \w+)?(?: *#.*)?$)'
    r"|(?:LazyModule|import_module|find_spec)\(\s*'([\w.]+)'\s*\)",
    re.MULTILINE,
)


def imported() -> set[str]:
    """Returns the names of all packages that rlframe imports, looks for or names in ``LazyModule``."""
    text = '\n'.join(file.read_text(encoding='utf-8') for file in (ROOT / 'rlframe').rglob('*.py'))
    names = {''.join(found).partition('.')[0] for found in IMPORT.findall(text)}
    return names - {'', 'rlframe'} - set(sys.stdlib_module_names)


def modules(requirements: list[str]) -> set[str]:
    """Returns the modules that the packages of requirements are imported as."""
    packages = {re.split(r'[\s\[<>=;]', requirement)[0] for requirement in requirements}
    return {BUILT_WITH.get(package, package).replace('-', '_') for package in packages}


def test_every_import_is_required_or_of_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    given = metadata(monkeypatch)
    extras = given['extras_require']
    # by the package that requires it
    brought = dict(yaml='ray', pandas='ray', PIL='moviepy', llvmlite='numba')
    brought |= dict(ale_py='gymnasium', cloudpickle='gymnasium')
    declared = modules([*given['install_requires'], *extras['all'], *extras['overcooked']])
    in_notebooks = {'IPython'}  # what shows progress in a notebook is there if there is a notebook
    assert {'torch', 'ray', 'yaml', 'optuna'} <= imported()
    missing = {name for name in imported() - in_notebooks if brought.get(name, name) not in declared}
    assert not missing, 'add them to an extra in setup.py'


def test_every_extra_that_a_message_or_a_page_names_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    extras = metadata(monkeypatch)['extras_require']
    files = [
        *ROOT.glob('rlframe/**/*.py'),
        *ROOT.glob('configs/*.py'),
        *ROOT.glob('*.md'),
        *ROOT.glob('docs/**/*.md'),
    ]
    named = {
        extra
        for file in files
        for found in re.findall(r'rlframe\[([\w,-]+)\]', file.read_text(encoding='utf-8'))
        for extra in found.split(',')
    }
    assert {'video', 'onnx'} <= named <= set(extras)


def test_extras_have_lower_bounds_and_constraints_are_within_them(monkeypatch: pytest.MonkeyPatch) -> None:
    given = metadata(monkeypatch)
    extras = {each for packages in given['extras_require'].values() for each in packages}
    assert not [each for each in extras if '>=' not in each], 'say from which version on it works'
    lines = (ROOT / 'constraints.txt').read_text(encoding='utf-8').splitlines()
    chosen = {
        pin.name.lower(): next(iter(pin.specifier)).version
        for pin in map(Requirement, (line.partition(' #')[0] for line in lines if line and line[0] != '#'))
    }
    wanted = map(Requirement, {*given['install_requires'], *extras})
    named = [wish for wish in wanted if wish.name.lower() in chosen]
    assert len(named) > 10
    assert not [wish for wish in named if chosen[wish.name.lower()] not in wish.specifier]


FAKE_PYTHON = """#!/bin/sh
[ "$1" = -c ] && exit 0  # it has ensurepip
mkdir -p "$4/bin"
cp "$FAKES/fake_pip" "$4/bin/pip"
echo "PATH='$4/bin':$PATH" > "$4/bin/activate"
printf '#!/bin/sh\\necho %s "$*"\\n' "$4" > "$4/bin/python"
chmod +x "$4/bin/python"
"""
"""An interpreter that creates environments whose Python prints its arguments."""


@pytest.mark.parametrize('has_wheels', [True, False])
def test_ci_runs_both_commands_of_the_readme_on_other_interpreters(tmp_path: Path, has_wheels: bool) -> None:
    (tmp_path / '.ci').mkdir()
    for name in ('.ci/interpreters', 'README.md', 'constraints.txt'):
        shutil.copy(ROOT / name, tmp_path / name)
    folder, scratch = tmp_path / 'bin', tmp_path / 'scratch'
    for each in (folder, scratch):
        each.mkdir()
    pip = '#!/bin/sh\n' + ('' if has_wheels else 'echo ERROR: no torch; exit 1\n')
    for name, text in {'python3.98': FAKE_PYTHON, 'fake_pip': pip}.items():
        (folder / name).write_text(text, encoding='utf-8')
        (folder / name).chmod(0o755)
    path = f'{folder}:{os.environ["PATH"]}'
    env = {'PATH': path, 'FAKES': str(folder), 'TMPDIR': str(scratch), 'PYENV_ROOT': str(tmp_path)}
    done = run('bash', '.ci/interpreters', '3.98', '3.99', cwd=tmp_path, env=env)
    assert not list(scratch.iterdir()), 'environments are removed'
    if not has_wheels:
        assert done == '.ci/interpreters: Python 3.98 skipped: ERROR: no torch\n'
        return
    said = [line.split(maxsplit=1) for line in done.splitlines() if not line.startswith('.ci')]
    assert all(where.startswith(str(scratch)) for where, _ in said)
    job, tests = (words for _, words in said)
    assert job.startswith('-m rlframe.entry -c configs/cartpole_dqn.py --out ')
    assert tests == '-m pytest -m not slow and not ray'
    assert run('bash', '.ci/interpreters', '3.99', cwd=tmp_path, env=env).endswith(
        'no other Python was found\n'
    )


def test_classifiers_name_interpreters_that_ci_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    given = metadata(monkeypatch)
    named = re.findall(r'Python :: (3\.\d+)', ' '.join(given['classifiers']))
    text = (ROOT / '.ci' / 'interpreters').read_text(encoding='utf-8')
    tested = re.findall(r"^VERSIONS='(.*)'$", text, re.MULTILINE)[0].split()
    assert named == tested[: len(named)] and given['python_requires'] == f'>={tested[0]}'


def run(*words: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Runs a program and returns its output; a failure shows it."""
    done = subprocess.run(
        words, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope='module')
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with sdist and wheel; the wheel is built from the sdist."""
    base = tmp_path_factory.mktemp('package')
    copy_to(base / 'source')
    run(sys.executable, '-m', 'build', '--no-isolation', '--outdir', base / 'dist', cwd=base / 'source')
    return base / 'dist'


def copy_to(clone: Path) -> None:
    """Copies what the repository contains."""
    left_out = shutil.ignore_patterns(
        '.git', '.venv', '__pycache__', '*.egg-info', 'build', 'dist', 'site', '.*_cache'
    )
    shutil.copytree(ROOT, clone, ignore=left_out)


@pytest.fixture(scope='module')
def venv(built: Path) -> Path:
    """A fresh environment with the wheel."""
    (wheel,) = built.glob('*.whl')
    return environment_with(wheel, folder=built.parent)


def environment_with(*what: str | Path, folder: Path) -> Path:
    """Returns a new environment with rlframe, which sees the packages of this one after its own."""
    venv = folder / 'venv'
    run(sys.executable, '-m', 'venv', '--without-pip', venv, cwd=folder)
    own = Path(sysconfig.get_path('purelib', vars={'base': str(venv), 'platbase': str(venv)}))
    others = [path for path in sys.path if path.endswith('site-packages')]
    (own / 'others.pth').write_text('\n'.join(others) + '\n', encoding='utf-8')
    pip = (sys.executable, '-m', 'pip', '--python', venv / 'bin' / 'python', 'install')
    options = ('--quiet', '--no-deps', '--no-index', '--no-compile', '--no-build-isolation')
    run(*pip, *options, *what, cwd=folder)
    return venv


@pytest.mark.slow
def test_wheel_and_sdist_contain_what_they_should(built: Path) -> None:
    tree = {
        str(file.relative_to(ROOT))
        for part in ('rlframe', 'configs')
        for file in (ROOT / part).rglob('*')
        if file.is_file() and '__pycache__' not in file.parts
    }
    (wheel,), (sdist,) = built.glob('*.whl'), built.glob('*.tar.gz')
    in_wheel = {name for name in zipfile.ZipFile(wheel).namelist() if '.dist-info/' not in name}
    assert in_wheel == {re.sub('^configs/', 'rlframe/configs/', name) for name in tree}
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition('/')[2] for name in archive.getnames()}
    pages = {str(page.relative_to(ROOT)) for page in ROOT.glob('docs/**/*.md')}
    tests = {str(test.relative_to(ROOT)) for test in ROOT.glob('tests/**/*.py')}
    assert {*tree, *pages, *tests, 'constraints.txt', 'CHANGELOG.md', 'mkdocs.yml', 'LICENSE'} <= in_sdist


@pytest.mark.slow
def test_installed_package_trains_outside_the_repository(venv: Path, tmp_path: Path) -> None:
    env = {**os.environ, 'XDG_CONFIG_HOME': str(tmp_path / 'home')}
    env.pop('PYTHONPATH', None)
    command = venv / 'bin' / 'rlframe'
    where = 'import rlframe; print(rlframe.__file__)'
    assert run(venv / 'bin' / 'python', '-c', where, cwd=tmp_path, env=env).startswith(str(venv))
    assert importlib.metadata.version('rlframe') in run(command, '--version', cwd=tmp_path, env=env)
    assert 'sac_discrete' in run(command, 'list', cwd=tmp_path, env=env)
    few = ('--env-step', '200', 'env.n_evaluator_episode=1', 'env.evaluator_env_num=1')
    assert 'Results: cartpole_dqn_seed0' in run(
        command, 'train', '-c', 'cartpole_dqn', *few, cwd=tmp_path, env=env
    )
    assert (tmp_path / 'cartpole_dqn_seed0' / 'ckpt' / 'latest').is_dir()


@pytest.mark.slow
def test_a_script_beside_the_clone_gets_rlframe_and_not_the_clone_s_folder(tmp_path: Path) -> None:
    copy_to(tmp_path / 'rlframe')
    venv = environment_with('-e', tmp_path / 'rlframe', folder=tmp_path)
    env = {name: value for name, value in os.environ.items() if name != 'PYTHONPATH'}
    (tmp_path / 'script.py').write_text('import rlframe; print(rlframe.__version__, rlframe.train)')
    said = run(venv / 'bin' / 'python', 'script.py', cwd=tmp_path, env=env)
    assert said.startswith(importlib.metadata.version('rlframe'))
    listed = run(venv / 'bin' / 'rlframe', 'check-config', 'cartpole_dqn', '--no-env', cwd=tmp_path, env=env)
    assert 'no mistakes' in listed


@pytest.mark.slow
def test_type_checkers_read_the_types_of_the_installed_package(venv: Path, tmp_path: Path) -> None:
    (tmp_path / 'mine.py').write_text(USER, encoding='utf-8')
    skipped = '\n'.join(
        f'[mypy-{name}.*]\nfollow_imports = skip' for name in ('torch', 'ray', 'gymnasium', 'numba')
    )
    (tmp_path / 'mypy.ini').write_text(f'[mypy]\nstrict = true\n{skipped}\n', encoding='utf-8')
    done = subprocess.run(
        [sys.executable, '-m', 'mypy', '--python-executable', venv / 'bin' / 'python', 'mine.py'],
        cwd=tmp_path, env={**os.environ, 'PYTHONPATH': ''}, capture_output=True, text=True,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert 'Revealed type is "rlframe.export.loaded.LoadedPolicy"' in lines[0], done.stdout + done.stderr
    assert '"load" has incompatible type "int"' in lines[1] and '"int" has no attribute "foo"' in lines[2]
    assert 'expression has type "str", variable has type "int"' in lines[3]
    assert '"Config" has no attribute "lern"; maybe "learn"?' in lines[4]
    assert '"Learn" has no attribute "rl"' in lines[5]
    assert len(lines) == 7, done.stdout  # the last line counts: the file has no other errors
