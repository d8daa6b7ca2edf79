"""Parts of the user, in a module of the working directory, are found by every verb and in every process that it starts."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fork_server
import pytest
from runs import HELPERS, ROOT, finish, train

from rlframe.config import parse_overrides
from rlframe.export import FORMATS

RUN, MODULE = 'run_seed0', HELPERS / 'own_parts.py'
WORDS = (
    "import_names=['mine']",
    'env.env_id=Mine-v0',
    'policy.type=my_policy',
    'policy.model.type=my_network',
    'policy.model.my_width=6',
    'replay_buffer.type=my_buffer',
    'collector.type=my_collector',
    'evaluator.type=my_evaluator',
    "evaluator.metrics=['returns','my_metric']",
    'hooks.my_hook={}',
    "learner.hook.mine={'type':'my_learner_hook'}",
    "loggers=['my_logger']",
)
"""Overrides that put all parts into a config."""
SMALL = (
    'exp_name=run',
    'env.collector_env_num=2',
    'env.evaluator_env_num=2',
    'env.n_evaluator_episode=2',
    'env.stop_value=1e9',
    'policy.cuda=False',
    'policy.learn.batch_size=8',
    'policy.collect.n_sample=8',
    'policy.eval.evaluator.eval_freq=4',
)
PARTS = (*WORDS, *SMALL, '--train-iter', '4')
CONFIG = ('train', '-c', 'configs/cartpole_dqn.py', *PARTS)
PARALLEL = ('train', '-m', 'parallel', '-c', 'configs/cartpole_dqn_parallel.py', *PARTS)
TUNE = ('tune', '--search', 'policy.learn.learning_rate=grid(0.001,0.002)', '--out', 'search', *PARTS)
SLOW, RAY = (pytest.mark.slow,), (pytest.mark.slow, pytest.mark.ray)
VERBS = {
    'eval': ('eval', RUN, '-n', '2'),
    'play': ('play', RUN, '-n', '1'),
    'resume': ('--resume', RUN, '--train-iter', '8'),
    'check-config': ('check-config', *CONFIG[2:-2]),
    'check-config of a run': ('check-config', f'{RUN}/total_config.py'),
    'check-env': ('check-env', 'Mine-v0', WORDS[0], '--steps', '20'),
    'plot': ('plot', RUN),
    'report': ('report', RUN),
    'compare': ('compare', RUN, RUN),
    'env': ('train', '--env', 'Mine-v0', '--policy', 'my_policy', *PARTS),
    'env by its policy': ('train', '--env', 'Mine-v0', *PARTS),
    'paths': (
        *('train', '--env', 'mine:MyEnv', '--policy', 'mine:MyPolicy', 'policy.model.type=mine:MyNetwork'),
        *(*SMALL, '--train-iter', '4'),
    ),
    'seeds': (*CONFIG, '--seeds', '1'),
}
"""Command lines, in the folder of a run."""
LONG_VERBS = {
    'learners': ((*CONFIG, '--learners', '2'), SLOW),
    'processes of envs': ((*CONFIG, 'env_manager.type=subprocess'), SLOW),
    'overlap': ((*CONFIG, 'collector.overlap=1'), SLOW),
    'threads': ((*PARALLEL, 'comm_collector.type=in_process', 'comm_learner.type=in_process'), SLOW),
    'processes': (PARALLEL, SLOW),
    'ray': ((*PARALLEL, 'comm_collector.type=ray', 'comm_learner.type=ray'), RAY),
    'collectors on ray': ((*CONFIG, 'collector.backend=ray', 'collector.num_collectors=1'), RAY),
    'evaluator on ray': ((*CONFIG, 'evaluator.backend=ray'), RAY),
    'tune': ((*TUNE, '-c', 'configs/cartpole_dqn.py'), RAY),
    'tune by env': ((*TUNE, '--env', 'Mine-v0', '--policy', 'my_policy'), RAY),
}


@pytest.fixture(scope='module')
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the module and a run of all parts; programs are copies of one that has imported rlframe."""
    home = tmp_path_factory.mktemp('own')
    shutil.copy(MODULE, home / 'mine.py')
    with fork_server.copying():
        finish(train(home, *CONFIG))
        yield home


@pytest.fixture
def home(trained: Path, tmp_path: Path) -> Path:
    """A copy of that folder."""
    return Path(shutil.copytree(trained, tmp_path / 'own'))


@pytest.mark.parametrize(
    'verb',
    [pytest.param(verb, marks=SLOW if verb in ('plot', 'report', 'compare') else ()) for verb in VERBS],
)
def test_verbs_find_them(verb: str, home: Path) -> None:
    finish(train(home, *VERBS[verb]))


@pytest.mark.parametrize(
    'words', [pytest.param(words, marks=marks, id=verb) for verb, (words, marks) in LONG_VERBS.items()]
)
def test_other_processes_find_them(words: tuple[str, ...], home: Path) -> None:
    finish(train(home, *words))
    if words[0] == 'tune':
        out, _ = finish(train(home, 'tune', '--resume', 'search'))
        assert "use it: rlframe.load('search/best_policy')" in out


