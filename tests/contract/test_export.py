"""Every registered policy can be exported, and what is loaded acts as ``eval`` does, also those in ``RLFRAME_IMPORT``.

To check your own: ``RLFRAME_IMPORT=my_module pytest tests/contract/test_export.py``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checked_names import names_of
from exported import as_eval_builds_it, observations, same, trained
from policies import acting_policies, slow_unless_it_acts_alone
from zoo import SampledEnv

import rlframe
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.errors import IncompatibleError
from rlframe.export import export_policy
from rlframe.export.function import action_function
from rlframe.policy import create_policy
from rlframe.registry import MODEL_REGISTRY, POLICY_REGISTRY

KINDS = {
    name: POLICY_REGISTRY.get(name).supported_actions.split(', ')  # type: ignore[attr-defined]
    for name in names_of(POLICY_REGISTRY)
}
FIRST = [f'{name} {kinds[0]}' for name, kinds in KINDS.items()]
OTHERS = [f'ppo {kind}' for kind in KINDS['ppo'][1:]]
"""Kinds of actions of one policy that has them all."""
QUICK = [name for name in slow_unless_it_acts_alone([*KINDS]) if isinstance(name, str)]
CASES = [
    case if case in FIRST and case.split()[0] in QUICK else pytest.param(case, marks=pytest.mark.slow)
    for case in (*FIRST, *OTHERS)
]


@pytest.fixture(scope='module')
def run(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the policy and the kind of actions that are asked for, with normalised observations."""
    policy, kind = request.param.split()
    env = dict(env_id=SampledEnv, kwargs=dict(action=kind))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp('run'))
        return trained(policy, env, dict(normalize_obs=True))


@pytest.mark.parametrize('run', CASES, indirect=True)
def test_the_same_actions_as_in_an_evaluation(run: Path) -> None:
    written = export_policy(run)
    assert written == {'artifact': run.parents[1] / 'export' / 'artifact'}
    loaded, policy = rlframe.load(run.parents[1]), as_eval_builds_it(run)
    obs, env_id, seen = observations(loaded.observation_space, 100), np.arange(5), []
    as_declared = getattr(policy.spec.action_space, 'of_rows', lambda action: action)
    for step in range(20):
        rows = obs[5 * step : 5 * step + 5]
        if step in (7, 11):
            loaded.reset([1, 4]), policy.eval_mode.reset(np.array([1, 4]))
        got, expected = loaded.act(rows), policy.eval_mode.forward(rows, env_id)['action']
        same(got, as_declared(expected))
        assert all(policy.spec.action_space.contains(one) for one in expected)
        seen.append(expected)
    assert len({one.tobytes() for got in seen for one in got}) > 1, (
        'actions that are all the same show nothing'
    )
    loaded.reset(), policy.eval_mode.reset(None)
    for one in obs[:10]:
        same(loaded.act(one), as_declared(policy.eval_mode.forward(one[None], np.arange(1))['action'][0]))
    action = loaded.act(obs[0])
    assert loaded.action_space.contains(
        action if isinstance(action, dict | tuple | np.ndarray) else int(action)
    )


@pytest.mark.parametrize(
    'case', [case for case in FIRST if case.split()[0] in (*acting_policies(), 'c51', 'iqn')]
)
def test_a_network_of_the_user_needs_no_options_and_keeps_its_own(case: str, cwd: Path) -> None:
    policy, kind = case.split()
    env = dict(env_id=SampledEnv, kwargs=dict(action=kind))
    base: Any = type(create_policy({'type': policy, 'cuda': False}, GymEnvFactory(env).spec).model)

    class Own(base):  # type: ignore[misc]
        def __init__(self, own_size: int = 3, **options: Any) -> None:
            super().__init__(**options)
            self.own = torch.nn.Linear(own_size, 1)

    MODEL_REGISTRY.register('own_network', Own, force_overwrite=True)
    run = trained(policy, env, dict(model=dict(type='own_network', own_size=5)))
    export_policy(run)
    loaded = rlframe.load(run.parents[1])
    assert loaded.policy.model.own.in_features == 5
    obs = observations(loaded.observation_space, 5)
    policy = as_eval_builds_it(run)
    as_declared = getattr(policy.spec.action_space, 'of_rows', lambda action: action)
    same(loaded.act(obs), as_declared(policy.eval_mode.forward(obs, np.arange(5))['action']))


