"""Decision transformer: imitates recorded steps by what was earned from them on, and acts for a return that is wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlframe.data.episodes import WindowSource, with_returns
from rlframe.data.sources import DataSource
from rlframe.data.timestep import Array, Batch, EnvSpec, IntArray
from rlframe.policy.base_policy import Policy
from rlframe.policy.parts.memory import Memory
from rlframe.policy.parts.options import BATCH_SIZE, ImageModel, Schedule, grad_clip_norm, learning_rate
from rlframe.policy.parts.recorded import FROM_DATA
from rlframe.policy.parts.sections import LearnConfig, OtherConfig, PolicyConfig
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.update import Loss, Update
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option
from rlframe.utils.lazy import torch


class DTModel(ImageModel):
    """Section ``model`` of a decision transformer; hidden layers are those of the network of rewards."""

    width: int = option(128, range='[1, inf)', unit='units', doc='width of a token')
    blocks: int = option(3, range='[1, inf)', unit='blocks', doc='blocks of the transformer')
    heads: int = option(1, range='[1, inf)', doc='heads of its attention; the width is a multiple of them')
    context_len: int = option(20, range='[2, inf)', unit='env steps', doc='steps that it looks at')
    max_timestep: int = option(
        1000, range='[1, inf)', unit='env steps', doc='steps of an episode that it tells apart'
    )


class DTLearn(LearnConfig):
    """Section ``learn`` of a decision transformer."""

    batch_size: int = option(BATCH_SIZE.having(64, unit='windows'))
    learning_rate: Schedule = option(learning_rate(1e-4, 'Adam', over='windows that were read'))
    grad_clip_norm: float | None = option(grad_clip_norm(default=0.25))


class DTOther(OtherConfig):
    """Section ``other`` of a decision transformer."""

    target_return: float | None = option(None, doc='return that is wanted; None: the largest one in the data')


class DTConfig(PolicyConfig):
    """Options of a decision transformer."""

    model: DTModel
    learn: DTLearn
    other: DTOther


class DTUpdate(Update):
    """Likelihood of recorded actions, or the squared distance to continuous ones, given what was earned from them on."""

    inputs = 'obs', 'action', 'reward', 'return_to_go', 'timestep', 'mask'
    logged = (*Update.logged, 'action_loss', 'reward_loss')

    def loss(self, rows: Rows) -> Loss:
        """Returns the sum of the losses of actions and of expected rewards."""
        model = self.model
        mask = rows['mask']
        features = model.features_of(rows['obs'], 2)
        number = model.numbers(rows['action'])
        weight = mask / mask.sum()  # of each row in a mean over those that are no padding
        # actions
        output = model.actions(features, number, rows['return_to_go'], rows['timestep'], mask)
        if model.is_discrete:
            classes = rows['action'].flatten().long()
            distance = torch.nn.functional.cross_entropy(output.flatten(0, 1), classes, reduction='none')
        else:
            distance = (output - rows['action']).square().mean(-1).flatten()
        action_loss = (distance * weight.flatten()).sum()
        # rewards, which tell what is left of the wanted return while it acts
        expected = model.expected_reward(features.detach().flatten(0, 1), number.flatten(0, 1))
        reward_loss = ((expected - rows['reward'].flatten()).square() * weight.flatten()).sum()
        parts = {'action_loss': action_loss, 'reward_loss': reward_loss}
        return Loss(action_loss + reward_loss, parts=parts)


@POLICY_REGISTRY.register('dt')
class DTPolicy(Policy):
    """Decision transformer.

    It learns from windows of recorded steps, (return to go, observation, action) each, to say the next action. When it acts,
    the return to go begins with ``other.target_return``; as policies are not told their rewards, the reward that a small
    network expects is subtracted at each step.

    Source:
        Chen et al., Decision Transformer: Reinforcement Learning via Sequence Modeling (2021), section 3.
    """

    _cfg: DTConfig
    config: dict[str, Any] = dict(collect=FROM_DATA)
    supported_actions = 'Discrete, Box'
    is_recurrent = True
    needs_order = True
    default_network = 'decision_transformer'
    update_class = DTUpdate
    toy: dict[str, Any] = dict(
        model=dict(width=32, blocks=1, context_len=4), learn=dict(batch_size=64, learning_rate=3e-3)
    )

    def __init__(self, cfg: Any = None, spec: EnvSpec | None = None, *args: Any, **options: Any) -> None:
        super().__init__(cfg, spec, *args, **options)
        self._memory = Memory(self.model, 'transformer', self.default_model(), self.tensor)
        self.acting.parts['episodes'] = self._memory.collect

    def _get_data_form(self) -> Callable[[DataSource], DataSource]:
        return self._windows

    def _windows(self, source: DataSource) -> WindowSource:
        """Returns windows of the data, and takes the wanted return from them."""
        windows = WindowSource(source, self._cfg.model.context_len)
        wanted = self._cfg.other.target_return
        self.model.target.fill_(windows.returns.max() if wanted is None else wanted)
        self.model.scale.fill_(max(abs(windows.returns).max(), 1e-6))
        return windows

    def get_train_sample(self, block: Batch) -> Batch:
        return block.map(lambda column: column[0])

    def columns(self, data: Batch) -> Rows:
        """Returns what an update reads; of sequences without returns to go, these are the rewards in the sequence."""
        mask = np.asarray(data['mask'])
        action = np.asarray(data['action'])
        unit = self.actions.from_env(action.reshape(-1, *action.shape[2:]))
        rows = {'action': unit.reshape(*mask.shape, *unit.shape[1:])}
        return super().columns(with_returns(data).replace(**rows))

    def _best_of(self, output: torch.Tensor) -> torch.Tensor:
        return output.argmax(1) if self.model.is_discrete else output

    def best_step(self, obs: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the best action, and the last steps of the episode, [B, P, H]."""
        output, after = self.model.act(obs, state)
        return self._best_of(output), after

    def forward_eval(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        assert self._memory is not None
        with torch.inference_mode():
            return self.actions.batch(self._best_of(self._memory.act(self.tensor(obs))).cpu().numpy())
