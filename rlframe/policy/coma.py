"""COMA: an actor-critic for a team, whose agents are credited with what their choices changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from rlframe.data.faces import Metrics
from rlframe.data.returns import gae
from rlframe.data.timestep import Array, Batch, BoolArray, EnvSpec, FloatArray
from rlframe.policy.parts.actions import Choices
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.memory import UNROLL_LEN
from rlframe.policy.parts.options import (
    BATCH_SIZE,
    DISCOUNT_FACTOR,
    EPOCH_PER_COLLECT,
    Schedule,
    grad_clip_norm,
    learning_rate,
)
from rlframe.policy.parts.sections import CollectConfig, LearnConfig, PolicyConfig, StochasticEval
from rlframe.policy.parts.sequences import Rows, apart_rows, flat, values_after
from rlframe.policy.parts.starting import Facts, Settings
from rlframe.policy.parts.team import AGENT_REWARDS, GROUPS, TeamModel
from rlframe.policy.ppo import ActorPolicy, ActorUpdate
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class COMALearn(LearnConfig):
    """Section ``learn`` of COMA."""

    epoch_per_collect: int = option(
        EPOCH_PER_COLLECT.having(
            4, doc='passes of the critic over the data of one round, before actors learn from it once'
        )
    )
    batch_size: int | None = option(
        BATCH_SIZE.having(256, doc='size of the batch of one update of the critic; None: all of the round')
    )
    unroll_len: int | None = option(UNROLL_LEN)
    learning_rate: Schedule = option(learning_rate(5e-4, 'the optimizers of actors and critic'))
    entropy_weight: float = option(0.01, range='[0, inf)', doc='weight of the entropy bonus', may_change=True)
    grad_clip_norm: float | None = option(grad_clip_norm(default=10.0))


class COMACollect(CollectConfig):
    """Section ``collect`` of COMA."""

    discount_factor: float = option(DISCOUNT_FACTOR)
    td_lambda: float = option(
        0.8, range='[0, 1]', doc='weight of later steps in a return: 0 bootstraps after one step'
    )


class COMAConfig(PolicyConfig):
    """Options of COMA."""

    groups: str | list[Any] = option(GROUPS)
    agent_rewards: bool = option(AGENT_REWARDS)
    model: TeamModel
    learn: COMALearn
    collect: COMACollect
    eval: StochasticEval


class COMAUpdate(ActorUpdate):
    """A critic of joint actions, and actors that learn by what their own choice added."""

    losses = {'critic_loss': 'critic', 'actor_loss': 'actor'}
    inputs = 'obs', 'action', 'return_'
    turn = False
    """Whether the next update is that of the actors."""

    def __init__(self, model: torch.nn.Module, cfg: Any, spec: EnvSpec) -> None:
        super().__init__(model, cfg, spec)
        self.choices = Choices(spec, self.device)

    def is_due(self, name: str, turn: bool) -> bool:
        return (name == 'actor_loss') == turn

    def expected(self, value: torch.Tensor, logit: torch.Tensor) -> torch.Tensor:
        """Returns the mean values of what agents may choose, while the others do what they did: [B, S] to [B, A]."""
        pairs = zip(self.choices.each(value), self.choices.each(logit), strict=True)
        return torch.stack([(own.softmax(1) * values).sum(1) for values, own in pairs], 1)

    def critic_loss(self, rows: Rows) -> Loss:
        """Returns the mean squared distance of the values of joint actions to lambda-returns."""
        obs, action = rows['obs'], rows['action']
        value = self.choices.taken(self.model.values(obs, action), action)
        present = self.model.present(obs, value)
        error = (rows['return_'] - value) * present
        loss = error.square().sum() / present.sum().clamp(min=1)
        return Loss(loss, {'value': value.detach().mean()})

    def actor_loss(self, rows: Rows) -> Loss:
        """Returns the policy gradient by counterfactual advantages, less the entropy bonus."""
        obs, action = rows['obs'], rows['action']
        logit = self.masked(self.model.logit(obs, rows.get('unroll')), obs)
        log_prob, entropy = self.of_agents(logit, action)
        # what was chosen, compared with what might have been
        with torch.no_grad():
            value = self.model.values(obs, action)
            advantage = self.choices.taken(value, action) - self.expected(value, logit)
        # means over agents that are present
        present = self.model.present(obs, log_prob)
        count = present.sum().clamp(min=1)
        policy_loss = -(log_prob * advantage * present).sum() / count
        entropy = (entropy * present).sum() / count
        metrics = {'policy_loss': policy_loss.detach(), 'entropy': entropy.detach()}
        return Loss(policy_loss - self.cfg.learn.entropy_weight * entropy, metrics)


@POLICY_REGISTRY.register('coma')
class COMAPolicy(ActorPolicy):
    """Counterfactual multi-agent policy gradients: a critic values joint actions, and each agent is compared with itself.

    The advantage of agent i is the value of the joint action less its mean over what i might have chosen, while the others did
    what they did: A_i(s, u) = Q(s, u) - sum over c of π_i(c | o_i) Q(s, (u_-i, c)). One pass of the critic gives the values of all
    choices of an agent. It learns lambda-returns, made once for a round by the critic of that time, which is the target network;
    at the end of a round, or at a time limit, they end with the value of a drawn joint action. With ``agent_rewards`` the critic
    values what the agent earns itself. Instead of a floor under
    probabilities there is a bonus for entropy.

    Source:
        Foerster et al., Counterfactual Multi-Agent Policy Gradients (2018), eq. 4 and algorithm 1.
    """

    _cfg: COMAConfig
    is_for_teams = True
    config: dict[str, Any] = dict(collect=dict(n_sample=1024))
    supported_actions = 'Discrete, MultiDiscrete'
    default_network = 'counterfactual_actor_critic'
    update_class = COMAUpdate
    ding = DingNames(
        options={
            'model.actor_hidden_size_list': 'model.encoder_hidden_size_list',
            'learn.discount_factor': 'collect.discount_factor',
            'learn.td_lambda': 'collect.td_lambda',
        },
        defaults={
            'model.core': 'gru',
        },
        unused={
            'agent_num': 'read from the spaces of the env',
            'model.agent_num': 'read from the spaces of the env',
            'learn.target_update_theta': 'returns are made by the critic as it is at the beginning of a round',
            'learn.policy_weight': 'the actors have an optimizer of their own',
            'learn.value_weight': 'the critic has an optimizer of its own',
            'other.eps': 'actions are drawn, and learn.entropy_weight keeps them apart',
        },
    )
    solves = 'CartPole-v1', 150_000
    toy = dict(
        learn=dict(batch_size=64, learning_rate=1e-2),
        collect=dict(n_sample=128),
    )

    @classmethod
    def starting(cls, facts: Facts) -> Settings:
        return dict(
            normalize_obs=facts.has_numbers,
            model=facts.encoder([64, 64]),
            learn=dict(learning_rate=1e-3),
        )

    def forward_learn(self, data: Batch) -> Iterator[Callable[[], Metrics]]:
        columns = self.columns(data)
        learn = self._cfg.learn
        # the critic
        self.update.turn = False
        for _ in range(learn.epoch_per_collect):
            for rows in self._minibatches(columns, data, learn.batch_size or len(data)):
                yield partial(self.train_step, rows)
        # the actors
        self.update.turn = True
        for rows in self._minibatches(columns, data, len(data)):
            yield partial(self.train_step, rows)

    def get_train_sample(self, block: Batch) -> Batch:
        apart = apart_rows(block)
        value, next_value = self._block_values(block, apart)
        reward = block['reward']
        over, ends = self.ends(block, apart)
        if not self.has_own_rewards:
            reward = np.broadcast_to(reward[:, :, None], value.shape)
        next_value[over] = 0.0
        cfg = self._cfg.collect
        # a lambda-return is the value plus the generalised advantage
        advantage = gae(reward, value, next_value, ends, cfg.discount_factor, cfg.td_lambda)
        return self._samples(block, apart, {'return_': advantage + value})

    def _block_values(self, block: Batch, apart: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Returns the values of the joint actions of each row and of the next one, by the critic's view of each agent, [T, N, A]."""
        value = self._values(flat(block['obs']), flat(block['action']))
        # what follows the last rows: actions are drawn
        obs = block['next_obs'][apart]
        with torch.inference_mode():
            tensor = self.tensor(obs)
            if self._has_core:
                # the states after these rows are those before what follows
                before = self.tensor(block['state'][apart])
                _, state = self.model.step(self.tensor(block['obs'][apart]), before)
                logit, _ = self.model.step(tensor, state)
            else:
                logit = self.model.logit(tensor)
            logit = self.masked(logit, tensor).cpu().numpy()
        behind = self._values(obs, self.distribution.sample(logit, self.rng))
        return values_after(value, behind, apart)

    def _values(self, obs: Array, action: Array) -> FloatArray:
        """Returns the value of each row's joint action, as the critic sees it from each agent that is present, float32 [n, A]."""
        with torch.inference_mode():
            action = self.tensor(action)
            tensor = self.tensor(obs)
            value = self.update.choices.taken(self.model.values(tensor, action), action)
            if self.has_own_rewards:
                return value.cpu().numpy()
            present = self.model.present(tensor, value)
            # what absent agents see was never learned from: the others' mean takes its place
            mean = (value * present).sum(1, keepdim=True) / present.sum(1, keepdim=True).clamp(min=1)
            known: torch.Tensor = torch.where(present.bool(), value, mean)
            return known.cpu().numpy()
