"""PPO from a replay buffer: the rows of the last rounds, with the advantages that they had when they were collected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

from rlframe.data.faces import Metrics
from rlframe.data.timestep import Batch
from rlframe.errors import ConfigError
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.options import BATCH_SIZE, UPDATE_PER_COLLECT, refused
from rlframe.policy.parts.starting import ZOO
from rlframe.policy.ppo import DING_NETWORK, PPOConfig, PPOLearn, PPOPolicy
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import ABSENT, option


class PPOOffPolicyLearn(PPOLearn):
    """Section ``learn`` of PPO from a replay buffer."""

    update_per_collect: int = option(UPDATE_PER_COLLECT.having(64))
    batch_size: int = option(BATCH_SIZE)
    advantage_norm: Literal['batch', None] = option(
        'batch', doc='rows over which advantages are normalised; None: they are not', may_change=True
    )


class PPOOffPolicyConfig(PPOConfig):
    """Options of PPO from a replay buffer."""

    learn: PPOOffPolicyLearn


def check_actions(cfg: Any) -> list[ConfigError]:
    """Refuses random actions, whose advantages and probabilities the policy does not know."""
    if cfg.random_collect_size == 0:
        return []
    message = 'PPO weighs each action by its probability when it was taken, and a random one has none'
    return [refused(cfg, 'random_collect_size', message, '0')]


@POLICY_REGISTRY.register('ppo_offpolicy')
class PPOOffPolicy(PPOPolicy):
    """PPO whose batches are drawn from a replay buffer, with the loss of ``ppo``.

    Each round is stored with its log-probabilities, advantages and returns by the weights μ that collected it. Ratios are taken
    to those weights, so a row that was drawn often, or is old, is clipped once the policy has moved away from them:

        L = -E[min(r A, clip(r, 1 - ε, 1 + ε) A)] + c_v E[(V(s) - R)²] - c_e H,  r = π(a|s) / μ(a|s)

    With a replay buffer as large as a round, it is PPO with minibatches that are drawn independently of each other.

    Source:
        Schulman et al., Proximal Policy Optimization Algorithms (2017), eq. 7 and 9, with the policy that collected a row in
        place of the last one, as DI-engine's policy of that name.
    """

    _cfg: PPOOffPolicyConfig
    samples_rounds = True
    checks = (check_actions,)
    config = dict(
        on_policy=False,
        model=dict(core=ABSENT, core_hidden_size=ABSENT),
        learn=dict(epoch_per_collect=ABSENT, unroll_len=ABSENT, target_kl=ABSENT),
        other=dict(replay_buffer=dict(replay_buffer_size=2048)),
    )

    ding = DingNames(
        defaults={
            **DING_NETWORK,
            'learn.update_per_collect': 5,
            'learn.learning_rate': 1e-3,
            'learn.advantage_norm': None,
            'learn.value_norm': True,
            'other.replay_buffer.replay_buffer_size': 10_000,
        },
        unused={
            'priority': 'DI-engine refuses it as well',
            'priority_IS_weight': 'DI-engine refuses it as well',
            'learn.nstep': 'collect.gae_lambda sets lambda of generalised advantage estimation',
            'learn.nstep_return': 'returns are computed by collect.gae_lambda',
            'learn.weight_decay': 'without effect in DI-engine as well',
            'learn.epoch_per_collect': 'without effect in DI-engine as well',
        },
    )
    toy = PPOPolicy.toy | dict(
        learn=PPOPolicy.toy['learn'] | dict(update_per_collect=8),
        other=dict(replay_buffer=dict(replay_buffer_size=256)),
    )
    solves = 'CartPole-v1', 60_000
    search_space = PPOPolicy.search_space.without(
        'learn.epoch_per_collect', 'collect.n_sample', source=f'{ZOO}; updates in place of epochs'
    ).having({'learn.update_per_collect': 'choice(16,32,64,128,256)'})

    def forward_learn(self, data: Batch) -> Iterator[Callable[[], Metrics]]:
        yield partial(self.train_step, self.columns(data))
