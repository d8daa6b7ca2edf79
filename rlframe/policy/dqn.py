"""DQN with double, dueling, n-step and prioritized replay, and the body of all policies of its kind."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Literal

import numpy as np
from easydict import EasyDict

from rlframe.data.faces import EvalMode
from rlframe.data.timestep import Array, Batch, EnvSpec, FloatArray, IntArray, TimeStep
from rlframe.errors import ConfigError
from rlframe.policy.base_policy import Policy
from rlframe.policy.parts.actions import choice_dtype, mask_of, masked, random_allowed
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.memory import remembered
from rlframe.policy.parts.optim import ADAM_EPS, Targets
from rlframe.policy.parts.options import (
    BATCH_SIZE,
    DISCOUNT_FACTOR,
    HIDDEN_SIZES,
    UPDATE_PER_COLLECT,
    ImageModel,
    Schedule,
    check_schedule,
    grad_clip_norm,
    learning_rate,
    schedule_of,
)
from rlframe.policy.parts.outputs import Output, Values
from rlframe.policy.parts.random_policy import with_random_actions
from rlframe.policy.parts.sections import (
    N_SAMPLE,
    CollectConfig,
    EvalConfig,
    LearnConfig,
    OtherConfig,
    PolicyConfig,
)
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.parts.starting import DISCOUNTS, ZOO, Facts, SearchSpace, Settings
from rlframe.policy.update import Loss, Update
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch

INPUTS = 'obs', 'next_obs', 'action', 'reward', 'terminated', 'value_gamma', 'IS'
"""Columns of replayed transitions that updates read."""


def _has_priorities(policy: type[Any], cfg: Any) -> ConfigError | None:
    """Refuses importance weights if there are no priorities."""
    if cfg.priority or not cfg.priority_IS_weight:
        return None
    return ConfigError('policy.priority_IS_weight=True needs policy.priority=True')


class TDConfig(PolicyConfig):
    """Options of every policy that learns values from a replay buffer by temporal differences."""

    priority: bool = option(
        False, doc='whether TD errors become the priorities of the replay buffer', rule=_has_priorities
    )
    priority_IS_weight: bool = option(  # noqa: N815  # DI-engine's name of the option
        False, doc='whether losses are weighted by importance sampling', rule=_has_priorities
    )
    discount_factor: float = option(DISCOUNT_FACTOR)
    nstep: int = option(1, range='[1, inf)', unit='env steps', doc='rewards summed before bootstrapping')


class QEval(EvalConfig):
    """Section ``eval`` of policies that act by action values."""

    eps: float = option(
        0.0,
        range='[0, 1]',
        doc='probability of a random action in evaluations, which helps if the policy sees only a part of the state',
        may_change=True,
    )


class QOther(OtherConfig):
    """Section ``other`` of policies that act by action values."""

    eps: Schedule = option(
        dict(type='exp', start=0.95, end=0.1, decay=10000),
        range='[0, 1]',
        doc='probability of a random action; a schedule over env steps',
        check=check_schedule,
        may_change=True,
    )
    eps_ladder: float = option(
        0.0,
        range='[0, inf)',
        doc='spreads exploration over N collectors: collector i uses eps ** (1 + eps_ladder * i / (N - 1)); Ape-X sets 7,'
        ' with a constant eps of 0.4',
        may_change=True,
    )


class QConfig(PolicyConfig):
    """Options of policies that act by action values."""

    eval: QEval
    other: QOther


class QModel(ImageModel):
    """Section ``model`` of every policy of DQN's kind."""

    encoder_hidden_size_list: list[int] = option(HIDDEN_SIZES.having([128, 128, 64]))
    dueling: bool = option(True, doc='whether value and advantage have separate heads')
    noisy: bool = option(
        False,
        doc='whether the heads are noisy layers, which explore by noise in their weights; eps is then best 0',
    )


class QLearn(LearnConfig):
    """Section ``learn`` of every policy of DQN's kind."""

    update_per_collect: int = option(UPDATE_PER_COLLECT)
    batch_size: int = option(BATCH_SIZE)
    learning_rate: Schedule = option(learning_rate(1e-3, 'Adam'))
    target_update_freq: int | None = option(
        100,
        range='[1, inf)',
        unit='train iterations',
        doc='interval between hard updates of the target network',
        may_change=True,
    )
    target_theta: float | None = option(
        None, range='(0, 1]', doc='share of a soft update after each iteration, instead', may_change=True
    )
    grad_clip_norm: float | None = option(grad_clip_norm())
    adam_eps: float = option(ADAM_EPS)


