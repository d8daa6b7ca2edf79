"""House rules that a machine can check: who imports whom, no print, no star import, no long file, a light start."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from rlframe import registry as registries

ROOT = Path(__file__).parents[1] / 'rlframe'
FILES = sorted(ROOT.rglob('*.py'))
BASE = ('errors', 'registry', 'option_names', 'scores', 'utils', '_version')
MAY_IMPORT = {
    'errors': (),
    '_version': (),
    'scores': (),
    'registry': ('errors',),
    'option_names': ('errors', 'registry'),
    'utils': ('errors', 'registry', 'option_names', '_version'),
    'run': BASE,
    'data': BASE,
    'config': (*BASE, 'run'),
    'envs': (*BASE, 'data', 'run'),
    'model': (*BASE, 'data'),
    'policy.parts': (*BASE, 'data', 'run', 'model'),
    'policy': (*BASE, 'data', 'run', 'model', 'policy.parts'),
    'reward_model': (*BASE, 'data', 'run', 'model', 'policy.parts'),
    'worker.collector': (*BASE, 'data', 'run'),
    'worker.evaluator': (*BASE, 'data', 'run', 'worker.collector'),
    'worker.learner': (*BASE, 'data', 'run'),
    'worker.hooks': (*BASE, 'data', 'run'),
    'worker.replay_buffer': (*BASE, 'data', 'run'),
    'worker': (*BASE, 'data', 'worker.collector', 'worker.evaluator'),
    'display': (*BASE, 'run', 'config'),
    'remote': (*BASE, 'data', 'run'),
    'pipeline': (
        *BASE, 'data', 'run', 'config', 'display', 'policy', 'policy.parts', 'reward_model', 'worker', 'worker.collector',
        'worker.evaluator', 'worker.hooks', 'worker.learner', 'worker.replay_buffer', 'remote',
    ),
    'parallel.transport': (*BASE, 'data', 'remote'),
    'parallel.coordinator': (*BASE, 'data', 'run', 'config', 'parallel.transport'),
    'parallel': (
        *BASE, 'data', 'run', 'config', 'policy.parts', 'worker', 'worker.collector', 'worker.evaluator', 'worker.learner',
        'pipeline', 'reward_model', 'parallel.coordinator', 'parallel.transport', 'remote',
    ),
    'backend': (*BASE, 'data', 'run', 'worker.collector', 'worker.evaluator', 'pipeline', 'remote'),
    'backend.ray': (
        *BASE, 'data', 'run', 'worker.collector', 'worker.evaluator', 'worker.replay_buffer', 'pipeline', 'backend', 'parallel',
        'parallel.transport', 'remote',
    ),
    'export': (*BASE, 'data', 'run', 'config', 'model', 'policy', 'policy.parts', 'pipeline'),
    'tune': (*BASE, 'data', 'run', 'config', 'pipeline', 'export', 'backend.ray', 'remote', 'app'),
    'app': (
        *BASE, 'data', 'run', 'config', 'envs', 'policy.parts', 'reward_model', 'worker.collector', 'display', 'pipeline',
        'parallel', 'export',
    ),
    'app.templates': (
        *BASE, 'data', 'run', 'model', 'policy', 'policy.parts', 'reward_model', 'worker.collector', 'worker.hooks',
        'worker.learner', 'worker.replay_buffer', 'backend',
    ),
    'entry': (*BASE, 'run', 'config', 'display', 'pipeline', 'parallel', 'backend.ray', 'export', 'tune', 'app'),
    '': ('_version', 'app', 'export'),
    '__main__': ('entry',),
}  # fmt: skip
"""Rooms, and those that each may import, inside functions too; none may import one that imports it."""
BY_NAME = {
    'option_names': 'says which policies have an option that was misspelt',
    'config': 'reads the options that the chosen components declare',
    'envs': 'checks the rules that env.schedule names',
    'policy.parts': 'names the policies that fit an action space, in an error',
    'policy': 'creates the env of a config if a policy is made without its spec',
    'pipeline': 'creates the env, its manager and the backend of a config',
    'parallel.coordinator': 'creates the policy, the buffer and the transport of a run',
    'parallel': "starts the workers of a transport, which may be Ray's",
    'backend': 'creates the collector and the evaluator of a config',
    'backend.ray': 'creates the envs of a RayCollector that got a config',
    'reward_model': 'clones a demonstrator by behaviour cloning',
    'tune': 'reads which metric an evaluator reports',
    'app': 'describes components, and chooses one for an env',
}
"""Rooms that look up components of rooms that they may not import, in a registry, with the reason."""
MOST_LINES = 600
"""Of one file: one thought is one file, and none is cut to fit a number."""
RATCHET = Path(__file__).with_name('lines_by_room.txt')
"""Lines of each room, and of the tests: a number may fall; one that rises names the capability that it buys."""
SLACK = 60
"""Lines by which a room may be smaller than its number."""


@cache
def parsed(path: Path) -> list[ast.AST]:
    """Returns all nodes of a file, as ``ast.walk`` does."""
    return list(ast.walk(ast.parse(path.read_text(encoding='utf-8'))))


@pytest.fixture(scope='module', autouse=True)
def nodes_are_forgotten() -> Iterator[None]:
    """Drops a million objects, which would make the garbage collector slow in the tests of other modules."""
    yield
    parsed.cache_clear()


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix('').parts
    return '.'.join(parts[:-1] if parts[-1] == '__init__' else parts)


MODULES = {module_of(path): path for path in FILES}


def room_of(module: str) -> str:
    """Returns 'worker.learner' for a module in there; modules that lie beside the rooms are rooms of their own."""
    is_package = MODULES[module].name == '__init__.py'
    return module if is_package or '.' not in module else module.rpartition('.')[0]


def imported(path: Path) -> list[str]:
    """Returns the names that a file imports, but for those that only type checkers read."""
    found, skipped = [], set[ast.AST]()
    for node in parsed(path):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == 'TYPE_CHECKING':
            skipped |= {each for statement in node.body for each in ast.walk(statement)}
    for node in parsed(path):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f'{path}: a relative import'
            assert node.names[0].name != '*', f'{path}: a star import'
            found += [f'{node.module}.{alias.name}' for alias in node.names]
    return found


def stubbed(path: Path) -> dict[str, str]:
    """Returns the names that a package exports lazily, as 'worker.BaseLearner', with those that they stand for."""
    package, found = module_of(path), {}
    for node in ast.parse(path.read_text(encoding='utf-8')).body:
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                found[f'{package}.{alias.asname or alias.name}'] = f'{node.module}.{alias.name}'.partition(
                    '.'
                )[2]
    return found


@cache
def stubs() -> dict[str, str]:
    """Returns what ``stubbed`` does for all packages together."""
    paths = sorted(ROOT.rglob('__init__.pyi'))
    return {name: origin for path in paths for name, origin in stubbed(path).items()}


def needed(path: Path) -> set[str]:
    """Returns the modules of rlframe that a file imports; names of a package with a stub come from where they live."""
    found = set()
    for name in imported(path):
        package, _, module = name.partition('.')
        if package == 'rlframe':
            while module in stubs():
                module = stubs()[module]
            while module not in MODULES:
                module = module.rpartition('.')[0]
            found.add(module)
    return found - {module_of(path)}


@cache
def graph() -> dict[str, set[str]]:
    """Returns which modules each module needs."""
    return {module: needed(path) for module, path in MODULES.items()}


def test_rooms_import_downwards_only() -> None:
    for module, others in graph().items():
        for other in others:
            here, there = room_of(module), room_of(other)
            assert there == here or there in MAY_IMPORT[here], f'{module} imports {other}'
    order: list[str] = []
    while len(order) < len(MAY_IMPORT):
        ready = [
            room for room, below in MAY_IMPORT.items() if room not in order and set(below) <= {*order, room}
        ]
        assert ready, f'rooms that import each other: {sorted(MAY_IMPORT.keys() - set(order))}'
        order += ready


def looked_up(path: Path) -> set[str]:
    """Returns the registries in which a file looks up components; to register one is no look-up."""
    decorators = {
        part
        for node in parsed(path)
        for found in getattr(node, 'decorator_list', ())
        for part in ast.walk(found)
    }
    names = {node.id for node in parsed(path) if isinstance(node, ast.Name) and node not in decorators}
    return names & {
        name for name, value in vars(registries).items() if isinstance(value, registries.Registry)
    }


def test_rooms_look_up_by_name_only_what_they_may_import_or_say_why() -> None:
    reasons = dict.fromkeys(BY_NAME, False)
    for module, path in MODULES.items():
        here = room_of(module)
        for name in looked_up(path) if here != 'registry' else ():
            for component in vars(registries)[name]._builtin.values():
                there = room_of(component.removeprefix('rlframe.'))
                if there != here and there not in MAY_IMPORT[here]:
                    assert here in BY_NAME, f'{module} looks up a component of {there} in {name}'
                    reasons[here] = True
    assert all(reasons.values()), f'these rooms look up nothing any longer: {reasons}'


def test_no_module_imports_itself_by_way_of_others() -> None:
    left = dict(graph())
    while ends := [module for module, others in left.items() if not others & left.keys()]:
        for module in ends:
            del left[module]
    assert not left, f'in a circle, or above one: {sorted(left)}'


def lines_by_room() -> dict[str, int]:
    found = {'tests': 0}
    for path in sorted(Path(__file__).parent.rglob('*.py')):
        found['tests'] += len(path.read_text(encoding='utf-8').splitlines())
    for module, path in MODULES.items():
        room = room_of(module) if path.parent != ROOT else 'rlframe'
        found[room] = found.get(room, 0) + len(path.read_text(encoding='utf-8').splitlines())
    return found


def test_no_room_grows_unless_it_says_what_that_buys() -> None:
    table = [line.split(maxsplit=2) for line in RATCHET.read_text(encoding='utf-8').splitlines() if line]
    allowed = {room: int(number) for room, number, *_ in table if room != '#'}
    found = lines_by_room()
    assert found.keys() == allowed.keys(), 'a room came or went: change its line in lines_by_room.txt'
    grown = {room: f'{allowed[room]} -> {lines}' for room, lines in found.items() if lines > allowed[room]}
    assert not grown, (
        'remove as many lines as you added, or raise the number and name the capability behind it'
    )
    fallen = {
        room: f'{allowed[room]} -> {lines}' for room, lines in found.items() if lines < allowed[room] - SLACK
    }
    assert not fallen, 'well done: lower these numbers in lines_by_room.txt'


def test_only_the_rooms_of_ray_and_tune_import_ray_and_nobody_prints_or_grows_too_long() -> None:
    for path in FILES:
        text = path.read_text(encoding='utf-8')
        may_import_ray = {'ray', 'tune'} & set(path.relative_to(ROOT).parts)
        assert may_import_ray or not any(name.split('.')[0] == 'ray' for name in imported(path)), path
        assert len(text.splitlines()) <= MOST_LINES, path
        calls = [node.func for node in parsed(path) if isinstance(node, ast.Call)]
        assert not any(isinstance(func, ast.Name) and func.id == 'print' for func in calls), path


def test_import_is_light() -> None:
    code = "import sys, rlframe.config, rlframe.entry.__main__; print({'torch', 'gymnasium', 'ray'} & set(sys.modules))"
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, cwd=ROOT.parent)
    assert done.stdout.strip() == 'set()', done.stdout + done.stderr


RUNS_CODE = {
    'eval': (),
    'exec': ('config/reader.py',),
    'os.system': (),
    'pickle.load': (),
    'pickle.loads': ('utils/serialize.py',),
    'from_bytes': (
        'envs/async_manager.py',
        'envs/env_worker.py',
        'envs/worker_pool.py',
        'remote/places.py',
        'remote/worker.py',
        'utils/serialize.py',
    ),
    'from_parent': (
        'remote/worker.py',
        'app/seeds.py',
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
        for node in parsed(path):
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
        for node in parsed(path):
            name = dotted(node.func) if isinstance(node, ast.Call) else ''
            head, _, last = name.rpartition('.')
            assert head != 'random' and (
                head != 'np.random' or last[:1].isupper() or last == 'default_rng'
            ), (
                f'{path}:{node.lineno}: {name}'  # type: ignore[attr-defined]
            )


def kind_of(value: ast.expr) -> str:
    """Returns what kind of expression a value is; calls are of the kind of what they call."""
    if isinstance(value, ast.Call):
        called = value.func
        return f'call of {called.attr if isinstance(called, ast.Attribute) else ast.unparse(called)}'
    return type(value).__name__


def test_values_that_one_statement_assigns_are_of_one_kind() -> None:
    """A tuple assignment is for a real pair; other values have a line each, which a reader takes in at a breath."""
    odd = [
        f'{path.relative_to(ROOT)}:{node.lineno}'
        for path in FILES
        for node in parsed(path)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)
        if isinstance(node.targets[0], ast.Tuple)
        if len({kind_of(value) for value in node.value.elts}) > 1
    ]
    assert not odd


def test_no_ternary_is_within_another_or_called() -> None:
    odd = []
    for path in FILES:
        for node in parsed(path):
            parts = ast.walk(node) if isinstance(node, ast.IfExp) else ()
            is_nested = sum(isinstance(part, ast.IfExp) for part in parts) > 1
            is_called = isinstance(node, ast.Call) and isinstance(node.func, ast.IfExp)
            if is_nested or is_called:
                odd.append(f'{path.relative_to(ROOT)}:{node.lineno}')
    assert not odd


NOT_YET = ('policy',)
"""Rooms whose constants may still stand between functions."""


def needed_at_once(value: ast.AST) -> set[str]:
    """Returns the names that an expression needs when it is evaluated; the bodies of lambdas are evaluated later."""
    found = {value.id} if isinstance(value, ast.Name) else set()
    for child in ast.iter_child_nodes(value):
        found |= needed_at_once(child) if not isinstance(value, ast.Lambda) else set()
    return found


def test_imports_loggers_and_constants_stand_above_functions_unless_they_need_them() -> None:
    odd = []
    for path in FILES:
        if {*NOT_YET} & {*path.relative_to(ROOT).parts}:
            continue
        defined: set[str] = set()
        text = path.read_text(encoding='utf-8')
        lines = text.splitlines()
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                defined.add(node.name)
            elif not defined:
                continue
            elif (
                isinstance(node, ast.Assign | ast.AnnAssign) and needed_at_once(node.value or node) & defined
            ):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                defined |= {
                    part.id for each in targets for part in ast.walk(each) if isinstance(part, ast.Name)
                }
            elif isinstance(node, ast.Import | ast.ImportFrom) and 'noqa: E402' in lines[node.lineno - 1]:
                continue  # it says why
            elif isinstance(node, ast.Assign | ast.AnnAssign | ast.Import | ast.ImportFrom):
                odd.append(f'{path.relative_to(ROOT)}:{node.lineno}')
    assert not odd