def program(home: Path, code: str) -> list[str]:
    """Runs a Python program in the folder, and returns the lines that it prints."""
    given: dict[str, Any] = {'cwd': home, 'env': {**os.environ, 'PYTHONPATH': f'{ROOT}{os.pathsep}{home}'}}
    pipes = {'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE}
    return finish(fork_server.popen(['-c', code], text=True, **given, **pipes))[0].splitlines()


OPTIONS = {**parse_overrides([*WORDS[1:], *SMALL]), 'policy.model.my_width': 6}
LOADS = f"""
import numpy as np, rlframe
policy = rlframe.load({RUN!r})
print(type(policy.policy).__name__, type(policy.policy.model).__name__, policy.act(np.zeros((2, 3), np.float32)).shape)
"""
IMPORTED = f"""
import mine, rlframe
run = rlframe.train(env='Mine-v0', policy='my_policy', folder='p', progress=False, max_train_iter=4, overrides={OPTIONS})
print(run.config.import_names)
"""
NAMED = f"""
import rlframe
options = {OPTIONS} | dict(import_names=['mine'])
run = rlframe.train(env='Mine-v0', policy='my_policy', folder='p', progress=False, max_train_iter=4, overrides=options)
print(run.config.import_names)
"""
OPENED = f"""
import rlframe
run = rlframe.open_run({RUN!r})
run.resume(max_train_iter=8)
print(len(run.evaluate(2).returns), type(run.policy.policy).__name__)
"""
TUNED = f"""
import mine
from rlframe.app.starting import overridden_start
from rlframe.tune import make_tuner, write_report
pair = overridden_start('Mine-v0', 'my_policy', {OPTIONS})
space = {{'policy.learn.learning_rate': 1e-3}}
tuner = make_tuner(pair, space, overrides={[*WORDS[1:], *SMALL]}, max_train_iter=4, folder='t')
print(write_report(tuner.fit()).best is not None)
"""
SCRIPT = f"""
if __name__ == '__main__':
    from rlframe import config
    from rlframe.app.seeds import train_seeds
    from rlframe.app.starting import overridden_start
    from rlframe.pipeline import serial_pipeline
    options = {OPTIONS} | {{'env.env_id': MyEnv}}
"""
SEEDS = """
    pair = overridden_start(MyEnv, None, options)
    print(*(run.error or run.state for run in train_seeds(pair, [0], overrides=options, max_train_iter=4)))
"""
LEARNERS = """
    pair = overridden_start(MyEnv, None, options)
    cfg = config.compile_config(*pair, overrides=options | {'policy.learn.num_learners': 2}, max_train_iter=4)
    serial_pipeline(config.split_config(cfg))
    print('done')
"""
WORKERS = """
    from rlframe.parallel.pipeline import parallel_pipeline
    pair = config.read_config('cartpole_dqn_parallel')
    cfg = config.compile_config(*pair, overrides=options, max_train_iter=4)
    parallel_pipeline(config.split_config(cfg), seed=0)
    print('done')
"""


@pytest.mark.parametrize(
    'name', [pytest.param(name, marks=SLOW if name == 'torch_export' else ()) for name in FORMATS]
)
def test_they_are_exported_in_every_format_and_loaded(name: str, home: Path) -> None:
    if name == 'onnx' and importlib.util.find_spec('onnxscript') is None:
        pytest.skip('onnx is not installed')
    finish(train(home, 'export', RUN, '--format', name))
    assert (home / RUN / 'export' / FORMATS[name].name).exists()
    if name == 'artifact':
        assert program(home, LOADS) == ['MyPolicy MyNetwork (2,)']


@pytest.mark.parametrize('code', [IMPORTED, NAMED], ids=['imported', 'named'])
def test_programs_find_them_and_so_do_verbs_later(code: str, home: Path) -> None:
    assert program(home, code) == ["['mine']"]
    finish(train(home, 'eval', 'p', '-n', '2'))


def test_opened_runs_find_them(home: Path) -> None:
    assert program(home, OPENED)[-1] == '2 MyPolicy'


@pytest.mark.parametrize(
    ('code', 'last'),
    [
        pytest.param(SEEDS, 'not solved', id='seeds', marks=pytest.mark.slow),
        pytest.param(LEARNERS, 'done', id='learners', marks=pytest.mark.slow),
        pytest.param(WORKERS, 'done', id='workers', marks=pytest.mark.slow),
    ],
)
def test_parts_of_a_script_are_found_by_the_processes_that_it_starts(
    code: str, last: str, home: Path
) -> None:
    assert program(home, MODULE.read_text() + SCRIPT + code)[-1] == last


@pytest.mark.slow
@pytest.mark.ray
def test_searches_of_a_program_find_what_it_imported(home: Path) -> None:
    assert program(home, TUNED)[-1] == 'True'
