"""PQN: Q-learning by lambda-returns of fresh data, without replay buffer and target network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

from rlframe.data.faces import Metrics, TensorMode
from rlframe.data.returns import gae
from rlframe.data.timestep import Array, Batch, FloatArray
from rlframe.policy.dqn import QConfig, QPolicy
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.options import (
    BATCH_SIZE,
    DISCOUNT_FACTOR,
    EPOCH_PER_COLLECT,
    HIDDEN_SIZES,
    ImageModel,
    Schedule,
    grad_clip_norm,
    learning_rate,
)
from rlframe.policy.parts.outputs import Output, Values
from rlframe.policy.parts.sections import CollectConfig, LearnConfig
from rlframe.policy.parts.sequences import Rows, apart_rows, epochs_of, flat, real_samples, values_after
from rlframe.policy.parts.starting import Facts, SearchSpace, Settings
from rlframe.policy.parts.tensor_acting import GreedyTensorActing
from rlframe.policy.update import Loss, Update
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import option


class PQNModel(ImageModel):
    """Section ``model`` of PQN."""

    encoder_hidden_size_list: list[int] = option(HIDDEN_SIZES.having([128, 128]))
    norm: Literal[None, 'layer'] = option(
        'layer', doc='norm in front of the nonlinearity of each hidden layer; without one, PQN may diverge'
    )
    dueling: bool = option(False, doc='whether value and advantage have separate heads')


class PQNLearn(LearnConfig):
    """Section ``learn`` of PQN."""

    epoch_per_collect: int = option(EPOCH_PER_COLLECT)
    batch_size: int = option(BATCH_SIZE.having(256))
    learning_rate: Schedule = option(learning_rate(1e-3))
    grad_clip_norm: float | None = option(grad_clip_norm(default=10.0))


class PQNCollect(CollectConfig):
    """Section ``collect`` of PQN."""

    q_lambda: float = option(
        0.65,
        range='[0, 1]',
        doc='weight of later steps in a return: 0 bootstraps after one step, 1 at the end of the round',
    )


class PQNConfig(QConfig):
    """Options of PQN."""

    discount_factor: float = option(DISCOUNT_FACTOR)
    model: PQNModel
    learn: PQNLearn
    collect: PQNCollect


class PQNUpdate(Update):
    """Regression to lambda-returns."""

    inputs = 'obs', 'action', 'return_'
    logged = (*Update.logged, 'q_value', 'target_q_value')

    def output(self, network: Any, obs: Any) -> Output:
        """Returns what a network says of the returns of each action."""
        return Values(network(obs))

    def loss(self, rows: Rows) -> Loss:
        """Returns the mean squared distance of the values of actions to lambda-returns."""
        fit = self.output(self.model, rows['obs']).gather(rows['action']).fit(rows['return_'])
        return Loss(fit.loss, fit.metrics())


@POLICY_REGISTRY.register('pqn')
class PQNPolicy(QPolicy):
    """Parallelised Q-network: it acts as DQN does, and learns from fresh data as PPO does.

    Source:
        Gallici et al., Simplifying Deep Temporal Difference Learning (2025), algorithm 1; Q(lambda) as in Daley & Amato,
        Reconciling lambda-Returns with Experience Replay (2019), eq. 4. The optimizer here is Adam, there RAdam.
    """

    _cfg: PQNConfig
    config: dict[str, Any] = dict(on_policy=True, collect=dict(n_sample=1024))
    update_class = PQNUpdate
    ding = DingNames()
    toy = QPolicy.toy | dict(learn=dict(batch_size=64, learning_rate=3e-3), collect=dict(n_sample=128))
    solves = 'CartPole-v1', 60_000
    search_space = SearchSpace(
        'as PPO; every lambda, of which Gallici et al. (2024), arXiv 2407.04811, compare some',
        {
            'learn.learning_rate': 'loguniform(1e-5,2e-3)',
            'learn.batch_size': 'choice(32,64,128,256,512)',
            'collect.n_sample': 'choice(256,512,1024,2048,4096,8192,16384)',
            'learn.epoch_per_collect': 'choice(1,2,4,8)',
            'discount_factor': 'uniform(0.97,0.9999)',
            'collect.q_lambda': 'uniform(0,1)',
        },
    )

    @classmethod
    def starting(cls, facts: Facts) -> Settings:
        return dict(
            normalize_obs=facts.has_numbers,
            model=facts.encoder([128, 128]),
            learn=dict(epoch_per_collect=4, batch_size=128, learning_rate=1e-3),
            collect=dict(n_sample=512, q_lambda=0.95),
            other=dict(eps=facts.exploration(5)),
        )

    def forward_learn(self, data: Batch) -> Iterator[Callable[[], Metrics]]:
        return epochs_of(self, self.columns(data), self._cfg.learn.epoch_per_collect)

    def get_train_sample(self, block: Batch) -> Batch:
        apart = apart_rows(block)
        value, behind = self._values(flat(block['obs'])), self._values(block['next_obs'][apart])
        value, next_value = values_after(value, behind, apart)
        next_value[block['terminated']] = 0.0
        cfg = self._cfg
        # a lambda-return is the value plus the generalised advantage
        advantage = gae(block['reward'], value, next_value, apart, cfg.discount_factor, cfg.collect.q_lambda)
        return real_samples(block, self.update.inputs, {'return_': advantage + value})

    def _values(self, obs: Array) -> FloatArray:
        """Returns the value of the best action in each state, float32 [n]."""
        return self.q_value(obs).numpy().max(1)

    def _get_tensor_mode(self) -> TensorMode:
        """Returns the interface for a collector of tensors."""
        return GreedyTensorActing(self).mode()
