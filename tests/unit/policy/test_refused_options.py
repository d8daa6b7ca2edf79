"""What is refused by name and with what would do: options that contradict each other or the policy, and wrong updates of the user."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from error_texts import raises
from policy_toys import PLAIN, random_rows

from rlframe.config import compile_config
from rlframe.errors import ConfigError
from rlframe.policy.dqn import DQNPolicy, DQNUpdate
from rlframe.policy.parts.outputs import Quantiles
from rlframe.policy.update import Loss, Update
from rlframe.registry import POLICY_REGISTRY

GRU, LSTM = (dict(model=dict(core=core)) for core in ('gru', 'lstm'))
BATCH = dict(model=dict(norm='batch'))
FRESH: list[tuple[str, dict[str, Any], list[str]]] = [
    # a core that learns from fresh data, in 8 envs
    ('ppo', LSTM | dict(collect=dict(n_sample=8))),
    ('ppo', LSTM | dict(collect=dict(n_sample=160), learn=dict(unroll_len=16))),
    ('ppo', LSTM | dict(collect=dict(n_sample=1024), learn=dict(batch_size=64, unroll_len=128))),
    ('ppo', LSTM | dict(collect=dict(unroll_len=4))),
    ('ppo', dict(learn=dict(unroll_len=8))),
    ('dqn', LSTM),
    # modes of computing
    ('ppo', LSTM | dict(compile=True)),
    ('ppo', GRU | dict(cuda_graph=True)),
    ('dqn', dict(precision='fp16')),
    # what needs replay
    ('pqn', dict(nstep=3)),
    ('pqn', dict(learn=dict(target_update_freq=100))),
    ('pqn', dict(priority=True)),
    # target networks, priorities, distributions
    ('dqn', dict(learn=dict(target_theta=0.1))),
    ('dqn', dict(learn=dict(target_update_freq=None))),
    ('dqn', dict(priority_IS_weight=True)),
    ('c51', dict(model=dict(v_min=1.0, v_max=1.0))),
    ('c51', dict(learn=dict(kappa=1.0))),
    # entropy and noise
    *(('sac', dict(learn=dict(alpha=alpha))) for alpha in ('no', -0.1, math.nan)),
    ('sac_discrete', dict(collect=dict(noise_correlation=0.5))),
    # options of critics
    ('sac', BATCH),
    ('sac', dict(model=dict(n_atom=11))),
    ('sac', dict(learn=dict(target_critics=3))),
    ('crossq', dict(learn=dict(batch_size=1))),
    ('ddpg', dict(model=dict(n_critic=2))),
    ('sac', dict(model=dict(residual_blocks=1, norm='layer'))),
    ('td3', dict(model=dict(residual_blocks=1, encoder_hidden_size_list=[]))),
    ('tqc', dict(model=dict(num_quantiles=3), learn=dict(dropped_quantiles=3))),
    ('crossq', dict(learn=dict(dropped_quantiles=1))),
    ('xqc', dict(model=dict(n_atom=11, v_min=2.0, v_max=2.0))),
    ('redq', dict(model=dict(n_critic=1))),
    ('appo', dict(learn=dict(clip_c=2.0))),
]
REPLAYED: list[tuple[str, dict[str, Any], str]] = [
    ('sac_discrete', GRU, 'naive'),
    ('td3', GRU | dict(collect=dict(unroll_len=4)), 'sequence'),
    ('td3', GRU | dict(compile=True), 'sequence'),
    ('crossq', GRU, 'sequence'),
    ('droq', GRU, 'sequence'),
    ('r2d2', {}, 'advanced'),
    ('r2d2', dict(priority=True), 'sequence'),
    ('pqn', {}, 'naive'),
    ('mrq', dict(other=dict(replay_buffer=dict(burn_in=2))), 'sequence'),
    ('mrq', dict(other=dict(replay_buffer=dict(unroll_len=2))), 'sequence'),
    ('mrq', dict(model=dict(encoder_hidden_size_list=[])), 'sequence'),
]
"""With a replay buffer."""


@pytest.mark.parametrize(
    ('name', 'policy', 'buffer'), [*((name, policy, None) for name, policy in FRESH), *REPLAYED]
)
def test_options_that_do_not_go_together_are_named_with_what_does(
    name: str, policy: dict[str, Any], buffer: str | None
) -> None:
    is_box = POLICY_REGISTRY.get(name).supported_actions.startswith('Box')
    env = dict(env_id='Pendulum-v1' if is_box else 'CartPole-v1', collector_env_num=8)
    create: dict[str, Any] = dict(policy=dict(type=name))
    if buffer is not None:
        create |= dict(replay_buffer=dict(type=buffer), collector=dict(mark_episodes=True))
    with raises(ConfigError):
        compile_config(dict(env=env, policy=policy), create)


class Tensors(DQNUpdate):
    def output(self, network: Any, obs: Any, tau: Any = None) -> Any:
        return network(obs)

    def target(self, rows: Any) -> torch.Tensor:
        return rows['reward']


class Means(DQNUpdate):
    def output(self, network: Any, obs: Any, tau: Any = None) -> Any:
        return Quantiles(network(obs)[:, :, None].expand(-1, -1, 3))

    def target(self, rows: Any) -> torch.Tensor:
        return rows['reward']


class Spread(DQNUpdate):
    def target(self, rows: Any) -> torch.Tensor:
        return rows['reward'][:, None].expand(-1, 3)


class Rowwise(DQNUpdate):
    def loss(self, rows: Any) -> Loss:
        return Loss(self.model(rows['obs']).square().mean(1))


class Constant(DQNUpdate):
    def loss(self, rows: Any) -> Loss:
        return Loss(rows['reward'].mean())


class Bare(DQNUpdate):
    def loss(self, rows: Any) -> Any:
        return self.model(rows['obs']).mean()


class Lossless(Update):
    losses = {'actor_loss': 'model'}


class Frozen(DQNUpdate):
    losses = {'loss': 'nothing'}


WRONG = {
    Tensors: 'Tensors.output returned Tensor, not an Output: Values, Quantiles or Atoms',
    Means: 'Means.target returned [8]; Quantiles need a target [B, M]',
    Spread: 'Spread.target returned [8, 3]; Values need a target [B]',
    Rowwise: 'Rowwise.loss returned a loss of the shape [8], not a number',
    Constant: 'Constant.loss returned a loss that depends on no parameter',
    Bare: 'Bare.loss returned Tensor, not a Loss',
    Lossless: "Lossless has no method 'actor_loss', which its losses name",
    Frozen: "Frozen.loss trains 'nothing', which has no parameters with gradients",
}


@pytest.mark.parametrize('update', WRONG)
def test_the_class_and_the_method_are_named(update: type[Update]) -> None:
    kind = type('OwnPolicy', (DQNPolicy,), {'update_class': update})
    with pytest.raises(TypeError) as caught:
        kind({'cuda': False, 'double': False}, PLAIN).learn_mode.forward(random_rows(8))
    assert str(caught.value) == WRONG[update]
