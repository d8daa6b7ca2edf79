"""DQN's target, loss, priorities, target updates and exploration equal what their formulas say."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from error_texts import raises
from policy_toys import apart, random_rows, small
from torch import nn

from rlframe.data import Batch, EnvSpec, TimeStep
from rlframe.errors import CheckpointMismatchError, ConfigError, DeviceError
from rlframe.model.q_net import QNet
from rlframe.policy.dqn import DQNPolicy, DQNUpdate
from rlframe.policy.parts.outputs import chosen
from rlframe.policy.update import Loss

BOX = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
GAMMA = 0.9


def spec_of(actions: int = 4, start: int = 0, obs: Any = BOX) -> EnvSpec:
    return EnvSpec(obs, gymnasium.spaces.Discrete(actions, start=start), name='Toy-v0')


def make(spec: EnvSpec | None = None, seed: int = 0, **cfg: Any) -> DQNPolicy:
    return small('dqn', spec or spec_of(), seed=seed, discount_factor=GAMMA, **cfg)


def expected_target(policy: DQNPolicy, data: Batch, double: bool) -> list[float]:
    """The target of each row, one by one."""
    targets = []
    for i, row in enumerate(data):
        with torch.no_grad():
            obs = torch.from_numpy(row['next_obs'])[None]
            target_q, online_q = policy.update.targets.network(obs)[0], policy.model(obs)[0]
        best = int(online_q.argmax()) if double else int(target_q.argmax())
        gamma = float(data['value_gamma'][i]) if 'value_gamma' in data else GAMMA
        targets.append(float(row['reward']) + (0 if row['terminated'] else gamma * float(target_q[best])))
    return targets


@pytest.mark.parametrize(
    ('double', 'dueling', 'nstep', 'weighted', 'kappa'),
    [
        (True, True, True, True, None),
        (True, False, False, False, 4.0),
        (False, True, False, True, 4.0),
        (False, False, True, True, None),
    ],
)
def test_loss_target_and_priority_equal_the_formula(
    double: bool, dueling: bool, nstep: bool, weighted: bool, kappa: float | None
) -> None:
    policy = apart(
        make(
            double=double,
            priority=weighted,
            priority_IS_weight=weighted,
            model={'encoder_hidden_size_list': [8], 'dueling': dueling},
            learn={'kappa': kappa},
        )
    )
    more: dict[str, Any] = {}
    if nstep:
        more['value_gamma'] = np.array([0.9, 0.81, 0.729, 0.9, 0.5, 0.0], np.float32)
    if weighted:
        more['IS'] = np.array([1, 0.5, 0.25, 1, 0.1, 0.7], np.float32)
    data = random_rows(**more)
    targets = expected_target(policy, data, double)
    with torch.no_grad():
        values = [
            float(policy.model(torch.from_numpy(row['obs'])[None])[0, int(row['action'])]) for row in data
        ]
    errors = np.array(targets) - values
    metrics = policy.learn_mode.forward(data)
    weights = more['IS'] if weighted else np.ones(6)
    losses = errors**2
    if kappa is not None:
        assert 0 < (np.abs(errors) < kappa).sum() < 6
        losses = np.where(np.abs(errors) < kappa, losses / 2, kappa * (np.abs(errors) - kappa / 2))
    assert float(metrics['total_loss']) == pytest.approx(np.mean(weights * losses), rel=1e-5)
    assert float(metrics['target_q_value']) == pytest.approx(np.mean(targets), rel=1e-5)
    assert float(metrics['q_value']) == pytest.approx(np.mean(values), rel=1e-5)
    assert set(metrics) - {'priority'} == set(policy.learn_mode.monitor_vars())
    if weighted:
        np.testing.assert_allclose(metrics['priority'], np.abs(errors), rtol=1e-5)
    else:
        assert 'priority' not in metrics


def test_the_gradient_goes_through_the_online_network_only() -> None:
    policy = apart(make())
    before = copy.deepcopy(policy.update.targets.network.state_dict())
    old = copy.deepcopy(policy.model.state_dict())
    data = random_rows()
    reference = copy.deepcopy(policy.model)
    targets = torch.tensor(expected_target(policy, data, True))
    value = reference(torch.from_numpy(data['obs']))[range(6), data['action'].astype(int)]
    (targets - value).square().mean().backward()
    policy.learn_mode.forward(data)
    assert all(
        torch.equal(before[name], tensor)
        for name, tensor in policy.update.targets.network.state_dict().items()
    )
    for (name, parameter), other in zip(policy.model.named_parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad)
        moved = (parameter.detach() - old[name])[other.grad.abs() > 1e-6]
        torch.testing.assert_close(moved.abs(), torch.full_like(moved, 1e-3), rtol=0.02, atol=1e-6)


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_hard_update_every_so_many_iterations() -> None:
    policy = make(learn={'target_update_freq': 3})
    equal = []
    for _ in range(7):
        policy.learn_mode.forward(random_rows())
        equal.append(same(policy.update.targets.network, policy.model))
    assert equal == [False, False, True, False, False, True, False]


def test_soft_update_moves_by_a_share_every_iteration() -> None:
    policy = apart(make(learn={'target_update_freq': None, 'target_theta': 0.25}))
    before = [p.clone() for p in policy.update.targets.network.parameters()]
    policy.learn_mode.forward(random_rows())
    for old, new, online in zip(
        before, policy.update.targets.network.parameters(), policy.model.parameters(), strict=True
    ):
        torch.testing.assert_close(new, 0.75 * old + 0.25 * online)


def test_dueling_adds_value_and_centred_advantage() -> None:
    net = QNet(spec_of(), [8], dueling=True)
    obs = torch.randn(5, 3)
    value = net.value_head(net.encoder(obs))
    torch.testing.assert_close(net(obs).mean(1, keepdim=True), value)
    torch.nn.init.zeros_(net.value_head.weight), torch.nn.init.constant_(net.value_head.bias, 3.0)
    assert float(net(obs).detach().std()) > 0
    torch.testing.assert_close(net(obs).mean(1), torch.full((5,), 3.0))
    assert QNet(spec_of(), [], dueling=False)(obs).shape == (5, 4)
    one_hot = QNet(spec_of(obs=gymnasium.spaces.Discrete(3, start=1)), [])
    assert one_hot(torch.tensor([1, 2, 3])).shape == (3, 4)


def test_epsilon_and_learning_rate_follow_their_schedules() -> None:
    eps = {'type': 'linear', 'start': 1.0, 'end': 0.1, 'decay': 100}
    rate = {'type': 'linear', 'start': 1e-2, 'end': 1e-3, 'decay': 100}
    policy = make(other={'eps': eps}, learn={'learning_rate': rate})
    for envstep, share in ((0, 1.0), (50, 0.55), (100, 0.1), (10**6, 0.1)):
        assert policy.command_mode.get_setting_collect({'envstep': envstep}) == {'eps': pytest.approx(share)}
        policy.command_mode.get_setting_learn({'envstep': envstep})
        metrics = policy.learn_mode.forward(random_rows())
        assert metrics['cur_lr'] == pytest.approx(share / 100)


@pytest.mark.parametrize(('actions', 'start', 'dtype'), [(3, 5, np.uint8), (300, -1, np.uint16)])
def test_actions_are_the_env_s_and_are_stored_small_from_0(actions: int, start: int, dtype: Any) -> None:
    spec = spec_of(actions, start)
    policy = make(spec)
    obs = np.zeros((50, 3), np.float32)
    output = policy.collect_mode.forward(obs, np.arange(50), eps=1.0)
    assert all(spec.action_space.contains(action) for action in output['action'])
    assert all(spec.action_space.contains(a) for a in policy.eval_mode.forward(obs, np.arange(50))['action'])
    flags = np.zeros(50, bool)
    step = TimeStep(obs, np.zeros(50, np.float32), flags, flags, (), np.arange(50))
    rows = policy.collect_mode.process_transition(obs, output, step)
    assert rows['action'].dtype == dtype
    np.testing.assert_array_equal(rows['action'].astype(int) + start, output['action'])


def test_weights_of_another_network_are_refused_with_both_shapes() -> None:
    other = make(model={'encoder_hidden_size_list': [9]})
    with raises(CheckpointMismatchError):
        make().collect_mode.load_state_dict(other.collect_mode.state_dict())


class HalvedUpdate(DQNUpdate):
    """Halves the loss."""

    def loss(self, rows: Any) -> Loss:
        loss = super().loss(rows)
        return loss._replace(value=loss.value / 2)


class Halved(DQNPolicy):
    update_class = HalvedUpdate


def test_an_update_of_its_own_is_learned_by() -> None:
    cfg, data = {'type': 'dqn', 'cuda': False, 'nstep': 1}, random_rows(6)
    torch.manual_seed(0)
    halved = Halved(DQNPolicy.resolve_config(cfg), spec_of(), seed=0)
    with torch.no_grad():
        rows = halved.columns(data)
        error = halved.update.target(rows) - chosen(halved.model(rows['obs']), rows['action'])
    wanted = float(error.square().mean() / 2)
    assert float(halved.learn_mode.forward(data)['total_loss']) == pytest.approx(wanted, rel=1e-5)


def test_devices_that_are_not_there_and_contradictions_are_refused() -> None:
    assert make(device='cpu', cuda=None).device == torch.device('cpu')
    if not torch.cuda.is_available():
        for cfg in ({'cuda': True}, {'device': 'cuda:3', 'cuda': None}):
            with raises(DeviceError):
                make(**cfg)
        assert make(device='auto', cuda=None).device.type == 'cpu'
    with raises(ConfigError):
        make(device='cpu', cuda=True)
    with raises(ConfigError):
        make(device='gpu', cuda=None)
