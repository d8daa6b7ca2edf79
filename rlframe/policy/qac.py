"""QACPolicy: the common base of policies with an actor and Q-critics that learn from a replay buffer, and its default actor."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from easydict import EasyDict

from rlframe.data.faces import Metrics
from rlframe.data.timestep import Array, Batch, EnvSpec, IntArray, TimeStep
from rlframe.errors import ConfigError, IncompatibleError
from rlframe.policy.base_policy import Policy
from rlframe.policy.parts.actions import ActionBounds, ExplorationNoise
from rlframe.policy.parts.fit import check_network
from rlframe.policy.parts.memory import (
    priority_of_sequences,
    remembered,
)
from rlframe.policy.parts.optim import Optimizer, unit_rows
from rlframe.policy.parts.options import (
    value_at,
)
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.qac_options import (
    OPTION_OF,
    SWITCHES,
    QACConfig,
    check_arguments,
    check_blocks,
    check_critics,
    check_memory,
    critic_num,
)
from rlframe.policy.td import INPUTS, Targets, check_priority
from rlframe.registry import MODEL_REGISTRY
from rlframe.utils.lazy import torch
from rlframe.utils.schema import array, check_state


class QACPolicy(Policy):
    """Body of policies with an actor and Q-critics.

    The actor is deterministic, as that of DDPG and TD3, with noise on its actions and on those of its target network. A
    subclass with another kind of actor defines it (``model_kwargs``), the losses (``_critic_loss``, ``_actor_loss``) and how it
    acts (``_explore``, ``best_action``). Internally, and in recorded rows, actions are float32 [n, A] in [-1, 1].

    With a core, it learns from replayed sequences that begin with the recurrent state that was acted on, and whose burn-in has
    no loss; networks are given ``Remembered`` in place of observations.

    Source:
        Sequences: Kapturowski et al., Recurrent Experience Replay in Distributed Reinforcement Learning (2019), section 3.
    """

    _cfg: QACConfig
    config: dict[str, Any] = dict(collect=dict(n_sample=8))
    supported_actions = 'Box'
    sequence_option = 'policy.other.replay_buffer.unroll_len'
    compiled_parts = '_critic_loss', '_actor_loss'
    captured_part = '_update_tensors'
    target_parts: tuple[str, ...] = ('critic',)
    """Parts of the network that have a target network."""
    _noise: ExplorationNoise | None = None
    _actor: Callable[[Any], Any]
    """Maps observations to what the actor returns, while acting."""
    _follows_critic = False
    """Whether the target networks follow in every update, and not only in those of the actor."""

    @classmethod
    def cores(cls, cfg: EasyDict) -> int:
        return 1 + critic_num(cfg.model)

    def default_model(self) -> str:
        return 'recurrent_qac' if self._has_core else 'qac'

    def _acting_output(self, obs: Any) -> tuple[torch.Tensor, int] | None:
        if self._has_core:
            return None
        output, space = self._model.actor(obs), self._action_space
        return output[0] if isinstance(output, tuple) else output, int(
            getattr(space, 'n', math.prod(space.shape))
        )

    def model_kwargs(self) -> dict[str, Any]:
        kwargs = super().model_kwargs()
        for name in ('twin_critic', 'n_critic'):
            kwargs.pop(name, None)
        for name in SWITCHES:
            if not kwargs.get(name):
                kwargs.pop(name, None)  # networks of users may know none
        return kwargs | {'critic_num': critic_num(self._cfg.model), 'actor': 'deterministic'}

    def _create_model(self) -> Any:
        cfg = self._cfg.model
        if cfg.type is not None:
            kind = MODEL_REGISTRY.get_cls({'type': cfg.type, 'import_names': cfg.import_names})
            check_arguments(kind, self.model_kwargs(), cfg)
        return super()._create_model()

    def _check_network(self) -> None:
        super()._check_network()
        model, name = self._cfg.model, type(self._model).__name__
        values = {key: model.get(key) for key in ('n_critic', *OPTION_OF.values())}
        if values['num_quantiles'] == 1:
            del values['num_quantiles']
        found = [f'policy.model.{key}={value!r}' for key, value in values.items() if value]
        if 'learn' not in self._fields or not found or self._has_core:
            return
        said, asked = ', '.join(found), type(self).__name__
        check_network(
            self._model,
            self._judged,
            f'{asked} with {said}',
            self._spec,
            self._tensor,
            f'learn with {said} from',
        )
        if model.get('weight_norm') and not unit_rows(self._model.critic):
            message = f'the network {name} names no weights of length 1 (unit_rows)'
            raise IncompatibleError(message, where='policy.model.weight_norm', got=True, expected='False')

    def _judged(self, obs: Any) -> tuple[torch.Tensor, int]:
        """Returns what the critics say of two observations in an update, [2, size], and the right size."""
        model, size = self._cfg.model, math.prod(self._spec.action_space.shape or ())
        self._model.actor(obs, **self._actor_mode)
        value = self._model.critic(obs, torch.zeros(2, size, device=self._device), **self._mode)
        outputs = model.get('n_atom') or model.get('num_quantiles', 1)
        return value.transpose(0, 1).flatten(1), critic_num(model) * outputs

    @classmethod
    def check_config(cls, cfg: EasyDict) -> list[ConfigError]:
        errors = [*super().check_config(cfg), *check_priority(cfg)]
        return [*errors, *check_memory(cfg), *check_critics(cls, cfg), *check_blocks(cfg.model)]

    # learning

    def _init_learn(self) -> None:
        cfg = self._cfg.learn
        parts = self.target_parts if cfg.get('target_network', True) else ()
        online = {name: getattr(self._model, name) for name in parts}
        copied = torch.nn.ModuleDict(copy.deepcopy(online))
        self._targets = Targets(self._cfg, copied, list(online.values()), self._device)
        self._target_model = self._targets.network
        self._learned.append(self._targets)
        self._optimizers['critic'] = Optimizer(self._model.critic, cfg, 'learning_rate_critic')
        self._optimizers['actor'] = Optimizer(self._model.actor, cfg, 'learning_rate_actor')
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
            for network in (self._model, self._target_model)
        )
        self._has_target = bool(self._target_model)
        self._sees_both = is_batch or not self._has_target
        self._next_actor = self._model.actor
        if 'actor' in self._target_model:
            self._next_actor = self._target_model['actor']
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
            value = self._model.critic(obs, action, **self._mode)
            with torch.no_grad():
                return value, self._target_model['critic'](next_obs, next_action, **self._mode)
        both = joined(obs, next_obs), torch.cat([action, next_action])
        value, next_value = self._model.critic(*both, **self._mode).chunk(2, 1)
        if self._has_target:
            with torch.no_grad():
                next_value = self._target_model['critic'](*both, **self._mode).chunk(2, 1)[1]
        return value, next_value.detach()

    def _actor_loss(self, rows: Rows) -> tuple[torch.Tensor, Metrics]:
        """Returns the loss of the actor, and the values to log."""
        obs = rows['obs']
        action = self._model.actor(obs, **self._actor_mode)
        return -self._model.critic(obs, action, count=1, **self._judging).mean(), {}

    def _forward_learn(self, data: Batch) -> Metrics:
        metrics = self._update_tensors(self._columns(data), self._is_turn)
        self._targets.updates += 1
        return metrics | self._optimizer_metrics()

    def _columns(self, data: Batch) -> Rows:
        """Returns what an update reads, as tensors on the device: transitions, or with a core the steps of sequences."""
        if self._memory is None:
            columns, count = data.columns, len(data)
            rows = {name: self._tensor(columns[name]) for name in INPUTS if name in columns}
        else:
            rows = self._remembered(data)
            count = len(rows['reward'])
        size = count, math.prod(self._spec.action_space.shape or ())
        for name in self._noises():
            rows[name] = self._tensor(self._rng.standard_normal(size, np.float32))
        return rows

    def _remembered(self, data: Batch) -> Rows:
        """Returns the steps of sequences that are learned from, [K], each with the number of its sequence."""
        columns = 'action', 'reward', 'terminated'
        rows, sequence = remembered(data, self._cfg.learn.burn_in, columns, self._tensor)
        if self._targets.has_weights:
            rows['IS'] = self._tensor(np.asarray(data['IS'])[sequence])
        return rows | {'sequence': self._tensor(sequence)}

    def _noises(self) -> Sequence[str]:
        """Returns the names of the standard normal numbers that the next update needs, float32 [B, A] each."""
        return ('next_noise',) if self._target_noise else ()

    @property
    def _is_turn(self) -> bool:
        """Whether the next update also updates the actor."""
        return self._targets.updates % self._actor_update_freq == 0

    def _critic_loss(self, rows: Rows) -> tuple[torch.Tensor, torch.Tensor, Metrics]:
        """Returns the loss of the critics, the mean error of each transition, float32 [B], and the values to log."""
        with torch.no_grad():
            next_action = self._next_action(rows)
        value, next_value = self._values(rows, next_action)
        with torch.no_grad():
            target = rows['reward'] + self._targets.discount(rows) * next_value.amin(0)  # [B]
        return self._critic_losses((target - value).square(), value, target, rows)

    def _critic_losses(
        self, losses: torch.Tensor, value: torch.Tensor, target: torch.Tensor, rows: Rows
    ) -> tuple[torch.Tensor, torch.Tensor, Metrics]:
        """Returns what ``_critic_loss`` does.

        Args:
            losses: Of each critic and transition, float32 [critics, B].
            value: Each critic's value of the actions taken, float32 [critics, B].
            target: What it should be, float32 [B].
            rows: What the update reads.
        """
        if self._targets.has_weights:
            losses = losses * rows['IS']
        loss = losses.mean(1).sum()
        metrics = {
            'critic_loss': loss.detach(),
            'target_q_value': target.mean(),
            'q_value': value.detach().mean(),
        }
        return loss, (target - value.detach()).abs().mean(0), metrics

    def _update_tensors(self, rows: Rows, is_turn: bool) -> Metrics:
        """Updates the critics, and actor and target networks if it is their turn; only reads and changes tensors."""
        critic_loss, error, metrics = self._critic_loss(rows)
        self._optimizers['critic'].step(critic_loss, critic_loss=critic_loss)
        total_loss = critic_loss.detach()
        if is_turn:
            actor_loss, variables = self._actor_loss(rows)
            self._optimizers['actor'].step(actor_loss, actor_loss=actor_loss)
            total_loss = total_loss + actor_loss.detach()
            metrics |= {'actor_loss': actor_loss.detach(), **variables}
            self._after_actor(metrics)
        if self._norms:
            from rlframe.model.core import update_norms

            update_norms(self._norms)  # those of the actor have something new only if it was its turn
        if is_turn or self._follows_critic:
            self._targets.follow(self._target_theta)
        return self._targets.with_priority(
            metrics | {'total_loss': total_loss}, self._priority_of(error, rows)
        )

    def _priority_of(self, error: torch.Tensor, rows: Rows) -> torch.Tensor:
        """Returns the priority of each sampled transition or sequence, float32 [B], from the TD errors of its steps."""
        if self._memory is None or not self._targets.has_priority:
            return error
        count = len(rows['obs'].unroll.state)
        return priority_of_sequences(error, rows['sequence'], count, self._cfg.priority_eta)

    def _after_actor(self, metrics: Metrics) -> None:
        """Updates the parts that depend on the actor, from the values logged for it."""

    def _optimizer_metrics(self) -> Metrics:
        metrics = self._optimizers['critic'].metrics()
        if 'skipped_share' in metrics:
            shares = [optimizer.metrics()['skipped_share'] for optimizer in self._optimizers.values()]
            metrics['skipped_share'] = torch.stack(shares).amax()
        return metrics

    # acting

    @classmethod
    def check_spec(cls, spec: EnvSpec, cfg: EasyDict) -> None:
        super().check_spec(spec, cfg)
        if not hasattr(spec.action_space, 'n'):
            ActionBounds(spec)  # refuses those that are not finite

    def _init_collect(self) -> None:
        self._init_eval()
        size = math.prod(self._action_shape)
        self._noise = ExplorationNoise(size, self._cfg.collect.noise_correlation, self._rng)

    def _init_eval(self) -> None:
        self._bounds, self._action_shape = ActionBounds(self._spec), self._spec.action_space.shape or ()
        network: Any = self._model
        self._actor = self._step if self._has_core else network.actor

    def _explore(self, obs: torch.Tensor, noise: torch.Tensor, **settings: Any) -> torch.Tensor:
        """Returns actions to collect with, float32 [n, A]; ``noise`` are standard normal numbers of that shape."""
        return self._actor(obs).add_(noise, alpha=settings.get('noise_sigma', 0.0)).clamp_(-1, 1)

    def best_action(self, obs: torch.Tensor) -> torch.Tensor:
        """Returns the actions that the actor thinks best, float32 [n, A]."""
        return self._actor(obs)

    def best_step(self, obs: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the best action, and the recurrent state after the step, [B, P, H], of a network with a core."""
        action, after = self._model.act(obs, state)
        return action, after

    def _forward_collect(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        assert self._noise is not None
        noise = self._tensor(self._noise.draw(env_id))
        before = None if self._memory is None else self._memory.begin(env_id)
        with torch.inference_mode():
            return self._output(self._explore(self._tensor(obs), noise, **settings), before)

    def _forward_greedy(self, obs: Array, env_id: IntArray) -> Batch:
        before = self._remember(env_id)
        with torch.inference_mode():
            return self._output(self.best_action(self._tensor(obs)), before)

    def _forward_eval(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        if self._memory is not None:
            self._memory.begin(env_id, is_evaluation=True)
        with torch.inference_mode():
            return self._output(self.best_action(self._tensor(obs)))

    def _output(self, action: torch.Tensor, before: Mapping[str, Array] | None = None) -> Batch:
        """Returns actions in [-1, 1] both in the env's units and as the network output them, and the column ``state``."""
        unit = action.cpu().numpy()
        env_action = self._bounds.to_env(unit.reshape(len(unit), *self._action_shape))
        columns = {'action': env_action, 'unit_action': unit}
        return Batch.unchecked(columns if before is None else columns | before, len(unit))

    def _process_transition(self, obs: Array, output: Batch, timestep: TimeStep) -> dict[str, Array]:
        rows = super()._process_transition(obs, output, timestep)
        if self._memory is not None:
            rows['state'] = output['state']
        if 'unit_action' in output:
            return rows | {'action': output['unit_action']}
        action = self._bounds.to_unit(output['action'])  # drawn at random, by someone else
        return rows | {'action': action.reshape(len(action), -1)}

    def _reset_collect(self, env_id: IntArray | None = None) -> None:
        super()._reset_collect(env_id)
        if self._noise is not None:
            self._noise.reset(env_id)

    # settings and state

    def get_setting_collect(self, info: Mapping[str, Any]) -> dict[str, Any]:
        sigma = self._cfg.collect.get('noise_sigma')  # an option of policies with a deterministic actor
        return {} if sigma is None else {'noise_sigma': value_at(sigma, info['envstep'])}

    def _monitor_vars(self) -> list[str]:
        return [*super()._monitor_vars(), 'critic_loss', 'actor_loss', 'q_value', 'target_q_value']

    def reset_targets(self) -> None:
        self._targets.copy()
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
