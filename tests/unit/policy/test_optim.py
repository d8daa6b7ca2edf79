"""No update that is not finite reaches the parameters; the error tells which loss, and the price is one fused pass."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from error_texts import raises
from torch import nn

from rlframe.data import Batch, EnvSpec
from rlframe.errors import NonFiniteError
from rlframe.policy import create_policy
from rlframe.policy.parts.optim import READ_EVERY, Optimizer
from rlframe.worker import BaseLearner

SPEC = EnvSpec(gymnasium.spaces.Box(-9, 9, (3,), np.float32), gymnasium.spaces.Discrete(2), name='Toy')


def optimizer_of(**cfg: Any) -> tuple[nn.Module, Optimizer]:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    return module, Optimizer(module, {'learning_rate': 0.1, 'grad_clip_norm': None, **cfg})


def loss_of(module: nn.Module, factor: float = 1.0) -> torch.Tensor:
    return (module(torch.ones(2, 3)) * factor).square().mean()


def state_of(module: nn.Module, optimizer: Optimizer) -> Any:
    return copy.deepcopy((module.state_dict(), optimizer.state_dict()))


def assert_same(one: Any, other: Any) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize('dtypes', [('float32', 'float32'), ('float32', 'float64')])
def test_steps_are_those_of_torch_adam_also_where_a_part_is_not_trained(dtypes: tuple[str, str]) -> None:
    torch.manual_seed(0)
    parts = nn.ModuleList(nn.Linear(3, 3, dtype=getattr(torch, dtype)) for dtype in dtypes)
    others = copy.deepcopy(parts)
    cfg = {'learning_rate': 0.1, 'grad_clip_norm': None}
    own, adam = Optimizer(parts, cfg), torch.optim.Adam(others.parameters(), 0.1, fused=True)
    inputs = [torch.ones(2, 3, dtype=getattr(torch, dtype)) for dtype in dtypes]
    for used in [(0, 1), (0, 1), (1,), (0,), (0, 1)]:
        one, other = (
            sum((modules[i](inputs[i]).square().mean() for i in used), torch.zeros(()))
            for modules in (parts, others)
        )
        own.step(one)
        adam.zero_grad()
        torch.autograd.backward(other)
        adam.step()
        assert_same(parts.state_dict(), others.state_dict())
    state = own.state_dict()
    assert_same([part['steps'] for part in state.values()], [s['step'] for s in adam.state.values()])
    copied = Optimizer(parts, cfg)
    copied.load_state_dict(state)
    assert_same(copied.state_dict(), state)


def test_an_update_also_works_where_numbers_are_float64_by_default() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        module, optimizer = optimizer_of(adam_eps=1e-3)
        other = copy.deepcopy(module)
        adam = torch.optim.Adam(other.parameters(), 0.1, eps=1e-3)
        for _ in range(2):
            optimizer.step(loss_of(module))
            adam.zero_grad()
            loss_of(other).backward()
            adam.step()
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(module.state_dict(), other.state_dict(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(('factor', 'clip'), [(float('nan'), 0.5), (float('inf'), None), (1e30, 0.5)])
def test_error_names_loss_norm_and_rate_and_nothing_moved(factor: float, clip: float | None) -> None:
    module, optimizer = optimizer_of(grad_clip_norm=clip)
    optimizer.step(loss_of(module))
    before = state_of(module, optimizer)
    part = torch.tensor(2.5)
    with raises(NonFiniteError):
        optimizer.step(loss_of(module, factor), value_loss=part)
    assert_same(state_of(module, optimizer), before)
    optimizer.step(loss_of(module))
    assert all(bool(parameter.isfinite().all()) for parameter in module.parameters())


def test_finite_loss_with_a_gradient_that_is_not_is_caught() -> None:
    module, optimizer = optimizer_of()
    x = next(module.parameters())
    with raises(NonFiniteError):
        optimizer.step((x - x.detach()).abs().sum().sqrt() * 1.0)


def test_loss_that_is_not_finite_is_caught_where_the_gradients_are() -> None:
    module, optimizer = optimizer_of()
    before = state_of(module, optimizer)
    with raises(NonFiniteError):
        optimizer.step(loss_of(module) + float('nan'))
    assert_same(state_of(module, optimizer), before)


def test_skipped_update_changes_nothing_and_is_counted(caplog: Any) -> None:
    module, optimizer = optimizer_of(nan_policy='skip')
    before = state_of(module, optimizer)
    optimizer.step(loss_of(module, float('nan')))
    assert_same(state_of(module, optimizer), before)
    assert optimizer.skipped == 1 and 'skipped, 1 so far' in caplog.text
    optimizer.step(loss_of(module))
    assert not torch.equal(before[0]['0.weight'], module.state_dict()['0.weight'])


def test_ignored_update_is_done() -> None:
    module, optimizer = optimizer_of(nan_policy='ignore')
    optimizer.step(loss_of(module, float('nan')))
    assert bool(module.state_dict()['0.weight'].isnan().any())


@pytest.mark.parametrize('kind', ['adam', 'rmsprop'])
def test_answer_that_comes_later_still_keeps_the_parameters(kind: str, monkeypatch: Any) -> None:
    """The way of a GPU: the step itself does nothing, and the host looks at every hundredth update."""
    module, optimizer = optimizer_of(optimizer=kind)
    monkeypatch.setattr(optimizer.guard, 'answers_at_once', False)
    for _ in range(READ_EVERY - 3):
        optimizer.step(loss_of(module))
    before = state_of(module, optimizer)
    optimizer.step(loss_of(module, float('nan')))
    assert_same(state_of(module, optimizer), before)
    optimizer.step(loss_of(module))
    with raises(NonFiniteError):
        optimizer.step(loss_of(module))
    assert all(bool(parameter.isfinite().all()) for parameter in module.parameters())
    for _ in range(READ_EVERY):
        optimizer.step(loss_of(module))


def rows_of(size: int = 8, spoiled: float = 1.0) -> Batch:
    """Returns a batch for any policy, whose rewards and returns are multiplied."""
    rng = np.random.default_rng(0)
    column = rng.normal(size=size).astype(np.float32)
    return Batch(
        obs=rng.normal(size=(size, 3)).astype(np.float32),
        next_obs=rng.normal(size=(size, 3)).astype(np.float32),
        action=np.zeros(size, np.int64),
        reward=column * np.float32(spoiled),
        terminated=np.zeros(size, bool),
        log_prob=np.full(size, -0.7, np.float32),
        advantage=column,
        return_=column * np.float32(spoiled),
    )


@pytest.mark.parametrize('name', ['c51', 'qrdqn', 'ppo'])
def test_share_of_skipped_updates_is_shown_and_priorities_stay_numbers(name: str) -> None:
    cfg = {'type': name, 'cuda': False, 'learn': {'nan_policy': 'skip'}}
    policy = create_policy(cfg | ({} if name == 'ppo' else {'priority': True}), SPEC)
    learner = BaseLearner({'log_policy': False}, policy.learn_mode)
    learner.train(rows_of())
    right = learner.monitor.take_means()
    learner.train(rows_of(spoiled=float('nan')))
    assert right['skipped_share'] == 0 and learner.monitor.means()['skipped_share'] == 1
    if name != 'ppo':
        priority = learner.priority_info['priority']
        assert len(priority) == 8 and bool(priority.isfinite().all())


def test_learner_says_where_it_was_and_which_checkpoint_is_the_last() -> None:
    policy = create_policy({'type': 'ppo', 'cuda': False}, SPEC)
    learner = BaseLearner({}, policy.learn_mode)
    learner.train(rows_of())
    learner.ckpt_name = 'iteration_1'
    before = copy.deepcopy(policy.learn_mode.state_dict()['model'])
    with raises(NonFiniteError):
        learner.train(rows_of(spoiled=float('nan')))
    assert_same(policy.learn_mode.state_dict()['model'], before)
