"""R2D2: DQN with an LSTM, trained on sequences that begin with the recurrent state that was acted on."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from rlframe.data.timestep import Array, Batch, EnvSpec, FloatArray, IntArray, TimeStep
from rlframe.policy.dqn import DoubleConfig, DQNLearn, DQNUpdate, QModel, QPolicy
from rlframe.policy.parts.actions import mask_of, masked
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.memory import BURN_IN, PRIORITY_ETA
from rlframe.policy.parts.options import BATCH_SIZE, HIDDEN_SIZES
from rlframe.policy.parts.outputs import chosen, td_loss
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch

PIECE = 256
"""Steps, or sequences, whose first priorities are computed at a time."""
RESCALE_EPS = 1e-3
"""Share of the value that ``rescale`` leaves linear, so that it can be inverted."""


class R2D2Model(QModel):
    """Section ``model`` of R2D2."""

    encoder_hidden_size_list: list[int] = option(HIDDEN_SIZES.having([128, 64]))
    core: Literal['lstm', 'gru'] = option('lstm', doc='recurrent core behind the hidden layers')
    lstm_hidden_size: int = option(64, range='[1, inf)', unit='units', doc='width of the recurrent core')


class R2D2Learn(DQNLearn):
    """Section ``learn`` of R2D2."""

    batch_size: int = option(BATCH_SIZE.having(64, unit='sequences'))
    burn_in: int = option(BURN_IN)


class R2D2Config(DoubleConfig):
    """Options of R2D2."""

    priority_eta: float = option(PRIORITY_ETA)
    value_rescale: bool = option(
        False, doc='whether the network learns square roots of values, for returns of any size'
    )
    model: R2D2Model
    learn: R2D2Learn


class R2D2Update(DQNUpdate):
    """Double Q-learning over sequences, whose windows of rewards end with the sequence or its episode."""

    def __init__(self, model: torch.nn.Module, cfg: Any, spec: EnvSpec) -> None:
        super().__init__(model, cfg, spec)
        self._burn_in, self._nstep = cfg.learn.burn_in, cfg.nstep
        self._rescales, self._eta = cfg.value_rescale, cfg.priority_eta

    def loss(self, rows: Rows) -> Loss:
        """Returns the mean over the real steps of sequences, with the priority of each sequence."""
        names = 'action', 'reward', 'terminated', 'mask'
        action, reward, terminated, mask = (rows[name] for name in names)  # [B, T]
        # values of each obs, and of the one behind the last step
        online = self._values(self.model, rows)  # [B, T + 1, A]
        value = online[:, :-1].gather(2, action.long().unsqueeze(2)).squeeze(2)
        # target
        with torch.no_grad():
            target = self._values(self.targets.network, rows)
            judge = (online if self.double else target).flatten(0, 1)
            best = masked(judge, mask_of(rows['obs'])).argmax(1).view(len(online), -1, 1)
            reached = target.gather(2, best).squeeze(2)
            reached = unscale(reached) if self._rescales else reached
            discount = self.targets.discount_factor
            wanted = sequence_targets(reward, terminated, mask, reached, discount, self._nstep)
            wanted = rescale(wanted) if self._rescales else wanted
        # loss, over the real steps
        priority, steps = padded_priority((wanted - value.detach()).abs(), mask, self._eta), mask.sum(1)
        losses = (td_loss(value, wanted, self._kappa) * mask).sum(1) / steps
        count = steps.sum()
        metrics = {
            'q_value': (value.detach() * mask).sum() / count,
            'target_q_value': (wanted * mask).sum() / count,
        }
        return Loss(self.targets.mean(losses, rows), metrics, priority)

    def _values(self, network: Any, rows: Rows) -> torch.Tensor:
        """Returns a network's values for each step and for the obs after the last one, float32 [B, T + 1, A]."""
        stored = rows['state']
        with torch.no_grad():
            early = rows['early'], stored, rows['early_mask']
            state = network.burn_in(*early) if self._burn_in else stored
        value: torch.Tensor = network(rows['obs'], state)[0]
        return value.unflatten(0, (len(stored), -1))


