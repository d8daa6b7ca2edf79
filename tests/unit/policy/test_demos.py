"""Learning from demonstrations: margins, rewards and lower bounds by hand, on the rows that are marked only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from error_texts import raises
from policy_toys import BOX, PLAIN, apart, random_rows, random_sequences, small

from rlframe.data import EnvSpec
from rlframe.errors import ConfigError
from rlframe.policy.parts.demos import large_margin
from rlframe.policy.sqil import rewarded

MARKS = np.array([True, True, False, False, True, False])


def made(kind: str, spec: Any = PLAIN, **options: Any) -> Any:
    return apart(small(kind, spec, **options))


def test_the_margin_is_to_the_best_of_the_other_actions() -> None:
    value = torch.tensor([[1.0, 3.0, 2.5], [5.0, 1.0, 1.0], [0.0, 0.5, 0.0]])
    action = torch.tensor([1, 0, 0])
    # 2.5 + 0.8 - 3; no other comes near; 0.5 + 0.8 - 0
    torch.testing.assert_close(large_margin(value, action, 0.8), torch.tensor([0.3, 0.0, 1.3]))


def test_dqfd_sums_its_four_losses_and_only_demonstrations_have_a_margin() -> None:
    policy = made('dqfd', nstep=3, learn=dict(margin_weight=2.0, nstep_weight=0.5, l2_weight=0.01))
    data = random_rows(
        6, is_demo=MARKS, value_gamma=np.full(6, 0.9, np.float32), IS=np.full(6, 0.5, np.float32)
    )
    other = random_rows(6, seed=1)
    firsts = {f'first_{name}': other[name] for name in ('reward', 'next_obs', 'terminated')}
    rows = policy.columns(data.replace(**firsts))
    dqn = made('dqn', priority=True, priority_IS_weight=True)
    dqn.learn_mode.load_state_dict(policy.learn_mode.state_dict())
    several = dqn.update.loss(dqn.columns(data)).value
    single = data.replace(**{name: other[name] for name in ('reward', 'next_obs', 'terminated')})
    one = dqn.update.loss(dqn.columns(single.replace(value_gamma=np.full(6, 0.97, np.float32))))
    value = policy.model(rows['obs']).detach().numpy()
    penalty = 0.8 * (np.arange(4) != data['action'][:, None])
    gap = (value + penalty).max(1) - value[np.arange(6), data['action']]
    weights = sum(float(weight.detach().square().sum()) for weight in policy.model.parameters())
    wanted = one.value + 0.5 * several + 2.0 * 0.5 * (gap * MARKS).mean() + 0.01 * weights
    loss = policy.update.loss(rows)
    assert loss.value.item() == pytest.approx(wanted.item(), rel=1e-5)
    np.testing.assert_allclose(
        loss.error.detach().numpy(), one.error.abs().detach().numpy() + MARKS, rtol=1e-5
    )


@pytest.mark.parametrize(('kind', 'spec', 'actions'), [('sqil', PLAIN, 4), ('sqil_sac', BOX, None)])
def test_sqil_pays_1_for_demonstrations_and_0_for_all_else(
    kind: str, spec: EnvSpec, actions: int | None
) -> None:
    policy = made(kind, spec)
    data = random_rows(6, actions=actions, is_demo=MARKS)
    paid = data.replace(reward=MARKS.astype(np.float32))
    name = 'loss' if kind == 'sqil' else 'critic_loss'
    plain = made('sql' if kind == 'sqil' else 'sac', spec)
    plain.update.targets.network.load_state_dict(policy.update.targets.network.state_dict())
    rows = policy.columns(paid)
    wanted = getattr(plain.update, name)(rows).value
    assert getattr(policy.update, name)(rows | {'reward': rows['reward'] * 7 - 3}).value == wanted


def test_the_margin_of_r2d3_is_that_of_the_steps_of_demonstrated_sequences() -> None:
    options: dict[str, Any] = dict(learn=dict(burn_in=2, batch_size=2), model=dict(lstm_hidden_size=4))
    policy = made('r2d3', **options)
    state_shape = policy.model.state_shape
    data = random_sequences([(2, 4, 'terminated'), (1, 4, 'truncated')], 2, 4, state_shape)
    nothing = policy.update.loss(policy.columns(data)).parts['margin_loss']
    first = policy.update.loss(policy.columns(data.replace(is_demo=np.array([True, False])))).parts
    both = policy.update.loss(policy.columns(data.replace(is_demo=np.array([True, True])))).parts
    second = policy.update.loss(policy.columns(data.replace(is_demo=np.array([False, True])))).parts
    assert nothing == 0 < first['margin_loss']
    torch.testing.assert_close(both['margin_loss'], first['margin_loss'] + second['margin_loss'])
    assert first['td_loss'] == both['td_loss']


def test_calql_lowers_no_value_of_the_actor_below_the_return_of_the_data() -> None:
    policy = made('calql', BOX, learn=dict(num_actions=3))
    value = torch.arange(18.0).reshape(2, 1, 9)
    bound = {'reference_return': torch.tensor([4.5])}
    raised = policy.update.promises(value, bound)
    wanted = value.clone()
    wanted[:, :, :6] = wanted[:, :, :6].clamp(min=4.5)
    torch.testing.assert_close(raised, wanted)
    episode = random_rows(3, actions=None)
    returns = policy.get_attribute('reward_shaping')(episode)['reference_return']
    gamma, reward = policy._cfg.discount_factor, episode['reward']
    assert returns[0] == pytest.approx(reward[0] + gamma * reward[1] + gamma**2 * reward[2], rel=1e-6)


def test_sqil_pays_demonstrations_in_each_step_of_a_window() -> None:
    policy = made('sqil', nstep=3, discount_factor=0.9)
    gamma = np.float32(0.9) ** np.array([1, 2, 3, 3, 2, 1])
    rows = policy.columns(random_rows(6, is_demo=MARKS, value_gamma=gamma.astype(np.float32)))
    reward = rewarded(rows, 0.9)['reward'].numpy()
    np.testing.assert_allclose(reward, [1.0, 1.9, 0.0, 0.0, 1.9, 0.0], rtol=1e-5)
    with raises(ConfigError):
        made('sqil', nstep=3, discount_factor=1.0)


def test_sqil_pays_demonstrations_that_end_for_ever_if_they_are_absorbing() -> None:
    policy = made('sqil', nstep=3, discount_factor=0.9, learn=dict(absorbing=True))
    gamma = np.float32(0.9) ** np.array([1, 2, 3, 3, 2, 1])
    ended = np.array([True, False, False, True, True, False])
    rows = random_rows(6, is_demo=MARKS, value_gamma=gamma.astype(np.float32)).replace(terminated=ended)
    reward = rewarded(policy.columns(rows), 0.9, absorbing=True)['reward'].numpy()
    np.testing.assert_allclose(reward, [10.0, 1.9, 0.0, 0.0, 10.0, 0.0], rtol=1e-5)
    with raises(ConfigError):
        made('sqil', discount_factor=1.0, learn=dict(absorbing=True))
