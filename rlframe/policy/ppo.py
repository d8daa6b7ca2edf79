"""PPO: generalised advantages, clipped ratios, several epochs over fresh data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
from easydict import EasyDict

from rlframe.data.faces import Metrics, TensorMode
from rlframe.data.returns import gae
from rlframe.data.timestep import Array, Batch, BoolArray, EnvSpec, FloatArray, IntArray, TimeStep
from rlframe.policy.base_policy import Policy
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.memory import UNROLL_LEN, MemoryModel, sequence_batches
from rlframe.policy.parts.normalize import RunningMoments
from rlframe.policy.parts.optim import ADAM_EPS, OPTIMIZER
from rlframe.policy.parts.options import (
    BATCH_SIZE,
    DISCOUNT_FACTOR,
    EPOCH_PER_COLLECT,
    Activation,
    Schedule,
    check_positive_schedule,
    check_schedule,
    check_widths,
    grad_clip_norm,
    learning_rate,
    schedule_of,
)
from rlframe.policy.parts.sections import CollectConfig, LearnConfig, PolicyConfig, StochasticEval
from rlframe.policy.parts.sequences import (
    Rows,
    apart_rows,
    begins_of,
    flat,
    real_samples,
    shuffled_batches,
    standardised,
    values_after,
)
from rlframe.policy.parts.starting import ZOO, Facts, SearchSpace, Settings
from rlframe.policy.parts.tensor_acting import ActorTensorActing
from rlframe.policy.update import Loss, Update
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch

DING_NETWORK: dict[str, Any] = {
    'model.encoder_hidden_size_list': [128, 128, 64],
    'model.activation': 'relu',
    'model.share_encoder': True,
    'learn.adam_eps': 1e-8,
}
"""DI-engine's defaults of actor-critics with one network."""


class PPOModel(MemoryModel):
    """Section ``model`` of PPO."""

    encoder_hidden_size_list: list[int] = option(
        [64, 64], unit='units', doc='widths of the hidden layers of actor and critic', check=check_widths
    )
    activation: Activation = option('tanh', doc='nonlinearity')
    share_encoder: Literal[False, True, 'images'] = option(
        'images',
        doc="layers that actor and critic share: True all hidden layers and the core; 'images' the convolutions, without a core;"
        ' False none',
    )
    log_std_init: float = option(
        0.0,
        range='[-20, 2]',
        doc='logarithm of the first standard deviation of continuous actions, in units of [-1, 1]',
    )


class PPOLearn(LearnConfig):
    """Section ``learn`` of PPO."""

    epoch_per_collect: int = option(EPOCH_PER_COLLECT)
    batch_size: int | None = option(
        BATCH_SIZE.having(256, doc='size of the batch of one update; None: all of the round')
    )
    unroll_len: int | None = option(UNROLL_LEN)
    learning_rate: Schedule = option(learning_rate(3e-4))
    clip_ratio: Schedule | None = option(
        0.2,
        range='(0, inf)',
        doc='clip range of the probability ratio around 1; a schedule over env steps; None: it is not clipped',
        check=check_positive_schedule,
        may_change=True,
    )
    value_clip: float | None = option(
        None,
        range='(0, inf)',
        unit='in units of the critic',
        doc='clip range of a value around its estimate at collection; None: values are not clipped',
        may_change=True,
    )
    target_kl: float | None = option(
        None,
        range='(0, inf)',
        unit='nats',
        doc='mean KL divergence of an epoch after which the round ends early; None: never',
        may_change=True,
    )
    advantage_norm: Literal['batch', 'round', None] = option(
        'batch', doc='rows over which advantages are normalised; None: they are not', may_change=True
    )
    advantage_ddof: Literal[0, 1] = option(
        0,
        doc='delta degrees of freedom of their standard deviation: 0 divides by N, 1 by N - 1',
        may_change=True,
    )
    value_norm: bool = option(
        False, doc='whether the critic learns returns in units of their running statistics'
    )
    value_weight: float = option(0.5, range='[0, inf)', doc='weight of the value loss', may_change=True)
    entropy_weight: Schedule = option(
        0.01,
        range='[0, inf)',
        doc='weight of the entropy bonus; a schedule over env steps',
        check=check_schedule,
        may_change=True,
    )
    grad_clip_norm: float | None = option(grad_clip_norm(default=0.5))
    optimizer: Literal['adam', 'rmsprop'] = option(OPTIMIZER)
    adam_eps: float = option(ADAM_EPS.having(1e-5))


