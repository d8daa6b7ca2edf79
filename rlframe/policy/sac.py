"""SAC: an actor that is rewarded for entropy too, for continuous and for discrete actions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from easydict import EasyDict

from rlframe.data.faces import Metrics
from rlframe.data.timestep import Array, Batch, IntArray, TimeStep
from rlframe.errors import ConfigError
from rlframe.model.distributions import perturbed
from rlframe.policy.base_policy import Policy, StochasticEval, smallest_int
from rlframe.policy.parts.actions import IMPOSSIBLE, mask_of, masked
from rlframe.policy.parts.memory import (
    BURN_IN,
    PRIORITY_ETA,
    MemoryModel,
    Remembered,
    priority_of_sequences,
    remembered,
)
from rlframe.policy.parts.optim import Optimizer
from rlframe.policy.parts.options import Schedule, learning_rate
from rlframe.policy.parts.sequences import Rows, visited
from rlframe.policy.qac import QACCollect, QACConfig, QACLearn, QACModel, QACPolicy
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import LazyModule
from rlframe.utils.schema import check_state, tensor_like

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule('torch')


def check_alpha(value: Any) -> str:
    """Returns a description of valid temperatures if a value is invalid, else an empty string."""
    is_fine = value == 'auto' if isinstance(value, str) else 0 <= value < math.inf
    return '' if is_fine else "'auto', or a number >= 0"


class SACLearn(QACLearn):
    """Section ``learn`` of SAC."""

    alpha: str | float = option(
        'auto',
        doc="weight of the entropy; 'auto': learned so that the entropy is target_entropy",
        check=check_alpha,
    )
    init_alpha: float = option(1.0, range='(0, inf)', doc='initial weight of the entropy if it is learned')
    target_entropy: float | None = option(
        None,
        unit='nats',
        doc='entropy of the actor to aim at; None: -A for A continuous, log(A) / 2 for A discrete actions; where a mask allows'
        ' n of A actions, log(n) / log(A) of it',
    )
    learning_rate_alpha: Schedule = option(learning_rate(3e-4, 'Adam for the weight of the entropy'))


class SACConfig(QACConfig):
    """Options of SAC."""

    learn: SACLearn
    eval: StochasticEval


class EntropyWeight:
    """The weight of an actor's entropy, alpha: a constant, or learned so that the entropy is near a target.

    Args:
        cfg: Section ``learn`` of the policy.
        target: Entropy to aim at, in nats, if the section sets none.
        device: Where the policy learns.

    Source:
        Haarnoja et al. (2018), eq. 18; it is learned by its logarithm, as the authors' code does.
    """

    def __init__(self, cfg: SACLearn, target: float, device: torch.device) -> None:
        self.is_learned = cfg.alpha == 'auto'
        alpha = cfg.init_alpha if self.is_learned else cfg.alpha
        self.value = torch.tensor(float(alpha), device=device)
        """Alpha, float32 []."""
        self.target = target if cfg.target_entropy is None else cfg.target_entropy
        """Entropy to aim at, in nats."""
        self._log = torch.nn.Parameter(self.value.log())
        options = {name: cfg[name] for name in ('learning_rate_alpha', 'nan_policy')}
        self.optimizer = Optimizer(
            torch.nn.ParameterDict({'log_alpha': self._log}),
            options | {'grad_clip_norm': None},
            'learning_rate_alpha',
        )

    def update(self, metrics: Metrics) -> None:
        """Moves alpha by the logged entropy of a batch, and logs the one it was."""
        metrics['alpha'] = self.value.clone()
        target = metrics.pop('target_entropy', self.target)
        if self.is_learned:
            self.optimizer.step(self._log * (metrics['entropy'] - target))
            self.value.copy_(self._log.detach().exp())

    @property
    def networks(self) -> tuple[str, ...]:
        """Names in its state that several learners average."""
        return tuple(self.state_dict())

    def state_dict(self) -> dict[str, Any]:
        """Returns its logarithm, if it is learned."""
        return {'log_alpha': self._log.detach().clone()} if self.is_learned else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        if self.is_learned:
            check_state(state, {'log_alpha': tensor_like(self._log)})
            self._log.detach().copy_(state['log_alpha'])
            self.value.copy_(self._log.detach().exp())


@POLICY_REGISTRY.register('sac')
class SACPolicy(QACPolicy):
    """Soft actor-critic with a tanh-Gaussian actor.

    Source:
        Haarnoja et al., Soft Actor-Critic Algorithms and Applications (2018), algorithm 1, eq. 5, 7 and 18; the
        temperature is learned by its logarithm, as the authors' code does.
    """

    _cfg: SACConfig

    def model_kwargs(self) -> dict[str, Any]:
        return super().model_kwargs() | {'actor': 'gaussian'}

    def _init_learn(self) -> None:
        super()._init_learn()
        self._entropy = EntropyWeight(
            self._cfg.learn, -float(math.prod(self._spec.action_space.shape)), self._device
        )
        self._alpha = self._entropy.value
        self._learned.append(self._entropy)
        if self._entropy.is_learned:
            self._optimizers['alpha'] = self._entropy.optimizer

    def _noises(self) -> Sequence[str]:
        return ('next_noise', 'noise') if self._is_turn else ('next_noise',)

    def _draw(self, obs: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns actions of the actor, [B, A], and their log densities, [B]."""
        from rlframe.model.qac import squashed_gaussian

        mean, log_std = self._model.actor(obs)
        return squashed_gaussian(mean, log_std, noise)

    def _next_value(self, rows: Rows) -> torch.Tensor:
        action, log_prob = self._draw(rows['next_obs'], rows['next_noise'])
        return self._target_model['critic'](rows['next_obs'], action).amin(0) - self._alpha * log_prob

    def _actor_loss(self, rows: Rows) -> tuple[torch.Tensor, Metrics]:
        action, log_prob = self._draw(rows['obs'], rows['noise'])
        value = self._model.critic(rows['obs'], action).amin(0)
        return (self._alpha * log_prob - value).mean(), {'entropy': -log_prob.detach().mean()}

    def _after_actor(self, metrics: Metrics) -> None:
        self._entropy.update(metrics)

    def _explore(self, obs: torch.Tensor, noise: torch.Tensor, **settings: Any) -> torch.Tensor:
        mean, log_std = self._model.actor(obs)
        return torch.addcmul(mean, log_std.exp(), noise).tanh_()

    def best_action(self, obs: torch.Tensor) -> torch.Tensor:
        return self._model.actor(obs)[0].tanh()

    def _forward_greedy(self, obs: Array, env_id: IntArray) -> Batch:
        return super()._forward_eval(obs, env_id)

    def _forward_eval(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        if not self._draws_in_eval:
            return super()._forward_eval(obs, env_id)
        size = len(env_id), math.prod(self._action_shape)
        noise = self._tensor(self._eval_rng.standard_normal(size, np.float32))
        with torch.inference_mode():
            return self._output(self._explore(self._tensor(obs), noise))

    def _monitor_vars(self) -> list[str]:
        return [*super()._monitor_vars(), 'entropy', 'alpha']


class SACDiscreteModel(QACModel, MemoryModel):
    """Section ``model`` of discrete SAC."""


class SACDiscreteLearn(SACLearn):
    """Section ``learn`` of discrete SAC."""

    batch_size: int = option(
        256,
        range='[1, inf)',
        unit='transitions, or sequences with a core',
        doc='size of the batch of one update',
        may_change=True,
    )
    burn_in: int = option(BURN_IN)


class SACDiscreteCollect(QACCollect):
    """Section ``collect`` of discrete SAC."""

    noise_correlation: float = option(
        0.0,
        range='[0, 0]',
        doc='correlation of exploration noise from step to step; 0, there is no such noise',
    )


class SACDiscreteConfig(SACConfig):
    """Options of discrete SAC."""

    priority_eta: float = option(PRIORITY_ETA)
    model: SACDiscreteModel
    learn: SACDiscreteLearn
    collect: SACDiscreteCollect


@POLICY_REGISTRY.register('sac_discrete')
class SACDiscretePolicy(QACPolicy):
    """SAC for discrete actions: every expectation over actions is a sum.

    Source:
        Christodoulou, Soft Actor-Critic for Discrete Action Settings (2019), eq. 10 to 12. The target entropy is half
        of the maximum, not 98 % of it as in the paper: on CartPole-v1 no useful policy has so much entropy, and its
        weight would grow without bound. With a core, it learns from replayed sequences that begin with the recurrent
        state that was acted on: Kapturowski et al., Recurrent Experience Replay in Distributed Reinforcement Learning
        (2019), section 3. Its burn-in has no loss.
    """

    _cfg: SACDiscreteConfig
    supported_actions = 'Discrete'
    supports_action_mask = True
    sequence_option = 'policy.other.replay_buffer.unroll_len'

    @classmethod
    def cores(cls, cfg: EasyDict) -> int:
        return 3 if cfg.model.twin_critic else 2

    @classmethod
    def check_config(cls, cfg: EasyDict) -> list[ConfigError]:
        errors = super().check_config(cfg)
        if cfg.model.core is not None and cfg.nstep != 1:
            message = 'with a core, the target of a step of a sequence has one reward'
            errors.append(ConfigError(message, where='nstep', got=cfg.nstep, expected='1'))
        return errors

    def default_model(self) -> str:
        return 'recurrent_qac' if self._has_core else super().default_model()

    def model_kwargs(self) -> dict[str, Any]:
        return super().model_kwargs() | {'actor': 'categorical'}

    # learning

    def _init_learn(self) -> None:
        super()._init_learn()
        self._entropy = EntropyWeight(self._cfg.learn, 0.5 * math.log(self._action_space.n), self._device)
        self._alpha = self._entropy.value
        self._learned.append(self._entropy)
        if self._entropy.is_learned:
            self._optimizers['alpha'] = self._entropy.optimizer

    def _after_actor(self, metrics: Metrics) -> None:
        self._entropy.update(metrics)

    def _noises(self) -> Sequence[str]:
        return ()

    def _columns(self, data: Batch) -> Rows:
        """Returns transitions; with a core, the steps of sequences that are learned from, [K]."""
        if not self._has_core:
            return super()._columns(data)
        seen = visited(data['obs'], data['next_obs'], np.asarray(data['mask']), self._cfg.learn.burn_in)
        start = data['state'][np.arange(len(seen.first)), seen.first]
        obs, next_obs = remembered(seen, start, self._tensor)
        sequence = seen.sequence[seen.own]
        steps = {name: self._tensor(data[name][seen.learned]) for name in ('action', 'reward', 'terminated')}
        weights = {'IS': self._tensor(np.asarray(data['IS'])[sequence])} if self._targets.has_weights else {}
        return {'obs': obs, 'next_obs': next_obs, 'sequence': self._tensor(sequence), **steps, **weights}

    def _priority_of(self, error: torch.Tensor, rows: Rows) -> torch.Tensor:
        if not (self._has_core and self._targets.has_priority):
            return error
        count = len(rows['obs'].unroll.state)
        return priority_of_sequences(error, rows['sequence'], count, self._cfg.priority_eta)

    def _log_probs(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the probability of each action and its logarithm, [B, A]."""
        log_prob = torch.log_softmax(self._logit(obs), 1)
        return log_prob.exp(), log_prob

    def _all_values(self, critic: Any, obs: Any) -> torch.Tensor:
        """Returns each critic's values of all actions, float32 [critics, B, A]."""
        if isinstance(obs, Remembered):
            value: torch.Tensor = critic(obs.obs, obs.unroll)
            return value[:, obs.row]
        value = critic(obs)
        return value

    def _value(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        value = self._all_values(self._model.critic, obs)
        return value.gather(2, action.long()[None, :, None].expand(len(value), -1, 1)).squeeze(2)

    def _next_value(self, rows: Rows) -> torch.Tensor:
        next_obs = rows['next_obs']
        prob, log_prob = self._log_probs(next_obs)
        value = self._all_values(self._target_model['critic'], next_obs).amin(0)
        return (prob * (value - self._alpha * log_prob)).sum(1)

    def _actor_loss(self, rows: Rows) -> tuple[torch.Tensor, Metrics]:
        obs = rows['obs']
        prob, log_prob = self._log_probs(obs)
        with torch.no_grad():
            value = self._all_values(self._model.critic, obs).amin(0)
        loss = (prob * (self._alpha * log_prob - value)).sum(1).mean()
        metrics = {'entropy': -(prob * log_prob).detach().sum(1).mean()}
        if self._entropy.is_learned and self._has_mask:
            metrics['target_entropy'] = self._masked_target_entropy(obs)
        return loss, metrics

    def _masked_target_entropy(self, obs: Any) -> torch.Tensor:
        """Returns the mean of the target entropies of states, each scaled to the largest entropy of its allowed actions."""
        mask = mask_of(obs.obs)[obs.row] if isinstance(obs, Remembered) else mask_of(obs)
        largest = math.log(self._action_space.n) or 1.0
        return self._entropy.target / largest * mask.sum(1).clamp(min=1).float().log().mean()

    # acting

    def _init_collect(self) -> None:
        self._action_dtype = smallest_int(int(self._action_space.n))

    def _init_eval(self) -> None: ...

    def _logit(self, obs: Any) -> torch.Tensor:
        """Returns the logit of each action, float32 [B, A]; forbidden ones have none to speak of."""
        if isinstance(obs, Remembered):
            logit = self._model.logit(obs.obs, obs.unroll)
            return masked(logit, mask_of(obs.obs), IMPOSSIBLE)[obs.row]
        logit = self._step(obs) if self._has_core else self._model.actor(obs)
        return masked(logit, mask_of(obs), IMPOSSIBLE)

    def best_action(self, obs: torch.Tensor) -> torch.Tensor:
        return self._logit(obs).argmax(1)

    def best_step(self, obs: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the best action, and the recurrent state after the step, [B, P, H], of a network with a core."""
        output, after = self._model.act(obs, state)
        return output.argmax(1), after

    def _acting_logit(self, obs: Array) -> Array:
        with torch.inference_mode():
            logit: Array = self._logit(self._tensor(obs)).cpu().numpy()
        return logit

    def _forward_collect(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        before = self._remember(env_id)
        return self._chosen(perturbed(self._acting_logit(obs), self._rng), before)

    def _forward_greedy(self, obs: Array, env_id: IntArray) -> Batch:
        before = self._remember(env_id)
        return self._chosen(self._acting_logit(obs), before)

    def _forward_eval(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        self._remember(env_id, is_evaluation=True)
        logit = self._acting_logit(obs)
        return self._chosen(perturbed(logit, self._eval_rng) if self._draws_in_eval else logit, {})

    def _chosen(self, logit: Array, before: dict[str, Array]) -> Batch:
        """Returns the actions of the largest logits, with the column ``state`` if there is a core."""
        action = logit.argmax(1)
        action = (action + int(self._action_space.start)).astype(self._action_space.dtype, copy=False)
        return Batch.unchecked({'action': action, **before}, len(action))

    def _process_transition(self, obs: Array, output: Batch, timestep: TimeStep) -> dict[str, Array]:
        rows = Policy._process_transition(self, obs, output, timestep)
        action = (rows['action'] - int(self._action_space.start)).astype(self._action_dtype)
        return rows | {'action': action} | ({'state': output['state']} if self._has_core else {})

    def _monitor_vars(self) -> list[str]:
        return [*super()._monitor_vars(), 'entropy', 'alpha']