@pytest.mark.parametrize('run', CASES, indirect=True)
def test_the_function_of_tensors_gives_the_same_actions(run: Path) -> None:
    policy = as_eval_builds_it(run)
    if not hasattr(policy, 'best_step' if policy.is_recurrent else 'best_action'):
        with pytest.raises(IncompatibleError, match='artifact and state_dict take every policy'):
            action_function(policy, policy.spec)
        return
    function = action_function(as_eval_builds_it(run), policy.spec)
    check_steps(
        policy, lambda obs, state: answer(function(torch.from_numpy(obs), *map(torch.from_numpy, state)))
    )


def test_a_clock_is_normalised_as_the_policy_does(cwd: Path) -> None:
    run = trained('dqn', dict(env_id=SampledEnv, kwargs=dict(obs='double')), dict(normalize_obs=True))
    policy = as_eval_builds_it(run)
    function: Any = action_function(policy, policy.spec)
    rows = observations(SampledEnv.OBS['double'], 50)
    wanted = policy.eval_mode.forward(rows, np.arange(50))['action']
    same(answer(function(torch.from_numpy(rows)))[0], wanted)
    assert len(np.unique(function._normalized(torch.from_numpy(rows)).numpy())) > 100, (
        'float32 has steps of 128 there'
    )


Answer = tuple[np.ndarray, list[np.ndarray]]
"""Actions, and the recurrent states behind them, if there are any."""


def answer(given: Any) -> Answer:
    """Returns what a function of tensors gives, as arrays."""
    action, *state = given if isinstance(given, tuple) else (given,)
    return action.numpy(), [part.numpy() for part in state]


def check_steps(
    policy: Any, act: Callable[[np.ndarray, list[np.ndarray]], Answer], agree: Callable[..., None] = same
) -> None:
    """Compares an exported function with its policy: over three steps if it has a memory, and for one env alone."""
    obs = observations(policy.spec.observation_space, 100)
    for count in (len(obs), 1):
        policy.eval_mode.reset(None)
        state = [np.zeros((count, *policy.model.state_shape), np.float32)] if policy.is_recurrent else []
        for step in range(3 if policy.is_recurrent else 1):
            rows = np.roll(obs, step, 0)[:count]
            wanted = policy.eval_mode.forward(rows, np.arange(count))['action']
            assert count == 1 or len({one.tobytes() for one in wanted}) > 1
            got, state = act(rows, state)
            agree(got, wanted)


ALONE = """
import sys, json, numpy, torch
torch.set_num_threads(1)
for line in sys.stdin:
    file, given, result = json.loads(line)
    function = torch.export.load(file).module()
    inputs = numpy.load(given)
    outputs = function(*(torch.from_numpy(inputs[name]) for name in inputs))
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    numpy.savez(result, *(output.numpy() for output in outputs))
    assert not [name for name in sys.modules if name.startswith('rlframe')]
    print('done', flush=True)
"""
"""Takes one file after another, because torch is imported for seconds."""
Elsewhere = Callable[[Path, Path, np.ndarray, list[np.ndarray]], Answer]
"""Calls an exported function, with a folder for files, observations and recurrent states."""


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

        def call(file: Path, folder: Path, obs: np.ndarray, state: list[np.ndarray]) -> Answer:
            assert process.stdin is not None and process.stdout is not None
            inputs, outputs = folder / 'inputs.npz', folder / 'outputs.npz'
            np.savez(inputs, obs=obs, **dict(zip(['state'], state, strict=False)))
            print(json.dumps([str(file), str(inputs), str(outputs)]), file=process.stdin)
            process.stdin.flush()
            assert process.stdout.readline() == 'done\n'
            with np.load(outputs) as given:
                action, *after = (given[name] for name in given)
            return action, after

        yield call


