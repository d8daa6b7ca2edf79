"""Memory: the recurrent states of running episodes, and what policies learn from sequences of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rlframe.data.timestep import Batch, FloatArray, IntArray
from rlframe.errors import ConfigError
from rlframe.policy.parts.options import ImageModel, check_widths
from rlframe.policy.parts.sequences import Rows, Sequences, clear, grown, reward_windows, take
from rlframe.utils.field import Field, option
from rlframe.utils.lazy import torch
from rlframe.utils.schema import array, check_state

if TYPE_CHECKING:
    from rlframe.model.core import Unroll

UNROLL_LEN = Field(
    None,
    type=int,
    range='[2, inf)',
    unit='env steps',
    doc='longest sequence that a core is trained on; None: the steps of an env in one round, or of a batch',
)
"""Length of the sequences of a policy with a core that learns from fresh data."""
PRIORITY_ETA = Field(
    0.9,
    range='[0, 1]',
    doc='share of the largest TD error in the priority of a sequence; the rest is their mean',
)
BURN_IN = Field(
    0,
    range='[0, inf)',
    unit='env steps',
    doc='steps before each sequence that only update its recurrent state (burn-in)',
)


def _of_critics_apart(_: type[Any], cfg: Any) -> ConfigError | None:
    """Refuses widths of a critic whose hidden layers are the actor's."""
    if cfg.model.get('share_encoder') is not True:
        return None
    message = 'actor and critic share all hidden layers (model.share_encoder=True)'
    return ConfigError(message, expected="None, or model.share_encoder='images'")


def _not_of_the_actor(_: type[Any], cfg: Any) -> ConfigError | None:
    """Refuses an observation of the critic if the actor has the same hidden layers."""
    if cfg.model.critic_obs is None or cfg.model.get('share_encoder') is not True:
        return None
    message = (
        'actor and critic share all hidden layers (model.share_encoder=True), so the actor reads it, too'
    )
    return ConfigError(message, expected="None, or model.share_encoder='images'")


CRITIC_OBS = Field(
    None,
    type=str,
    doc='part of the observations that only critics read: evaluation and exported policies do without it; None: critics and actor'
    ' read the same',
    rule=_not_of_the_actor,
)


class MemoryModel(ImageModel):
    """Section ``model`` of a policy with an actor and critics, which may have a memory."""

    critic_obs: str | None = option(CRITIC_OBS)

    critic_hidden_size_list: list[int] | None = option(
        None,
        unit='units',
        doc='widths of the hidden layers of critics; None: those of the actor',
        check=check_widths,
        rule=_of_critics_apart,
    )
    core: Literal[None, 'gru', 'lstm'] = option(
        None,
        doc='recurrent core behind the hidden layers, a memory of the earlier steps of an episode; None: no memory',
    )
    core_hidden_size: int = option(
        64, range='[1, inf)', unit='units', doc='width of the recurrent core, if there is one'
    )


