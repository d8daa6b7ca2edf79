"""The common bases of policies whose network has a recurrent core, or may have one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from easydict import EasyDict

from rlframe.data.timestep import Array, Batch, FloatArray, IntArray
from rlframe.errors import ConfigError
from rlframe.policy.base_policy import ModelConfig, Policy, PolicyConfig
from rlframe.policy.parts.episode_states import EpisodeStates
from rlframe.policy.parts.sequences import Rows, Sequences, Visited, take
from rlframe.utils.field import Field
from rlframe.utils.lazy import LazyModule

if TYPE_CHECKING:
    import torch

    from rlframe.model.core import Unroll
else:
    torch = LazyModule('torch')

CORE_OPTIONS: dict[str, Any] = dict(
    core=Field(
        None,
        type=(str, type(None)),
        doc='recurrent core behind the hidden layers, a memory of the earlier steps of an episode; None: no memory',
        choices=(None, 'gru', 'lstm'),
    ),
    core_hidden_size=Field(64, range='[1, inf)', unit='units', doc='of the recurrent core, if there is one'),
)
"""Options of a network that may have a memory."""
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
    doc='before each sequence that only update its recurrent state (burn-in)',
)
"""Option of a policy that learns from replayed sequences."""


class Remembered(NamedTuple):
    """Some of the observations of sequences, for networks that go through all of these."""

    obs: Any
    """Observations of all steps of the sequences, tensors [R, ...]."""
    unroll: Unroll
    """Their places."""
    row: torch.Tensor
    """Those that are meant, int64 [K]."""


class MemoryModel(ModelConfig):
    """Section ``model`` of a policy that may have a memory."""

    core: Literal[None, 'gru', 'lstm']
    core_hidden_size: int


class MemoryConfig(PolicyConfig):
    """Options of a policy that may have a memory."""

    model: MemoryModel


class RecurrentPolicy(Policy):
    """Body of policies that act with a recurrent state, which they keep for each running episode.

    The network has a ``state_shape``. The state before each step is recorded as the column ``state`` of its transition.
    """

    is_recurrent = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        shape = self._state_shape()
        self._collect_states, self._eval_states = EpisodeStates(shape), EpisodeStates(shape)

    def _state_shape(self) -> tuple[int, ...]:
        network: Any = self._model
        return tuple(network.state_shape)

    def _act_in(self, states: EpisodeStates, env_id: IntArray) -> dict[str, Array]:
        """Sets the episodes that the next action continues, and returns the column ``state`` if there is a core."""
        if not self.is_recurrent:
            return {}
        before = states.get(env_id)
        self._acting = states, env_id, before
        return {'state': before}

    def _reset_collect(self, env_id: IntArray | None = None) -> None:
        super()._reset_collect(env_id)
        self._collect_states.reset(env_id)

    def _reset_eval(self, env_id: IntArray | None = None) -> None:
        super()._reset_eval(env_id)
        self._eval_states.reset(env_id)

    def _acting_state(self) -> dict[str, Any]:
        episodes = {'episodes': self._collect_states.state_dict()} if self.is_recurrent else {}
        return super()._acting_state() | episodes

    def _load_acting_state(self, state: Mapping[str, Any]) -> None:
        super()._load_acting_state(state)
        if self.is_recurrent:
            self._collect_states.load_state_dict(state['episodes'])


class MemoryPolicy(RecurrentPolicy):
    """Body of policies whose network may have a recurrent core (``model.core``)."""

    _cfg: Any
    config = dict(model=CORE_OPTIONS)
    is_recurrent = False
    sequence_option = 'policy.learn.unroll_len'
    """The option that limits the sequences a core is trained on."""

    def _state_shape(self) -> tuple[int, ...]:
        self.is_recurrent = self._has_core
        if not self._has_core:
            return 0, 0
        if getattr(self._model, 'state_shape', None) is None:
            raise ConfigError(
                f'the network {type(self._model).__name__} has no state_shape, so it has no memory',
                where='policy.model.core',
                got=self._cfg.model.core,
                expected=f'None, or a network like {self.default_model()!r}',
            )
        return super()._state_shape()

    @property
    def _has_core(self) -> bool:
        return self._cfg.model.core is not None

    @classmethod
    def cores(cls, cfg: EasyDict) -> int:
        """Returns the number of cores whose state acting carries."""
        return 1

    @classmethod
    def state_nbytes(cls, cfg: EasyDict) -> int:
        core = cfg.model.get('core')
        if core is None:
            return 0
        from rlframe.model.core import STATES_OF_CORE

        vectors = STATES_OF_CORE[core] * cls.cores(cfg)
        return vectors * np.dtype(np.float32).itemsize * int(cfg.model.core_hidden_size)

    @classmethod
    def check_config(cls, cfg: EasyDict) -> list[ConfigError]:
        errors = super().check_config(cfg)
        for error in errors:
            if error.where == 'collect.unroll_len' and cfg.model.core is not None:
                error.remedy = f'Sequences of a core are as long as {cls.sequence_option} says.'
        if cfg.cuda_graph and cfg.model.core is not None:
            reason = 'batches of a core have sequences of different lengths, and each shape would be recorded'
            errors.append(ConfigError(reason, where='cuda_graph', got=True, expected='False'))
        return errors

    def model_kwargs(self) -> dict[str, Any]:
        kwargs = super().model_kwargs()
        if not self._has_core:
            del kwargs['core'], kwargs['core_hidden_size']
        return kwargs

    def _step(self, obs: Any) -> torch.Tensor:
        """Does a step of the network with a core in the episodes that were set, and returns the actor's output."""
        states, env_id, before = self._acting
        step = self._model.act if states is self._eval_states else self._model.step
        output, after = step(obs, self._tensor(before))
        states.set(env_id, after.cpu().numpy())
        result: torch.Tensor = output
        return result

    def _sequence_batches(self, columns: Rows, data: Batch, size: int) -> Iterator[Rows]:
        """Divides the shuffled sequences of a round into batches of about ``size`` steps; no sequence is cut.

        Args:
            columns: Inputs of the updates, [M, ...].
            data: Rows of the round, with the columns ``state`` and ``begins``, [M].
            size: Steps of a batch.
        """
        from rlframe.model.core import Unroll

        sequences = Sequences(np.asarray(data['begins']), self._cfg.learn.unroll_len or size)
        for chosen in sequences.batches(self._rng.permutation(len(sequences)), size):
            row, step, sequence = (self._tensor(part) for part in sequences.rows(chosen))
            state = self._tensor(np.asarray(data['state'])[sequences.start[chosen]])
            unroll = Unroll(step, sequence, int(sequences.length[chosen].max()), state)
            yield take(columns, row) | {'unroll': unroll}

    def _remembered(self, seen: Visited, start: FloatArray) -> tuple[Remembered, Remembered]:
        """Returns the observations of the steps that are learned from, and those behind them.

        Args:
            seen: The observations of sequences.
            start: Recurrent state before the first step of each, float32 [B, P, H].
        """
        from rlframe.model.core import Unroll

        step, sequence, own, following = (
            self._tensor(part) for part in (seen.step, seen.sequence, seen.own, seen.following)
        )
        unroll = Unroll(step, sequence, int(seen.step.max()) + 1, self._tensor(start))
        obs = self._tensor(seen.obs)
        return Remembered(obs, unroll, own), Remembered(obs, unroll, following)

    def _priority_of_sequences(self, error: torch.Tensor, sequence: torch.Tensor, count: int) -> torch.Tensor:
        """Returns the priority of each sequence, float32 [B].

        Args:
            error: Absolute TD error of each step, float32 [K].
            sequence: Sequence of each step, int64 [K].
            count: Number of sequences, B.

        Source:
            Kapturowski et al. (2019), section 2.3.
        """
        empty, eta = error.new_zeros(count), self._cfg.priority_eta
        steps = empty.index_add(0, sequence, torch.ones_like(error))
        largest = empty.scatter_reduce(0, sequence, error, 'amax')
        return eta * largest + (1 - eta) * empty.index_add(0, sequence, error) / steps