def by_onnxruntime(file: Path, obs: np.ndarray, state: list[np.ndarray]) -> Answer:
    """Does the same for an ONNX file."""
    session = pytest.importorskip('onnxruntime').InferenceSession(str(file))
    action, *after = session.run(None, {'obs': obs, **dict(zip(['state'], state, strict=False))})
    return action, after


def near(got: np.ndarray, wanted: np.ndarray) -> None:
    """Compares actions that were computed in another order."""
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


ONNX = ('onnx', 'onnxscript', 'onnxruntime')
"""Packages that write and run ONNX files."""
ALIKE = ('a2c', 'appo', 'impala', 'qrdqn', 'mdqn', 'rainbow', 'td3', 'redq', 'droq')
"""Policies whose actions are computed as those of another."""
WITHOUT_ONNX = (*ALIKE, 'bc', 'c51', 'pqn', 'sac', 'ddpg', 'tqc', 'xqc')
"""Policies whose networks consist of the layers of others."""


@pytest.mark.slow
@pytest.mark.parametrize(
    'run', [case for case in [*FIRST, *OTHERS] if case.split()[0] not in ALIKE], indirect=True
)
def test_exported_functions_give_the_same_actions_without_rlframe(
    run: Path, elsewhere: Elsewhere, tmp_path: Path
) -> None:
    policy = as_eval_builds_it(run)
    (file,) = export_policy(run, ['torch_export'], tmp_path / 'out').values()
    check_steps(policy, partial(elsewhere, file, tmp_path))
    if policy._cfg.type not in WITHOUT_ONNX and all(map(find_spec, ONNX)):
        (file,) = export_policy(run, ['onnx'], tmp_path / 'out').values()
        check_steps(policy, partial(by_onnxruntime, file), near)


NETWORKS: dict[str, dict[str, Any]] = {
    'sac Box': dict(model=dict(residual_blocks=2)),
    'td3 Box': dict(model=dict(norm='layer')),
    'sac_discrete Discrete': dict(model=dict(core='gru')),
    'ddpg Box': dict(model=dict(core='lstm')),
}
"""Networks that no policy has by default."""


@pytest.mark.slow
@pytest.mark.parametrize('case', NETWORKS)
def test_functions_of_other_networks_give_the_same_actions(
    case: str, elsewhere: Elsewhere, cwd: Path
) -> None:
    policy, kind = case.split()
    env = dict(env_id=SampledEnv, kwargs=dict(action=kind))
    run = trained(policy, env, dict(normalize_obs=True) | NETWORKS[case])
    (file,) = export_policy(run, ['torch_export']).values()
    check_steps(as_eval_builds_it(run), partial(elsewhere, file, cwd))
    if all(map(find_spec, ONNX)):
        (file,) = export_policy(run, ['onnx'], cwd / 'out').values()
        check_steps(as_eval_builds_it(run), partial(by_onnxruntime, file), near)


@pytest.mark.parametrize('obs', ['image', 'Discrete'])
@pytest.mark.slow
def test_a_function_reads_every_observation_that_is_one_tensor(
    obs: str, elsewhere: Elsewhere, cwd: Path
) -> None:
    run = trained('dqn', dict(env_id=SampledEnv, kwargs=dict(obs=obs)))
    (file,) = export_policy(run, ['torch_export']).values()
    rows = observations(SampledEnv.OBS[obs], 50)
    wanted = as_eval_builds_it(run).eval_mode.forward(rows, np.arange(50))['action']
    same(elsewhere(file, cwd, rows, [])[0], wanted)
