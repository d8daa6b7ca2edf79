"""policy.cuda_graph: an update that is recorded and replayed computes what the update itself does.

The recorder of these tests stands for a CUDA device: it repeats the function, on tensors that keep their places.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from error_texts import raises
from gpu_cells import host_waits
from gymnasium import spaces
from policies import tried_policies

from rlframe.data import Batch, EnvSpec
from rlframe.data.composite import by_rows
from rlframe.data.faces import Metrics
from rlframe.errors import ConfigError, DeviceError, NonFiniteError
from rlframe.model.core import BatchRenorm
from rlframe.policy import Policy, create_policy
from rlframe.policy.dqn import DQNPolicy
from rlframe.policy.parts.compiled import (
    MOST_GRAPHS,
    WARM_UPS,
    GraphedUpdate,
    check_graph,
    warn_of_bfloat16,
)
from rlframe.policy.parts.optim import READ_EVERY, Optimizer
from rlframe.registry import POLICY_REGISTRY

CONTINUOUS = [
    name for name in tried_policies() if POLICY_REGISTRY.get(name).supported_actions.startswith('Box')
]
HYBRID = [name for name in tried_policies() if POLICY_REGISTRY.get(name).supported_actions == 'Hybrid']
OPTIONS: dict[str, dict[str, Any]] = {
    'dqn': dict(learn=dict(target_update_freq=3)),
    'c51': dict(learn=dict(target_update_freq=None, target_theta=0.01)),
    'td3': dict(learn=dict(actor_update_freq=2)),
    'ppo': dict(learn=dict(batch_size=5, epoch_per_collect=2)),
    'r2d2': dict(learn=dict(burn_in=1), model=dict(lstm_hidden_size=4)),
    'r2d3': dict(learn=dict(burn_in=1), model=dict(lstm_hidden_size=4)),
    'dqfd': dict(priority_IS_weight=False),
}
SPACE = spaces.Box(-1, 1, (4,))
REPPO = {'mean': 2, 'log_std': 2, 'outcome': 9}
"""Columns of REPPO's training samples."""


class Repeater:
    """Stands for a recorder of CUDA graphs: recording changes nothing, and replays fill the same tensors."""

    def __init__(self, update: Any) -> None:
        self._update = update
        self.tried_out = self.recorded = 0

    def try_out(self, function: Callable[[], Any]) -> None:
        self.tried_out += 1
        for _ in range(WARM_UPS):
            function()

    def record(self, function: Callable[[], Metrics]) -> tuple[Callable[[], None], Metrics]:
        self.recorded += 1
        update = self._update
        before = copy.deepcopy((update.model.state_dict(), update.state_dict()))
        results = function()
        update.model.load_state_dict(before[0])
        update.load_state_dict(before[1])
        for optimizer in update.optimizers.values():
            optimizer.forget()

        def replay() -> None:
            for name, value in function().items():
                results[name].copy_(value)

        return replay, results


def make(kind: str, **options: Any) -> Any:
    options = OPTIONS.get(kind, {}) | options
    model = dict(encoder_hidden_size_list=[8, 8]) | options.pop('model', {})
    action: Any = spaces.Box(-1, 1, (2,)) if kind in CONTINUOUS else spaces.Discrete(3)
    if kind in HYBRID:
        action = by_rows(spaces.Tuple((spaces.Box(-1, 1, (1,)), action)))
    torch.manual_seed(0)
    cfg = dict(type=kind, cuda=False, model=model, priority=kind in ('dqn', 'sac', 'd4pg'), **options)
    if 'priority' not in POLICY_REGISTRY.get(kind).config_fields():
        del cfg['priority']
    return create_policy(cfg, EnvSpec(SPACE, action), seed=0)


def optimizers(policy: Any) -> list[Optimizer]:
    return [*policy.update.optimizers.values()]


