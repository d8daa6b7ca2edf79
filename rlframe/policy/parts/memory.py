"""Memory: the recurrent states of running episodes, and what policies learn from sequences of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rlframe.data.timestep import Array, Batch, FloatArray, IntArray
from rlframe.errors import ConfigError
from rlframe.policy.parts.options import ImageModel, check_widths
from rlframe.policy.parts.sequences import Rows, Sequences, clear, grown, take
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
"""Option of a policy that learns from replayed sequences."""
BURN_IN = Field(
    0,
    range='[0, inf)',
    unit='env steps',
    doc='steps before each sequence that only update its recurrent state (burn-in)',
)
"""Option of a policy that learns from replayed sequences."""


def _of_critics_apart(_: type[Any], cfg: Any) -> ConfigError | None:
    """Refuses widths of a critic whose hidden layers are the actor's."""
    if cfg.model.get('share_encoder') is not True:
        return None
    message = 'actor and critic share all hidden layers (model.share_encoder=True)'
    return ConfigError(message, expected="None, or model.share_encoder='images'")


class MemoryModel(ImageModel):
    """Section ``model`` of a policy with an actor and critics, which may have a memory."""

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
    """Keeps one recurrent state for each env's running episode; an episode begins with zeros.

    Args:
        shape: Shape of a state.
    """

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

    The network has a ``state_shape``. Before it acts, ``begin`` says in which episodes.

    Args:
        shape: Shape of a state, [P, H].
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.collect, self.evaluation = EpisodeStates(shape), EpisodeStates(shape)
        self.is_evaluation = False
        self._env_id: IntArray = np.empty(0, np.int64)
        self._before = self.collect.get(self._env_id)

    def begin(self, env_id: IntArray, is_evaluation: bool = False) -> dict[str, Array]:
        """Sets the episodes that the next action continues, and returns the column ``state`` of their transitions."""
        self.is_evaluation, self._env_id = is_evaluation, env_id
        self._before = (self.evaluation if is_evaluation else self.collect).get(env_id)
        return {'state': self._before}

    def step(self, network: Any, obs: Any, tensor: Callable[[Any], torch.Tensor]) -> Any:
        """Does a step of the network in these episodes, and returns its output.

        Args:
            network: Returns output and next states, [n, P, H], for observations and states.
            obs: Observations as tensors, [n, ...].
            tensor: Brings an array to the device of the network.
        """
        output, after = network(obs, tensor(self._before))
        episodes = self.evaluation if self.is_evaluation else self.collect
        episodes.set(self._env_id, after.cpu().numpy())
        return output


def sequence_batches(
    columns: Rows,
    data: Batch,
    unroll_len: int | None,
    size: int,
    rng: np.random.Generator,
    tensor: Callable[[Any], torch.Tensor],
) -> Iterator[Rows]:
    """Divides the shuffled sequences of a round into batches of about ``size`` steps; no sequence is cut.

    Args:
        columns: Inputs of the updates, [M, ...].
        data: Rows of the round, with the columns ``state`` and ``begins``, [M].
        unroll_len: Longest sequence, in steps; None: ``size``.
        size: Steps of a batch.
        rng: Generator of the order.
        tensor: Brings an array to the device.
    """
    from rlframe.model.core import Unroll

    sequences = Sequences(np.asarray(data['begins']), unroll_len or size)
    for chosen in sequences.batches(rng.permutation(len(sequences)), size):
        row, step, sequence = (tensor(part) for part in sequences.rows(chosen))
        state = tensor(np.asarray(data['state'])[sequences.start[chosen]])
        unroll = Unroll(step, sequence, int(sequences.length[chosen].max()), state)
        yield take(columns, row) | {'unroll': unroll}


def unroll_with_last(data: Batch, sequences: Sequences, tensor: Callable[[Any], torch.Tensor]) -> Unroll:
    """Returns the places of all steps of the sequences of a round and, behind them, of the last next obs of each.

    Args:
        data: Rows of the round, with the column ``state``, [M].
        sequences: The sequences that they consist of.
        tensor: Brings an array to the device.
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


def remembered(
    data: Batch, burn_in: int, columns: Sequence[str], tensor: Callable[[Any], torch.Tensor]
) -> tuple[Rows, IntArray]:
    """Returns the steps of padded sequences that are learned from, and the sequence of each, [K].

    Args:
        data: Sequences of a replay buffer, with the columns ``state`` and ``mask``, [B, T, ...].
        burn_in: Steps of each that are not learned from.
        columns: What is taken of each step, beside ``obs`` and ``next_obs``.
        tensor: Brings an array to the device.

    Returns:
        The columns, [K, ...]; ``obs`` and ``next_obs`` are ``Remembered``, so that networks go through the whole sequences.
    """
    from rlframe.model.core import Remembered, Unroll

    mask = np.asarray(data['mask'])
    sequence, column = np.nonzero(mask)  # of each real step, [R]
    first, length = mask.argmax(1), mask.sum(1)
    each, count = np.arange(len(mask)), len(sequence)
    step = column - first[sequence]
    is_last = step == length[sequence] - 1
    # rows that networks go through: all real steps, and behind them the last next obs of each sequence
    obs = tensor(np.concatenate([data['obs'][sequence, column], data['next_obs'][each, first + length - 1]]))
    following = np.where(is_last, count + sequence, np.arange(count) + 1)
    unroll = Unroll(
        tensor(np.concatenate([step, length])),
        tensor(np.concatenate([sequence, each])),
        int(length.max()) + 1,
        tensor(data['state'][each, first]),
    )
    is_learned, learned = column >= burn_in, mask.copy()
    learned[:, :burn_in] = False
    rows: Rows = {name: tensor(data[name][learned]) for name in columns}
    rows['obs'] = Remembered(obs, unroll, tensor(np.flatnonzero(is_learned)))
    rows['next_obs'] = Remembered(obs, unroll, tensor(following[is_learned]))
    return rows, sequence[is_learned]


def priority_of_sequences(
    error: torch.Tensor, sequence: torch.Tensor, count: int, eta: float
) -> torch.Tensor:
    """Returns the priority of each sequence, float32 [B].

    Args:
        error: Absolute TD error of each step, float32 [K].
        sequence: Sequence of each step, int64 [K].
        count: Number of sequences, B.
        eta: Share of the largest error; the rest is their mean.

    Source:
        Kapturowski et al. (2019), section 2.3.
    """
    empty = error.new_zeros(count)
    steps = empty.index_add(0, sequence, torch.ones_like(error))
    largest = empty.scatter_reduce(0, sequence, error, 'amax')
    return eta * largest + (1 - eta) * empty.index_add(0, sequence, error) / steps
