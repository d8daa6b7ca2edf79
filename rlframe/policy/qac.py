"""Actor-critics with Q-functions: their options, how they act, and what their updates share."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from easydict import EasyDict

from rlframe.data.timestep import Array, Batch, EnvSpec, FloatArray, IntArray, TimeStep
from rlframe.errors import ConfigError
from rlframe.policy.base_policy import Policy
from rlframe.policy.c51 import ATOMS
from rlframe.policy.dqn import INPUTS, TDConfig
from rlframe.policy.parts.actions import ExplorationNoise, HybridActions, choice_dtype
from rlframe.policy.parts.memory import BURN_IN, PRIORITY_ETA, MemoryModel, remembered
from rlframe.policy.parts.optim import Targets
from rlframe.policy.parts.options import (
    BATCH_SIZE,
    UPDATE_PER_COLLECT,
    Schedule,
    check_widths,
    grad_clip_norm,
    learning_rate,
    refused,
    schedule_of,
)
from rlframe.policy.parts.outputs import Output, Values
from rlframe.policy.parts.sections import CollectConfig, LearnConfig
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.parts.starting import DISCOUNTS, ZOO, Facts, SearchSpace, Settings
from rlframe.policy.update import Loss, Update
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class QACModel(MemoryModel):
    """Section ``model`` of every actor-critic with Q-functions."""

    encoder_hidden_size_list: list[int] = option(
        [256, 256], unit='units', doc='widths of the hidden layers of actor and critics', check=check_widths
    )
    twin_critic: bool = option(True, doc='whether to use two critics')


class QACLearn(LearnConfig):
    """Section ``learn`` of every actor-critic with Q-functions."""

    update_per_collect: int = option(UPDATE_PER_COLLECT.having(8))
    batch_size: int = option(BATCH_SIZE.having(256, unit='transitions, or sequences with a core'))
    burn_in: int = option(BURN_IN)
    learning_rate_actor: Schedule = option(learning_rate(3e-4, 'Adam for the actor'))
    learning_rate_critic: Schedule = option(learning_rate(3e-4, 'Adam for the critics'))
    target_theta: float = option(
        0.005, range='(0, 1]', doc='share of a soft update of the target networks', may_change=True
    )
    actor_update_freq: int = option(
        1,
        range='[1, inf)',
        unit='train iterations',
        doc='interval between two updates of the actor',
        may_change=True,
    )
    grad_clip_norm: float | None = option(grad_clip_norm('the gradient of the actor, and of the critics'))


def _without_blocks(policy: type[Any], cfg: Any) -> ConfigError | None:
    """Refuses residual blocks without a width, or beside a norm."""
    model = cfg.model
    if not model.residual_blocks:
        return None
    if model.norm is not None:
        return ConfigError('residual blocks have layer norms of their own', expected='0, or model.norm=None')
    for name in ('encoder_hidden_size_list', 'critic_hidden_size_list'):
        if model[name] == []:
            message = 'residual blocks are as wide as the last hidden layer, and there is none'
            return ConfigError(message, expected=f'0, or a width in model.{name}')
    return None


def _critics_of(policy: type[Any], cfg: Any) -> ConfigError | None:
    """Refuses a number of critics that contradicts ``twin_critic``."""
    if (cfg.model.n_critic or 1) == 1 or cfg.model.twin_critic:
        return None
    return ConfigError('twin_critic=False is one critic', expected='None or 1')


class ContinuousModel(QACModel):
    """Section ``model`` of actor-critics for continuous actions."""

    n_critic: int | None = option(
        None,
        range='[1, inf)',
        unit='critics',
        doc='number of critics; None: 2, or 1 without twin_critic',
        rule=_critics_of,
    )
    norm: Literal[None, 'layer'] = option(None, doc='norm of the hidden layers of critics')
    residual_blocks: int = option(
        0,
        range='[0, inf)',
        unit='blocks',
        doc='residual blocks of actor and critics, as wide as the last hidden layer, behind it; each has a layer norm',
        rule=_without_blocks,
    )


class ContinuousCollect(CollectConfig):
    """Section ``collect`` of actor-critics for continuous actions."""

    noise_correlation: float = option(
        0.0,
        range='[0, 1)',
        doc="correlation of an env step's exploration noise with that of the step before",
        may_change=True,
    )


class QACConfig(TDConfig):
    """Options of every actor-critic with Q-functions."""

    priority_eta: float = option(PRIORITY_ETA)
    model: QACModel
    learn: QACLearn


def critic_num(model: Mapping[str, Any]) -> int:
    """Returns the number of critics that a section ``model`` asks for."""
    return model.get('n_critic') or (2 if model['twin_critic'] else 1)


class QACUpdate(Update):
    """Body of updates of an actor and Q-critics.

    Its critics learn from every batch (``critic_loss``, with the error of each transition), and its actor from every
    ``actor_update_freq``-th (``actor_loss``).
    """

    losses = {'critic_loss': 'critic', 'actor_loss': 'actor'}
    inputs: tuple[str, ...] = INPUTS
    logged = (*Update.logged, 'critic_loss', 'actor_loss', 'q_value', 'target_q_value')
    targets: Targets
    target_parts: tuple[str, ...] = ('critic',)
    """Parts of the network that have a target network."""
    follows_actor = True
    """Whether target networks move only with the actor, not in every update."""

    def __init__(self, model: torch.nn.Module, cfg: Any, spec: EnvSpec) -> None:
        super().__init__(model, cfg, spec)
        from rlframe.data.composite import unit_size

        self.targets = Targets(cfg, model, self.device)
        self.action_size = unit_size(spec.action_space)
        """Numbers that the actor gives for an action."""

    def init_learn(self) -> None:
        super().init_learn()
        online = {name: getattr(self.model, name) for name in self.target_parts}
        self.targets.begin(torch.nn.ModuleDict(copy.deepcopy(online)), list(online.values()))

    @property
    def turn(self) -> bool:
        return self.updates % self.cfg.learn.actor_update_freq == 0

    def is_due(self, name: str, turn: bool) -> bool:
        return turn or name == 'critic_loss'

    def follow(self, turn: bool) -> None:
        if turn or not self.follows_actor:
            self.targets.follow(self.cfg.learn.target_theta)

    def noise(self, rng: np.random.Generator, count: int) -> Array:
        """Returns standard normal numbers for actions of a batch, float32 [B, A]."""
        return rng.standard_normal((count, self.action_size), np.float32)

    def returns(self, value: torch.Tensor) -> Output:
        """Returns what critics say of returns, given what they output."""
        return Values(value)

    def fitted(self, output: Output, target: torch.Tensor, rows: Rows) -> Loss:
        """Returns the loss of critics, by what each says of the returns of the actions taken, and the target of all."""
        fit = output.fit(target, self.targets.weight(rows))
        return Loss(fit.loss.sum(), fit.metrics(), (fit.wanted - fit.value).abs().mean(0))


class QACPolicy(Policy):
    """Body of policies with an actor and Q-critics.

    The actor is deterministic, as that of DDPG and TD3, with noise on its actions, or a tanh-Gaussian, as that of SAC. A
    subclass with another kind of actor says how it acts (``explore``, ``best_action``). Internally, and in recorded rows,
    actions are float32 [n, A] in [-1, 1].

    With a core, it learns from replayed sequences that begin with the recurrent state that was acted on, and whose burn-in has
    no loss; networks are given ``Remembered`` in place of observations.

    Source:
        Losses: the papers of its subclasses. Sequences: Kapturowski et al., Recurrent Experience Replay in Distributed
        Reinforcement Learning (2019), section 3.
    """

    _cfg: Any
    config: dict[str, Any] = dict(collect=dict(n_sample=8))
    default_network: str | tuple[str, str] = ('qac', 'recurrent_qac')
    supported_actions = 'Box'
    network_arguments = {**ATOMS, 'twin_critic': None, 'n_critic': None, 'num_quantiles': 'quantiles'}
    actor_kind = 'deterministic'
    """Argument ``actor`` of the network: 'deterministic', 'gaussian' or 'categorical'."""
    _noise: ExplorationNoise | None = None
    _hybrid: HybridActions | None = None
    toy: dict[str, Any] = dict(
        discount_factor=0.5,
        random_collect_size=64,
        learn=dict(batch_size=64, learning_rate_actor=3e-3, learning_rate_critic=3e-3, update_per_collect=8),
        collect=dict(n_sample=8),
    )
    search_space = SearchSpace(
        f'{ZOO}, learning rates up to 0.01 in place of 1',
        {
            'learn.learning_rate_actor': 'loguniform(1e-5,1e-2)',
            'learn.learning_rate_critic': 'loguniform(1e-5,1e-2)',
            'learn.batch_size': 'choice(16,32,64,128,256,512,1024,2048)',
            'learn.target_theta': 'choice(0.001,0.005,0.01,0.02,0.05,0.08)',
            'discount_factor': DISCOUNTS,
        },
    )

    @classmethod
    def starting(cls, facts: Facts) -> Settings:
        return dict(
            discount_factor=0.99,
            random_collect_size=1000,
            model=facts.encoder([64, 64] if facts.is_small else [256, 256]),
            learn=dict(
                update_per_collect=8, batch_size=256, learning_rate_actor=3e-4, learning_rate_critic=1e-3
            ),
            collect=dict(n_sample=8),
            other=dict(replay_buffer=dict(replay_buffer_size=facts.buffer_size)),
        )

    def _acting_output(self, obs: Any) -> tuple[torch.Tensor, int]:
        output = self.acted(obs)
        size = int(getattr(self._action_space, 'n', self.update.action_size))
        return (output[0] if isinstance(output, tuple) else output), size

    def model_kwargs(self) -> dict[str, Any]:
        own = {'critic_num': critic_num(self._cfg.model), 'actor': self.actor_kind}
        return super().model_kwargs() | own

    @classmethod
    def check_config(cls, cfg: EasyDict) -> list[ConfigError]:
        return [*super().check_config(cfg), *check_memory(cls, cfg)]

    def columns(self, data: Batch) -> Rows:
        """Returns what an update reads, as tensors on the device: transitions, or with a core the steps of sequences."""
        return super().columns(data) if self._memory is None else remembered(self, data)

    # acting

    def init_collect(self) -> None:
        self.init_eval()
        self._noise = ExplorationNoise(
            self.update.action_size, self._cfg.collect.get('noise_correlation', 0.0), self.rng
        )
        self.acting.parts['noise'] = self._noise

    def init_eval(self) -> None:
        if type(self._action_space).__name__ == 'Composite':
            self._hybrid = HybridActions(self._action_space)

    def acted(self, obs: torch.Tensor) -> Any:
        """Returns what the actor returns, with a core in the episodes that act."""
        return self.model.actor(obs) if self._memory is None else self._memory.act(obs)

    def explore(self, obs: torch.Tensor, noise: torch.Tensor, **settings: Any) -> torch.Tensor:
        """Returns actions to collect with, float32 [n, A] in [-1, 1]; called by ``forward_collect`` for n observations.

        ``noise`` are standard normal numbers of that shape.
        """
        output = self.acted(obs)
        if self.actor_kind == 'deterministic':
            action: torch.Tensor = output.add_(noise, alpha=settings.get('noise_sigma', 0.0)).clamp_(-1, 1)
            eps = settings.get('eps')
            if eps:
                is_random = self.tensor(self.rng.random((len(action), 1)) < eps)
                action = torch.where(is_random, torch.special.erf(noise / math.sqrt(2)), action)  # uniform
            return action
        mean, log_std = output
        return torch.addcmul(mean, log_std.exp(), noise).tanh_()

    def _best_of(self, output: Any) -> torch.Tensor:
        """Returns the best actions by the output of the actor, [n, ...]."""
        return output if self.actor_kind == 'deterministic' else output[0].tanh()

    def best_action(self, obs: torch.Tensor) -> torch.Tensor:
        """Returns the actions that the actor thinks best, [n, ...]."""
        return self._meant(self._best_of(self.acted(obs)), obs)

    def _meant(self, action: torch.Tensor, obs: Any) -> torch.Tensor:
        """Returns the actions that outputs of the actor mean: themselves, or a choice by its scores, and its parameters."""
        return action if self._hybrid is None else self._hybrid.of_scores(action, obs)

    def best_step(self, obs: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the best action, and the recurrent state after the step, [B, P, H], of a network with a core."""
        output, after = self.model.act(obs, state)
        return self._meant(self._best_of(output), obs), after

    def forward_collect(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        assert self._noise is not None
        noise = self.tensor(self._noise.draw(env_id))
        with torch.inference_mode():
            tensor = self.tensor(obs)
            unit = self.explore(tensor, noise, **settings)
            output = self._output(self._meant(unit, tensor))
            return output if self._hybrid is None else output.replace(unit_action=unit.cpu().numpy())

    def forward_greedy(self, obs: Array, env_id: IntArray) -> Batch:
        with torch.inference_mode():
            return self._output(self.best_action(self.tensor(obs)))

    def forward_eval(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        if not self._draws_in_eval:
            return self.forward_greedy(obs, env_id)
        noise = self._eval_rng.standard_normal((len(env_id), self.update.action_size), np.float32)
        with torch.inference_mode():
            tensor = self.tensor(obs)
            return self._output(self._meant(self.explore(tensor, self.tensor(noise)), tensor))

    def _output(self, action: torch.Tensor) -> Batch:
        """Returns actions as the env takes them; a Box also as the network output them."""
        array = action.cpu().numpy()
        own = {'unit_action': array} if self._hybrid is None else {}
        return self.actions.batch(array, **own)

    def process_transition(self, obs: Array, output: Batch, timestep: TimeStep) -> dict[str, Array]:
        rows = super().process_transition(obs, output, timestep)
        if 'unit_action' in output:
            return rows | {'action': output['unit_action']}
        action = self.actions.from_env(output['action'])  # not drawn by exploration
        return rows | {'action': action if self._hybrid is None else self._hybrid.as_scores(action)}

    def env_action(self, stored: Array) -> Array:
        if self._hybrid is not None:
            raise ConfigError('the actions in this replay buffer are scores of choices, not those of the env')
        return self.actions.to_env(stored)

    def reset_collect(self, env_id: IntArray | None = None) -> None:
        super().reset_collect(env_id)
        if self._noise is not None:
            self._noise.reset(env_id)

    # settings and state

    def get_setting_collect(self, info: Mapping[str, Any]) -> dict[str, Any]:
        # options of policies with a deterministic actor
        settings = {'noise_sigma': self._cfg.collect.get('noise_sigma'), 'eps': self._cfg.other.get('eps')}
        step = info['envstep']
        return {name: schedule_of(value)(step) for name, value in settings.items() if value is not None}


class CategoricalPolicy(QACPolicy):
    """Body of policies with Q-critics whose actor gives the logit of each choice; rows keep choices, counted from 0."""

    supported_actions = 'Discrete'
    supports_action_mask = True
    actor_kind = 'categorical'

    def init_collect(self) -> None:
        self._action_dtype = choice_dtype(self.spec)

    def _acting_output(self, obs: Any) -> tuple[torch.Tensor, int]:
        return self.model.actor(obs), self.distribution.size

    def _best_of(self, output: Any) -> torch.Tensor:
        return self.distribution.mode_tensor(output)

    def _logit(self, obs: Array) -> FloatArray:
        """Returns the logit of each action while acting, float32 [n, A]; forbidden ones have none to speak of."""
        with torch.inference_mode():
            tensor = self.tensor(obs)
            return self.masked(self.acted(tensor), tensor).cpu().numpy()

    def forward_collect(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        return self.actions.batch(self.distribution.sample(self._logit(obs), self.rng))

    def forward_greedy(self, obs: Array, env_id: IntArray) -> Batch:
        return self.actions.batch(self.distribution.mode(self._logit(obs)))

    def forward_eval(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        if not self._draws_in_eval:
            return self.forward_greedy(obs, env_id)
        return self.actions.batch(self.distribution.sample(self._logit(obs), self._eval_rng))

    def process_transition(self, obs: Array, output: Batch, timestep: TimeStep) -> dict[str, Array]:
        rows = Policy.process_transition(self, obs, output, timestep)
        action = self.actions.from_env(rows['action']).astype(self._action_dtype)
        return rows | {'action': action}


def check_memory(policy: type[QACPolicy], cfg: EasyDict) -> list[ConfigError]:
    """Refuses what networks with a core do not have."""
    model = cfg.model
    errors = []
    if model.get('core') is None:
        return []
    message = f'networks with a core (model.core={model.core!r}) have none'
    for name, none in (('norm', 'None'), ('residual_blocks', '0')):
        if model.get(name):
            errors.append(refused(cfg, f'model.{name}', message, f'{none}, or model.core=None'))
    if policy.layers:
        layers = ', '.join(policy.layers)
        message = f'critics of {policy.__name__} have layers that networks with a core do not have ({layers})'
        errors.append(refused(cfg, 'model.core', message, 'None'))
    return errors
