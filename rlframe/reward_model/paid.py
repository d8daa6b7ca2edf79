"""RewardModels: the reward models of a run, and how the rows of any policy are paid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from rlframe.data.faces import attribute_of
from rlframe.data.returns import gae
from rlframe.data.timestep import Batch, BoolArray, EnvSpec, FloatArray
from rlframe.errors import ConfigError, IncompatibleError
from rlframe.policy.parts.normalize import RunningMoments
from rlframe.registry import REWARD_MODEL_REGISTRY
from rlframe.reward_model.base import MARKS, Play, RewardModel
from rlframe.utils.field import raw_items
from rlframe.utils.schema import DICT, check_state, part

ROWS, BONUS = 'rows', 'bonus'
"""Columns of training samples: the rows that they are made of, and what reward models pay for them."""


class RewardModels:
    """The reward models of a run.

    Args:
        section: Options of each by its name, with its ``type``.
        spec: Spaces of the env.
        policy: Learn face of the policy that is trained.
        samples_rows: Whether a replay buffer samples single rows, which can be paid anew.
        seed: Seed of their random numbers.
        device: Where their networks compute.
        play: Plays episodes for models that need some.
    """

    def __init__(
        self,
        section: Mapping[str, Any],
        spec: EnvSpec,
        policy: Any,
        samples_rows: bool,
        seed: int = 0,
        device: str = 'cpu',
        play: Play | None = None,
    ) -> None:
        self.models: dict[str, RewardModel] = {}
        """The models by their names."""
        for name, cfg in raw_items(section):
            with errors_of(name):
                self.models[name] = REWARD_MODEL_REGISTRY.build(cfg, cfg, spec, seed=seed, device=device)
        self._give_likelihood(policy)
        for model in self.models.values():
            model.play = play if model.needs_episodes else None
        self._section = section
        self._moments = {name: RunningMoments() for name in self.models}
        self._rounds = bool(attribute_of(policy, 'on_policy', False))
        self._replaces = any(model.replaces_reward for model in self.models.values())
        self._anew = [
            name
            for name, model in self.models.items()
            if samples_rows and not self._rounds and not model.is_stored
        ]
        self._policy = policy
        self._logged: dict[str, float] = {}
        self._paid: dict[str, FloatArray] = {}  # what each model paid last

    @property
    def asks_policy(self) -> bool:
        """Whether a model asks how likely the policy takes actions."""
        return any(model.needs_likelihood for model in self.models.values())

    def _give_likelihood(self, policy: Any) -> None:
        """Tells models how likely the policy takes actions.

        Raises:
            IncompatibleError: If one needs it, and the policy cannot say it.
        """
        needing = [name for name, model in self.models.items() if model.needs_likelihood]
        if not needing:
            return
        likelihood = attribute_of(policy, 'likelihood')
        if likelihood is None:
            raise IncompatibleError(
                f'the reward model {needing[0]!r} asks how likely actions are, and the policy cannot say it',
                where='policy.type',
                got=attribute_of(policy, 'type'),
                expected='a policy that draws its actions, without a core, such as ppo, sac or sac_discrete',
            )
        for name in needing:
            self.models[name].likelihood = likelihood

    def pay(self, samples: Batch) -> Batch:
        """Shows new training samples to the models, trains these, and returns the samples with what is paid at once."""
        rows = samples
        if self._rounds:
            rows = Batch({**samples[ROWS].columns, **{name: samples[name] for name in MARKS}})
        for name, model in self.models.items():
            model.collected(rows)
            self._logged |= {f'reward_model/{name}/{key}': value for key, value in model.learn().items()}
        now = [name for name in self.models if name not in self._anew]
        bonus = self._total(now, rows, is_new=True) if now else None
        if self._rounds:
            assert bonus is not None
            return self._paid_round(samples, rows, bonus)
        return samples if bonus is None else samples.replace(**{BONUS: bonus})

    def pay_sampled(self, batch: Batch) -> Batch:
        """Returns a batch of a replay buffer whose rewards contain what the models pay; rounds were paid when they were collected."""
        if self._rounds:
            return batch
        reward = 0.0 if self._replaces else batch['reward']
        if BONUS in batch:
            reward = reward + batch[BONUS]
        if self._anew:
            reward = reward + self._total(self._anew, batch, is_new=False)
        columns = {name: column for name, column in batch.items() if name != BONUS}
        return Batch.unchecked(columns | {'reward': reward}, len(batch))

    def _total(self, names: list[str], rows: Batch, is_new: bool) -> FloatArray:
        """Returns the weighted sum of what some models pay for rows, float32 [M]."""
        total = np.zeros(len(rows))
        for name in names:
            paid = np.asarray(self.models[name].reward(rows), np.float64)
            self._paid[name] = paid
            options = self._section[name]
            moments = self._moments[name]
            if options['normalize']:
                moments.update(paid)
                paid = paid / moments.std
            total += options['weight'] * paid
        return total.astype(np.float32)

    def _paid_round(self, samples: Batch, rows: Batch, bonus: FloatArray) -> Batch:
        """Returns the training samples of a round as if their rewards had contained what is paid.

        Advantages and lambda-returns are linear in rewards: what is paid adds its own discounted sum, by values of 0.
        """
        if attribute_of(self._policy, 'values_bonus', False):
            return Batch({name: column for name, column in samples.items() if name != ROWS} | {BONUS: bonus})
        columns = {name: column for name, column in samples.items() if name not in (ROWS, *MARKS)}
        if 'reward' in columns:  # the learner makes returns of them
            columns['reward'] = bonus + (0 if self._replaces else columns['reward'])
            return Batch(columns)
        discount = attribute_of(self._policy, 'discount_factor', 1.0)
        trace = attribute_of(self._policy, 'gae_lambda', attribute_of(self._policy, 'q_lambda', 1.0))
        if self._replaces:
            bonus = bonus - rows['reward']
        more = discounted_sums(bonus, ends_of(rows), discount * trace)
        for name in ('advantage', 'return_'):
            if name in columns:
                columns[name] = columns[name] + more
        return Batch(columns)

    def metrics(self) -> dict[str, float]:
        """Returns the last values to log, by tag."""
        means = {f'reward_model/{name}/mean': float(paid.mean()) for name, paid in self._paid.items()}
        return self._logged | means

    def state_dict(self) -> dict[str, Any]:
        """Returns the states of the models, by name."""
        return {
            name: {'model': model.state_dict(), 'moments': self._moments[name].state_dict()}
            for name, model in self.models.items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        check_state(state, {name: {'model': DICT, 'moments': DICT} for name in self.models})
        for name, model in self.models.items():
            with part(name):
                model.load_state_dict(state[name]['model'])
                self._moments[name].load_state_dict(state[name]['moments'])


def ends_of(rows: Batch) -> BoolArray:
    """Returns which rows are not followed by the next step of their episode, bool [M]."""
    env_id, step = (np.asarray(rows[name]) for name in MARKS)
    ends = np.ones(len(rows), bool)
    ends[:-1] = (env_id[1:] != env_id[:-1]) | (step[1:] != step[:-1] + 1)
    return ends


def discounted_sums(bonus: FloatArray, ends: BoolArray, discount: float) -> FloatArray:
    """Returns what is paid from each row on to the end of its episode, or of its round, float32 [M]."""
    none = np.zeros((len(bonus), 1), np.float32)
    return gae(bonus[:, None], none, none, ends[:, None], discount, 1.0)[:, 0].astype(np.float32)


def check_reward_models(cfg: Mapping[str, Any], spec: EnvSpec) -> None:
    """Checks that the reward models of a config can pay for steps of an env.

    Raises:
        ConfigError: If one cannot.
    """
    for name, section in raw_items(cfg.get('reward_model', {})):
        kind = REWARD_MODEL_REGISTRY.get_cls(section)
        with errors_of(name):
            for error in kind.check_spec(section, spec):
                raise error


@contextmanager
def errors_of(name: str) -> Iterator[None]:
    """Puts the section of a reward model in front of the options that errors name."""
    try:
        yield
    except ConfigError as error:
        error.where = f'reward_model.{name}.{error.where}'
        raise