@POLICY_REGISTRY.register('r2d2')
class R2D2Policy(QPolicy):
    """R2D2: DQN with an LSTM that learns from replayed sequences.

    The actors of the paper are those of the config, for example ``collector.backend='ray'``, and so are its replay
    (``replay_buffer.backend='ray'``) and the eps of each actor (``other.eps_ladder``). Each transition carries the
    recurrent state that its action was chosen with. A sequence of the replay buffer 'sequence' is processed from the state
    of its first step; its burn-in only updates that state with the current network.

    Source:
        Kapturowski et al., Recurrent Experience Replay in Distributed Reinforcement Learning (2019), sections 2.3 and
        3.
    """

    _cfg: R2D2Config
    is_recurrent = True
    update_class = R2D2Update
    ding = DingNames(
        options={
            'unroll_len': 'other.replay_buffer.unroll_len',
            'learn.value_rescale': 'value_rescale',
            'burnin_step': 'other.replay_buffer.burn_in',
            'learn_unroll_len': 'other.replay_buffer.unroll_len',
        },
        defaults={
            'other.replay_buffer.replay_buffer_size': 10_000,
            'priority': True,
            'priority_IS_weight': True,
            'discount_factor': 0.997,
            'nstep': 5,
            'value_rescale': True,
            'model.encoder_hidden_size_list': [128, 128, 64],
            'learn.update_per_collect': 1,
            'learn.learning_rate': 1e-4,
            'collect.n_sample': 32,
            'other.replay_buffer.unroll_len': 80,
            'other.replay_buffer.burn_in': 20,
            'other.eps': {'type': 'exp', 'start': 0.95, 'end': 0.05, 'decay': 10_000},
        },
        unused={
            'other.replay_buffer.max_use': 'the sequence replay buffer has no such limit',
            'other.replay_buffer.max_staleness': 'the sequence replay buffer has none',
            'other.replay_buffer.monitor': 'the sequence replay buffer has none',
            'other.replay_buffer.thruput_controller': 'the sequence replay buffer has none',
            'collect.unroll_len': 'replay_buffer.unroll_len and burn_in',
            'model.lstm_type': 'always an LSTM',
            'model.res_link': 'networks have no residual connections',
        },
    )
    toy = QPolicy.toy | dict(
        priority=True,
        priority_IS_weight=True,
        nstep=2,
        discount_factor=0.97,
        model=dict(encoder_hidden_size_list=[32], lstm_hidden_size=16),
        collect=dict(n_sample=16),
        other=QPolicy.toy['other']
        | dict(replay_buffer=dict(replay_buffer_size=5000, unroll_len=6, burn_in=2, priority=True)),
    )
    solves = 'CartPole-v1', 40_000

    def default_model(self) -> str:
        return 'recurrent_q_net'

    def _get_nstep(self) -> int:
        """Rewards are summed over the sequence, when it is learned from: the collector is to leave them as they are."""
        return 1

    def forward_collect(self, obs: Array, env_id: IntArray, eps: float = 0.0, **settings: Any) -> Batch:
        before = self._remember(env_id)
        return super().forward_collect(obs, env_id, eps, **settings).replace(**before)

    def forward_eval(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        self._remember(env_id, is_evaluation=True)
        return super().forward_eval(obs, env_id, **settings)

    def forward_greedy(self, obs: Array, env_id: IntArray) -> Batch:
        before = self._remember(env_id)
        return super().forward_eval(obs, env_id).replace(**before)

    def best_step(self, obs: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the action of the highest value, int64 [B], and the recurrent state after the step, [B, P, H]."""
        value, after = getattr(self.model, 'act', self.model)(obs, state)
        return value.argmax(1), after

    def q_value(self, obs: Array) -> torch.Tensor:
        assert self._memory is not None  # the network has a core
        with torch.inference_mode():
            tensor = self.tensor(obs)
            value = self._memory.step(self.model, tensor, self.tensor)
            return masked(value, mask_of(tensor)).cpu()

    def process_transition(self, obs: Array, output: Batch, timestep: TimeStep) -> dict[str, Array]:
        return super().process_transition(obs, output, timestep) | {'state': output['state']}

    def columns(self, data: Batch) -> Rows:
        """Returns the steps that are learned from, [B, T], and the inputs of the networks, one step behind the other."""
        start, mask = self._cfg.learn.burn_in, data['mask']
        names = 'action', 'reward', 'terminated', 'mask'
        rows = {name: self.tensor(data[name][:, start:]) for name in names}
        sequence, first = np.arange(len(mask)), mask.argmax(1)
        seen = np.concatenate([data['obs'][:, start : start + 1], data['next_obs'][:, start:]], 1)
        rows |= {
            'state': self.tensor(data['state'][sequence, first]),  # [B, P, H]
            'early': self._steps(data['obs'][:, :start]),
            'early_mask': self.tensor(mask[:, :start]),
            'obs': self._steps(seen),
        }
        return rows | ({'IS': self.tensor(data['IS'])} if 'IS' in data else {})

    def _first_priority(self, data: Batch) -> FloatArray:
        """Returns the priority of the sequence that begins with each new step, float32 [M], by its steps in this round.

        Values are those of the network that acts alone, from the states that it acted in. The rows of an env are in time
        order. Near the end of an episode, or of the round, a sequence begins earlier, as in the replay buffer.

        Source:
            Kapturowski et al. (2019), section 2.3.
        """
        count = len(data)
        env_id = np.asarray(data['env_id']) if 'env_id' in data else np.zeros(count, np.int64)
        order = np.argsort(env_id, kind='stable')
        new, env_id = data[order], env_id[order]
        ends = new['terminated'] | new['truncated']
        ends[:-1] |= env_id[1:] != env_id[:-1]
        if 'episode_step' in new:
            ends[:-1] |= new['episode_step'][1:] == 0
        ends[-1:] = True

        # where the sequence of each step begins, and behind which step it ends
        last = np.flatnonzero(ends)
        part = np.searchsorted(last, np.arange(count))
        stop, begin = last[part] + 1, np.append(0, last + 1)[part]
        unroll_len = (self._cfg.other.get('replay_buffer') or {}).get('unroll_len', count)
        start = np.maximum(np.minimum(np.arange(count), stop - unroll_len), begin)
        length = np.minimum(stop - start, unroll_len)

        priority: FloatArray = np.empty(count, np.float32)
        pieces = [slice(first, first + PIECE) for first in range(0, count, PIECE)]
        with torch.inference_mode():
            valued = [self._acting_values(new[piece]) for piece in pieces]
            value, reached = (torch.cat(column) for column in zip(*valued, strict=True))
            columns = {name: self.tensor(new[name]) for name in ('reward', 'terminated')}
            columns |= {'value': value, 'reached': reached}
            for piece in pieces:
                found = self._acting_priority(start[piece], length[piece], columns)
                priority[order[piece]] = found.cpu().numpy()
        return priority

    def _acting_values(self, new: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the value of the action of each step, and of the best one behind it, float32 [n], by its stored state."""
        names = 'obs', 'next_obs', 'action', 'state'
        obs, next_obs, action, state = (self.tensor(new[name]) for name in names)
        value, after = self.model(obs, state)
        reached = masked(self.model(next_obs, after)[0], mask_of(next_obs)).amax(1)
        return chosen(value, action), unscale(reached) if self._cfg.value_rescale else reached

    def _acting_priority(self, start: IntArray, length: IntArray, columns: Rows) -> torch.Tensor:
        """Returns the priorities of sequences, float32 [n], from columns of all steps, [M]; see ``_acting_values``."""
        place = np.arange(length.max())
        is_step = place < length[:, None]
        step = self.tensor(np.where(is_step, start[:, None] + place, start[:, None]))  # [n, T]
        mask, rows = self.tensor(is_step), {name: column[step] for name, column in columns.items()}
        behind, cfg = rows['reached'], self._cfg
        values = torch.cat([behind[:, :1], behind], 1)  # that of the first obs is not read
        ends = rows['reward'], rows['terminated'], mask
        wanted = sequence_targets(*ends, values, cfg.discount_factor, cfg.nstep)
        wanted = rescale(wanted) if cfg.value_rescale else wanted
        return padded_priority((wanted - rows['value']).abs(), mask, cfg.priority_eta)

    def _steps(self, column: Array) -> Any:
        """Puts the steps of all sequences one behind the other: [B, T, ...] to [B * T, ...]."""
        return self.tensor(column.reshape(-1, *column.shape[2:]))


def padded_priority(error: torch.Tensor, mask: torch.Tensor, eta: float) -> torch.Tensor:
    """Returns the priority of each padded sequence, float32 [B], from the absolute errors of its steps, [B, T].

    Source:
        Kapturowski et al. (2019), section 2.3.
    """
    error = error * mask
    return eta * error.amax(1) + (1 - eta) * error.sum(1) / mask.sum(1)


def sequence_targets(
    reward: torch.Tensor,
    terminated: torch.Tensor,
    mask: torch.Tensor,
    value: torch.Tensor,
    discount_factor: float,
    nstep: int,
) -> torch.Tensor:
    """Sums ``nstep`` discounted rewards and the value behind them; windows end with the sequence or its episode.

    ``reward``, ``terminated``, where the episode ended in a terminal state, and ``mask``, False behind its last step, are
    [B, T]; ``value`` is that of the obs of each step and of that behind the last one, float32 [B, T + 1].

    Returns:
        float32 [B, T]; undefined where ``mask`` is False.

    Source:
        Sutton & Barto, Reinforcement Learning (2018), eq. 7.1.
    """
    discount = discount_factor * ~terminated
    result = value
    for _ in range(nstep):
        longer = torch.where(mask, reward + discount * result[:, 1:], value[:, :-1])
        result = torch.cat([longer, value[:, -1:]], 1)
    return result[:, :-1]


def rescale(value: torch.Tensor) -> torch.Tensor:
    """Returns sign(x) (sqrt(|x| + 1) - 1) + eps x of each value.

    Source:
        Pohlen et al., Observe and Look Further: Achieving Consistent Performance on Atari (2018), section 3.2.
    """
    return value.sign() * ((value.abs() + 1).sqrt() - 1) + RESCALE_EPS * value


def unscale(value: torch.Tensor) -> torch.Tensor:
    """Inverts ``rescale``.

    Source:
        Pohlen et al. (2018), proposition A.2.
    """
    root = (1 + 4 * RESCALE_EPS * (value.abs() + 1 + RESCALE_EPS)).sqrt()
    return value.sign() * (((root - 1) / (2 * RESCALE_EPS)).square() - 1)
