"""The body of adversarial reward models: a network that learns to tell the agent's rows from demonstrations."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

from rlframe.data.timestep import Batch, FloatArray
from rlframe.policy.parts.optim import Optimizer
from rlframe.policy.parts.options import HIDDEN_SIZES, grad_clip_norm
from rlframe.reward_model.base import RewardModel
from rlframe.reward_model.demonstrations import DemonstrationConfig, Recent, demonstrations
from rlframe.utils.field import Field, option
from rlframe.utils.lazy import torch
from rlframe.utils.schema import DICT, NETWORK, check_state
from rlframe.utils.seed import drawing_weights

Rows = dict[str, Any]
"""Columns of rows as tensors, [B, ...]."""
AT_ONCE = 8192
"""Rows that are paid together."""


FORM = Field(
    'positive',
    choices=('positive', 'logit', 'negative'),
    doc="what is paid for a logit x: 'positive' log(1 + exp(x)), which rewards long episodes, 'negative' -log(1 + exp(-x)), which rewards"
    " short ones, or 'logit' x, their sum",
    may_change=True,
)
"""Option for the form of a reward."""


def reward_of(logit: torch.Tensor, form: str) -> torch.Tensor:
    """Returns the reward of rows by their logits, [B]; see the option ``form``."""
    softplus = torch.nn.functional.softplus
    forms: dict[str, torch.Tensor] = {
        'positive': softplus(logit),
        'negative': -softplus(-logit),
        'logit': logit,
    }
    return forms[form]


class AdversarialConfig(DemonstrationConfig):
    """Options of adversarial reward models."""

    normalize: bool = option(
        False, doc='whether what it pays is divided by its running standard deviation first', may_change=True
    )
    form: Literal['positive', 'logit', 'negative'] = option(FORM)
    hidden_size_list: list[int] = option(HIDDEN_SIZES.having([128, 128]))
    learning_rate: float = option(3e-4, range='(0, inf)', doc='of the network', may_change=True)
    grad_clip_norm: float | None = option(grad_clip_norm())
    batch_size: int = option(
        256,
        range='[1, inf)',
        unit='rows',
        doc='rows of the agent, and as many demonstrations, of an update',
        may_change=True,
    )
    update_per_collect: int = option(
        1, range='[1, inf)', unit='updates', doc='updates after each collection', may_change=True
    )
    recent_size: int = option(
        10_000, range='[1, inf)', unit='rows', doc='rows of the agent that it learns from, the newest ones'
    )


class AdversarialModel(RewardModel):
    """Body of reward models whose network learns to tell the newest rows of the agent from demonstrations."""

    _cfg: AdversarialConfig
    replaces_reward = True
    reads: tuple[str, ...] = ('obs', 'action')
    """Columns that the network reads."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.demonstrations = demonstrations(self._cfg.data, self.spec)
        """Recorded rows."""
        self.recent = Recent(self._cfg.recent_size)
        """The newest rows of the agent."""
        with drawing_weights(torch.Generator(), int(self.rng.integers(2**32))):
            self.network = self.create_network().to(self.device)
        """What learns."""
        self.optimizer = Optimizer(self.network, self._cfg)
        """Moves the network."""

    @abstractmethod
    def create_network(self) -> torch.nn.Module:
        """Returns the network; called once, when ``demonstrations`` are there."""

    @abstractmethod
    def loss(self, agent: Rows, expert: Rows) -> torch.Tensor:
        """Returns what an update minimises, by rows of the agent and demonstrations, [B, ...] each."""

    @abstractmethod
    def logit(self, rows: Rows) -> torch.Tensor:
        """Returns a number for each row, float32 [B]: the larger it is, the more the row looks like a demonstration."""

    def columns(self, rows: Batch) -> Rows:
        """Returns the columns of rows that the network reads."""
        from rlframe.reward_model.networks import tensors

        return tensors(rows, self.reads, self.device)

    def log_probs(self, rows: Batch) -> torch.Tensor:
        """Returns the logarithm of the probability of each row's action by the policy as it is now, float32 [B]."""
        assert self.likelihood is not None  # RewardModels gives it to models that need it
        return torch.from_numpy(self.likelihood(rows['obs'], rows['action'])).to(self.device)

    def collected(self, rows: Batch) -> None:
        self.recent.push({name: rows[name] for name in self.reads})

    def learn(self) -> dict[str, float]:
        total = 0.0
        for _ in range(self._cfg.update_per_collect):
            agent = self.recent.at(self.rng.integers(len(self.recent), size=self._cfg.batch_size))
            expert = self.demonstrations[
                self.rng.integers(len(self.demonstrations), size=self._cfg.batch_size)
            ]
            loss = self.loss(self.columns(agent), self.columns(expert))
            self.optimizer.step(loss)
            total += float(loss.detach())
        return {'loss': total / self._cfg.update_per_collect}

    def reward(self, rows: Batch) -> FloatArray:
        with torch.inference_mode():
            starts = range(0, len(rows), AT_ONCE)
            parts = [
                reward_of(self.logit(self.columns(rows[start : start + AT_ONCE])), self._cfg.form)
                for start in starts
            ]
            return torch.cat(parts).cpu().numpy()

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {
            'network': self.network.state_dict(),
            'optimizer': self.optimizer.state_dict(),
            'recent': self.recent.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(state, {'network': NETWORK, 'optimizer': DICT, 'recent': DICT})
        super().load_state_dict(state)
        self.network.load_state_dict(state['network'])
        self.optimizer.load_state_dict(state['optimizer'])
        self.recent.load_state_dict(state['recent'])
