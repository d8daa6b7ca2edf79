"""NetworkRewardModel: the body of reward models that train networks on the newest rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from rlframe.data.observation import image_parts, mapped
from rlframe.data.timestep import Array, Batch, FloatArray, from_tree, to_tensor, to_tree
from rlframe.policy.parts.normalize import OBS_CLIP, RunningMoments
from rlframe.policy.parts.options import check_widths
from rlframe.reward_model.base import RewardModel, RewardModelConfig
from rlframe.utils.field import option
from rlframe.utils.lazy import torch
from rlframe.utils.schema import DICT, NETWORK, NUMBER, check_state
from rlframe.utils.seed import drawing_weights

SMALL_SIDE = 16
"""Images with shorter sides than this are read as vectors."""
PIECE = 4096
"""Rows that are read at a time."""


class NetworkConfig(RewardModelConfig):
    """Options of reward models with networks."""

    hidden_size_list: list[int] = option(
        [64, 64, 128],
        unit='units',
        doc='widths of the layers; the last is the number of features',
        check=check_widths,
    )
    learning_rate: float = option(1e-3, range='(0, inf)', doc='step size of Adam', may_change=True)
    batch_size: int = option(64, range='[1, inf)', unit='rows', doc='size of the batch of one update')
    update_per_collect: int | None = option(
        None,
        range='[1, inf)',
        unit='updates',
        doc='updates after a collection; None: as many as read each new row once',
        may_change=True,
    )
    memory: int = option(
        4096, range='[1, inf)', unit='rows', doc='newest rows that it trains on, or those of a larger round'
    )
    obs_norm: bool = option(
        True, doc='whether observations are standardised, by what was seen before; not large images'
    )


class NetworkRewardModel(RewardModel):
    """Trains a network on the newest rows; a subclass defines the network, its loss and what it pays.

    Args:
        options: See ``RewardModel``.
    """

    _cfg: NetworkConfig
    columns: ClassVar[tuple[str, ...]] = ('next_obs',)
    """Columns of rows that the loss reads."""

    def __init__(self, *args: Any, seed: int = 0, **options: Any) -> None:
        super().__init__(*args, seed=seed, **options)
        cfg, space = self._cfg, self.spec.observation_space
        # how observations become vectors
        from rlframe.model.encoder import make_reader

        is_small = all(max(shape) < SMALL_SIDE for _, shape in image_parts(space))
        reader: Any = make_reader(space, 'relu', []) if is_small else None
        self._reader: Any = reader.to(self.device) if isinstance(reader, torch.nn.Module) else reader
        """Returns vectors of observations that are no large images."""
        is_normed = is_small and cfg.get('obs_norm', False)
        self._moments = RunningMoments((int(reader.size),), np.float32) if is_normed else None
        self._standardise()
        # network and optimizer
        with drawing_weights(torch.Generator(), seed):
            self.network: Any = self.make_network().to(self.device)
        trained = [weight for weight in self.network.parameters() if weight.requires_grad]
        self._optimizer = torch.optim.Adam(trained, lr=cfg.learning_rate)
        self._kept: list[Batch] = []  # newest rows
        self._due = 0.0  # updates, of the rows that no update has read yet

    @abstractmethod
    def make_network(self) -> Any:
        """Returns the network; parameters that do not require gradients are not trained."""

    @abstractmethod
    def loss(self, rows: Mapping[str, Any]) -> torch.Tensor:
        """Returns the loss of a batch of ``columns``; observations are as ``inputs`` returns them."""

    def encoder(self) -> Any:
        """Returns a network from observations, as ``inputs`` returns them, to features [B, F]."""
        from rlframe.model.core import MLP
        from rlframe.model.encoder import vector_space

        *hidden, size = self._cfg.hidden_size_list
        space: Any = self.spec.observation_space
        if self._reader is not None:
            space = vector_space(self._reader.size)
        return MLP(space, hidden, 'relu', size)

    def inputs(self, obs: Array) -> Any:
        """Returns what ``encoder`` reads of observations, on the device: standardised vectors [B, O], or images."""
        found = self._vectors(obs)
        if self._moments is None:
            return found
        return ((found - self._mean) * self._scale).clamp_(-OBS_CLIP, OBS_CLIP)

    def _standardise(self) -> None:
        """Brings what observations are standardised by to the device."""
        if self._moments is not None:
            numbers = (self._moments.mean, 1 / self._moments.std)
            self._mean, self._scale = (
                torch.from_numpy(each.astype(np.float32)).to(self.device) for each in numbers
            )

    def _vectors(self, obs: Array) -> Any:
        found = on_device(to_tensor(np.asarray(obs)), self.device)
        return found if self._reader is None else self._reader(found)

    def collected(self, rows: Batch) -> None:
        cfg = self._cfg
        if self._moments is not None:
            self._moments.update(self._vectors(rows['next_obs']).cpu().numpy())
            self._standardise()
        new = Batch({name: np.array(rows[name]) for name in self.columns})
        held = Batch.cat([*self._kept, new])
        self._kept = [held[-max(cfg.memory, len(new)) :]]
        self._due += len(new) / cfg.batch_size if cfg.update_per_collect is None else cfg.update_per_collect

    def learn(self) -> dict[str, float]:
        held = self._kept[0]
        losses = []
        for _ in range(int(self._due)):
            self._due -= 1
            batch = held[self.rng.integers(len(held), size=min(self._cfg.batch_size, len(held)))]
            loss: Any = self.loss(self.read(batch))
            self._optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self._optimizer.step()
            losses.append(loss.item())
        return {'loss': float(np.mean(losses))} if losses else {}

    def read(self, rows: Batch) -> dict[str, Any]:
        """Returns the columns of rows that the loss reads, as tensors on the device."""
        return {name: self.column(name, rows[name]) for name in self.columns}

    def column(self, name: str, column: Array) -> Any:
        """Returns a column of rows as a tensor on the device; observations as ``inputs`` returns them."""
        return (
            self.inputs(column)
            if name.endswith('obs')
            else on_device(to_tensor(np.asarray(column)), self.device)
        )

    def by_pieces(self, rows: Batch, function: Any) -> FloatArray:
        """Returns what a function of columns, as tensors, returns for each row, [M, ...], without gradients."""
        pieces = [rows]
        if len(rows) > PIECE:
            pieces = [rows[start : start + PIECE] for start in range(0, len(rows), PIECE)]
        with torch.no_grad():
            found = [function(self.read(piece)).cpu().numpy() for piece in pieces]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def state_dict(self) -> dict[str, Any]:
        moments = {} if self._moments is None else {'moments': self._moments.state_dict()}
        return (
            super().state_dict()
            | moments
            | {
                'network': self.network.state_dict(),
                'optimizer': self._optimizer.state_dict(),
                'kept': [to_tree(rows) for rows in self._kept],
                'due': self._due,
            }
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(state, {'network': NETWORK, 'optimizer': DICT, 'due': NUMBER})
        super().load_state_dict(state)
        self.network.load_state_dict(state['network'])
        self._optimizer.load_state_dict(state['optimizer'])
        self._kept = [from_tree(tree) for tree in state['kept']]
        self._due = state['due']
        if self._moments is not None:
            self._moments.load_state_dict(state['moments'])
            self._standardise()


def on_device(tensor: Any, device: str) -> Any:
    """Returns a tensor, or a dict of tensors, on a device."""
    return mapped(lambda part: part.to(device), tensor)
