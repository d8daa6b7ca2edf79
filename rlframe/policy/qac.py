"""QACPolicy: the common base of policies with an actor and Q-critics that learn from a replay buffer, and their options."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from easydict import EasyDict

from rlframe.data.faces import Metrics
from rlframe.data.timestep import Array, Batch, IntArray, TimeStep
from rlframe.errors import ConfigError
from rlframe.policy.base_policy import CollectConfig, Policy
from rlframe.policy.parts.actions import ActionBounds, ExplorationNoise
from rlframe.policy.parts.memory import (
    BURN_IN,
    PRIORITY_ETA,
    MemoryModel,
    priority_of_sequences,
    remembered,
)
from rlframe.policy.parts.optim import Optimizer
from rlframe.policy.parts.options import (
    UPDATE_PER_COLLECT,
    Schedule,
    check_widths,
    grad_clip_norm,
    learning_rate,
    refused,
    schedule_of,
)
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.td import INPUTS, Targets, TDConfig, TDLearn, check_priority
from rlframe.utils.field import option
from rlframe.utils.lazy import torch
from rlframe.utils.schema import array, check_state


class QACModel(MemoryModel):
    """Section ``model`` of every actor-critic with Q-functions."""

    encoder_hidden_size_list: list[int] = option(
        [256, 256], unit='units', doc='widths of the hidden layers of actor and critics', check=check_widths
    )
    twin_critic: bool = option(True, doc='whether to use two critics')


class QACLearn(TDLearn):
    """Section ``learn`` of every actor-critic with Q-functions."""

    update_per_collect: int = option(UPDATE_PER_COLLECT.having(8))
    batch_size: int = option(
        256,
        range='[1, inf)',
        unit='transitions, or sequences with a core',
        doc='size of the batch of one update',
        may_change=True,
    )
    burn_in: int = option(BURN_IN)
    learning_rate_actor: Schedule = option(learning_rate(3e-4, 'Adam for the actor'))
    learning_rate_critic: Schedule = option(learning_rate(3e-4, 'Adam for the critics'))
    target_theta: float = option(
        0.005,
        range='(0, 1]',
        doc='share of a soft update of the target networks, whenever the actor (or what target_follows names) is updated',
        may_change=True,
    )
    actor_update_freq: int = option(
        1,
        range='[1, inf)',
        unit='train iterations',
        doc='interval between two updates of the actor',
        may_change=True,
    )
    grad_clip_norm: float | None = option(grad_clip_norm('the gradient of the actor, and of the critics'))


class ContinuousModel(QACModel):
    """Section ``model`` of actor-critics for continuous actions."""

    n_critic: int | None = option(
        None, range='[1, inf)', unit='critics', doc='number of critics; None: 2, or 1 without twin_critic'
    )
    norm: Literal[None, 'batch', 'layer'] = option(
        None,
        doc="norm of hidden layers: 'batch' (of actor and critics, as in CrossQ) or 'layer' (of critics, as in DroQ)",
    )
    dropout: float = option(
        0.0, range='[0, 1)', doc='probability of dropping a hidden unit of a critic in training'
    )
    weight_norm: bool = option(
        False,
        doc='whether the weights of each hidden unit in front of a norm have length 1 after each update, so that they do not grow',
    )
    residual_blocks: int = option(
        0,
        range='[0, inf)',
        unit='blocks',
        doc='residual blocks of actor and critics, as wide as the last hidden layer, behind it; each has a layer norm',
    )


class ContinuousLearn(QACLearn):
    """Section ``learn`` of actor-critics for continuous actions."""

    target_network: bool = option(
        True, doc='whether targets come from slow copies of the networks; False: from the networks themselves'
    )
    adam_beta1: float = option(
        0.9,
        range='[0, 1)',
        doc='decay of the mean of gradients in Adam, of actor and critics',
        may_change=True,
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


class QACPolicy(Policy):
    """Body of policies with an actor and Q-critics.

    The actor is deterministic, as that of DDPG and TD3, with noise on its actions and on those of its target network. A
    subclass with another kind of actor defines it (``model_kwargs``), the losses (``critic_loss``, ``actor_loss``) and how it
    acts (``explore``, ``best_action``). Internally, and in recorded rows, actions are float32 [n, A] in [-1, 1].

    With a core, it learns from replayed sequences that begin with the recurrent state that was acted on, and whose burn-in has
    no loss; networks are given ``Remembered`` in place of observations.

    Source:
        Sequences: Kapturowski et al., Recurrent Experience Replay in Distributed Reinforcement Learning (2019), section 3.
    """

    _cfg: QACConfig
    config: dict[str, Any] = dict(collect=dict(n_sample=8))
    supported_actions = 'Box'
    sequence_option = 'policy.other.replay_buffer.unroll_len'
    compiled_parts = 'critic_loss', 'actor_loss'
    inputs = INPUTS
    network_arguments: dict[str, str | None] = {'twin_critic': None, 'n_critic': None}
    actor_kind = 'deterministic'
    """Argument ``actor`` of the network."""
    target_parts: tuple[str, ...] = ('critic',)
    """Parts of the network that have a target network."""
    _noise: ExplorationNoise | None = None
    _actor: Callable[[Any], Any]
    """Maps observations to what the actor returns, while acting."""
    _follows_critic = False
    """Whether the target networks follow in every update, and not only in those of the actor."""

    def default_model(self) -> str:
        return 'recurrent_qac' if self._has_core else 'qac'

    def _acting_output(self, obs: Any) -> tuple[torch.Tensor, int]:
        output, space = self.model.actor(obs), self._action_space
        size = int(getattr(space, 'n', math.prod(space.shape)))
        return (output[0] if isinstance(output, tuple) else output), size

    def model_kwargs(self) -> dict[str, Any]:
        kwargs = super().model_kwargs()
        return kwargs | {'critic_num': critic_num(self._cfg.model), 'actor': self.actor_kind}

    @classmethod
    def check_config(cls, cfg: EasyDict) -> list[ConfigError]:
        errors = [*super().check_config(cfg), *check_priority(cfg)]
        return [*errors, *check_memory(cfg), *check_critics(cls, cfg), *check_blocks(cfg)]

    # learning

    def init_learn(self) -> None:
        cfg = self._cfg.learn
        parts = self.target_parts if cfg.get('target_network', True) else ()
        online = {name: getattr(self.model, name) for name in parts}
        copied = torch.nn.ModuleDict(copy.deepcopy(online))
        self.targets = Targets(self._cfg, copied, list(online.values()), self.device)
        self.target_model = self.targets.network
        self.learned.append(self.targets)
        self.optimizers['critic'] = Optimizer(self.model.critic, cfg, 'learning_rate_critic')
        self.optimizers['actor'] = Optimizer(self.model.actor, cfg, 'learning_rate_actor')
        self._target_noise, self._target_noise_clip = (
            cfg.get('target_noise', 0.0),
            cfg.get('target_noise_clip'),
        )
        self._target_theta, self._actor_update_freq = cfg.target_theta, cfg.actor_update_freq
        self._init_switches()

    def _init_switches(self) -> None:
        """Reads what the switches of the critics change in an update."""
        from rlframe.model.core import BatchRenorm

        model = self._cfg.model
        is_batch, drops = model.get('norm') == 'batch', bool(model.get('dropout'))
        self._norms, self._target_norms = (
            [part for part in network.modules() if isinstance(part, BatchRenorm)]
            for network in (self.model, self.target_model)
        )
        self._has_target = bool(self.target_model)
        self._sees_both = is_batch or not self._has_target
        self._next_actor = self.model.actor
        if 'actor' in self.target_model:
            self._next_actor = self.target_model['actor']
        self._mode = {'is_training': True} if is_batch or drops else {}
        self._actor_mode = {'is_training': True} if is_batch else {}
        # while the actor learns, the critics drop units, but have the norm of evaluation
        self._judging = {'is_training': True} if drops and not is_batch else {}

    def _next_action(self, rows: Rows) -> torch.Tensor:
        """Returns the actions in the next states, float32 [B, A]."""
        action, clip = self._next_actor(rows['next_obs']), self._target_noise_clip
        if self._target_noise:
            action = (action + (rows['next_noise'] * self._target_noise).clamp_(-clip, clip)).clamp_(-1, 1)
        return action

    def _values(self, rows: Rows, next_action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns each critic's value of the actions taken and, without gradients, of the next ones.

        With batch norm, or without target networks, each network values both in one pass, so that both are normalised
        alike.

        Args:
            rows: What the update reads.
            next_action: Actions in the next states, float32 [B, A].

        Returns:
            float32 [critics, B] twice, or with a last axis of what describes a return.
        """
        obs, next_obs, action = rows['obs'], rows['next_obs'], rows['action']
        if not self._sees_both:
            value = self.model.critic(obs, action, **self._mode)
            with torch.no_grad():
                return value, self.target_model['critic'](next_obs, next_action, **self._mode)
        both = joined(obs, next_obs), torch.cat([action, next_action])
        value, next_value = self.model.critic(*both, **self._mode).chunk(2, 1)
        if self._has_target:
            with torch.no_grad():
                next_value = self.target_model['critic'](*both, **self._mode).chunk(2, 1)[1]
        return value, next_value.detach()

    def actor_loss(self, rows: Rows) -> tuple[torch.Tensor, Metrics]:
        """Returns the loss of the actor, a number, and the values to log; called in every ``actor_update_freq``-th update."""
        obs = rows['obs']
        action = self.model.actor(obs, **self._actor_mode)
        return -self.model.critic(obs, action, count=1, **self._judging).mean(), {}

    def forward_learn(self, data: Batch) -> Metrics:
        metrics = self.update_tensors(self.columns(data), self._is_turn)
        self.targets.updates += 1
        return metrics | self._optimizer_metrics()

    def columns(self, data: Batch) -> Rows:
        """Returns what an update reads, as tensors on the device: transitions, or with a core the steps of sequences."""
        if self._memory is None:
            rows, count = super().columns(data), len(data)
        else:
            rows = self._remembered(data)
            count = len(rows['reward'])
        size = count, math.prod(self.spec.action_space.shape or ())
        for name in self._noises():
            rows[name] = self.tensor(self.rng.standard_normal(size, np.float32))
        return rows

    def _remembered(self, data: Batch) -> Rows:
        """Returns the steps of sequences that are learned from, [K], each with the number of its sequence."""
        columns = 'action', 'reward', 'terminated'
        rows, sequence = remembered(data, self._cfg.learn.burn_in, columns, self.tensor)
        if self.targets.has_weights:
            rows['IS'] = self.tensor(np.asarray(data['IS'])[sequence])
        return rows | {'sequence': self.tensor(sequence)}

    def _noises(self) -> Sequence[str]:
        """Returns the names of the standard normal numbers that the next update needs, float32 [B, A] each."""
        return ('next_noise',) if self._target_noise else ()

    @property
    def _is_turn(self) -> bool:
        """Whether the next update also updates the actor."""
        return self.targets.updates % self._actor_update_freq == 0

    def critic_loss(self, rows: Rows) -> tuple[torch.Tensor, torch.Tensor, Metrics]:
        """Returns the loss of the critics, a number, the mean error of each transition, float32 [B], and the values to log.

        Called for each batch.
        """
        with torch.no_grad():
            next_action = self._next_action(rows)
        value, next_value = self._values(rows, next_action)
        with torch.no_grad():
            target = rows['reward'] + self.targets.discount(rows) * next_value.amin(0)  # [B]
        return self._critic_losses((target - value).square(), value, target, rows)

    def _critic_losses(
        self, losses: torch.Tensor, value: torch.Tensor, target: torch.Tensor, rows: Rows
    ) -> tuple[torch.Tensor, torch.Tensor, Metrics]:
        """Returns what ``critic_loss`` does.

        Args:
            losses: Of each critic and transition, float32 [critics, B].
            value: Each critic's value of the actions taken, float32 [critics, B].
            target: What it should be, float32 [B].
            rows: What the update reads.
        """
        if self.targets.has_weights:
            losses = losses * rows['IS']
        loss = losses.mean(1).sum()
        metrics = {
            'critic_loss': loss.detach(),
            'target_q_value': target.mean(),
            'q_value': value.detach().mean(),
        }
        return loss, (target - value.detach()).abs().mean(0), metrics

    def update_tensors(self, rows: Rows, is_turn: bool) -> Metrics:
        """Updates the critics, and actor and target networks if it is their turn; only reads and changes tensors."""
        critic_loss, error, metrics = self.critic_loss(rows)
        self.optimizers['critic'].step(critic_loss, critic_loss=critic_loss)
        self._update_norms()  # the actor is judged by what they are now
        total_loss = critic_loss.detach()
        if is_turn:
            actor_loss, variables = self.actor_loss(rows)
            self.optimizers['actor'].step(actor_loss, actor_loss=actor_loss)
            total_loss = total_loss + actor_loss.detach()
            metrics |= {'actor_loss': actor_loss.detach(), **variables}
            self._after_actor(metrics)
            self._update_norms()
        if is_turn or self._follows_critic:
            self.targets.follow(self._target_theta)
        return self.targets.with_priority(
            metrics | {'total_loss': total_loss}, self._priority_of(error, rows)
        )

    def _update_norms(self) -> None:
        """Lets the running statistics of batch norms follow the passes since the last call."""
        if self._norms:
            from rlframe.model.core import update_norms

            update_norms(self._norms)

    def _priority_of(self, error: torch.Tensor, rows: Rows) -> torch.Tensor:
        """Returns the priority of each sampled transition or sequence, float32 [B], from the TD errors of its steps."""
        if self._memory is None or not self.targets.has_priority:
            return error
        count = len(rows['obs'].unroll.state)
        return priority_of_sequences(error, rows['sequence'], count, self._cfg.priority_eta)

    def _after_actor(self, metrics: Metrics) -> None:
        """Updates the parts that depend on the actor, from the values logged for it."""

    def _optimizer_metrics(self) -> Metrics:
        metrics = self.optimizers['critic'].metrics()
        if 'skipped_share' in metrics:
            shares = [optimizer.metrics()['skipped_share'] for optimizer in self.optimizers.values()]
            metrics['skipped_share'] = torch.stack(shares).amax()
        return metrics

    # acting

    def init_collect(self) -> None:
        self.init_eval()
        size = math.prod(self._action_shape)
        self._noise = ExplorationNoise(size, self._cfg.collect.get('noise_correlation', 0.0), self.rng)

    def init_eval(self) -> None:
        self._bounds, self._action_shape = ActionBounds(self.spec), self.spec.action_space.shape or ()
        network: Any = self.model
        self._actor = self._step if self._has_core else network.actor

    def explore(self, obs: torch.Tensor, noise: torch.Tensor, **settings: Any) -> torch.Tensor:
        """Returns actions to collect with, float32 [n, A] in [-1, 1]; called by ``forward_collect`` for n observations.

        ``noise`` are standard normal numbers of that shape.
        """
        return self._actor(obs).add_(noise, alpha=settings.get('noise_sigma', 0.0)).clamp_(-1, 1)

    def _best_of(self, output: Any) -> torch.Tensor:
        """Returns the best actions by the output of the actor, [n, ...]."""
        action: torch.Tensor = output
        return action

    def best_action(self, obs: torch.Tensor) -> torch.Tensor:
        """Returns the actions that the actor thinks best, [n, ...]."""
        return self._best_of(self._actor(obs))

    def best_step(self, obs: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the best action, and the recurrent state after the step, [B, P, H], of a network with a core."""
        output, after = self.model.act(obs, state)
        return self._best_of(output), after

    def forward_collect(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        assert self._noise is not None
        noise = self.tensor(self._noise.draw(env_id))
        before = self._remember(env_id)
        with torch.inference_mode():
            return self._output(self.explore(self.tensor(obs), noise, **settings), before)

    def forward_greedy(self, obs: Array, env_id: IntArray) -> Batch:
        before = self._remember(env_id)
        with torch.inference_mode():
            return self._output(self.best_action(self.tensor(obs)), before)

    def forward_eval(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        self._remember(env_id, is_evaluation=True)
        with torch.inference_mode():
            return self._output(self.best_action(self.tensor(obs)), {})

    def _output(self, action: torch.Tensor, before: dict[str, Array]) -> Batch:
        """Returns actions in [-1, 1] both in the env's units and as the network output them, and the column ``state``."""
        unit = action.cpu().numpy()
        env_action = self._bounds.to_env(unit.reshape(len(unit), *self._action_shape))
        return Batch.unchecked({'action': env_action, 'unit_action': unit, **before}, len(unit))

    def process_transition(self, obs: Array, output: Batch, timestep: TimeStep) -> dict[str, Array]:
        rows = super().process_transition(obs, output, timestep)
        if self._memory is not None:
            rows['state'] = output['state']
        if 'unit_action' in output:
            return rows | {'action': output['unit_action']}
        action = self._bounds.to_unit(output['action'])  # drawn at random, by someone else
        return rows | {'action': action.reshape(len(action), -1)}

    def reset_collect(self, env_id: IntArray | None = None) -> None:
        super().reset_collect(env_id)
        if self._noise is not None:
            self._noise.reset(env_id)

    # settings and state

    def get_setting_collect(self, info: Mapping[str, Any]) -> dict[str, Any]:
        sigma = self._cfg.collect.get('noise_sigma')  # an option of policies with a deterministic actor
        return {} if sigma is None else {'noise_sigma': schedule_of(sigma)(info['envstep'])}

    def _monitor_vars(self) -> list[str]:
        return [*super()._monitor_vars(), 'critic_loss', 'actor_loss', 'q_value', 'target_q_value']

    def reset_targets(self) -> None:
        self.targets.copy()
        for norm in self._target_norms:
            norm.passes.zero_()  # target networks normalise by batches alone: their running statistics follow nothing

    def _acting_state(self) -> dict[str, Any]:
        noise = {} if self._noise is None else {'noise': self._noise.state_dict()}
        return super()._acting_state() | noise

    def _load_acting_state(self, state: Mapping[str, Any]) -> None:
        super()._load_acting_state(state)
        if self._noise is not None:
            check_state(state, {'noise': {'last': array('f', (None, None)), 'kept': array('f')}})
            self._noise.load_state_dict(state['noise'])


def joined(first: Any, second: Any) -> Any:
    """Returns two columns of observations one behind the other: tensors, dicts of them, or steps of the same sequences."""
    if isinstance(first, dict):
        return {name: joined(part, second[name]) for name, part in first.items()}
    if isinstance(first, torch.Tensor):
        return torch.cat([first, second])
    return first._replace(row=torch.cat([first.row, second.row]))


def critic_num(model: Mapping[str, Any]) -> int:
    """Returns the number of critics that a section ``model`` asks for."""
    return model.get('n_critic') or (2 if model['twin_critic'] else 1)


CRITIC_SWITCHES = {'norm': None, 'dropout': 0.0, 'weight_norm': False, 'residual_blocks': 0}
"""Switches of the layers of critics, and what they are if they are off."""


def check_critics(cls: type[QACPolicy], cfg: EasyDict) -> list[ConfigError]:
    """Refuses switches of critics that contradict each other, or the policy."""
    model, learn, errors = cfg.model, cfg.learn, []
    is_batch, has_unit_rows = model.get('norm') == 'batch', model.get('weight_norm', False)
    if (model.get('n_critic') or 1) > 1 and not model.twin_critic:
        errors.append(refused(cfg, 'model.n_critic', 'twin_critic=False is one critic', 'None or 1'))
    if is_batch and learn.target_network and 'actor' in cls.target_parts:
        message = (
            'batch norm needs one pass of this and the next state, and a target actor sees only the next one'
        )
        errors.append(refused(cfg, 'learn.target_network', message, 'False'))
    elif is_batch and learn.target_network and not has_unit_rows:
        message = 'batch norm needs one pass of this and the next state through the same critics'
        expected = 'False, as in CrossQ, or model.weight_norm=True, as in XQC'
        errors.append(refused(cfg, 'learn.target_network', message, expected))
    if is_batch and learn.batch_size == 1:
        message = 'a batch of one transition has no spread to normalise by'
        errors.append(refused(cfg, 'learn.batch_size', message, '2 or more'))
    if has_unit_rows and not model.norm and not model.residual_blocks:
        message = 'only behind a norm does the length of weights not matter'
        errors.append(refused(cfg, 'model.weight_norm', message, "False, or model.norm='batch' or 'layer'"))
    return errors


def check_blocks(cfg: EasyDict) -> list[ConfigError]:
    """Refuses residual blocks without a width, or beside other switches of hidden layers."""
    model, errors, instead = cfg.model, [], ', or model.residual_blocks=0'
    if not model.get('residual_blocks'):
        return []
    if not model['encoder_hidden_size_list']:
        message, expected = 'residual blocks are as wide as the last hidden layer', 'at least one width'
        errors.append(refused(cfg, 'model.encoder_hidden_size_list', message, expected + instead))
    message = 'residual blocks have layer norms of their own, and no other switch'
    for name, off in CRITIC_SWITCHES.items():
        if model[name] and name != 'residual_blocks':
            errors.append(refused(cfg, f'model.{name}', message, f'{off}{instead}'))
    return errors


def check_memory(cfg: EasyDict) -> list[ConfigError]:
    """Refuses what networks with a core do not have, and sums of several rewards in their sequences."""
    model, errors = cfg.model, []
    if model.get('core') is None:
        return []
    if cfg.nstep != 1:
        message = 'with a core, the target of a step of a sequence has one reward'
        errors.append(refused(cfg, 'nstep', message, '1'))
    message = f'networks with a core (model.core={model.core!r}) have none'
    for name, off in (CRITIC_SWITCHES | {'n_atom': None}).items():
        if model.get(name):
            errors.append(refused(cfg, f'model.{name}', message, f'{off}, or model.core=None'))
    return errors
