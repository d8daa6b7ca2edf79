"""The body of adversarial reward models: a network that learns to tell the agent's rows from demonstrations."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Literal

from rlframe.data.timestep import Batch, FloatArray
from rlframe.reward_model.demonstrations import DATA, demonstrations
from rlframe.reward_model.network import NetworkConfig, NetworkRewardModel
from rlframe.utils.field import ABSENT, Field, option
from rlframe.utils.lazy import torch

Rows = Mapping[str, Any]
"""Columns of rows as tensors, [B, ...]."""
FORM = Field(
    'positive',
    choices=('positive', 'logit', 'negative'),
    doc="of the reward: 'positive' for tasks whose episodes should last, 'negative' for goals, 'logit' of both signs",
    may_change=True,
)
"""Option for the form of a reward."""


def reward_of(logit: torch.Tensor, form: str) -> torch.Tensor:
    """Returns the reward of rows by their logits, [B]: log(1 + exp(x)), -log(1 + exp(-x)), or x, their sum."""
    softplus = torch.nn.functional.softplus
    forms: dict[str, torch.Tensor] = {
        'positive': softplus(logit),
        'negative': -softplus(-logit),
        'logit': logit,
    }
    return forms[form]


class AdversarialConfig(NetworkConfig):
    """Options of adversarial reward models."""

    data: Any = option(DATA)
    form: Literal['positive', 'logit', 'negative'] = option(FORM)


class AdversarialModel(NetworkRewardModel):
    """Body of reward models whose network learns to tell the newest rows of the agent from demonstrations."""

    _cfg: AdversarialConfig
    config: dict[str, Any] = dict(
        normalize=False,
        hidden_size_list=[128, 128],
        learning_rate=3e-4,
        batch_size=256,
        memory=10_000,
        obs_norm=ABSENT,
    )
    replaces_reward = True
    columns: ClassVar[tuple[str, ...]] = ('obs', 'action')

    @cached_property
    def demonstrations(self) -> Batch:
        """Recorded rows."""
        return demonstrations(self._cfg.data, self.spec)

    @abstractmethod
    def contrast(self, agent: Rows, expert: Rows) -> torch.Tensor:
        """Returns what an update minimises, by rows of the agent and demonstrations, [B, ...] each."""

    @abstractmethod
    def logit(self, rows: Rows) -> torch.Tensor:
        """Returns a number for each row, float32 [B]: the larger it is, the more the row looks like a demonstration."""

    def read(self, rows: Batch) -> dict[str, Any]:
        from rlframe.reward_model.reward_net import tensors

        return tensors(rows, self.columns, self.device)

    def loss(self, rows: Rows) -> torch.Tensor:
        count = min(self._cfg.batch_size, len(self.demonstrations))
        expert = self.demonstrations[self.rng.integers(len(self.demonstrations), size=count)]
        return self.contrast(rows, self.read(expert))

    def log_probs(self, rows: Batch) -> torch.Tensor:
        """Returns the logarithm of the probability of each row's action by the policy as it is now, float32 [B]."""
        assert self.likelihood is not None  # RewardModels gives it to models that need it
        return torch.from_numpy(self.likelihood(rows['obs'], rows['action'])).to(self.device)

    def reward(self, rows: Batch) -> FloatArray:
        return self.by_pieces(rows, lambda columns: reward_of(self.logit(columns), self._cfg.form))
