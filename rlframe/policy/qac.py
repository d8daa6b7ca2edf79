"""QACPolicy: the common body of policies with an actor and Q-critics that learn from a replay buffer."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from easydict import EasyDict

from rlframe.data.faces import Metrics
from rlframe.data.timestep import Array, Batch, IntArray, TimeStep
from rlframe.errors import ConfigError
from rlframe.policy.base_policy import Policy
from rlframe.policy.c51 import ATOMS, project
from rlframe.policy.dqn import INPUTS
from rlframe.policy.parts.actions import ActionBounds, ExplorationNoise
from rlframe.policy.parts.entropy import EntropyWeight
from rlframe.policy.parts.memory import priority_of_sequences, remembered
from rlframe.policy.parts.optim import Optimizer, Targets
from rlframe.policy.parts.options import schedule_of
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.qac_options import (
    QACConfig,
    check_blocks,
    check_critics,
    check_memory,
    check_returns,
    critic_num,
)
from rlframe.policy.qrdqn import quantile_huber_loss
from rlframe.utils.lazy import torch
from rlframe.utils.schema import array, check_state


class QACPolicy(Policy):
    """Body of policies with an actor and Q-critics.

    The actor is deterministic, as that of DDPG and TD3, with noise on its actions and on those of its target network, or a
    tanh-Gaussian that is rewarded for entropy, as that of SAC. A subclass with another kind of actor defines its losses
    (``critic_loss``, ``actor_loss``) and how it acts (``explore``, ``best_action``). Internally, and in recorded rows, actions
    are float32 [n, A] in [-1, 1].

    With a core, it learns from replayed sequences that begin with the recurrent state that was acted on, and whose burn-in has
    no loss; networks are given ``Remembered`` in place of observations.

    Source:
        Losses: the papers of its subclasses. Sequences: Kapturowski et al., Recurrent Experience Replay in Distributed
        Reinforcement Learning (2019), section 3.
    """

    _cfg: QACConfig
    config: dict[str, Any] = dict(collect=dict(n_sample=8))
    supported_actions = 'Box'
    compiled_parts = 'critic_loss', 'actor_loss'
    inputs = INPUTS
    network_arguments = ATOMS | {'twin_critic': None, 'n_critic': None, 'num_quantiles': 'quantiles'}
    actor_kind = 'deterministic'
    """Argument ``actor`` of the network: 'deterministic', 'gaussian' or 'categorical'."""
    target_parts: tuple[str, ...] = ('critic',)
    """Parts of the network that have a target network."""
    _noise: ExplorationNoise | None = None
    _actor: Callable[[Any], Any]
    """Maps observations to what the actor returns, while acting."""
    _entropy: EntropyWeight | None = None
    """The weight of the entropy of an actor that is not deterministic."""

    def default_model(self) -> str:
        return 'recurrent_qac' if self._has_core else 'qac'

    def _acting_output(self, obs: Any) -> tuple[torch.Tensor, int]:
        output, space = self.model.actor(obs), self._action_space
        size = int(getattr(space, 'n', math.prod(space.shape)))
        return (output[0] if isinstance(output, tuple) else output), size

    def model_kwargs(self) -> dict[str, Any]:
        return super().model_kwargs() | {'critic_num': critic_num(self._cfg.model), 'actor': self.actor_kind}

    @classmethod
    def check_config(cls, cfg: EasyDict) -> list[ConfigError]:
        errors = [*super().check_config(cfg), *check_memory(cfg), *check_critics(cls.target_parts, cfg)]
        return [*errors, *check_blocks(cfg), *check_returns(cfg)]

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
        self._init_returns()
        if self.actor_kind != 'deterministic':
            self._init_entropy()

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

    def _init_returns(self) -> None:
        """Reads what describes a return, and which critics say what it is."""
        model: Any = self._cfg.model
        learn = self._cfg.learn
        self._count, self._quantiles = critic_num(model), model.get('num_quantiles', 1)
        self._subset, self._dropped = learn.get('target_critics'), learn.get('dropped_quantiles', 0)
        self._raises_mean = learn.get('actor_value') == 'mean'
        # whether the target networks follow in every update, and not only in those of the actor
        self._follows_critic = learn.get('target_follows') == 'critic'
        self._support: torch.Tensor | None = None
        if model.get('n_atom') is not None:
            self._support = torch.linspace(model.v_min, model.v_max, model.n_atom, device=self.device)  # [M]

    def _init_entropy(self) -> None:
        from rlframe.model.qac import squashed_gaussian

        self._squashed = squashed_gaussian
        self._entropy = EntropyWeight(self._cfg.learn, self._target_entropy(), self.device)
        self._alpha = self._entropy.value
        self.learned.append(self._entropy)
        if self._entropy.is_learned:
            self.optimizers['alpha'] = self._entropy.optimizer

    def _target_entropy(self) -> float:
        """Returns the entropy to aim at, in nats, if no option says it."""
        return -float(math.prod(self.spec.action_space.shape or ()))

    def _draw(self, obs: Any, noise: torch.Tensor, **mode: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns actions of the actor, [B, A], and their log densities, [B]; ``mode``: whether it is in training."""
        mean, log_std = self.model.actor(obs, **mode)
        return self._squashed(mean, log_std, noise)

    def _next_action(self, rows: Rows) -> tuple[torch.Tensor, Any]:
        """Returns the actions in the next states, float32 [B, A], and the weighted log density of each, float32 [B], or 0."""
        if self._entropy is not None:
            action, log_prob = self._draw(rows['next_obs'], rows['next_noise'])
            return action, self._alpha * log_prob
        action, clip = self._next_actor(rows['next_obs']), self._target_noise_clip
        if self._target_noise:
            action = (action + (rows['next_noise'] * self._target_noise).clamp_(-clip, clip)).clamp_(-1, 1)
        return action, 0.0

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
        if self._entropy is None:
            action = self.model.actor(obs, **self._actor_mode)
            return -self.model.critic(obs, action, count=1, **self._judging).mean(), {}
        action, log_prob = self._draw(obs, rows['noise'], **self._actor_mode)
        value = self.model.critic(obs, action, **self._judging)
        if self._support is not None:
            value = value.softmax(2) @ self._support
        elif self._quantiles > 1:
            value = value.mean(2)
        value = value.mean(0) if self._raises_mean else value.amin(0)
        return (self._alpha * log_prob - value).mean(), {'entropy': -log_prob.detach().mean()}

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
        if self._subset is not None:
            rows['critics'] = self.tensor(self.rng.permutation(self._count)[: self._subset])
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
        if self._entropy is not None:
            return ('next_noise', 'noise') if self._is_turn else ('next_noise',)
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
            next_action, bonus = self._next_action(rows)
        value, next_value = self._values(rows, next_action)
        with torch.no_grad():
            if self._subset is not None:
                next_value = next_value[rows['critics']]
            reward, discount = rows['reward'], self.targets.discount(rows)
            if self._support is not None:
                target = self._categorical_target(next_value, reward - discount * bonus, discount)  # [B, M]
            elif self._quantiles == 1:
                target = reward + discount * (next_value.amin(0) - bonus)  # [B]
            else:
                kept = truncated(next_value, self._dropped)  # [B, K]
                target = reward[:, None] + discount[:, None] * (kept - bonus[:, None])
        if self._support is not None:
            log_probability = value.log_softmax(2)  # [critics, B, M]
            losses = -(target * log_probability).sum(2)
            means = log_probability.detach().exp() @ self._support  # [critics, B]
            return self._critic_losses(losses, means, target @ self._support, rows)
        if self._quantiles == 1:
            return self._critic_losses((target - value).square(), value, target, rows)
        losses = torch.stack([quantile_huber_loss(quantiles, target) for quantiles in value])
        return self._critic_losses(losses, value.mean(2), target.mean(1), rows)

    def _categorical_target(
        self, logit: torch.Tensor, reward: torch.Tensor, discount: torch.Tensor
    ) -> torch.Tensor:
        """Returns the distribution of the critic whose mean is smallest, moved by reward and discount, [B, M].

        Args:
            logit: Of each critic and atom in the next state, float32 [critics, B, M].
            reward: float32 [B].
            discount: Weight of the next state, float32 [B].
        """
        assert self._support is not None
        probability = logit.softmax(2)
        smallest = (probability @ self._support).argmin(0)[None, :, None]  # [1, B, 1]
        chosen = probability.gather(0, smallest.expand(1, -1, len(self._support)))[0]
        return project(chosen, reward, discount, self._support)

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
            if self._entropy is not None:
                self._entropy.update(metrics)
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
        output = self._actor(obs)
        if self.actor_kind == 'deterministic':
            action: torch.Tensor = output.add_(noise, alpha=settings.get('noise_sigma', 0.0))
            return action.clamp_(-1, 1)
        mean, log_std = output
        return torch.addcmul(mean, log_std.exp(), noise).tanh_()

    def _best_of(self, output: Any) -> torch.Tensor:
        """Returns the best actions by the output of the actor, [n, ...]."""
        action: torch.Tensor = output if self.actor_kind == 'deterministic' else output[0].tanh()
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
            tensor = self.tensor(obs)
            if not self._draws_in_eval:
                return self._output(self.best_action(tensor), {})
            size = len(env_id), math.prod(self._action_shape)
            noise = self.tensor(self._eval_rng.standard_normal(size, np.float32))
            return self._output(self.explore(tensor, noise), {})

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
        own = ['critic_loss', 'actor_loss', 'q_value', 'target_q_value']
        soft = [] if self.actor_kind == 'deterministic' else ['entropy', 'alpha']
        return [*super()._monitor_vars(), *own, *soft]

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


def truncated(quantiles: torch.Tensor, dropped: int) -> torch.Tensor:
    """Returns the quantiles of all critics together, without the largest ones.

    Args:
        quantiles: float32 [critics, B, M].
        dropped: How many to leave out for each critic.

    Returns:
        float32 [B, critics * (M - dropped)], in no order.

    Source:
        Kuznetsov et al., Controlling Overestimation Bias with Truncated Mixture of Continuous Distributional Quantile
        Critics (2020), section 3.
    """
    critics, _, count = quantiles.shape
    mixture = quantiles.transpose(0, 1).flatten(1)
    return mixture.topk(critics * (count - dropped), 1, largest=False, sorted=False).values
