"""House rules that a machine can check: who imports whom, no print, no star import, no long file, a light start."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / 'rlframe'
FILES = sorted(ROOT.rglob('*.py'))
MAY_IMPORT = {
    'registry': {'errors'},
    'errors': set(),
    'utils': {'utils', 'errors', 'registry'},
    'data': {'data', 'utils', 'errors', 'registry'},
    'model': {'model', 'data', 'utils', 'errors', 'registry'},
    'envs': {'envs', 'data', 'utils', 'errors', 'registry'},
    'policy': {'policy', 'model', 'data', 'utils', 'errors', 'registry'},
    'export': {'export', 'build', 'config', 'policy', 'model', 'data', 'utils', 'errors', 'registry'},
    'worker.collector': {'worker.collector', 'data', 'utils', 'errors', 'registry'},
    'worker.learner': {'worker.learner', 'data', 'utils', 'errors', 'registry'},
    'worker.replay_buffer': {'worker.replay_buffer', 'data', 'utils', 'errors', 'registry'},
}


def layer_of(module: str) -> str:
    """Returns 'data' for 'rlframe.data.batch', 'worker.learner' for a module in there."""
    parts = module.split('.')[1:]
    return '.'.join(parts[: 2 if parts[:1] == ['worker'] else 1])


def imports(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f'{path}: a relative import'
            assert node.names[0].name != '*', f'{path}: a star import'
            found += [f'{node.module}.{alias.name}' for alias in node.names]
    return found


@pytest.mark.parametrize('layer', MAY_IMPORT)
def test_imports_go_leftwards_only(layer: str) -> None:
    for path in FILES:
        module = '.'.join(path.relative_to(ROOT.parent).with_suffix('').parts)
        if layer_of(module) == layer:
            for name in imports(path):
                if name.startswith('rlframe.') and name != 'rlframe.__version__':
                    assert layer_of(name) in MAY_IMPORT[layer], f'{module} imports {name}'


def test_only_files_named_after_ray_import_it_and_nobody_prints_or_grows_too_long() -> None:
    for path in FILES:
        text = path.read_text(encoding='utf-8')
        may_import_ray = path.name.startswith('ray_') or path.parent.name == 'tune'
        assert may_import_ray or not any(i.split('.')[0] == 'ray' for i in imports(path)), path
        assert len(text.splitlines()) <= 400, path
        calls = [node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
        assert not any(isinstance(func, ast.Name) and func.id == 'print' for func in calls), path


@pytest.mark.parametrize('module', ['rlframe', 'rlframe.config', 'rlframe.entry.__main__'])
def test_import_is_light(module: str) -> None:
    code = f"import sys, {module}; print({{'torch', 'gymnasium', 'ray'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, cwd=ROOT.parent)
    assert done.stdout.strip() == 'set()', done.stdout + done.stderr


RUNS_CODE = {
    'eval': (),
    'exec': ('config/reader.py',),
    'os.system': (),
    'pickle.load': (),
    'pickle.loads': ('utils/serialize.py',),
    'from_bytes': (
        'envs/env_worker.py',
        'envs/worker_group.py',
        'envs/worker_pool.py',
        'worker/collector/ray_actor.py',
    ),
    'torch.load': (),
    'yaml.load': (),
}
"""Calls that run code, and the files that may have them: configs in Python, and a run's own processes among themselves."""


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f'{dotted(node.value)}.{node.attr}'
    return node.id if isinstance(node, ast.Name) else ''


def test_nothing_that_is_loaded_can_run_code_and_no_shell_is_used() -> None:
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
            if isinstance(node, ast.Call):
                allowed = RUNS_CODE.get(dotted(node.func))
                assert allowed is None or str(path.relative_to(ROOT)) in allowed, f'{path}:{node.lineno}'
                options = {keyword.arg: keyword.value for keyword in node.keywords}
                for name in ('shell', 'allow_pickle'):
                    value = options.get(name)
                    assert value is None or (isinstance(value, ast.Constant) and value.value is False), path


def test_nobody_draws_from_the_global_generators() -> None:
    """Which would tie the randomness of one part to what the others do."""
    for path in FILES:
        if path.name in ('seed.py', 'env_worker.py'):  # they seed them, for what users bring
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
            name = dotted(node.func) if isinstance(node, ast.Call) else ''
            head, _, last = name.rpartition('.')
            assert head != 'random' and (
                head != 'np.random' or last[:1].isupper() or last == 'default_rng'
            ), (
                f'{path}:{node.lineno}: {name}'  # type: ignore[attr-defined]
            )
