"""policy.compile changes the speed of updates, not what they compute."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import torch
from error_texts import raises
from gymnasium import spaces
from test_graph import make, samples, updated

from rlframe.data import EnvSpec
from rlframe.errors import ConfigError
from rlframe.policy import create_policy
from rlframe.policy.parts.compiled import THREADS, Compiled
from rlframe.policy.parts.compiled import torch as lazy  # keeps what it was asked for

pytestmark = pytest.mark.filterwarnings('ignore:.torch.jit.script_method:DeprecationWarning')  # torch's own
UPDATES = 4


@pytest.mark.parametrize(('variable', 'wanted'), [('', 1), ('3', 2)])
def test_the_compiler_has_workers_only_if_the_user_wants_some(
    variable: str, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor import config

    monkeypatch.setenv(THREADS, variable)
    if not variable:
        monkeypatch.delenv(THREADS)
    monkeypatch.setattr(lazy, 'compile', lambda function, **options: lambda *args: config.compile_threads)
    with config.patch(compile_threads=2):
        compiled = Compiled(torch.neg)
    with config.patch(compile_threads=2):  # as in another thread
        assert compiled(torch.ones(1)) == wanted


def weights(policy: Any) -> dict[str, torch.Tensor]:
    state = policy.learn_mode.state_dict()
    return {name: value.clone() for name, value in state['model'].items()}


@pytest.mark.slow
def test_losses_and_weights_are_those_without_it() -> None:
    from torch._dynamo.utils import counters

    kind = 'td3'
    plain, fast = make(kind), make(kind, compile=True)
    counters.clear()
    for i in range(UPDATES):
        data = samples(kind, i, 12)
        for one, other in zip(updated(plain, data), updated(fast, data), strict=True):
            assert one.keys() == other.keys()
            for name in one:
                assert float(other[name]) == pytest.approx(float(one[name]), rel=1e-4, abs=1e-5), name
    for name, value in weights(plain).items():
        torch.testing.assert_close(weights(fast)[name], value, rtol=1e-3, atol=1e-5)
    assert not counters['graph_break'] and counters['stats']['unique_graphs'] == len(fast.update.losses)


@pytest.mark.slow
def test_a_resumed_policy_computes_the_same_bits_whatever_shapes_came_before() -> None:
    straight = make('dqn', compile=True)
    for i, count in enumerate((12, 7, 12)):
        updated(straight, samples('dqn', i, count))
    torch.compiler.reset()
    state = straight.learn_mode.state_dict()
    resumed = make('dqn', compile=True)
    resumed.learn_mode.load_state_dict(state)
    for policy in (straight, resumed):
        updated(policy, samples('dqn', 9, 12))
    for name, value in weights(straight).items():
        assert torch.equal(weights(resumed)[name], value), name


def test_other_faces_are_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy, 'compile', lambda *args, **kwargs: pytest.fail('compiled'))
    cfg = dict(type='dqn', compile=True, model=dict(encoder_hidden_size_list=[8]))
    create_policy(cfg, EnvSpec(spaces.Box(-1, 1, (4,)), spaces.Discrete(3)), enable_field=['collect', 'eval'])


def test_a_missing_compiler_is_named_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, 'which', lambda name: None)
    with raises(ConfigError):
        make('dqn', compile=True)