class QCollect(CollectConfig):
    """Section ``collect`` of every policy of DQN's kind."""

    n_sample: int | None = option(N_SAMPLE.having(8))


class QReplayConfig(TDConfig, QConfig):
    """Options of every policy of DQN's kind."""

    discount_factor: float = option(DISCOUNT_FACTOR.having(0.97))
    first_priority: Literal['largest', 'error'] = option(
        'largest',
        doc="priority of new transitions: 'largest' is the largest so far, 'error' the TD error that their collector computes",
    )
    model: QModel
    learn: QLearn
    collect: QCollect


class DQNLearn(QLearn):
    """Section ``learn`` of a DQN."""

    kappa: float | None = option(
        None,
        range='(0, inf)',
        doc='error from which the loss grows linearly; None: it is the squared error',
        may_change=True,
    )


class DoubleConfig(QReplayConfig):
    """Options of policies whose targets are values of single actions."""

    double: bool = option(
        True, doc='whether the online network picks the action that the target network values'
    )


class DQNConfig(DoubleConfig):
    """Options of a DQN."""

    learn: DQNLearn


class QUpdate(Update):
    """Body of updates whose network says what the returns of every action are."""

    inputs: tuple[str, ...] = INPUTS
    logged = (*Update.logged, 'q_value', 'target_q_value')
    targets: Targets

    def __init__(self, model: torch.nn.Module, cfg: Any, spec: EnvSpec) -> None:
        super().__init__(model, cfg, spec)
        self.targets = Targets(cfg, model, self.device)
        self.double: bool = cfg.get('double', False)
        self._freq, self._share = cfg.learn.target_update_freq, cfg.learn.target_theta

    def init_learn(self) -> None:
        super().init_learn()
        self.targets.begin(copy.deepcopy(self.model), [self.model])

    # what an algorithm may define

    def output(self, network: Any, obs: Any, tau: torch.Tensor | None = None) -> Output:
        """Returns what a network says of the returns of each action.

        ``network`` is the network or its target network; ``tau`` [B, M] is the column of fractions that belongs to ``obs``
        [B, ...], of algorithms that draw fractions.
        """
        return Values(network(obs))

    def target(self, rows: Rows) -> torch.Tensor:
        """Returns what each transition says of the return of its action, float32 [B], of distributions [B, M]."""
        next_obs = rows['next_obs']
        output = self.output(self.targets.network, next_obs, rows.get('next_obs_tau'))
        judge = self.output(self.model, next_obs) if self.double else output
        best = output.best(masked(judge.mean(), mask_of(next_obs)))
        return best.target(rows['reward'], self.targets.discount(rows))

    # the update

    def loss(self, rows: Rows) -> Loss:
        """Returns the mean distance of the returns of the actions taken to their targets."""
        output = self.output(self.model, rows['obs'], rows.get('obs_tau'))
        with torch.no_grad():
            target = self.target(rows)
        self._check_agree(output, target)
        fit = output.gather(rows['action']).fit(target, self.targets.weight(rows))
        return Loss(fit.loss, fit.metrics(), fit.error)

    def _check_agree(self, output: Any, target: torch.Tensor) -> None:
        """Checks what an algorithm defines: that a network's output is one, and that its target has the right shape.

        Raises:
            TypeError: If not; the class and the method are named.
        """
        dims = getattr(output, 'target_dims', None)
        if target.dim() == dims:
            return
        kind, name = type(self).__name__, type(output).__name__
        if dims is None:
            raise TypeError(f'{kind}.output returned {name}, not an Output: Values, Quantiles or Atoms')
        wanted = '[B]' if dims == 1 else '[B, M]'
        raise TypeError(f'{kind}.target returned {list(target.shape)}; {name} need a target {wanted}')

    @property
    def turn(self) -> bool:
        return self._freq is None or (self.updates + 1) % self._freq == 0

    def follow(self, turn: bool) -> None:
        if turn and self._share is None:
            self.targets.copy()
        elif turn:
            self.targets.follow(self._share)


class DQNUpdate(QUpdate):
    """Mean returns, by squared errors or Huber losses."""

    def __init__(self, model: torch.nn.Module, cfg: Any, spec: EnvSpec) -> None:
        super().__init__(model, cfg, spec)
        self._kappa = cfg.learn.kappa

    def output(self, network: Any, obs: Any, tau: torch.Tensor | None = None) -> Output:
        return Values(network(obs), self._kappa)


