"""The algorithms that both libraries have: which options make their updates equal, and which weight is which."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

OBS_SIZE, ENVS, GAMMA = 3, 2, 0.875
"""Numbers of an observation; envs of on-policy learners; a discount factor that float32 holds exactly."""
CLASSES = spaces.Discrete(3)
BOX, UNIT_BOX = (spaces.Box(-bound, bound, (2,), np.float32) for bound in (2.0, 1.0))
Weights = dict[str, Any]
"""What learning changes in the state of our policy: names to tensors, or a tensor."""
Adjust = Callable[[Any, pytest.MonkeyPatch], None]


@dataclasses.dataclass(frozen=True)
class Pair:
    """An update of ours and one of theirs.

    Args:
        row: Our policy; its row in docs/conformance.md.
        peer: Module and class of their learner.
        actions: Action space.
        weights: Returns the weights of their learner under our names.
        losses: What they log, to what we log and a factor of theirs.
        ours: Options that make the updates equal, by their keys behind ``policy.``; the page names them.
        theirs: Arguments of theirs that do; it names them, too.
        sizes: Further options, for a quick test.
        their_sizes: Further arguments of theirs.
        steps: Env steps that they train for, of all envs together.
        adjust: Changes what is no argument of their learner; the page says so.
        network: Name of their policy.
        variant: Tells several pairs of a row apart.
        has_mask: Whether actions are forbidden.
        counted: Updates that ours has counted before the first one.
        draws_next_last: Whether theirs draws actions in this state before those in the next one; ours does the reverse.
    """

    row: str
    peer: str
    actions: spaces.Space[Any]
    weights: Callable[[Any], Weights]
    losses: Mapping[str, tuple[str, float]]
    ours: Mapping[str, Any]
    theirs: Mapping[str, Any]
    sizes: Mapping[str, Any]
    their_sizes: Mapping[str, Any]
    steps: int
    adjust: Adjust = lambda model, patch: None
    network: str = 'MlpPolicy'
    variant: str = ''
    has_mask: bool = False
    counted: int = 0
    draws_next_last: bool = False

    @property
    def policy(self) -> str:
        """Registered name of our policy."""
        return re.findall(r'`(\w+)`', self.row)[0]

    @property
    def on_policy(self) -> bool:
        """Whether they learn from fresh data."""
        return self.policy in ('ppo', 'a2c')

    @property
    def is_recurrent(self) -> bool:
        """Whether networks have a memory."""
        return 'Lstm' in self.network


def mlp(prefix: str, body: Any, *heads: Any) -> Weights:
    """Maps the linear layers and norms of a network of theirs, in their order, and of its heads, to those of our MLP."""
    norms = [part for part in body.modules() if hasattr(part, 'ra_mean')]
    layers = [*(part for part in body.modules() if isinstance(part, torch.nn.Linear)), *heads]
    names = {'weight': 'scale', 'bias': 'bias', 'mean': 'ra_mean', 'var': 'ra_var', 'passes': 'steps'}
    parts = [('layers', layer, {'weight': 'weight', 'bias': 'bias'}, i) for i, layer in enumerate(layers)]
    parts += [('norms', norm, names, i) for i, norm in enumerate(norms)]
    return {
        f'{prefix}.{kind}.{i}.{own}': getattr(part, name)
        for kind, part, names, i in parts
        for own, name in names.items()
    }


def with_log_std(named: Weights, policy: Any) -> Weights:
    """Adds the standard deviations of a Gaussian actor to weights of the network."""
    return {'model': named | ({'log_std': policy.log_std} if hasattr(policy, 'log_std') else {})}


def actor_critic(model: Any) -> Weights:
    """Maps an actor and a critic that share nothing."""
    policy, bodies = model.policy, model.policy.mlp_extractor
    critic = mlp('critic', bodies.value_net, policy.value_net)
    return with_log_std(mlp('actor', bodies.policy_net, policy.action_net) | critic, policy)


def recurrent_actor_critic(model: Any) -> Weights:
    """Maps two LSTMs that read observations, and a linear layer behind each."""
    policy = model.policy
    cores = {'memories.0.core.rnn': policy.lstm_actor, 'memories.1.core.rnn': policy.lstm_critic}
    parts = cores | {'actor': policy.action_net, 'critic': policy.value_net}
    named = {f'{own}.{name}': v for own, part in parts.items() for name, v in part.named_parameters()}
    return with_log_std(named, policy)


def q_net(model: Any) -> Weights:
    """Maps action values."""
    return {'model': mlp('encoder', model.q_net), 'target_model': mlp('encoder', model.q_net_target)}


def quantile_net(model: Any) -> Weights:
    """Maps quantiles of action values: theirs stand quantile by quantile, ours action by action."""

    def network(net: Any) -> Weights:
        named = mlp('encoder', net)
        for name in list(named)[-2:]:
            named[name] = named[name].unflatten(0, (net.n_quantiles, -1)).transpose(0, 1).flatten(0, 1)
        return named

    return {'model': network(model.quantile_net), 'target_model': network(model.quantile_net_target)}


def critics(critic: Any) -> Weights:
    """Maps Q-critics."""
    each = (mlp(f'critic.nets.{i}', net) for i, net in enumerate(critic.q_networks))
    return {name: value for named in each for name, value in named.items()}


def deterministic(model: Any) -> Weights:
    """Maps a deterministic actor and its critics."""
    return {
        'model': mlp('actor', model.actor.mu) | critics(model.critic),
        'target_model': mlp('actor', model.actor_target.mu) | critics(model.critic_target),
    }


def gaussian(model: Any) -> Weights:
    """Maps a Gaussian actor, whose last layer gives means and standard deviations, its critics and its temperature."""
    heads = model.actor.mu, model.actor.log_std
    head = {name: torch.cat([getattr(part, name) for part in heads]) for name in ('weight', 'bias')}
    named = mlp('actor', model.actor.latent_pi, SimpleNamespace(**head)) | critics(model.critic)
    target = {'target_model': critics(model.critic_target)} if hasattr(model, 'critic_target') else {}
    return {'model': named, 'log_alpha': model.log_ent_coef[0], **target}


def smaller_loss(factor: float) -> Adjust:
    """Returns what makes SAC equal whose loss of the critics is ours divided by a factor.

    Adam's steps do not depend on it but for its epsilon. The other epsilon, within the logarithm of a density, is 0 here.
    """

    def adjust(model: Any, patch: pytest.MonkeyPatch) -> None:
        model.critic.optimizer.param_groups[0]['eps'] /= factor
        model.actor.action_dist.epsilon = 0.0

    return adjust


def crossq(model: Any, patch: pytest.MonkeyPatch) -> None:
    """Lets their batch norm divide squared distances by the number of rows, as the paper's does, not by one less."""
    smaller_loss(2.0)(model, patch)
    patch.setattr(torch.Tensor, 'var', lambda rows, dim: torch.var(rows, dim, correction=0))