def graphed(policy: Any) -> Repeater:
    """Makes the update of a policy one that is recorded and replayed."""
    repeater: Any = Repeater(policy.update)
    step = policy.train_step
    step._step = GraphedUpdate(step._step, policy.update, repeater)
    return repeater


def samples(kind: str, seed: int, count: int) -> Batch:
    rng = np.random.default_rng(seed)
    lead = (count, 6) if kind in ('r2d2', 'r2d3', 'dt') else (count,)
    numbers = {
        name: rng.standard_normal(lead, np.float32) for name in ('reward', 'advantage', 'return_', 'log_prob')
    }
    action = (
        rng.uniform(-1, 1, (count, 2)).astype(np.float32) if kind in CONTINUOUS else rng.integers(0, 3, lead)
    )
    if kind in HYBRID:
        action = np.stack([action, rng.uniform(-1, 1, lead)], 1)[:, ::-1].astype(np.float32)
    memory = (
        dict(mask=np.ones(lead, bool), state=np.zeros((*lead, 2, 4), np.float32))
        if kind in ('r2d2', 'r2d3')
        else {}
    )
    if kind == 'dt':
        memory = dict(mask=np.ones(lead, bool), timestep=np.arange(6) + np.zeros(lead, np.int64))
        numbers['return_to_go'] = rng.standard_normal(lead, np.float32)
    if kind == 'reppo':
        numbers |= {name: rng.standard_normal((count, size), np.float32) for name, size in REPPO.items()}
    if kind == 'curious_ppo':
        numbers['bonus_return'] = rng.standard_normal(lead, np.float32)
    return Batch(
        obs=rng.standard_normal((*lead, 4), np.float32),
        next_obs=rng.standard_normal((*lead, 4), np.float32),
        action=action,
        terminated=rng.random(lead) < 0.2,
        begins=rng.random(lead) < 0.3,
        logit=np.zeros((*lead, 3), np.float32),
        **numbers,
        **memory,
    )


def updated(policy: Any, data: Batch) -> list[Metrics]:
    out = policy.learn_mode.forward(data)
    return [out] if isinstance(out, dict) else [update() for update in out]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    return torch.equal(torch.as_tensor(one), torch.as_tensor(other))


@pytest.mark.parametrize(
    'kind', ['dqn', 'iqn', 'ppo', 'pqn', 'bc', 'td3', 'xqc', 'sac_discrete', 'acer', 'trpo']
)
def test_replayed_updates_are_those_that_were_recorded(kind: str) -> None:
    plain, fast = make(kind), make(kind)
    for optimizer in optimizers(plain):  # the learning rate as float32, as graphs read it
        optimizer.prepare_capture()
    repeater = graphed(fast)
    logged = []
    for i, count in enumerate([7, 7, 5, 7, 7, 5, 7]):
        data = samples(kind, i, count)
        mine, theirs = updated(plain, data), updated(fast, data)
        assert same(dict(enumerate(mine)), dict(enumerate(theirs)))
        logged += [(one, copy.deepcopy(one)) for one in theirs]
    for optimizer in optimizers(plain) + optimizers(fast):
        optimizer.set_envstep(100)
    assert all(same(one, kept) for one, kept in logged)  # later updates leave earlier results alone
    states = plain.learn_mode.state_dict(), fast.learn_mode.state_dict()
    for state in states:
        state.pop('rng', None)
    assert same(*states)
    assert repeater.tried_out == repeater.recorded <= 4


@pytest.mark.parametrize('kind', tried_policies())
def test_an_update_reads_no_number_that_a_device_would_have_to_send(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BatchRenorm, '_is_known_cold', False)  # only those on a CPU are asked
    policy = make(kind, learn=OPTIONS.get(kind, {}).get('learn', {}) | dict(nan_policy='ignore'))
    updated(policy, samples(kind, 0, 7))
    with host_waits('cpu') as places:
        updated(policy, samples(kind, 1, 7))
    assert places == []