class PPOCollect(CollectConfig):
    """Section ``collect`` of PPO."""

    discount_factor: float = option(DISCOUNT_FACTOR)
    gae_lambda: float = option(
        0.95, range='[0, 1]', doc='lambda of generalised advantage estimation, or of V-trace'
    )


class PPOConfig(PolicyConfig):
    """Options of PPO."""

    parameters_of_choice: bool = option(
        False,
        doc='whether actions of a Discrete(n) and a Tuple of n parts are parameterized: only the parameters of the chosen part'
        ' count (Masson et al. 2016)',
    )
    model: PPOModel
    learn: PPOLearn
    collect: PPOCollect
    eval: StochasticEval


class ActorUpdate(Update):
    """Body of updates of an actor that outputs the parameters of a distribution over actions."""

    def logit(self, obs: Any) -> torch.Tensor:
        """Returns the output of the actor for observations, [B, S]."""
        return self.masked(self.model.logit(obs), obs)

    def log_prob(self, obs: Any, action: torch.Tensor) -> torch.Tensor:
        """Returns the logarithms of the probabilities of actions, [B, ...], as rows keep them: float32 [B]."""
        return self.distribution.evaluate(self.logit(obs), action)[0]

    def of_agents(self, logit: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the log-probability of what each agent of a team did, and the entropy of what it could do, float32 [B, A]."""
        count = self.model.team.size
        log_prob, entropy = (
            part.T.unflatten(1, (count, -1)) for part in self.distribution.each(logit, action)
        )
        return log_prob.sum(2), entropy.sum(2)

    def standardised(self, column: torch.Tensor, ddof: int = 0) -> torch.Tensor:
        """Gives a column, [B], or each of several, [B, A], mean 0 and standard deviation 1 over the rows of all learners."""
        if self.ranks is None:
            found: torch.Tensor = standardised(column, ddof)
            return found
        each = column.reshape(len(column), -1).unbind(1)
        return torch.stack([self.ranks.standardised(part, ddof) for part in each], 1).view_as(column)


def clipped_loss(ratio: torch.Tensor, advantage: torch.Tensor, low: Any, high: Any) -> torch.Tensor:
    """Returns minus the advantages of actions, float32 [B], times ratios of their probabilities between two limits.

    Source:
        Schulman et al., Proximal Policy Optimization Algorithms (2017), eq. 7.
    """
    return -torch.min(ratio * advantage, ratio.clamp(low, high) * advantage).mean()


def metrics_of(ratio: torch.Tensor, log_ratio: torch.Tensor, is_clipped: torch.Tensor) -> Metrics:
    """Returns the values to log of ratios of probabilities, [B]."""
    with torch.no_grad():
        divergence = (ratio - 1 - log_ratio).mean()
        return {'approx_kl': divergence, 'clip_fraction': is_clipped.float().mean()}


class PPOUpdate(ActorUpdate):
    """The clipped objective, the loss of values and the bonus for entropy."""

    inputs: tuple[str, ...] = ('obs', 'action', 'log_prob', 'advantage', 'return_')
    logged = (*Update.logged, 'policy_loss', 'value_loss', 'entropy', 'approx_kl', 'clip_fraction')

    def __init__(self, model: torch.nn.Module, cfg: Any, spec: EnvSpec) -> None:
        super().__init__(model, cfg, spec)
        learn = cfg.learn
        self._normalises = learn.advantage_norm == 'batch'
        self._ddof = learn.advantage_ddof
        self.value_weight, self._value_clip = learn.value_weight, learn.value_clip
        # numbers that losses read, on the device
        numbers = torch.zeros(4, device=self.device).unbind()
        self._clip, self._low, self._high, self.entropy_weight = numbers
        self.set_envstep(0)

    def set_envstep(self, envstep: int) -> None:
        super().set_envstep(envstep)
        learn = self.cfg.learn
        clip = math.inf if learn.clip_ratio is None else schedule_of(learn.clip_ratio)(envstep)
        self._clip.fill_(clip)
        self._low.fill_(1 - clip)
        self._high.fill_(1 + clip)
        self.entropy_weight.fill_(schedule_of(learn.entropy_weight)(envstep))

    def loss(self, rows: Rows) -> Loss:
        """Returns the loss of the actor, that of the critic and the entropy, weighted and summed."""
        logit, value = self.outputs(rows)
        policy_loss, entropy, metrics = self.surrogate(logit, rows)
        value_loss = self.value_loss(value, rows)
        loss = policy_loss + self.value_weight * value_loss - self.entropy_weight * entropy
        parts = {'policy_loss': policy_loss, 'value_loss': value_loss, 'entropy': entropy}
        return Loss(loss, metrics, parts=parts)

    def outputs(self, rows: Rows) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the output of the actor, float32 [B, S], and values, float32 [B]."""
        logit, value = self.model(*(rows[name] for name in ('obs', 'unroll') if name in rows))
        return logit, value

    def surrogate(self, logit: torch.Tensor, rows: Rows) -> tuple[torch.Tensor, torch.Tensor, Metrics]:
        """Returns the loss of the actor, its mean entropy, and values to log, by its output [B, S]."""
        # probabilities of the actions taken
        log_prob, entropy = self.distribution.evaluate(self.masked(logit, rows['obs']), rows['action'])
        log_ratio = log_prob - rows['log_prob']
        ratio = log_ratio.exp()
        # advantages
        advantage = rows['advantage']
        if self._normalises:
            advantage = self.standardised(advantage, self._ddof)
        policy_loss, is_clipped = self.policy_loss(log_prob, ratio, advantage)
        return policy_loss, entropy.mean(), metrics_of(ratio, log_ratio, is_clipped)

    def normalised_round(self, columns: Rows) -> torch.Tensor:
        """Returns the advantages of a round with mean 0 and standard deviation 1."""
        normalised: torch.Tensor = standardised(columns['advantage'], self._ddof)
        return normalised

    def counted_values(self, column: torch.Tensor, rows: Rows) -> torch.Tensor:
        """Returns the values of a column that are learned, of any shape: a team leaves out those of absent agents."""
        return column

    def policy_loss(
        self, log_prob: torch.Tensor, ratio: torch.Tensor, advantage: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the loss of the actor, and which ratios are clipped, bool [B].

        ``log_prob`` is the log-probability of each action, ``ratio`` its probability divided by that at collection, and
        ``advantage`` its advantage, float32 [B] each.
        """
        is_clipped = (ratio - 1).abs() > self._clip
        return clipped_loss(ratio, advantage, self._low, self._high), is_clipped

    def value_loss(self, value: torch.Tensor, rows: Rows) -> torch.Tensor:
        """Returns the loss of the critic, whose values may be clipped around those at collection."""
        limit = self._value_clip
        if limit is None:
            return torch.nn.functional.mse_loss(value, rows['return_'])
        near = rows['value'] + (value - rows['value']).clamp(-limit, limit)
        return torch.max((value - rows['return_']).square(), (near - rows['return_']).square()).mean()


class ActorPolicy(Policy):
    """Body of policies that act by the distribution whose parameters an actor outputs, from fresh data."""

    _cfg: Any
    config: dict[str, Any] = dict(on_policy=True)
    supported_actions = 'Discrete, Box, MultiDiscrete, MultiBinary, Dict, Tuple'
    supports_action_mask = True

    @classmethod
    def check_spec(cls, spec: EnvSpec, cfg: EasyDict) -> None:
        super().check_spec(spec, cfg)
        if cfg.get('parameters_of_choice'):
            from rlframe.data.composite import choice_of

            choice_of(spec.action_space)

    def _acting_output(self, obs: Any) -> tuple[torch.Tensor, int]:
        return self.model.logit(obs), self.distribution.size + self.distribution.log_std_size

    def forward_collect(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        logit = self._logit(obs)
        return self._output(logit, self.distribution.sample(logit, self.rng))

    def action_prob(self, obs: Array, output: Batch, **settings: Any) -> FloatArray | None:
        logit, action = (torch.as_tensor(output[name]) for name in ('logit', 'action'))
        index = torch.as_tensor(self.actions.from_env(action.numpy()))
        prob: FloatArray = self.distribution.evaluate(logit, index)[0].exp().numpy()
        return prob

    def forward_greedy(self, obs: Array, env_id: IntArray) -> Batch:
        logit = self._logit(obs)
        return self._output(logit, self.distribution.mode(logit))

    def _output(self, logit: FloatArray, action: Array) -> Batch:
        """Returns actions as the env takes them, with the columns that the transition needs."""
        own = {} if self.actions.is_exact else {'unclipped': action}
        return self.actions.batch(action, logit=logit, **own)

    def forward_eval(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        logit = self._logit(obs)
        chosen = self.distribution
        action = chosen.sample(logit, self._eval_rng) if self._draws_in_eval else chosen.mode(logit)
        return self.actions.batch(action)

    def best_action(self, obs: torch.Tensor) -> torch.Tensor:
        """Returns the most probable action as the network means it, [B, ...], as a part of a torch graph."""
        return self.distribution.mode_tensor(self.model.logit(obs))

    def best_step(self, obs: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the same of a network with a core, and the recurrent state after the step, [B, P, H]."""
        output, after = self.model.act(obs, state)
        return self.distribution.mode_tensor(output), after

    def _logit(self, obs: Array) -> FloatArray:
        """Returns the actor's output for observations, float32 [n, S]."""
        with torch.inference_mode():
            tensor = self.tensor(obs)
            logit = self._memory.act(tensor) if self._memory is not None else self.model.logit(tensor)
            logit = self.masked(logit, tensor)
            return logit.cpu().numpy()

    def process_transition(self, obs: Array, output: Batch, timestep: TimeStep) -> dict[str, Array]:
        rows = super().process_transition(obs, output, timestep)
        is_exact = self.actions.is_exact
        action = self.actions.from_env(output['action']) if is_exact else output['unclipped']
        logit = {'logit': output['logit']} if 'logit' in output else {}
        return rows | logit | {'action': action}

    def _samples(self, block: Batch, apart: BoolArray, found: dict[str, Array]) -> Batch:
        """Returns the training samples of a round: the inputs of the update among its columns, and those that were found.

        ``apart``: see ``apart_rows``, bool [T, N].
        """
        if self._has_core:
            found = found | {'state': block['state'], 'begins': begins_of(apart)}
        return real_samples(block, self.update.inputs, found)

    def _minibatches(self, columns: Rows, data: Batch, size: int) -> Iterator[Rows]:
        """Divides the shuffled rows of a round, or its sequences if there is a core, into batches of ``size`` rows."""
        if self._has_core:
            return sequence_batches(self, columns, data, size)
        return shuffled_batches(columns, self.tensor(self.rng.permutation(len(data))), size)


@POLICY_REGISTRY.register('ppo')
class PPOPolicy(ActorPolicy):
    """Proximal policy optimisation with the clipped objective.

    Source:
        Schulman et al., Proximal Policy Optimization Algorithms (2017), eq. 7 and 9. Clipped values, normalised
        advantages: Engstrom et al., Implementation Matters in Deep Policy Gradients (2020), section 3. Normalised
        values: Andrychowicz et al., What Matters for On-Policy Deep Actor-Critic Methods? (2021), choice C66.
    """

    _cfg: PPOConfig
    config: dict[str, Any] = dict(collect=dict(n_sample=1024))
    default_network: str | tuple[str, str] = ('actor_critic', 'recurrent_actor_critic')
    update_class: type[Update] = PPOUpdate
    ding = DingNames(
        defaults={
            **DING_NETWORK,
            'learn.batch_size': 64,
            'learn.epoch_per_collect': 10,
            'learn.entropy_weight': 0.0,
            'learn.value_norm': True,
        }
    )
    toy: dict[str, Any] = dict(learn=dict(batch_size=64, learning_rate=3e-3), collect=dict(n_sample=128))
    solves = 'CartPole-v1', 40_000
    search_space = SearchSpace(
        f'{ZOO}; n_sample is its n_steps times 8 envs, numbers near 1 are drawn evenly',
        {
            'learn.learning_rate': 'loguniform(1e-5,2e-3)',
            'learn.batch_size': 'choice(32,64,128,256,512)',
            'learn.epoch_per_collect': 'choice(1,5,10,20)',
            'learn.clip_ratio': 'choice(0.1,0.2,0.3,0.4)',
            'learn.entropy_weight': 'loguniform(1e-8,0.1)',
            'learn.grad_clip_norm': 'uniform(0.3,2)',
            'collect.n_sample': 'choice(256,512,1024,2048,4096,8192,16384)',
            'collect.discount_factor': 'uniform(0.97,0.9999)',
            'collect.gae_lambda': 'uniform(0.9,0.9999)',
        },
    )

    @classmethod
    def starting(cls, facts: Facts) -> Settings:
        is_continuous = type(facts.spec.action_space).__name__ == 'Box'
        # with one-hot classes, learning about one says nothing about the next, and rounds of 1,024 learn to walk in circles
        bonus = 0.05 if facts.is_tabular else 0.01
        rounds = 2048 if is_continuous or facts.is_tabular else 1024
        pace = dict(epoch_per_collect=10, batch_size=64, learning_rate=3e-4)
        if facts.has_grid:  # convolutions are slower
            pace = dict(epoch_per_collect=4, batch_size=128, learning_rate=1e-3)
        return dict(
            normalize_obs=facts.has_numbers,
            model=facts.encoder([64, 64]),
            learn=dict(
                **pace,
                value_norm=True,  # for rewards of any size
                entropy_weight=0.0 if is_continuous else bonus,
            ),
            collect=dict(n_sample=rounds, discount_factor=0.99, gae_lambda=0.95),
            eval=dict(deterministic=not facts.has_grid),  # who sees only a part of a grid can get stuck
        )

    @cached_property
    def _returns(self) -> RunningMoments | None:
        """Statistics of returns, which define the critic's units; None if the critic uses the env's own."""
        return RunningMoments(dtype=np.float32) if self._cfg.learn.value_norm else None

    def forward_learn(self, data: Batch) -> Iterator[Callable[[], Metrics]]:
        yield from self.epochs(self.columns(data), data)

    def epochs(self, columns: Rows, data: Batch) -> Iterator[Callable[[], Metrics]]:
        """Yields the updates of all epochs by the inputs of a round, until ``target_kl``."""
        learn = self._cfg.learn
        for _ in range(learn.epoch_per_collect):
            divergences: list[torch.Tensor] = []

            def update(rows: Rows, found: list[torch.Tensor] = divergences) -> Metrics:
                metrics = self.train_step(rows)
                found.append(metrics['approx_kl'])
                return metrics

            for rows in self._minibatches(columns, data, learn.batch_size or len(data)):
                yield partial(update, rows)
            # only with a limit it waits for the device
            if learn.target_kl is not None and torch.stack(divergences).mean() > learn.target_kl:
                return

    def columns(self, data: Batch) -> Rows:
        """Returns the inputs of a round's updates, as tensors [M, ...]."""
        cfg = self._cfg.learn
        columns = super().columns(data)
        columns |= self.advantages(data)
        if self._returns is not None:
            counted = self.update.counted_values(columns['return_'], columns)
            self._returns.update(counted.cpu().numpy().reshape(-1))
        columns['return_'] = self._in_critic_units(columns['return_'])
        value = columns.pop('value')
        if cfg.value_clip is not None:
            columns['value'] = self._in_critic_units(value)
        if cfg.advantage_norm == 'round':
            columns['advantage'] = self.update.normalised_round(columns)
        return columns

    def advantages(self, data: Batch) -> Rows:
        """Returns advantages, returns and values of the rows of a round, in the env's units, float32 [M]."""
        advantage, return_ = self.tensor(data['advantage']), self.tensor(data['return_'])
        return {'advantage': advantage, 'return_': return_, 'value': return_ - advantage}

    def _in_critic_units(self, value: torch.Tensor) -> torch.Tensor:
        if self._returns is None:
            return value
        scaled = (value.cpu().numpy() - self._returns.mean) / self._returns.std
        return self.tensor(scaled.astype(np.float32))

    def get_train_sample(self, block: Batch) -> Batch:
        apart = apart_rows(block)
        log_prob = self.distribution.log_prob(flat(block['logit']), flat(block['action']))
        found = {'log_prob': log_prob.reshape(apart.shape)} | self.sample_columns(block, apart)
        return self._samples(block, apart, found)

    def sample_columns(self, block: Batch, apart: BoolArray) -> dict[str, Array]:
        """Returns what an update reads beside the columns of every actor-critic, [T, N, ...].

        ``apart``: see ``apart_rows``, bool [T, N].
        """
        value, next_value = self._block_values(block, apart)
        over, ends = self.ends(block, apart)
        next_value[over] = 0.0
        cfg = self._cfg.collect
        advantage = gae(block['reward'], value, next_value, ends, cfg.discount_factor, cfg.gae_lambda)
        return {'advantage': advantage, 'return_': advantage + value}

    def _block_values(self, block: Batch, apart: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Returns the values of the obs of each row and of its next obs, float32 [T, N]."""
        if self._has_core:
            value, after = self._step_values(flat(block['obs']), flat(block['state']))
            behind = self._step_values(block['next_obs'][apart], after[apart.reshape(-1)])[0]
        else:
            value, behind = self._values(flat(block['obs'])), self._values(block['next_obs'][apart])
        return values_after(value, behind, apart)

    def _get_tensor_mode(self) -> TensorMode:
        """Returns the interface for a collector of tensors."""
        return ActorTensorActing(self).mode()

    def _values(self, obs: Array) -> FloatArray:
        """Returns the value of observations in the env's own units, float32 [n]."""
        with torch.inference_mode():
            return self._in_env_units(self.model.value(self.tensor(obs)))

    def _step_values(self, obs: Array, state: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Returns the values of observations seen in recurrent states, and the states after them, [n, ...]."""
        with torch.inference_mode():
            value, after = self.model.value_step(self.tensor(obs), self.tensor(state))
            return self._in_env_units(value), after.cpu().numpy()

    def _in_env_units(self, value: torch.Tensor) -> FloatArray:
        array: FloatArray = value.cpu().numpy().copy()
        if self._returns is None:
            return array
        return (array * self._returns.std + self._returns.mean).astype(np.float32)

    def _state_dict_model(self) -> dict[str, Any]:
        state = super()._state_dict_model()
        return state if self._returns is None else state | {'returns': self._returns.state_dict()}

    def _load_model(self, state: Mapping[str, Any]) -> None:
        super()._load_model(state)
        if self._returns is not None and 'returns' in state:
            self._returns.load_state_dict(state['returns'])


@POLICY_REGISTRY.register('a2c')
class A2CPolicy(PPOPolicy):
    """Advantage actor-critic, synchronous: PPO with a single update per round on all its data at once.

    The probability ratio of PPO's objective is then 1, so its gradient is that of the log-probability times the
    advantage, and nothing is clipped: ``clip_ratio`` has no effect unless there are more epochs or batches.

    Source:
        Mnih et al., Asynchronous Methods for Deep Reinforcement Learning (2016), algorithm S3, with synchronous
        workers. Huang et al., A2C is a special case of PPO (2022), section 3.
    """

    config = dict(
        learn=dict(
            epoch_per_collect=1,
            batch_size=None,
            learning_rate=7e-4,
            advantage_norm=None,
            entropy_weight=0.0,
            optimizer='rmsprop',
        ),
        collect=dict(n_sample=40, gae_lambda=1.0),
    )
    ding = DingNames(
        defaults={
            **DING_NETWORK,
            'learn.batch_size': 64,
            'learn.optimizer': 'adam',
            'learn.learning_rate': 1e-3,
            'learn.entropy_weight': 0.01,
            'collect.discount_factor': 0.9,
            'collect.gae_lambda': 0.95,
        }
    )
    toy = dict(learn=dict(batch_size=None, learning_rate=3e-3), collect=dict(n_sample=40))
    solves = 'CartPole-v1', 60_000
    search_space = PPOPolicy.search_space.without(
        'learn.batch_size', 'learn.epoch_per_collect', 'learn.clip_ratio'
    )

    @classmethod
    def starting(cls, facts: Facts) -> Settings:
        return dict(
            normalize_obs=facts.has_numbers,
            model=facts.encoder([64, 64]),
            learn=dict(value_norm=True),
            collect=dict(n_sample=40),
        )
