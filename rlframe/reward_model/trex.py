"""T-REX: a network learns rewards by which better episodes earn more than worse ones."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

import numpy as np

from rlframe.data.timestep import Batch, FloatArray
from rlframe.policy.parts.optim import Optimizer
from rlframe.policy.parts.options import HIDDEN_SIZES
from rlframe.registry import REWARD_MODEL_REGISTRY
from rlframe.reward_model.adversarial import FORM, reward_of
from rlframe.reward_model.base import RewardModel, RewardModelConfig
from rlframe.reward_model.demonstrations import DATA
from rlframe.reward_model.ranked import Snippets, preference_loss, ranked_episodes
from rlframe.utils.field import option
from rlframe.utils.lazy import torch
from rlframe.utils.schema import FLAG, NETWORK, array, check_state
from rlframe.utils.seed import drawing_weights

AT_ONCE = 8192
"""Rows that are paid together."""
TESTS = 256
"""Pairs by which a trained network is judged."""


class TREXConfig(RewardModelConfig):
    """Options of ``trex``."""

    data: Any = option(DATA)
    ranked_by: Literal['return', 'order'] = option(
        'return', doc="rank of an episode: its 'return', or the 'order' of several data, the worst first"
    )
    form: Literal['positive', 'logit', 'negative'] = option(FORM)
    hidden_size_list: list[int] = option(HIDDEN_SIZES.having([256, 256]))
    learning_rate: float = option(1e-4, range='(0, inf)', doc='of the networks')
    ensemble: int = option(3, range='[1, inf)', unit='networks', doc='networks whose outputs are averaged')
    updates: int = option(1000, range='[1, inf)', unit='updates', doc='updates of each, all before training')
    batch_size: int = option(16, range='[1, inf)', unit='pairs', doc='pairs of snippets of an update')
    snippet_length: int = option(
        50,
        range='[1, inf)',
        unit='env steps',
        doc='steps of a snippet, or those of the shortest episode if it has fewer',
    )


@REWARD_MODEL_REGISTRY.register('trex')
class TREX(RewardModel):
    """Trajectory-ranked reward extrapolation.

    Networks r(s) learn, once, before training, that snippets of better episodes earn more than those of worse ones. Their outputs
    are standardised over the ranked episodes, and averaged. As snippets are equally long, nothing says what a further step is
    worth: the option ``form`` does.

    Source:
        Brown et al., Extrapolating Beyond Suboptimal Demonstrations via Inverse Reinforcement Learning from Observations
        (2019), section 4 and, for ensembles, section 5.
    """

    _cfg: TREXConfig
    replaces_reward = True

    def __init__(self, *args: Any, **options: Any) -> None:
        from rlframe.reward_model.reward_net import RewardNet, tensors

        super().__init__(*args, **options)
        cfg = self._cfg
        self._read = partial(tensors, reads=('obs',), device=self.device)
        self._is_trained = False
        rows = self.read()
        with drawing_weights(torch.Generator(), int(self.rng.integers(2**32))):
            made = [RewardNet(self.spec, rows, ('obs',), cfg.hidden_size_list) for _ in range(cfg.ensemble)]
        self.networks = torch.nn.ModuleList(made).to(self.device)
        """The networks."""
        self.moments: FloatArray = np.array([[0, 1]] * cfg.ensemble, np.float32)
        """Mean and standard deviation of each network's output on the ranked episodes, [ensemble, 2]."""

    def read(self) -> Batch:
        """Reads the data, and returns rows by whose observations the input of the networks is standardised."""
        self._ranks = ranked_episodes(self._cfg.data, self.spec, self._cfg.ranked_by == 'order')
        return Batch.cat([Batch({'obs': episode['obs']}) for rank in self._ranks for episode in rank])

    def ranked(self) -> list[list[Batch]]:
        """Returns episodes by their rank, the worst ones first; called once."""
        return self._ranks

    def learn(self) -> dict[str, float]:
        """Trains the networks, once; it returns the share of pairs that they rank as they are."""
        if self._is_trained:
            return {}
        snippets = Snippets(self.ranked(), self._cfg.snippet_length)
        accuracy = [self._fit(network, snippets) for network in self.networks]
        outputs = self._outputs(snippets.rows)
        self.moments = np.stack([outputs.mean(1), outputs.std(1)], 1)
        self._is_trained = True
        return {'accuracy': float(np.mean(accuracy))}

    def _fit(self, network: torch.nn.Module, snippets: Snippets) -> float:
        """Trains a network, and returns the share of further pairs that it ranks as they are."""
        cfg = self._cfg
        optimizer = Optimizer(network, {'learning_rate': cfg.learning_rate, 'grad_clip_norm': None})
        for _ in range(cfg.updates):
            optimizer.step(preference_loss(*self._sums(network, snippets, cfg.batch_size)))
        with torch.inference_mode():
            better, worse = self._sums(network, snippets, TESTS)
        return float((better > worse).float().mean())

    def _sums(
        self, network: torch.nn.Module, snippets: Snippets, count: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns what a network pays for both snippets of drawn pairs, the better one first, [count] each."""
        better, worse = (
            network(self._read(snippets.rows[rows.reshape(-1)])).view(count, -1).sum(1)
            for rows in snippets.pairs(count, self.rng)
        )
        return better, worse

    def _outputs(self, rows: Batch) -> FloatArray:
        """Returns what each network says of rows, float32 [ensemble, M]."""
        with torch.inference_mode():
            parts = [self._read(rows[start : start + AT_ONCE]) for start in range(0, len(rows), AT_ONCE)]
            found = [torch.stack([network(part) for network in self.networks]) for part in parts]
            return torch.cat(found, 1).cpu().numpy()

    def reward(self, rows: Batch) -> FloatArray:
        mean, std = self.moments.T[..., None]
        output = ((self._outputs(rows) - mean) / std).mean(0)
        return reward_of(torch.from_numpy(output), self._cfg.form).numpy()

    def state_dict(self) -> dict[str, Any]:
        own = {
            'networks': self.networks.state_dict(),
            'moments': self.moments,
            'is_trained': self._is_trained,
        }
        return super().state_dict() | own

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        kinds = {'networks': NETWORK, 'moments': array('f', self.moments.shape), 'is_trained': FLAG}
        check_state(state, kinds)
        super().load_state_dict(state)
        self.networks.load_state_dict(state['networks'])
        self.moments = state['moments']
        self._is_trained = state['is_trained']