def test_a_learning_rate_that_falls_reaches_the_replays() -> None:
    schedule = dict(type='linear', start=1e-2, end=1e-3, decay=100)
    plain, fast = (make('dqn', learn=dict(learning_rate=schedule)) for _ in range(2))
    optimizers(plain)[0].prepare_capture()
    graphed(fast)
    for i in range(3):
        for policy in (plain, fast):
            policy.command_mode.get_setting_learn({'envstep': 40 * i})
        one, other = (updated(policy, samples('dqn', i, 6))[0] for policy in (plain, fast))
        assert one['cur_lr'] == other['cur_lr'] and same(one, other)
    assert same(plain.learn_mode.state_dict()['model'], fast.learn_mode.state_dict()['model'])


def test_batches_of_ever_new_sizes_are_an_error_instead_of_ever_more_memory() -> None:
    policy = make('bc')
    graphed(policy)
    for count in range(1, MOST_GRAPHS + 1):
        updated(policy, samples('bc', 0, count))
    with raises(ConfigError):
        updated(policy, samples('bc', 0, MOST_GRAPHS + 1))


def test_updates_that_are_not_finite_are_reported_by_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make('bc')
    monkeypatch.setattr(policy.update.optimizers['model'].guard, 'answers_at_once', False)
    graphed(policy)
    with raises(NonFiniteError):
        for _ in range(READ_EVERY):
            policy.learn_mode.forward(samples('bc', 0, 4).replace(obs=np.full((4, 4), np.nan, np.float32)))
    assert all(bool(value.isfinite().all()) for value in policy.learn_mode.state_dict()['model'].values())


class Own(Policy):
    """Learns without an update."""


def test_policies_without_an_update_are_refused() -> None:
    cfg = DQNPolicy.resolve_config({})
    assert 'Own has no Update' in str(check_graph(Own, cfg)) and 'update_class' in str(check_graph(Own, cfg))
    assert not any(check_graph(POLICY_REGISTRY.get(name), cfg) for name in POLICY_REGISTRY)


@pytest.mark.parametrize(
    ('kind', 'options'), [('dqn', dict(cuda_graph=True)), ('dqn', dict(precision='tf32'))]
)
def test_modes_that_cannot_work_are_refused_before_training(kind: str, options: Any) -> None:
    with raises(ConfigError, DeviceError):
        make(kind, **options)


@pytest.mark.parametrize('kind', ['dqn', 'r2d2', 'ppo', 'xqc', 'sac_discrete'])
def test_updates_in_bfloat16_are_near_those_in_float32(kind: str) -> None:
    plain, low = make(kind), make(kind, precision='bf16')
    for i in range(3):
        data = samples(kind, i, 16)
        for one, other in zip(updated(plain, data), updated(low, data), strict=True):
            assert float(other['total_loss']) == pytest.approx(float(one['total_loss']), rel=0.05, abs=0.05)
    state, other = (policy.learn_mode.state_dict()['model'] for policy in (plain, low))
    assert not same(state, other)
    for name, value in state.items():
        assert other[name].dtype == value.dtype
        torch.testing.assert_close(other[name], value, rtol=0.05, atol=0.02)


@pytest.mark.parametrize(
    ('capabilities', 'count'),
    [
        (dict(avx2=True, avx512_bf16=False, amx_bf16=False), 1),
        (dict(avx2=True, avx512_bf16=True, amx_bf16=False), 0),
        (dict(neon=True, bf16=True), 0),
    ],
)
def test_bfloat16_on_a_processor_without_it_is_warned_of_once(
    capabilities: dict[str, bool],
    count: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(torch.cpu, 'get_capabilities', lambda: capabilities)
    warn_of_bfloat16.cache_clear()
    for precision in ('fp32', 'bf16', 'bf16'):
        make('sac', precision=precision)
    said = [record.getMessage() for record in caplog.records if 'bfloat16' in record.getMessage()]
    assert len(said) == count
    for text in ("policy.precision='bf16'", 'avx512_bf16', '10 times as long', "'fp32'"):
        assert all(text in message for message in said)
