"""PPG: PPO with a network each for policy and value, which are trained in phases, so that they share features all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rlframe.data.faces import Metrics
from rlframe.data.timestep import Batch
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.options import EPOCH_PER_COLLECT
from rlframe.policy.parts.sequences import Rows, epochs_of
from rlframe.policy.ppo import PPOConfig, PPOLearn, PPOPolicy, PPOUpdate
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import ABSENT, option
from rlframe.utils.lazy import torch
from rlframe.utils.schema import COLUMN, dict_of, list_of, part_of


class PPGLearn(PPOLearn):
    """Section ``learn`` of PPG."""

    aux_freq: int = option(
        8, range='[1, inf)', unit='rounds', doc='length of a policy phase; an auxiliary phase follows'
    )
    aux_train_epoch: int = option(
        EPOCH_PER_COLLECT.having(6, doc='passes of an auxiliary phase over all rows of the policy phase')
    )
    aux_bc_weight: float = option(1.0, range='[0, inf)', doc='weight of behaviour cloning', may_change=True)


class PPGConfig(PPOConfig):
    """Options of PPG."""

    learn: PPGLearn


class PPGUpdate(PPOUpdate):
    """PPO's losses, each for a network of its own, and the joint loss of the auxiliary phase."""

    losses = {'actor_loss': 'policy', 'critic_loss': 'critic', 'joint_loss': 'policy'}
    turn = False
    """Whether the next update belongs to an auxiliary phase."""

    def is_due(self, name: str, turn: bool) -> bool:
        return name == 'critic_loss' or (name == 'joint_loss') == turn

    def actor_loss(self, rows: Rows) -> Loss:
        """Returns the clipped objective less the entropy bonus."""
        logit = self.model.logit(rows['obs'])
        policy_loss, entropy, metrics = self.surrogate(logit, rows)
        metrics |= {'policy_loss': policy_loss.detach(), 'entropy': entropy.detach()}
        return Loss(policy_loss - self.entropy_weight * entropy, metrics)

    def critic_loss(self, rows: Rows) -> Loss:
        """Returns the distance of values from returns, in both phases."""
        value_loss = self.value_loss(self.model.value(rows['obs']), rows)
        return Loss(self.value_weight * value_loss, {'value_loss': value_loss.detach()})

    def joint_loss(self, rows: Rows) -> Loss:
        """Returns the distance of the policy's own values from returns, and that from the policy before the phase."""
        logit, value = self.model.policy(rows['obs'])
        auxiliary = self.value_loss(value, rows)
        cloning = self.distribution.divergence(rows['logit'], self.masked(logit, rows['obs'])).mean()
        loss = self.value_weight * auxiliary + self.cfg.learn.aux_bc_weight * cloning
        return Loss(loss, {'auxiliary_loss': auxiliary.detach(), 'cloning_loss': cloning.detach()})


@POLICY_REGISTRY.register('ppg')
class PPGPolicy(PPOPolicy):
    """Phasic policy gradient: PPO whose policy and critic share no layers, so that neither disturbs the other.

    After ``aux_freq`` rounds, an auxiliary phase over their rows distils the returns R into the policy's features, through a
    value head of its own, while its actions stay what they were (β is ``aux_bc_weight``, c ``value_weight``):

        policy phase:     L_clip - c_e H              for the policy, c E[(V(s) - R)²] for the critic
        auxiliary phase:  c E[(V_π(s) - R)²] + β E[KL(π_old, π)] instead, and the critic as before

    Source:
        Cobbe et al., Phasic Policy Gradient (2021), algorithm 1 and section 2; one optimizer of the policy serves both phases.
    """

    _cfg: PPGConfig
    default_network = 'phasic_actor_critic'
    update_class = PPGUpdate
    config = dict(
        model=dict(core=ABSENT, core_hidden_size=ABSENT, share_encoder=ABSENT),
        learn=dict(epoch_per_collect=1, unroll_len=ABSENT, target_kl=ABSENT),
    )
    ding = DingNames(
        'ppg_offpolicy',
        options={'learn.actor_epoch_per_collect': 'learn.epoch_per_collect'},
        defaults={
            'model.encoder_hidden_size_list': [128, 128, 64],
            'model.activation': 'relu',
            'learn.adam_eps': 1e-8,
            'learn.batch_size': 64,
            'learn.learning_rate': 1e-3,
            'learn.advantage_norm': None,
            'learn.grad_clip_norm': None,
        },
        unused={
            'learn.critic_epoch_per_collect': 'policy and critic learn from the same batches (learn.epoch_per_collect)',
            'model.share_encoder': 'policy and critic share no layers',
        }
        | dict.fromkeys(['learn.epochs_aux', 'learn.beta_weight'], 'without effect in DI-engine as well'),
    )
    toy = PPOPolicy.toy | dict(learn=PPOPolicy.toy['learn'] | dict(aux_freq=2))
    solves = 'CartPole-v1', 60_000

    def init_learn(self) -> None:
        super().init_learn()
        self._rounds: list[Batch] = []  # of the running policy phase

    def forward_learn(self, data: Batch) -> Iterator[Callable[[], Metrics]]:
        learn = self._cfg.learn
        self._rounds.append(data)
        yield from self._phase(self.columns(data), learn.epoch_per_collect, False)
        if len(self._rounds) == learn.aux_freq:
            rounds = Batch.cat(self._rounds)
            self._rounds = []
            yield from self._phase(self.auxiliary_columns(rounds), learn.aux_train_epoch, True)

    def _phase(self, rows: Rows, epochs: int, is_auxiliary: bool) -> Iterator[Callable[[], Metrics]]:
        """Yields the updates of a phase by all rows, once an epoch."""
        for update in epochs_of(self, rows, epochs):
            self.update.turn = is_auxiliary
            yield update

    def auxiliary_columns(self, data: Batch) -> Rows:
        """Returns the inputs of an auxiliary phase, with the outputs of the policy before it, as tensors [M, ...]."""
        found = self.advantages(data)
        obs = self.tensor(data['obs'])
        with torch.no_grad():
            rows = {'obs': obs, 'logit': self.update.logit(obs)}
        return rows | {name: self._in_critic_units(found[name]) for name in ('return_', 'value')}

    def _state_dict_learn(self) -> dict[str, Any]:
        return super()._state_dict_learn() | {'rounds': [dict(rows.items()) for rows in self._rounds]}

    def _load_state_dict_learn(self, state: Mapping[str, Any]) -> None:
        super()._load_state_dict_learn(state)
        self._rounds = [Batch(rows) for rows in part_of(state, 'rounds', list_of(dict_of(COLUMN)))]