class EpisodeStates:
    """Keeps one recurrent state for each env's running episode; an episode begins with zeros."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._states: FloatArray = np.zeros((0, *shape), np.float32)

    def get(self, env_id: IntArray) -> FloatArray:
        """Returns a copy of the states of these envs, float32 [n, ...]."""
        self._states = grown(self._states, env_id)
        return self._states[env_id]

    def set(self, env_id: IntArray, states: FloatArray) -> None:
        """Replaces the states of these envs, of all of which ``get`` was asked before."""
        self._states[env_id] = states

    def reset(self, env_id: IntArray | None = None) -> None:
        """Lets these envs, or all, begin an episode."""
        clear(self._states, env_id)

    def state_dict(self) -> dict[str, Any]:
        """Returns a copy of all states."""
        return {'states': self._states.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        check_state(state, {'states': array('f', (None, *self._states.shape[1:]))})
        self._states = np.array(state['states'], np.float32)


class Memory:
    """The recurrent state of each running episode, in collection and in evaluation.

    Before the network acts, ``begin`` says in which episodes. ``core`` is the core that the options ask for, ``default`` the name of a
    network that has one.

    Raises:
        ConfigError: If the network has no ``state_shape``, that of a state, [P, H].
    """

    def __init__(self, model: Any, core: str, default: str, tensor: Callable[[Any], Any]) -> None:
        shape = getattr(model, 'state_shape', None)
        if shape is None:
            raise ConfigError(
                f'the network {type(model).__name__} has no state_shape, so it has no memory',
                where='policy.model.core',
                got=core,
                expected=f'None, or a network like {default!r}',
            )
        self.collect, self.evaluation = EpisodeStates(tuple(shape)), EpisodeStates(tuple(shape))
        self.is_evaluation = False
        self._model, self._tensor = model, tensor
        self._env_id: IntArray = np.empty(0, np.int64)
        self._before = self.collect.get(self._env_id)

    def begin(self, env_id: IntArray, is_evaluation: bool = False) -> FloatArray:
        """Sets the episodes that the next action continues, and returns their states, float32 [n, P, H]."""
        self.is_evaluation, self._env_id = is_evaluation, env_id
        self._before = (self.evaluation if is_evaluation else self.collect).get(env_id)
        return self._before

    def act(self, obs: Any) -> Any:
        """Does a step of the network in these episodes, and returns its output for observations, tensors [n, ...].

        In an evaluation, only the part of the network that acts has a memory.
        """
        step = self._model.act if self.is_evaluation else self._model.step
        output, after = step(obs, self._tensor(self._before))
        episodes = self.evaluation if self.is_evaluation else self.collect
        episodes.set(self._env_id, after.cpu().numpy())
        return output


def sequence_batches(policy: Any, columns: Rows, data: Batch, size: int) -> Iterator[Rows]:
    """Divides the shuffled sequences of a round into batches of about ``size`` steps; no sequence is cut.

    ``data`` are the rows of a round with the columns ``state`` and ``begins``, [M], and ``columns`` the inputs of its
    updates, [M, ...]. Sequences have at most ``learn.unroll_len`` steps, or ``size``.
    """
    from rlframe.model.core import Unroll

    tensor = policy.tensor
    sequences = Sequences(np.asarray(data['begins']), policy._cfg.learn.unroll_len or size)
    for chosen in sequences.batches(policy.rng.permutation(len(sequences)), size):
        row, step, sequence = (tensor(part) for part in sequences.rows(chosen))
        state = tensor(np.asarray(data['state'])[sequences.start[chosen]])
        unroll = Unroll(step, sequence, int(sequences.length[chosen].max()), state)
        yield take(columns, row) | {'unroll': unroll}


def unroll_of_round(policy: Any, data: Batch) -> Unroll:
    """Returns the places of all rows of a round, in their order, in the sequences of ``sequence_batches``."""
    from rlframe.model.core import Unroll

    learn = policy._cfg.learn
    sequences = Sequences(np.asarray(data['begins']), learn.unroll_len or learn.batch_size or len(data))
    _, step, sequence = sequences.rows(np.arange(len(sequences)))
    state = policy.tensor(np.asarray(data['state'])[sequences.start])
    return Unroll(policy.tensor(step), policy.tensor(sequence), int(sequences.length.max()), state)


def unroll_with_last(data: Batch, sequences: Sequences, tensor: Callable[[Any], torch.Tensor]) -> Unroll:
    """Returns the places of all steps of the sequences of a round and, behind them, of the last next obs of each.

    ``data`` are the rows of the round with the column ``state``, [M].
    """
    from rlframe.model.core import Unroll

    each = np.arange(len(sequences))
    _, step, sequence = sequences.rows(each)
    return Unroll(
        tensor(np.concatenate([step, sequences.length])),
        tensor(np.concatenate([sequence, each])),
        int(sequences.length.max()) + 1,
        tensor(np.asarray(data['state'])[sequences.start]),
    )


def remembered(policy: Any, data: Batch) -> Rows:
    """Returns the steps of replayed sequences that are learned from, [K, ...].

    ``data`` are padded sequences with the columns ``state`` and ``mask``, [B, T, ...], of whose first ``learn.burn_in`` steps
    nothing is learned. Rewards are summed over ``nstep`` steps; the windows end with the sequence.

    Returns:
        The columns of transitions, the ``sequence`` of each step, and the numbers that the update draws; ``obs`` and
        ``next_obs`` are ``Remembered``, so that networks go through the whole sequences.
    """
    from rlframe.model.core import Remembered, Unroll

    cfg = policy._cfg
    tensor = policy.tensor
    mask = np.asarray(data['mask'])
    sequence, column = np.nonzero(mask)  # of each real step, [R]
    first = mask.argmax(1)
    length = mask.sum(1)
    each = np.arange(len(mask))
    count = len(sequence)
    # rows that networks go through: all real steps, and behind them the last next obs of each sequence
    obs = tensor(np.concatenate([data['obs'][sequence, column], data['next_obs'][each, first + length - 1]]))
    unroll = Unroll(
        tensor(np.concatenate([column - first[sequence], length])),
        tensor(np.concatenate([sequence, each])),
        int(length.max()) + 1,
        tensor(data['state'][each, first]),
    )
    # the steps that are learned from; a window of rewards begins at each, and ends with its sequence at the latest
    row = np.flatnonzero(column >= cfg.learn.burn_in)
    of, stop = sequence[row], np.cumsum(length)[sequence[row]]
    flat = {name: data[name][sequence, column] for name in ('action', 'reward', 'terminated')}
    reward, discount, last = reward_windows(flat['reward'], row, stop, cfg.nstep, cfg.discount_factor)
    following = np.where(last == stop - 1, count + of, last + 1)
    rows: Rows = {
        'obs': Remembered(obs, unroll, tensor(row)),
        'next_obs': Remembered(obs, unroll, tensor(following)),
        'action': tensor(flat['action'][row]),
        'reward': tensor(reward),
        'terminated': tensor(flat['terminated'][last]),
        'value_gamma': tensor(discount),
        'sequence': tensor(of),
    }
    if 'IS' in data:
        rows['IS'] = tensor(np.asarray(data['IS'])[of])
    return rows | policy.update.drawn(policy.rng, len(of), tensor)


def priority_of_sequences(
    error: torch.Tensor, sequence: torch.Tensor, count: int, eta: float
) -> torch.Tensor:
    """Returns the priority of each sequence, float32 [B].

    Of ``count`` sequences, it is given the absolute TD error of each step, float32 [K], and its sequence, int64 [K].
    ``eta`` is the share of the largest error; the rest is their mean.

    Source:
        Kapturowski et al. (2019), section 2.3.
    """
    empty = error.new_zeros(count)
    steps = empty.index_add(0, sequence, torch.ones_like(error))
    largest = empty.scatter_reduce(0, sequence, error, 'amax')
    return eta * largest + (1 - eta) * empty.index_add(0, sequence, error) / steps
