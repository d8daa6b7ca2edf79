"""Policy: one network seen through four faces, each with just the functions that its user needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from easydict import EasyDict

from rlframe.data.faces import Metrics
from rlframe.data.observation import has_mask
from rlframe.data.staging import Staging
from rlframe.data.timestep import Array, Batch, EnvSpec, FloatArray, IntArray, TimeStep, to_tensor
from rlframe.errors import ConfigError
from rlframe.policy.parts import faces
from rlframe.policy.parts.acting import ActingState
from rlframe.policy.parts.actions import ActionMap, distribution_of, is_own, without_forbidden
from rlframe.policy.parts.compiled import (
    COMPILE,
    CUDA_GRAPH,
    PRECISION,
    TrainStep,
    check_device,
    resolve_device,
)
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.fit import (
    check_critic_obs,
    check_fit,
    check_network,
    check_sizes,
    demand_learning_parts,
)
from rlframe.policy.parts.memory import Memory
from rlframe.policy.parts.network import (
    chosen_network,
    create_network,
    network_options,
    own_fields,
    without_own_model,
)
from rlframe.policy.parts.normalize import NORMALIZE_OBS, NORMALIZE_REWARD, Normalizer
from rlframe.policy.parts.optim import NAN_POLICY
from rlframe.policy.parts.options import INFERENCE, INIT_FROM, ModelConfig
from rlframe.policy.parts.random_shift import RANDOM_SHIFT, RandomShift, check_shift
from rlframe.policy.parts.ranks import MAX_LEARNER_RESTARTS, NUM_LEARNERS
from rlframe.policy.parts.recorded import transitions_of
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.parts.starting import COMMON, Facts, SearchSpace, Settings
from rlframe.policy.parts.team import check_rewards, learning_parts, network_arguments, rewards_of
from rlframe.registry import MODEL_REGISTRY
from rlframe.utils.field import Configurable, Field, Section, defaults_of, option
from rlframe.utils.lazy import torch
from rlframe.utils.seed import component_rng, drawing_weights

if TYPE_CHECKING:
    from rlframe.data.sources import DataSource
    from rlframe.policy.parts.expert import Expert
    from rlframe.policy.update import Update


class LearnConfig(Section):
    """Section ``learn`` of every policy."""

    num_learners: int = option(NUM_LEARNERS)
    max_learner_restarts: int = option(MAX_LEARNER_RESTARTS)
    random_shift: int = option(RANDOM_SHIFT)
    nan_policy: Literal['raise', 'skip', 'ignore'] = option(NAN_POLICY)


N_SAMPLE = Field(
    None, range='[1, inf)', unit='training samples', doc='samples collected per round, over all envs'
)


def _single_steps(value: int) -> str:
    """Says what to set instead if collectors are to cut sequences; else returns an empty string."""
    if value == 1:
        return ''
    return '1; learn.unroll_len, or that of the replay buffer, sets the length of sequences'


class CollectConfig(Section):
    """Section ``collect`` of every policy."""

    n_sample: int | None = option(N_SAMPLE)
    n_episode: int | None = option(
        None, range='[1, inf)', unit='episodes', doc='episodes collected per round, instead of n_sample'
    )
    unroll_len: int = option(1, unit='env steps', doc='samples are single steps', check=_single_steps)
    inference: Literal['local', 'central'] = option(INFERENCE)
    record: str | None = option(
        None,
        doc='path of data that the run records beside training, of all whole episodes: a folder of Minari, .npz or .parquet',
        reaches='file',
    )
    keep_rows: bool = option(
        False,
        doc='whether training samples of rounds carry the rows that they are made of; reward models need them',
    )
    model_path: str | None = option(
        None,
        doc='exported policy, an expert, which acts in a share of the envs; what it does there is kept as demonstrations',
        reaches='file',
    )
    expert_share: float = option(
        0.5, range='(0, 1)', doc='share of the envs in which the expert acts, if there is one'
    )


class EvalConfig(Section):
    """Section ``eval`` of every policy."""


class StochasticEval(EvalConfig):
    """Section ``eval`` of policies that may be evaluated by drawn actions."""

    deterministic: bool = option(
        True,
        doc='whether evaluation takes the best action; False: it draws one, as collection does, which helps if the policy sees'
        ' only a part of the state',
        may_change=True,
    )


class OtherConfig(Section):
    """Section ``other`` of every policy."""


class PolicyConfig(Section):
    """Options of every policy."""

    on_policy: bool = option(False, doc='whether it learns from fresh data only, without a replay buffer')
    cuda: bool | None = option(None, doc="True is device='cuda', False is device='cpu'", may_change=True)
    device: str = option(
        'auto',
        doc="'auto' (CUDA where there is one), 'cpu', 'cuda', 'cuda:i'",
        check=check_device,
        may_change=True,
    )
    compile: bool = option(COMPILE)
    cuda_graph: bool = option(CUDA_GRAPH)
    precision: Literal['fp32', 'tf32', 'bf16'] = option(PRECISION)
    init_from: str | None = option(INIT_FROM)
    random_collect_size: int = option(
        0,
        range='[0, inf)',
        unit='training samples',
        doc='training samples, or episodes with an episode collector, collected at random first',
    )
    normalize_obs: bool = option(NORMALIZE_OBS)
    normalize_reward: bool = option(NORMALIZE_REWARD)
    model: ModelConfig
    learn: LearnConfig
    collect: CollectConfig
    eval: EvalConfig
    other: OtherConfig


OF_UPDATES = {
    'loss', 'target', 'reward', 'critic_loss', 'actor_loss', 'policy_loss', 'value_loss', 'update_tensors', 'inputs', 'losses'
}  # fmt: skip
"""Names that an ``Update`` defines, and no policy."""


class Policy(Configurable):
    """Base of all policies; docs/how_to/own_algorithm.md shows what a subclass overrides.

    A subclass defines its network (``default_model``), its update (``update_class``), how it acts (``forward_collect``,
    ``forward_eval``) and what it records (``process_transition``). If its network has a core (``model.core``), ``_memory``
    keeps the recurrent states of running episodes.

    It uses ``model`` (the network), ``_cfg`` (options), ``spec`` (spaces of the env), ``device``, ``tensor`` (arrays to
    tensors on the device) and ``rng`` (the policy's own generator).

    Args:
        cfg: The ``policy`` section of a config; missing options take their defaults.
        spec: Spaces of the env.
        model: The network; created from ``cfg.model`` if not given.
        enable_field: The needed faces among ``learn``, ``collect``, ``eval``; all by default. ``command`` is always there.
        seed: Seed of the initial weights and of the policy's own generators.
        rank: Which of several policies with this seed it is.
    """

    _cfg: PolicyConfig
    supported_actions = 'Discrete'
    """Names of the action spaces that it can act in."""
    supported_observations = 'Box, Discrete, MultiDiscrete, MultiBinary, Dict, Tuple'
    """Names of the observation spaces that its network can read."""
    is_for_teams = False
    """Whether its networks are those of a team: they are given ``groups``, and only learning reads the state of the env."""
    supports_action_mask = False
    """Whether it never takes an action that the observation's ``action_mask`` forbids."""
    samples_rounds = False
    """Whether its training samples are made of whole rounds of its own actions although a replay buffer keeps them."""
    may_learn_from_data = False
    """Whether it may also learn from recorded data alone, though it acts by default."""
    needs_data = False
    """Whether it needs recorded data, such as demonstrations, beside what it does itself."""
    corrects_lag = False
    """Whether a policy that learns from fresh data may also learn from data of older weights, as its update corrects for them."""
    is_recurrent = False
    """Whether its actions depend on earlier steps of the episode."""
    replays_sequences = False
    """Whether it learns from sequences of a replay buffer though it is not recurrent."""
    update_class: type[Update] | None = None
    """What learns; None: ``forward_learn`` does all of it."""
    update: Any = None
    """The update, of ``update_class``; only if the policy learns, it has optimizers and target networks."""
    loads = 0
    """How often its state was loaded."""
    expert: Expert | None = None
    """What acts in some of the envs in place of this policy when it collects."""
    checks: tuple[Callable[[Any], list[ConfigError]], ...] = ()
    """Further rules between its options, for ``check_config``."""
    ding = DingNames()
    """What DI-engine calls it and its options."""
    solves: tuple[str, int] | None = None
    """An env that ``rlframe train --env ENV --policy POLICY`` solves by its defaults, and within how many env steps."""
    toy: dict[str, Any] = {}
    """Options by which it learns in seconds to name one of four classes or, with continuous actions only, to hit a target."""
    search_space: SearchSpace = COMMON
    """Options that are worth a search, with their domains."""
    network_arguments: dict[str, str | None] = {}
    """Options of the section ``model`` that a network has under another name; None: that it is not given."""

    def __init__(
        self,
        cfg: EasyDict | Mapping[str, Any] | None = None,
        spec: EnvSpec | None = None,
        model: torch.nn.Module | None = None,
        enable_field: Iterable[str] | None = None,
        *,
        seed: int = 0,
        rank: int = 0,
    ) -> None:
        if spec is None:
            raise ConfigError(
                f'{type(self).__name__} needs the spec of its env (env_manager.spec)', where='policy'
            )
        from rlframe.model.core import draw_from

        self.set_options(cfg, spec)
        fields = tuple(enable_field or ('learn', 'collect', 'eval'))
        self._fields = tuple(field for field in fields if field != 'command')
        self.check_spec(spec, self._cfg)
        if fields != ('eval',):
            demand_learning_parts(self)
        self._actions = ActionMap(spec)
        self.device = resolve_device(self._cfg)
        self._on_cpu = self.device.type == 'cpu'
        self.tensor: Callable[[Any], Any] = to_tensor if self._on_cpu else Staging(self.device)
        """Returns a column as a tensor on the device; one with fields becomes a dict of tensors."""
        self.rng = component_rng(seed, 'policy', rank)
        self._normalizer = Normalizer(self._cfg, spec, self.samples_rounds)
        self._shift = RandomShift(self._cfg, spec, self.rng)
        self._given_model = model  # an attribute that collectors in other processes ask for
        self._draws = seed, 'evaluation', rank
        self._eval_rng = component_rng(*self._draws)
        self._memory: Memory | None = None
        self.generator = torch.Generator(self.device)
        with drawing_weights(self.generator, seed, rank):
            self.model = (model if model is not None else self.create_model()).to(self.device)
            self.draws = draw_from(self.model, self.generator)
            self.acting = ActingState(self._normalizer, self.rng, self.generator if self.draws else None)
            if self.update_class is not None:
                self.update = self.update_class(self.model, self._cfg, spec)
            if not self.is_recurrent and not self._has_core and is_own(self) and not is_own(self.model):
                check_network(self)
            for field in self._fields:
                getattr(self, f'init_{field}')()
        if 'learn' in self._fields and self.update is not None:
            self.train_step = TrainStep(self.update, self._cfg, self.generator, self.draws)
        if self._has_core:
            self._memory = Memory(self.model, self._cfg.model['core'], self.default_model(), self.tensor)
            self.is_recurrent = True
            self.acting.parts['episodes'] = self._memory.collect

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Refuses methods that belong to an ``Update``.

        Raises:
            TypeError: If there are some; what takes their place is named.
        """
        super().__init_subclass__(**kwargs)
        if moved := sorted(OF_UPDATES & vars(cls).keys()):
            base = getattr(cls.update_class, '__name__', 'Update')
            raise TypeError(
                f'{cls.__name__} defines {", ".join(moved)}: what a policy learns is an Update. Define a subclass of'
                f' {base} with these methods, and set update_class in {cls.__name__}'
            )

    def set_options(self, cfg: EasyDict | Mapping[str, Any] | None, spec: EnvSpec) -> None:
        """Sets what only options and spaces decide, which is all that ``create_model`` needs."""
        self._cfg = self.resolve_config(cfg)
        self.spec = spec
        self._action_space: Any = spec.action_space
        self._has_mask = has_mask(spec.observation_space)
        self._has_core = self._cfg.model.get('core') is not None
        self.has_own_rewards: bool = self._cfg.get('agent_rewards', False)
        """Whether each agent of a team learns from its own reward: rewards are then [n, A]."""
        # whether collectors make its samples of whole rounds, by get_train_sample
        self._on_policy = self._cfg.on_policy or self.samples_rounds
        # an exported policy takes the best action in any case
        self._draws_in_eval = not self._cfg.eval.get('deterministic', True)

    # what a subclass defines

    @classmethod
    def starting(cls, facts: Facts) -> Settings:
        """Returns options that suit an env which nobody has tuned, for ``rlframe train --env ENV``.

        Subclasses have them, too, with the defaults by which they differ (``config``).
        """
        return {}

    def default_model(self) -> str:
        """Returns the registered name of the network to build, if ``model.type`` names none."""
        raise NotImplementedError

    def create_model(self) -> torch.nn.Module:
        """Returns the network; called once, unless one was given. Overridden to add parts, such as a further head."""
        section = chosen_network(self)
        kind = MODEL_REGISTRY.get_cls(section)
        return create_network(kind, self.model_kwargs(), type(self).__name__, section['type'])

    def model_kwargs(self) -> dict[str, Any]:
        """Returns the arguments of the network's constructor: the ``model`` section and the spec."""
        kind = MODEL_REGISTRY.get_cls(chosen_network(self))
        fields = self.config_fields()['model']
        options = network_options(self._cfg.model, fields, kind, self.network_arguments) | {'spec': self.spec}
        return options | network_arguments(self) if self.is_for_teams else options

    @classmethod
    def learning_parts(cls, spec: EnvSpec, cfg: Any) -> tuple[str, ...]:
        """Returns the parts of observations that only learning reads: evaluations and exported policies do without them."""
        if cls.is_for_teams:
            return learning_parts(spec)
        name = cfg.model.get('critic_obs')
        return () if name is None else (name,)

    def init_learn(self) -> None:
        """Makes what only learning needs; called once, with the network in place."""
        if self.update is not None:
            self.update.init_learn()

    def init_collect(self) -> None:
        """Makes what only collection needs; called once."""

    def init_eval(self) -> None:
        """Makes what only evaluation needs; called once."""

    def forward_learn(self, data: Batch) -> Metrics | Iterable[Callable[[], Metrics]]:
        """Updates the network by one batch [B, ...], or yields functions that each do one of several updates.

        Called by the learner, off-policy for each batch of a replay buffer, on-policy for each round.
        """
        return self.train_step(self.columns(data))

    def columns(self, data: Batch) -> Rows:
        """Returns what an update reads, as tensors on the device [B, ...]: its ``inputs`` and the numbers that it draws.

        Called once for the data of ``forward_learn``. Overridden by policies that compute further columns.
        """
        columns = data.columns
        rows = {name: self.tensor(columns[name]) for name in self.update.inputs if name in columns}
        return rows | self.update.drawn(self.rng, len(data), self.tensor)

    def forward_collect(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        """Returns a ``Batch`` with ``action`` [n, ...] and all further columns that the transition needs.

        Called by the collector for the envs ``env_id`` [n] that wait for an action, whose observations are ``obs`` [n, ...];
        ``settings`` are those of ``get_setting_collect``.
        """
        raise NotImplementedError

    def forward_eval(self, obs: Array, env_id: IntArray) -> Batch:
        """Returns a ``Batch`` with the ``action`` [n, ...] that the policy thinks best; called by the evaluator."""
        raise NotImplementedError

    def forward_greedy(self, obs: Array, env_id: IntArray) -> Batch:
        """Acts as in evaluation, for a collector that does not explore.

        Overridden by policies whose transitions need further columns or the memory of collection.
        """
        return self.forward_eval(obs, env_id)

    def action_prob(self, obs: Array, output: Batch, **settings: Any) -> FloatArray | None:
        """Returns the probability that ``forward_collect`` takes the Discrete actions that it has taken, [n]; None: unknown.

        Called when data are recorded, for the arguments and the output of ``forward_collect``.
        """
        return None

    def process_transition(self, obs: Array, output: Batch, timestep: TimeStep) -> dict[str, Array]:
        """Returns the columns of the step's transitions, [n, ...]: what training samples consist of.

        Called by the collector after each step of its envs, with the observations acted on, what ``forward_collect``
        returned for them, and the step's ``TimeStep``.
        """
        reward = rewards_of(timestep.obs) if self.has_own_rewards else timestep.reward
        return {
            'obs': obs,
            'next_obs': timestep.obs,
            'action': output['action'],
            'reward': reward.astype(np.float32, copy=False),
            'terminated': timestep.terminated,
            'truncated': timestep.truncated,
        }

    def env_action(self, stored: Array) -> Array:
        """Returns actions of rows of ``process_transition``, [n, ...], as the env takes them."""
        return stored

    def get_train_sample(self, block: Batch) -> Batch:
        """Turns a block of columns [T, N, ...] into training samples [M, ...].

        Called once a round for on-policy policies and those with ``samples_rounds``, whose returns and advantages are computed
        here, and for every policy that learns from recorded data.
        """
        return block if self._on_policy else transitions_of(self, block)

    def _monitor_vars(self) -> list[str]:
        return ['cur_lr', 'total_loss']

    def reset_targets(self) -> None:
        """Synchronises copies of the network with it, after new weights were loaded."""
        if self.update is not None:
            self.update.reset_targets()

    def reset_collect(self, env_id: IntArray | None = None) -> None:
        """Resets the recurrent state that collection keeps for these envs, or for all; extend it with ``super()``."""
        if self._memory is not None:
            self._memory.collect.reset(env_id)

    def reset_eval(self, env_id: IntArray | None = None) -> None:
        """Resets what evaluation keeps for these envs, or for all; extend it with ``super()``.

        Draws begin anew whenever all episodes do, so that an evaluation depends on nothing but the weights.
        """
        if self._memory is not None:
            self._memory.evaluation.reset(env_id)
        if env_id is None:
            self._eval_rng = component_rng(*self._draws)

    def _get_data_reader(self) -> Callable[[Callable[[], Iterable[Batch]]], None] | None:
        """Returns what looks at a pass over recorded data, before any of them are learned from; None: nothing does."""
        return None if self._on_policy else self._normalizer.read

    def _get_data_form(self) -> Callable[[DataSource], DataSource] | None:
        """Returns what turns recorded data into those that the policy learns from; None: they are the same."""
        return None

    def _get_likelihood(self) -> Callable[[Array, Array], FloatArray] | None:
        """Returns ``log_prob`` of the update, for arrays of rows as they are kept; None if actions have no known probability."""
        is_known = hasattr(self.update, 'log_prob') and not self.is_recurrent
        return partial(faces.likelihood, self) if is_known else None

    def _get_on_policy(self) -> bool:
        """Returns whether collectors make its samples of whole rounds, by ``get_train_sample``."""
        return self._on_policy

    def _get_nstep(self) -> int:
        """Returns the rewards that collectors sum: one if the replay buffer sums them, by the goals of hindsight."""
        buffer = self._cfg.other.get('replay_buffer') or {}
        has_hindsight = (buffer.get('hindsight') or {}).get('strategy') is not None
        return 1 if has_hindsight else self._cfg.get('nstep', 1)

    def get_setting_learn(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Returns arguments for the learner's ``forward``, after learning rates have followed their schedules."""
        if self.update is not None:
            self.update.set_envstep(info['envstep'])
        return {}

    def get_setting_collect(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Returns arguments for the collector's ``forward``, such as ``eps``, from counters such as ``envstep``."""
        return {}

    @classmethod
    def network_fields(cls, kind: Any) -> dict[str, Any]:
        """Returns the options of the section ``model`` for a network of the user, whose own defaults have precedence."""
        return own_fields(cls.config_fields()['model'], kind)

    @classmethod
    def resolve_config(cls, cfg: Mapping[str, Any] | None) -> EasyDict:
        rest, model = without_own_model(cfg)
        resolved = super().resolve_config(rest)
        if model is not None:
            resolved.model = {**defaults_of(cls.network_fields(MODEL_REGISTRY.get_cls(model))), **model}
        return resolved

    @classmethod
    def check_config(cls, cfg: EasyDict) -> list[ConfigError]:
        return [*super().check_config(cfg), *(error for check in cls.checks for error in check(cfg))]

    @classmethod
    def check_spec(cls, spec: EnvSpec, cfg: EasyDict) -> None:
        """Checks that the policy can act in an env, and that sizes given in ``cfg.model`` are the env's.

        Raises:
            IncompatibleError: If it cannot; the spaces and the policies that could, or actions without bounds, are named.
            ConfigError: If a size differs.
        """
        check_fit(cls, spec)
        check_shift(cfg, spec)
        check_sizes(spec, cfg.model)
        check_critic_obs(spec, cfg.model)
        check_rewards(spec, cfg)
        ActionMap(spec)

    # the faces, and the state that they save

    learn_mode = property(faces.learn_mode)
    collect_mode = property(faces.collect_mode)
    greedy_collect_mode = property(faces.greedy_collect_mode)
    eval_mode = property(faces.eval_mode)
    command_mode = property(faces.command_mode)
    random_collect_mode = faces.drawn_collect_mode
    get_attribute, set_attribute = faces.get_attribute, faces.set_attribute
    _state_dict_learn, _load_state_dict_learn = faces.state_dict_learn, faces.load_state_dict_learn
    _state_dict_model, _load_model = faces.state_dict_model, faces.load_model
    _get_acting = faces.get_acting

    # shared parts

    masked = staticmethod(without_forbidden)
    distribution = cached_property(distribution_of)

    def _remember(self, env_id: IntArray, is_evaluation: bool = False) -> dict[str, Array]:
        """Sets the episodes that the next action continues, and returns the column ``state`` if there is a core."""
        return {} if self._memory is None else self._memory.begin(env_id, is_evaluation)

    def _acting_output(self, obs: Any) -> tuple[torch.Tensor, int]:
        """Returns the output that the network acts by, [B, size, ...], and its right size."""
        raise NotImplementedError

    def __repr__(self) -> str:
        size = sum(parameter.numel() for parameter in self.model.parameters())
        return f'{type(self).__name__}({size} parameters, device {self.device})\n{self.model!r}'
