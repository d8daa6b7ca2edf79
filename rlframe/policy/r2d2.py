"""R2D2: DQN with an LSTM, trained on sequences that begin with the recurrent state that was acted on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rlframe.data.timestep import Batch, FloatArray, IntArray
from rlframe.policy.dqn import DoubleConfig, DQNLearn, QModel, QPolicy, QUpdate
from rlframe.policy.parts.actions import mask_of, masked
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.memory import BURN_IN, PRIORITY_ETA, priority_of_sequences
from rlframe.policy.parts.options import BATCH_SIZE, HIDDEN_SIZES
from rlframe.policy.parts.outputs import Cost, Output, Values, chosen
from rlframe.policy.parts.sequences import Rows, listed_rows, reward_windows
from rlframe.policy.parts.starting import Facts, Settings
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch

if TYPE_CHECKING:
    from rlframe.model.core import Remembered

PIECE = 256
"""Steps that are valued at a time for first priorities; their errors are computed for PIECE² steps at a time."""
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


class R2D2Update(QUpdate):
    """Double Q-learning over the steps of sequences, which each network goes through once."""

    def output(self, network: Any, obs: Remembered, tau: torch.Tensor | None = None) -> Output:
        """Returns what a network says of all steps of the sequences, [R, A]."""
        kind = SquareRoots if self.cfg.value_rescale else Values
        return kind(network(obs.obs, obs.unroll), self.cfg.learn.kappa)

    def loss(self, rows: Rows) -> Loss:
        """Returns the mean over the steps that are learned from."""
        seen, behind = rows['obs'], rows['next_obs']
        online = self.output(self.model, seen)
        # target
        with torch.no_grad():
            target = self.output(self.targets.network, seen)
            judge = online if self.double else target
            best = masked(judge.mean(), mask_of(seen.obs)).argmax(1)
            reached = target.like(chosen(target.value, best)[behind.row])
            wanted = reached.target(rows['reward'], self.targets.discount(rows))
        # loss
        value = online.like(online.value[seen.row]).gather(rows['action'])
        fit = value.fit(wanted, self.targets.weight(rows))
        return Loss(fit.loss, fit.metrics(), fit.error)


@POLICY_REGISTRY.register('r2d2')
class R2D2Policy(QPolicy):
    """R2D2: DQN with an LSTM that learns from replayed sequences.

    The actors of the paper are those of the config, for example ``collector.backend='ray'``, and so are its replay
    (``replay_buffer.backend='ray'``) and the eps of each actor (``other.eps_ladder``). Each transition carries the
    recurrent state that its action was chosen with. A sequence of the replay buffer 'sequence' is processed from the state
    of its first step; the steps of its burn-in have no loss.

    Source:
        Kapturowski et al., Recurrent Experience Replay in Distributed Reinforcement Learning (2019), sections 2.3 and
        3.
    """

    _cfg: R2D2Config
    is_recurrent = True
    default_network = 'recurrent_q_net'
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
            'model.collector_env_num': 'of NGU: what is paid has one weight in all envs',
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
    solves: tuple[str, int] | None = ('CartPole-v1', 40_000)

    @classmethod
    def starting(cls, facts: Facts) -> Settings:
        settings = super().starting(facts) | dict(
            nstep=5, value_rescale=True
        )  # as in the paper: values of any size
        settings['model'] = facts.encoder([64])
        settings['learn'] |= dict(
            update_per_collect=2, batch_size=32, target_update_freq=50, grad_clip_norm=10.0
        )
        settings['collect'] |= dict(collector=dict(mark_episodes=True))
        settings['other']['replay_buffer'] |= dict(unroll_len=20, burn_in=10)
        return settings

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
        stop = last[part] + 1
        begin = np.append(0, last + 1)[part]
        unroll_len = (self._cfg.other.get('replay_buffer') or {}).get('unroll_len', count)
        start = np.maximum(np.minimum(np.arange(count), stop - unroll_len), begin)
        length = np.minimum(stop - start, unroll_len)

        priority: FloatArray = np.empty(count, np.float32)
        with torch.inference_mode():
            valued = [self._acting_values(new[piece]) for piece in _pieces(count, PIECE)]
            value, reached = (torch.cat(column) for column in zip(*valued, strict=True))
            for piece in _pieces(count, max(PIECE * PIECE // int(length.max()), 1)):
                error, sequence = self._acting_error(start[piece], length[piece], new, value, reached)
                found = priority_of_sequences(error, sequence, len(start[piece]), self._cfg.priority_eta)
                priority[order[piece]] = found.cpu().numpy()
        return priority

    def _acting_values(self, new: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the value of the action of each step, and of the best one behind it, float32 [n], by its stored state."""
        names = 'obs', 'next_obs', 'action', 'state'
        obs, next_obs, action, state = (self.tensor(new[name]) for name in names)
        value, after = self.model.step(obs, state)
        reached = masked(self.model.step(next_obs, after)[0], mask_of(next_obs)).amax(1)
        return chosen(value, action), reached

    def _acting_error(
        self, start: IntArray, length: IntArray, new: Batch, value: torch.Tensor, reached: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the absolute error of each step of sequences of new steps, float32 [K], and its sequence, int64 [K].

        ``value`` and ``reached`` are those of all new steps, [M]; see ``_acting_values``.
        """
        cfg = self._cfg
        row, _, sequence = listed_rows(start, length)
        stop = np.repeat(start + length, length)
        reward, discount, last = reward_windows(new['reward'], row, stop, cfg.nstep, cfg.discount_factor)
        discount = np.where(new['terminated'][last], np.float32(0), discount)
        kind = SquareRoots if cfg.value_rescale else Values
        wanted = kind(reached[self.tensor(last)]).target(self.tensor(reward), self.tensor(discount))
        return (wanted - value[self.tensor(row)]).abs(), self.tensor(sequence)


def _pieces(count: int, size: int) -> list[slice]:
    """Divides so many rows into pieces."""
    return [slice(first, first + size) for first in range(0, count, size)]


class SquareRoots(Values):
    """Mean returns as the network learns them with ``value_rescale``; see ``rescale``."""

    def like(self, value: torch.Tensor) -> SquareRoots:
        return SquareRoots(value, self._kappa)

    def target(self, reward: torch.Tensor, discount: torch.Tensor, cost: Cost = None) -> torch.Tensor:
        return rescale(Values(unscale(self.value)).target(reward, discount, cost))


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