PPO = Pair(
    row='`ppo`',
    peer='stable_baselines3:PPO',
    actions=CLASSES,
    weights=actor_critic,
    losses={
        'train/value_loss': ('value_loss', 1.0),
        'train/entropy_loss': ('entropy', -1.0),
        'train/policy_gradient_loss': ('policy_loss', 1.0),
        'train/clip_fraction': ('clip_fraction', 1.0),
    },
    ours={
        'learn.advantage_ddof': 1,
        'learn.entropy_weight': 0.0,
        'learn.epoch_per_collect': 10,
        'learn.batch_size': 64,
    },
    theirs={},
    sizes={'collect.discount_factor': GAMMA, 'model.encoder_hidden_size_list': [8, 8]},
    their_sizes={'gamma': GAMMA, 'policy_kwargs': {'net_arch': [8, 8]}, 'n_steps': 48},
    steps=3 * 48 * ENVS,
)
A2C = dataclasses.replace(
    PPO,
    row='`a2c`',
    peer='stable_baselines3:A2C',
    losses={name: PPO.losses[name] for name in ('train/value_loss', 'train/entropy_loss')},
    ours={},
)
RECURRENT = dataclasses.replace(
    PPO,
    row='`ppo` with a core',
    peer='sb3_contrib:RecurrentPPO',
    network='MlpLstmPolicy',
    weights=recurrent_actor_critic,
    ours=PPO.ours | {'model.core': 'lstm', 'model.encoder_hidden_size_list': [], 'learn.batch_size': 128},
    theirs={'policy_kwargs': {'net_arch': [], 'lstm_hidden_size': 64}},
    sizes={'collect.discount_factor': GAMMA},
    their_sizes={'gamma': GAMMA},
    steps=2 * 128 * ENVS,
)
DQN = Pair(
    row='`dqn`',
    peer='stable_baselines3:DQN',
    actions=CLASSES,
    weights=q_net,
    losses={'train/loss': ('total_loss', 1.0)},
    ours={
        'double': False,
        'model.dueling': False,
        'learn.kappa': 1.0,
        'learn.grad_clip_norm': 0.2,
        'learn.learning_rate': 1e-2,
        'learn.target_update_freq': 4,
    },
    theirs={
        'max_grad_norm': 0.2,
        'learning_rate': 1e-2,
        'target_update_interval': 8,
        'train_freq': 4,
        'gradient_steps': 2,
    },
    sizes={'discount_factor': GAMMA, 'model.encoder_hidden_size_list': [8, 8]},
    their_sizes={
        'gamma': GAMMA,
        'policy_kwargs': {'net_arch': [8, 8]},
        'batch_size': 32,
        'buffer_size': 1000,
        'learning_starts': 20,
    },
    steps=72,
)
QRDQN = dataclasses.replace(
    DQN,
    row='`qrdqn`',
    peer='sb3_contrib:QRDQN',
    weights=quantile_net,
    ours={
        'double': False,
        'model.dueling': False,
        'model.num_quantiles': 200,
        'learn.adam_eps': 0.01 / 32,
        'learn.learning_rate': 3e-3,
        'learn.target_update_freq': 4,
    },
    theirs={
        'batch_size': 32,
        'learning_rate': 3e-3,
        'target_update_interval': 8,
        'train_freq': 4,
        'gradient_steps': 2,
    },
)
DDPG = dataclasses.replace(
    DQN,
    row='`ddpg`',
    peer='stable_baselines3:DDPG',
    actions=BOX,
    weights=deterministic,
    losses={'train/critic_loss': ('critic_loss', 1.0), 'train/actor_loss': ('actor_loss', 1.0)},
    ours={},
    theirs={},
    their_sizes=DQN.their_sizes | {'train_freq': 6, 'gradient_steps': 6},
)
TD3 = dataclasses.replace(DDPG, row='`td3`', peer='stable_baselines3:TD3', counted=1)
SAC = dataclasses.replace(
    DDPG,
    row='`sac`',
    peer='stable_baselines3:SAC',
    weights=gaussian,
    losses=DDPG.losses | {'train/critic_loss': ('critic_loss', 2.0), 'train/ent_coef': ('alpha', 1.0)},
    adjust=smaller_loss(2.0),
    draws_next_last=True,
)
TQC = dataclasses.replace(
    SAC,
    row='`tqc`',
    peer='sb3_contrib:TQC',
    losses=SAC.losses | {'train/critic_loss': ('critic_loss', 50.0)},
    adjust=smaller_loss(50.0),
)
CROSSQ = dataclasses.replace(
    SAC,
    row='`crossq`',
    peer='sb3_contrib:CrossQ',
    losses=DDPG.losses | {'train/critic_loss': ('critic_loss', 2.0)},
    adjust=crossq,
    counted=1,
    draws_next_last=False,
)


