"""Every registered policy can be exported, and what is loaded acts as ``eval`` does, also those in ``RLFRAME_IMPORT``.

To check your own: ``RLFRAME_IMPORT=my_module pytest tests/contract/test_export.py``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from exported import WideEnv, as_eval_builds_it, observations, same, trained

import rlframe
from rlframe.errors import IncompatibleError
from rlframe.export import export_policy
from rlframe.export.function import ActionFunction
from rlframe.registry import POLICY_REGISTRY, import_modules

ROOT = Path(__file__).parents[2]
import_modules([name for name in os.environ.get('RLFRAME_IMPORT', '').split(',') if name])
KINDS = {
    name: POLICY_REGISTRY.get(name).supported_actions.split(', ')  # type: ignore[attr-defined]
    for name in POLICY_REGISTRY.names()
}
FIRST = [f'{name} {kinds[0]}' for name, kinds in KINDS.items()]
OTHERS = [f'{name} {kind}' for name, kinds in KINDS.items() for kind in kinds[1:]]


def quick(*cases: str) -> list[Any]:
    """Returns all cases, of which only some are not slow."""
    return [pytest.param(case, marks=[] if case in cases else pytest.mark.slow) for case in [*FIRST, *OTHERS]]


@pytest.fixture(scope='module')
def run(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the policy and the kind of actions that are asked for, with normalised observations."""
    policy, kind = request.param.split()
    env = dict(env_id=WideEnv, kwargs=dict(action=kind))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp('run'))
        return trained(policy, env, dict(normalize_obs=True))


@pytest.mark.parametrize('run', quick(*FIRST), indirect=True)
def test_the_same_actions_as_in_an_evaluation(run: Path) -> None:
    written = export_policy(run)
    assert written == {'artifact': run.parents[1] / 'export' / 'artifact'}
    loaded, policy = rlframe.load(run.parents[1]), as_eval_builds_it(run)
    obs, env_id, seen = observations(loaded.observation_space, 100), np.arange(5), []
    for step in range(20):
        rows = obs[5 * step : 5 * step + 5]
        if step in (7, 11):
            loaded.reset([1, 4]), policy.eval_mode.reset(np.array([1, 4]))
        got, expected = loaded.act(rows), policy.eval_mode.forward(rows, env_id)['action']
        same(got, expected)
        assert all(loaded.action_space.contains(np.asarray(one, loaded.action_space.dtype)) for one in got)
        seen.append(got)
    assert len({one.tobytes() for got in seen for one in got}) > 1, (
        'actions that are all the same show nothing'
    )
    loaded.reset(), policy.eval_mode.reset(None)
    for one in obs[:10]:
        same(loaded.act(one), policy.eval_mode.forward(one[None], np.arange(1))['action'][0])


@pytest.mark.parametrize('run', quick(*FIRST), indirect=True)
def test_the_function_of_tensors_gives_the_same_actions(run: Path) -> None:
    policy = as_eval_builds_it(run)
    if policy.is_recurrent or not hasattr(policy, 'best_action'):
        with pytest.raises(IncompatibleError, match='artifact and state_dict take every policy'):
            ActionFunction(policy, policy._spec)
        return
    obs = observations(policy._spec.observation_space, 100)
    expected = policy.eval_mode.forward(obs, np.arange(100))['action']
    function = ActionFunction(as_eval_builds_it(run), policy._spec)
    same(function(torch.from_numpy(obs)).numpy(), expected)


ALONE = """
import sys, json, numpy, torch
torch.set_num_threads(1)
for line in sys.stdin:
    file, obs_file, action_file = json.loads(line)
    function = torch.export.load(file).module()
    obs = numpy.load(obs_file)
    numpy.save(action_file, function(torch.from_numpy(obs)).numpy())
    numpy.save(action_file + '1', function(torch.from_numpy(obs[:1])).numpy())
    assert not [name for name in sys.modules if name.startswith('rlframe')]
    print('done', flush=True)
"""
"""Takes one file after another, because torch is imported for seconds."""
RUNTIME = """
import sys, numpy, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
obs = numpy.load(sys.argv[2])
numpy.save(sys.argv[3], session.run(None, {'obs': obs})[0])
numpy.save(sys.argv[3] + '1', session.run(None, {'obs': obs[:1]})[0])
assert not [name for name in sys.modules if name.startswith(('rlframe', 'torch'))]
"""