class QPolicy(Policy):
    """Body of policies whose network values every action.

    They take the best action or, while they collect, with probability ``eps`` a random one. If the network has a core, they
    remember the steps of an episode, and learn from the replayed sequences of the replay buffer 'sequence'.
    """

    _cfg: QConfig
    supports_action_mask = True
    default_network = 'q_net'
    update_class: type[Update] = QUpdate
    ding = DingNames(defaults={'other.replay_buffer.replay_buffer_size': 10_000})
    toy: dict[str, Any] = dict(
        discount_factor=0.5,
        learn=dict(batch_size=32, learning_rate=3e-3, target_update_freq=50),
        other=dict(eps=dict(type='linear', start=1.0, end=0.05, decay=1500)),
    )
    search_space = SearchSpace(
        f'{ZOO}, learning rates up to 0.01 in place of 1; its 1 to 1/8 updates for each of 8 env steps',
        {
            'learn.learning_rate': 'loguniform(1e-5,1e-2)',
            'learn.batch_size': 'choice(16,32,64,100,128,256,512)',
            'learn.update_per_collect': 'choice(1,2,4,8)',
            'learn.target_update_freq': 'lograndint(1,20001)',
            'discount_factor': DISCOUNTS,
            'other.eps.end': 'uniform(0,0.2)',
        },
    )

    @classmethod
    def starting(cls, facts: Facts) -> Settings:
        return dict(
            discount_factor=0.99,
            model=facts.encoder([128, 128]) | dict(dueling=False),
            learn=dict(update_per_collect=4, batch_size=128, learning_rate=1e-3, target_update_freq=20),
            collect=dict(n_sample=8),
            other=dict(eps=facts.exploration(10), replay_buffer=dict(replay_buffer_size=facts.buffer_size)),
        )

    @classmethod
    def check_config(cls, cfg: EasyDict) -> list[ConfigError]:
        """Refuses combinations that mean nothing."""
        errors = super().check_config(cfg)
        if 'target_theta' not in cfg.learn:  # it has no target network
            return errors
        learn: QLearn = cfg.learn
        if (learn.target_update_freq is None) == (learn.target_theta is None):
            given = f'target_update_freq ({learn.target_update_freq}) and target_theta ({learn.target_theta})'
            message = f'set one of {given}, and the other to None'
            errors.append(ConfigError(message, where='learn.target_theta'))
        return errors

    # acting

    def init_eval(self) -> None:
        self._noisy = bool(self._cfg.model.get('noisy'))

    def init_collect(self) -> None:
        self._action_dtype = choice_dtype(self.spec)

    def values(self, obs: Any) -> torch.Tensor:
        """Returns the value of each action for observations as tensors, float32 [B, A], whatever masks forbid."""
        return self.update.output(self.model, obs).mean()

    def best_of(self, value: torch.Tensor) -> torch.Tensor:
        """Returns the actions of the highest values, [B, A], counted from 0: int64 [B, ...]."""
        return self.distribution.mode_tensor(value)

    def best_action(self, obs: torch.Tensor) -> torch.Tensor:
        """Returns the best actions in observations, as a part of a torch graph; see ``best_of``."""
        return self.best_of(self.values(obs))

    def best_step(self, obs: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the same of a network with a core, and the recurrent state after the step, [B, P, H]."""
        value, after = self.model.act(obs, state)
        return self.best_of(value), after

    def q_value(self, obs: Array) -> torch.Tensor:
        """Returns the value of each action, -inf if a mask forbids it, float32 [n, A]."""
        with torch.inference_mode():
            tensor = self.tensor(obs)
            value = self.values(tensor) if self._memory is None else self._memory.act(tensor)
            value = masked(value, mask_of(tensor))
            return value if self._on_cpu else value.cpu()

    def pick(self, value: FloatArray) -> IntArray:
        """Returns actions to collect with, where they are not random, of action values [n, A]: int64 [n], counted from 0."""
        action: IntArray = value.argmax(1)
        return action

    def forward_collect(self, obs: Array, env_id: IntArray, eps: float = 0.0, **settings: Any) -> Batch:
        action = self.pick(self.q_value(obs).numpy())
        if eps > 0 and self._has_mask:
            draw = self.rng.random(len(action)) / eps
            action = np.where(draw < 1, random_allowed(mask_of(obs), draw % 1), action)
        elif eps > 0:
            # A number below eps, divided by eps, is again uniform in [0, 1), so it also picks the random action. Two
            # vectorised draws in place of this loop take 3-8 % more of a round of collection in 8 CartPoles.
            count = self.distribution.size
            scale = count / eps
            for i, draw in enumerate(self.rng.random(len(action)).tolist()):
                if draw * scale < count:
                    action[i] = draw * scale
        return self.actions.batch(action)

    def action_prob(self, obs: Array, output: Batch, eps: float = 0.0, **settings: Any) -> FloatArray | None:
        is_ours = type(self).forward_collect is QPolicy.forward_collect and type(self).pick is QPolicy.pick
        if not is_ours or self._cfg.model.get('noisy'):
            return None
        value = self.q_value(obs).numpy()
        is_best = self.actions.from_env(output['action']) == value.argmax(1)
        allowed = np.isfinite(value).sum(1)
        return ((1 - eps) * is_best + eps / allowed).astype(np.float32)

    @property
    def eval_mode(self) -> EvalMode:
        """The functions that act as well as the policy can, but for a share ``eval.eps`` of random actions."""
        mode: EvalMode = super().eval_mode
        eps = self._cfg.eval.eps
        return with_random_actions(mode, self.spec, eps, lambda: self._eval_rng) if eps else mode

    def forward_eval(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        if self._noisy:  # noisy weights are then their means
            self.model.eval()
        action = self._best(obs)
        if self._noisy:
            self.model.train()
        return self.actions.batch(action)

    def _best(self, obs: Array) -> Array:
        """Returns the best allowed actions, [n, ...], counted from 0."""
        return self.distribution.mode(self.q_value(obs).numpy())

    def process_transition(self, obs: Array, output: Batch, timestep: TimeStep) -> dict[str, Array]:
        rows = super().process_transition(obs, output, timestep)
        rows['action'] = self.actions.from_env(rows['action']).astype(self._action_dtype)
        return rows

    def env_action(self, stored: Array) -> Array:
        return self.actions.to_env(stored.astype(np.int64))

    def get_setting_collect(self, info: Mapping[str, Any]) -> dict[str, Any]:
        return {'eps': self._eps(info['envstep'])}

    @cached_property
    def _eps(self) -> Callable[[float], float]:
        """The probability of a random action as a function of env steps."""
        return schedule_of(self._cfg.other.eps)

    def _get_settings_of(self) -> Callable[[Mapping[str, Any], int, int], Mapping[str, Any]] | None:
        return self._settings_of if self._cfg.other.eps_ladder else None

    def _settings_of(self, settings: Mapping[str, Any], place: int, count: int) -> Mapping[str, Any]:
        """Returns the settings of one of several collectors, whose eps form a ladder.

        Source:
            Horgan et al., Distributed Prioritized Experience Replay (2018), section 4.1.
        """
        share = place / (count - 1) if count > 1 else 0.0
        return {**settings, 'eps': settings['eps'] ** (1 + self._cfg.other.eps_ladder * share)}

    # learning with memories

    def columns(self, data: Batch) -> Rows:
        return super().columns(data) if self._memory is None else remembered(self, data)

    # priorities of new transitions

    def _get_priority_of(self) -> Callable[[Batch], Any] | None:
        if self._cfg.get('first_priority') != 'error':
            return None
        return self._normalizer.learning(self._first_priority)

    @cached_property
    def _judge(self) -> Any:
        """The update as a collector can compute its errors: the network that acts is its own target network."""
        return type(self.update)(self.model, self._cfg, self.spec)

    def _first_priority(self, data: Batch) -> FloatArray:
        """Returns the priority of new transitions, float32 [M], by the network that acts alone.

        Source:
            Horgan et al., Distributed Prioritized Experience Replay (2018), section 3.
        """
        with torch.inference_mode():
            rows = self.columns(data)
            priority: FloatArray = self._judge.loss(rows).error.abs().cpu().numpy()
        return priority


@POLICY_REGISTRY.register('dqn')
class DQNPolicy(QPolicy):
    """Deep Q-network.

    Source:
        Mnih et al., Human-level control through deep reinforcement learning (2015). Double: van Hasselt et al. (2016),
        dueling: Wang et al. (2016), prioritized replay: Schaul et al. (2016).
    """

    _cfg: DQNConfig
    update_class = DQNUpdate
    solves = 'CartPole-v1', 40_000