OTHERS = {
    'learn.entropy_weight': ('ent_coef', 0.02),
    'learn.value_weight': ('vf_coef', 0.4),
    'learn.grad_clip_norm': ('max_grad_norm', 0.3),
    'learn.learning_rate': ('learning_rate', 3e-3),
    'collect.gae_lambda': ('gae_lambda', 0.8),
}
"""Options that mean the same, to their names in the other library, and values that are no default."""


def of_numbers(pair: Pair) -> Pair:
    """Returns a pair of continuous actions, and with other values of options that mean the same."""
    return dataclasses.replace(
        pair,
        variant=' of numbers',
        actions=UNIT_BOX,
        ours={**pair.ours, **{name: value for name, (_, value) in OTHERS.items()}},
        theirs={**pair.theirs, **dict(OTHERS.values())},
    )


PAIRS = [
    PPO,
    dataclasses.replace(
        PPO,
        row='`ppo` with a mask',
        peer='sb3_contrib:MaskablePPO',
        actions=spaces.MultiDiscrete([3, 4]),
        has_mask=True,
    ),
    RECURRENT,
    A2C,
    *map(of_numbers, (PPO, A2C)),
    DQN,
    QRDQN,
    DDPG,
    TD3,
    SAC,
    TQC,
    CROSSQ,
]