Elsewhere = Callable[[Path, np.ndarray, Path], tuple[np.ndarray, np.ndarray]]
"""Returns the actions of an exported function, for all observations and for the first alone, and uses a folder for files."""


def without_rlframe() -> dict[str, str]:
    """Returns the environment of a process that has no rlframe on its path."""
    libraries = [path for path in os.environ.get('PYTHONPATH', '').split(os.pathsep) if path]
    path = os.pathsep.join(path for path in libraries if not Path(path, 'rlframe').exists())
    return {**os.environ, 'PYTHONPATH': path}


@pytest.fixture(scope='module')
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    """Calls functions of torch in another process, which has no rlframe on its path."""
    cwd, pipe = tmp_path_factory.mktemp('elsewhere'), subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, '-c', ALONE], cwd=cwd, env=without_rlframe(), stdin=pipe, stdout=pipe, text=True
    ) as process:

        def call(file: Path, obs: np.ndarray, folder: Path) -> tuple[np.ndarray, np.ndarray]:
            assert process.stdin is not None and process.stdout is not None
            np.save(folder / 'obs.npy', obs)
            print(
                json.dumps([str(file), str(folder / 'obs.npy'), str(folder / 'action')]), file=process.stdin
            )
            process.stdin.flush()
            assert process.stdout.readline() == 'done\n'
            return np.load(folder / 'action.npy'), np.load(folder / 'action1.npy')

        yield call


def by_onnxruntime(file: Path, obs: np.ndarray, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Does the same for an ONNX file, in a process that has no torch either."""
    np.save(folder / 'obs.npy', obs)
    words = [sys.executable, '-c', RUNTIME, str(file), str(folder / 'obs.npy'), str(folder / 'action')]
    done = subprocess.run(words, cwd=folder, env=without_rlframe(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return np.load(folder / 'action.npy'), np.load(folder / 'action1.npy')


@pytest.mark.slow
@pytest.mark.parametrize('run', [*FIRST, *OTHERS], indirect=True)
def test_an_exported_function_gives_the_same_actions_without_rlframe(
    run: Path, elsewhere: Elsewhere, tmp_path: Path
) -> None:
    policy = as_eval_builds_it(run)
    if policy.is_recurrent:
        with pytest.raises(IncompatibleError, match=r'remembers.*artifact and state_dict take every policy'):
            export_policy(run, ['torch_export'], tmp_path / 'out')
        assert not (tmp_path / 'out').exists()
        return
    (file,) = export_policy(run, ['torch_export'], tmp_path / 'out').values()
    obs = observations(policy._spec.observation_space, 100)
    expected = [policy.eval_mode.forward(rows, np.arange(len(rows)))['action'] for rows in (obs, obs[:1])]
    assert len({one.tobytes() for one in expected[0]}) > 1
    for got, wanted in zip(elsewhere(file, obs, tmp_path), expected, strict=True):
        same(got, wanted)


@pytest.mark.slow
@pytest.mark.parametrize('run', [*FIRST, *OTHERS], indirect=True)
def test_an_onnx_file_gives_the_same_actions(run: Path, tmp_path: Path) -> None:
    for name in ('onnx', 'onnxscript', 'onnxruntime'):
        pytest.importorskip(name)
    policy = as_eval_builds_it(run)
    if policy.is_recurrent:
        return
    (file,) = export_policy(run, ['onnx'], tmp_path / 'out').values()
    obs = observations(policy._spec.observation_space, 100)
    for got, rows in zip(by_onnxruntime(file, obs, tmp_path), (obs, obs[:1]), strict=True):
        wanted = policy.eval_mode.forward(rows, np.arange(len(rows)))['action']
        assert got.dtype == wanted.dtype and got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('obs', ['double', 'image', 'Discrete'])
@pytest.mark.slow
def test_a_function_reads_every_observation_that_is_one_tensor(
    obs: str, elsewhere: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = trained('dqn', dict(env_id=WideEnv, kwargs=dict(obs=obs)))
    (file,) = export_policy(run, ['torch_export']).values()
    rows = observations(WideEnv.OBS[obs], 50)
    wanted = as_eval_builds_it(run).eval_mode.forward(rows, np.arange(50))['action']
    same(elsewhere(file, rows, tmp_path)[0], wanted)
