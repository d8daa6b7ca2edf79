"""MR.Q: TD3 on features that are learned by predicting rewards, next features and ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from rlframe.data.faces import Metrics
from rlframe.data.observation import mapped
from rlframe.data.timestep import Array, Batch, EnvSpec
from rlframe.errors import ConfigError
from rlframe.policy.base_policy import Policy
from rlframe.policy.ddpg import DDPGCollect
from rlframe.policy.dqn import TDConfig
from rlframe.policy.parts.actions import mask_of, masked
from rlframe.policy.parts.options import (
    BATCH_SIZE,
    UPDATE_PER_COLLECT,
    Activation,
    ImageModel,
    Schedule,
    check_widths,
    grad_clip_norm,
    learning_rate,
    refused,
)
from rlframe.policy.parts.outputs import Values
from rlframe.policy.parts.sections import LearnConfig
from rlframe.policy.parts.sequences import Rows, reward_windows, steps_of
from rlframe.policy.parts.starting import Facts, Settings
from rlframe.policy.qac import QACPolicy, QACUpdate
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch
from rlframe.utils.schema import check_state, tensor_like

LEAST_PRIORITY = 1.0
"""Smallest error that is a priority: below, the Huber loss is a squared error, which draws such rows often enough."""


def check_features(widths: list[int]) -> str:
    """Returns a description of valid widths if these are invalid, else an empty string."""
    return check_widths(widths) or ('' if widths else 'one width or more')


class MRQModel(ImageModel):
    """Section ``model`` of MR.Q."""

    encoder_hidden_size_list: list[int] = option(
        [256, 256, 256],
        unit='units',
        doc='widths of the state encoder; all other layers are as wide as its last one',
        check=check_features,
    )
    activation: Activation = option('elu', doc='nonlinearity')


class MRQLearn(LearnConfig):
    """Section ``learn`` of MR.Q."""

    update_per_collect: int = option(UPDATE_PER_COLLECT.having(16))
    batch_size: int = option(BATCH_SIZE.having(256, unit='sequences'))
    learning_rate_encoder: Schedule = option(learning_rate(1e-4, 'Adam for the encoder'))
    learning_rate_critic: Schedule = option(learning_rate(3e-4, 'Adam for the critics'))
    learning_rate_actor: Schedule = option(learning_rate(3e-4, 'Adam for the actor'))
    grad_clip_norm: float | None = option(grad_clip_norm('each gradient', 20.0))
    target_update_freq: int = option(
        250,
        range='[1, inf)',
        unit='train iterations',
        doc='updates of the encoder, then of critics and actor, before target networks are copied',
        may_change=True,
    )
    target_noise: float = option(
        0.2,
        range='[0, inf)',
        doc="standard deviation of noise on the target actor's actions",
        may_change=True,
    )
    target_noise_clip: float = option(0.3, range='(0, inf)', doc='largest such noise', may_change=True)
    dynamics_weight: float = option(
        1.0, range='[0, inf)', doc='weight of predicting next features', may_change=True
    )
    reward_weight: float = option(0.1, range='[0, inf)', doc='weight of predicting rewards', may_change=True)
    terminal_weight: float = option(0.1, range='[0, inf)', doc='weight of predicting ends', may_change=True)
    action_weight: float = option(
        1e-5, range='[0, inf)', doc="weight of the squares of the actor's outputs", may_change=True
    )
    gumbel_tau: float = option(
        10.0, range='(0, inf)', doc='temperature of the draws of Discrete actions', may_change=True
    )


class MRQConfig(TDConfig):
    """Options of MR.Q."""

    model: MRQModel
    learn: MRQLearn
    collect: DDPGCollect


class MRQUpdate(QACUpdate):
    """An encoder that learns from sequences, and in turns with it TD3 on its features, which stay as they are meanwhile."""

    losses = {'encoder_loss': 'encoder', 'critic_loss': 'critic', 'actor_loss': 'actor'}
    logged = (
        *('encoder_loss', 'dynamics_loss', 'reward_loss', 'terminal_loss', 'reward_scale'),
        *QACUpdate.logged,
    )
    target_parts = ('encoder', 'critic', 'actor')
    needs_whole_batch = True
    why_alone = 'copies target networks, and sets the scale of rewards, between updates'

    def __init__(self, model: torch.nn.Module, cfg: Any, spec: EnvSpec) -> None:
        super().__init__(model, cfg, spec)
        from rlframe.model.qac import action_size

        self.action_size = action_size(spec)
        self.is_discrete = hasattr(spec.action_space, 'n')
        self.scale = torch.ones(2, device=self.device)
        """Mean absolute reward that values are divided by, and the one that those of the target critics were."""
        self.rewards = torch.zeros(2, device=self.device)
        """Sum of the mean absolute rewards of batches of the encoder since the scale was set, and their number."""

    @property
    def turn(self) -> bool:
        """Whether the encoder learns, not critics and actor."""
        return self.updates // self.cfg.learn.target_update_freq % 2 == 0

    def is_due(self, name: str, turn: bool) -> bool:
        return (name == 'encoder_loss') == turn

    def follow(self, turn: bool) -> None:
        """Leaves target networks alone: ``begin_period`` copies them."""

    def begin_period(self) -> None:
        """Copies target networks where the encoder's turn begins, and sets the scale of rewards where it has ended."""
        if self.updates % self.cfg.learn.target_update_freq:
            return
        if self.turn:
            self.targets.copy()
            return
        total, count = self.rewards
        mean = torch.where(total > 0, total / count, self.scale[0])  # without rewards, the scale stays
        self.scale.copy_(torch.stack([mean, self.scale[0]]))
        self.rewards.zero_()

    def draws(self, rng: np.random.Generator, count: int) -> dict[str, Array]:
        size = count, self.action_size
        gumbel = rng.gumbel(size=size) if self.is_discrete else np.zeros(size)
        return {'next_noise': self.noise(rng, count), 'gumbel': gumbel.astype(np.float32)}

    def encoder_loss(self, rows: Rows) -> Loss:
        """Returns the errors of predictions, made of predicted features, of what each step of the sequences led to."""
        cfg = self.cfg.learn
        encoder = self.model.encoder
        mask = rows['mask'].float()
        steps = mask.shape[1]
        with torch.no_grad():
            later = mapped(lambda part: part.flatten(0, 1), rows['next_obs'])
            reached = self.targets.network['encoder'](later).unflatten(0, (-1, steps))  # [B, T, F]
        features = encoder(rows['obs'])
        dynamics = reward = terminal = mask.new_zeros(())
        for t in range(steps):
            pair = encoder.paired(features, rows['action'][:, t])
            logit, features, end = encoder.predicted(pair)
            real = mask[:, t]
            dynamics = dynamics + ((features - reached[:, t]).square().mean(1) * real).mean()
            reward = reward + (encoder.reward_loss(logit, rows['reward'][:, t]) * real).mean()
            terminal = terminal + ((end - rows['terminated'][:, t].float()).square() * real).mean()
        value = cfg.dynamics_weight * dynamics + cfg.reward_weight * reward + cfg.terminal_weight * terminal
        each = {'dynamics_loss': dynamics, 'reward_loss': reward, 'terminal_loss': terminal}
        metrics = {name: part.detach() for name, part in each.items()}
        return Loss(value, metrics | {'absolute_reward': rows['reward'][:, 0].abs().mean()})

    def critic_loss(self, rows: Rows) -> Loss:
        """Returns the Huber losses of the scaled values of the actions taken to their target."""
        # target
        with torch.no_grad():
            target = self.targets.network
            features = target['encoder'](rows['next_obs'])
            raw = self.masked(target['actor'](features), rows['next_obs'])
            action = self.next_action(self.squashed(raw, rows['gumbel']), rows)
            next_value = Values(target['critic'](target['encoder'].paired(features, action))).smallest()
            discount = self.targets.discount(rows) * self.scale[1]
            wanted = next_value.target(rows['reward'], discount) / self.scale[0]
            pair = self.model.encoder.paired(self.model.encoder(rows['obs']), rows['action'])
        # critics
        value = self.model.critic(pair)
        loss = self.fitted(Values(value, kappa=1.0), wanted, rows)
        error = (wanted - value.detach()).abs().amax(0).clamp(min=LEAST_PRIORITY)
        return loss._replace(metrics={**loss.metrics, 'reward_scale': self.scale[0].clone()}, error=error)

    def actor_loss(self, rows: Rows) -> Loss:
        """Returns minus the value of the actor's actions, and how large its outputs are."""
        with torch.no_grad():
            features = self.model.encoder(rows['obs'])
        raw = self.model.actor(features)
        action = self.squashed(self.masked(raw, rows['obs']), rows['gumbel'])
        value = self.model.critic(self.model.encoder.paired(features, action))
        return Loss(-value.mean() + self.cfg.learn.action_weight * raw.square().mean())

    def squashed(self, raw: torch.Tensor, gumbel: torch.Tensor) -> torch.Tensor:
        """Returns actions in [-1, 1], [B, A], that outputs of the actor mean; a Discrete one has a score for each class.

        ``gumbel`` are random numbers that draw scores; zeros give their means.
        """
        if not self.is_discrete:
            return raw.tanh()
        return 2 * ((raw + gumbel) / self.cfg.learn.gumbel_tau).softmax(1) - 1

    def next_action(self, action: torch.Tensor, rows: Rows) -> torch.Tensor:
        """Returns actions [B, A] of the next states with noise; of Discrete ones the best class has 1, all others -1."""
        cfg = self.cfg.learn
        noise = (rows['next_noise'] * cfg.target_noise).clamp_(-cfg.target_noise_clip, cfg.target_noise_clip)
        noisy = (action + noise).clamp_(-1, 1)
        if not self.is_discrete:
            return noisy
        from rlframe.model.core import one_hot

        best = masked(noisy, mask_of(rows['next_obs'])).argmax(1)
        return 2 * one_hot(best, self.action_size) - 1

    def after(self, name: str, loss: Loss) -> Metrics:
        if name == 'encoder_loss':
            self.rewards[0] += loss.metrics['absolute_reward']
            self.rewards[1] += 1
        return {}

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {'scale': self.scale.clone(), 'rewards': self.rewards.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        own = {'scale': self.scale, 'rewards': self.rewards}
        check_state(state, {name: tensor_like(tensor) for name, tensor in own.items()})
        for name, tensor in own.items():
            tensor.copy_(state[name])


def check_sequences(cfg: Any) -> list[ConfigError]:
    """Refuses a burn-in, as there is no recurrent state, and sums of more rewards than sequences have."""
    buffer = cfg.other.get('replay_buffer') or {}
    errors = []
    if buffer.get('burn_in'):
        message = 'MR.Q has no recurrent state to warm up'
        errors.append(refused(cfg, 'other.replay_buffer.burn_in', message, '0'))
    length = buffer.get('unroll_len', cfg.nstep)
    if cfg.nstep > length:
        message = 'the rewards of a sum are those of one sequence'
        errors.append(refused(cfg, 'nstep', message, f'at most other.replay_buffer.unroll_len ({length})'))
    return errors


@POLICY_REGISTRY.register('mrq')
class MRQPolicy(QACPolicy):
    """MR.Q, model-based representations for Q-learning: TD3 on features that predict rewards, next features and ends.

    One setting for continuous and for Discrete actions, which the actor draws by Gumbel-softmax. The encoder predicts as
    many steps as a sequence of the replay buffer has (``unroll_len``; the paper has 5). Encoder, and critics with actor, learn in
    turns of ``target_update_freq`` updates, so that the paper's one update for each env step is two here. Where a sequence ends
    with its episode, values are learned from a random step of it, as the last ones begin no sequence of their own.

    Source:
        Fujimoto et al., Towards General-Purpose Model-Free Reinforcement Learning (2025), section 4.2, eq. 14, 19 and 20, and
        appendix B. Rewards are scaled by the mean of those that the encoder learned from, where the authors take that of the
        whole replay buffer; all gradients are clipped, and weights do not decay.
    """

    _cfg: MRQConfig
    config: dict[str, Any] = dict(nstep=3, collect=dict(noise_sigma=0.2))
    supported_actions = 'Discrete, Box'
    supports_action_mask = True
    replays_sequences = True
    default_network = 'mrq'
    update_class = MRQUpdate
    checks = (check_sequences,)
    toy: dict[str, Any] = dict(
        discount_factor=0.5,
        nstep=2,
        random_collect_size=64,
        model=dict(encoder_hidden_size_list=[32, 32]),
        learn=dict(
            batch_size=64,
            learning_rate_encoder=3e-3,
            learning_rate_critic=3e-3,
            learning_rate_actor=3e-3,
            target_update_freq=20,
        ),
        collect=dict(n_sample=8),
        other=dict(replay_buffer=dict(unroll_len=3)),
    )
    solves = 'Pendulum-v1', 6_000
    search_space = QACPolicy.search_space.without(
        'learn.target_theta', source=f'{QACPolicy.search_space.source}; target networks are copied'
    )

    @classmethod
    def starting(cls, facts: Facts) -> Settings:
        return dict(
            priority=True,
            nstep=3,
            random_collect_size=1000,
            model=facts.encoder([128, 128, 128]),
            learn=dict(
                update_per_collect=16,
                batch_size=128,
                learning_rate_encoder=1e-3,
                learning_rate_critic=1e-3,
                learning_rate_actor=1e-3,
                target_update_freq=100,
            ),
            collect=dict(n_sample=8, noise_sigma=0.2, collector=dict(mark_episodes=True)),
            other=dict(
                replay_buffer=dict(
                    replay_buffer_size=facts.buffer_size, unroll_len=5, priority=True, alpha=0.4
                )
            ),
        )

    def model_kwargs(self) -> dict[str, Any]:
        return Policy.model_kwargs(self)  # its network has two critics, and one kind of actor

    def acted(self, obs: Any) -> Any:
        raw = self.model.actor(self.model.encoder(obs))
        return self.update.squashed(self.masked(raw, obs), torch.zeros_like(raw))

    def _meant(self, action: torch.Tensor, obs: Any) -> torch.Tensor:
        return masked(action, mask_of(obs)).argmax(1) if self.update.is_discrete else action

    def forward_learn(self, data: Batch) -> Metrics | Iterable[Callable[[], Metrics]]:
        self.update.begin_period()
        return super().forward_learn(data)

    def columns(self, data: Batch) -> Rows:
        """Returns sequences if it is the encoder's turn, else transitions of one step of each, with the sum of rewards."""
        steps = steps_of(data)
        found = self._sequences(steps) if self.update.turn else self._transitions(steps)
        if 'IS' in data:
            found['IS'] = data['IS']
        return {name: self.tensor(column) for name, column in found.items()}

    def _sequences(self, steps: Batch) -> dict[str, Array]:
        """Returns the columns of all steps, [B, T, ...], and the observations that they begin with, [B, ...]."""
        found = {name: steps[name] for name in ('next_obs', 'reward', 'terminated', 'mask')}
        return found | {'obs': steps['obs'][:, 0], 'action': self._scores(steps['action'])}

    def _transitions(self, steps: Batch) -> dict[str, Array]:
        """Returns the columns of one step of each sequence, and of what follows up to ``nstep`` rewards, [B, ...]."""
        mask = np.asarray(steps['mask'])
        each = np.arange(len(mask))
        length = mask.sum(1)
        has_ended = (steps['terminated'] | steps['truncated'])[each, length - 1]
        drawn = (self.rng.random(len(mask)) * length).astype(np.int64)
        first = np.where(has_ended, drawn, 0)
        # rewards of real steps, one sequence behind the other
        stop = np.cumsum(length)
        begin = stop - length
        cfg = self._cfg
        reward, discount, last = reward_windows(
            steps['reward'][mask], begin + first, stop, cfg.nstep, cfg.discount_factor
        )
        last -= begin
        return {
            'obs': steps['obs'][each, first],
            'action': self._scores(steps['action'][each, first]),
            'reward': reward,
            'next_obs': steps['next_obs'][each, last],
            'terminated': steps['terminated'][each, last],
            'value_gamma': discount,
            **self.update.draws(self.rng, len(mask)),
        }

    def _scores(self, action: Array) -> Array:
        """Returns actions as critics read them, float32 [..., A]: of a Discrete one, 1 for its class and -1 for all others."""
        if not self.update.is_discrete:
            return action
        is_class = np.asarray(action)[..., None] == np.arange(self.update.action_size)
        return np.where(is_class, np.float32(1), np.float32(-1))
