"""Policy: one network seen through four faces, each with just the functions that its user needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from easydict import EasyDict

from rlframe.data.faces import Metrics
from rlframe.data.observation import has_mask
from rlframe.data.staging import Staging
from rlframe.data.timestep import Array, Batch, BoolArray, EnvSpec, FloatArray, IntArray, TimeStep, to_tensor
from rlframe.errors import ConfigError
from rlframe.policy.parts import faces
from rlframe.policy.parts.actions import ActionMap, distribution_of, is_own, without_forbidden
from rlframe.policy.parts.compiled import TrainStep, resolve_device
from rlframe.policy.parts.demos import IS_DEMO, marks_of
from rlframe.policy.parts.ding_names import DingNames
from rlframe.policy.parts.faces import ActingState
from rlframe.policy.parts.fit import (
    check_critic_obs,
    check_fit,
    check_network,
    check_sizes,
    demand_acting_parts,
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
from rlframe.policy.parts.normalize import Normalizer
from rlframe.policy.parts.random_shift import RandomShift, check_shift
from rlframe.policy.parts.recorded import transitions_of
from rlframe.policy.parts.sections import BEST_ACTIONS, PolicyConfig
from rlframe.policy.parts.sequences import Rows
from rlframe.policy.parts.starting import COMMON, Facts, SearchSpace, Settings
from rlframe.policy.parts.team import check_rewards, ends_of_agents, network_arguments, rewards_of
from rlframe.registry import MODEL_REGISTRY
from rlframe.utils.field import Configurable, defaults_of
from rlframe.utils.lazy import torch
from rlframe.utils.seed import component_rng, drawing_weights

if TYPE_CHECKING:
    from rlframe.policy.parts.expert import Expert
    from rlframe.policy.update import Update


OF_UPDATES = {
    'loss', 'target', 'reward', 'critic_loss', 'actor_loss', 'policy_loss', 'value_loss', 'update_tensors', 'inputs', 'losses'
}  # fmt: skip
"""Names that an ``Update`` defines, and no policy."""


def sums_later(policy: Policy) -> bool:
    """Whether rewards are summed when they are learned from: along sequences, or by the goals of hindsight."""
    buffer = policy._cfg.other.get('replay_buffer') or {}
    has_hindsight = (buffer.get('hindsight') or {}).get('strategy') is not None
    return has_hindsight or policy._has_core or policy.replays_sequences


class Policy(Configurable):
    """Base of all policies; docs/how_to/own_algorithm.md shows what a subclass overrides.

    A subclass defines its network (``default_network``), its update (``update_class``), how it acts (``forward_collect``,
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

    # what a subclass states

    update_class: type[Update] | None = None
    """What learns; None: ``forward_learn`` does all of it."""
    default_network: str | tuple[str, str] = ''
    """The registered name of the network to build, if ``model.type`` names none; a pair: without a core, and with one."""
    network_arguments: dict[str, str | None] = {}
    """Options of the section ``model`` that a network has under another name; None: that it is not given."""
    layers: Mapping[str, Any] = {}
    """Further arguments of the network, which an algorithm fixes."""
    supported_actions = 'Discrete'
    """Names of the action spaces that it can act in."""
    supported_observations = 'Box, Discrete, MultiDiscrete, MultiBinary, Dict, Tuple'
    """Names of the observation spaces that its network can read."""
    supports_action_mask = False
    """Whether it never takes an action that the observation's ``action_mask`` forbids."""
    is_for_teams = False
    """Whether its networks are those of a team: they are given ``groups``, and only learning reads the state of the env."""
    is_recurrent = False
    """Whether its actions depend on earlier steps of the episode."""
    replays_sequences = False
    """Whether it learns from sequences of a replay buffer though it is not recurrent."""
    samples_rounds = False
    """Whether its training samples are made of whole rounds of its own actions although a replay buffer keeps them."""
    needs_data = False
    """Whether it needs recorded data, such as demonstrations, beside what it does itself."""
    may_learn_from_data = False
    """Whether it may also learn from recorded data alone, though it acts by default."""
    needs_order = False
    """Whether it learns from what follows a row in recorded data, which have to be in order of time."""
    corrects_lag = False
    """Whether a policy that learns from fresh data may also learn from data of older weights, as its update corrects for them."""
    checks: tuple[Callable[[Any], list[ConfigError]], ...] = ()
    """Further rules between its options, for ``check_config``."""
    toy: dict[str, Any] = {}
    """Options by which it learns in seconds to name one of four classes or, with continuous actions only, to hit a target."""
    solves: tuple[str, int] | None = None
    """An env that ``rlframe train --env ENV --policy POLICY`` solves by its defaults, and within how many env steps."""
    search_space: SearchSpace = COMMON
    """Options that are worth a search, with their domains."""
    ding = DingNames()
    """What DI-engine calls it and its options."""

    # what it has

    update: Any = None
    """The update, of ``update_class``; only if the policy learns, it has optimizers and target networks."""
    expert: Expert | None = None
    """What acts in some of the envs in place of this policy when it collects."""
    loads = 0
    """How often its state was loaded."""

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

        # options, and what they ask of the env
        self.set_options(cfg, spec)
        fields = tuple(enable_field or ('learn', 'collect', 'eval'))
        self._fields = tuple(field for field in fields if field != 'command')
        self.check_spec(spec, self._cfg)
        if fields != ('eval',):
            demand_learning_parts(self)
            check_rewards(spec, self._cfg)
        else:
            demand_acting_parts(self)
        # the device
        self.device = resolve_device(self._cfg)
        self._on_cpu = self.device.type == 'cpu'
        self.tensor: Callable[[Any], Any] = to_tensor if self._on_cpu else Staging(self.device)
        """Returns a column as a tensor on the device; one with fields becomes a dict of tensors."""
        # random generators, and maps of actions and observations
        self.rng = component_rng(seed, 'policy', rank)
        self._draws = seed, 'evaluation', rank
        self._eval_rng = component_rng(*self._draws)
        self.actions = ActionMap(spec)
        """Maps actions of the network to those of the env; ``actions.batch`` is what a ``forward`` returns."""
        self.distribution = distribution_of(spec, self._cfg)
        """The distribution over actions whose parameters an actor outputs."""
        self._normalizer = Normalizer(self._cfg, spec, self.samples_rounds)
        self._shift = RandomShift(self._cfg, spec, self.rng)
        # the network, and what learns
        self._given_model = model  # an attribute that collectors in other processes ask for
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
        # the update in the mode that options ask for, and a memory
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
        # what collectors are told: whether its samples are made of whole rounds, and how many rewards to sum
        self._on_policy = self._cfg.on_policy or self.samples_rounds
        self._nstep: int = 1 if sums_later(self) else self._cfg.get('nstep', 1)
        # an exported policy takes the best action in any case
        acting = self._cfg.eval
        self._draws_in_eval = any(acting.get(name, best) != best for name, best in BEST_ACTIONS.items())

    # options

    @classmethod
    def starting(cls, facts: Facts) -> Settings:
        """Returns options that suit an env which nobody has tuned, for ``rlframe train --env ENV``.

        Subclasses have them, too, with the defaults by which they differ (``config``).
        """
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
        ActionMap(spec)

    # the network

    def default_model(self) -> str:
        """Returns the registered name of the network to build, if ``model.type`` names none."""
        name = self.default_network
        return name if isinstance(name, str) else name[self._has_core]

    def create_model(self) -> torch.nn.Module:
        """Returns the network; called once, unless one was given. Overridden to add parts, such as a further head."""
        network: torch.nn.Module = create_network(self)
        return network

    def model_kwargs(self) -> dict[str, Any]:
        """Returns the arguments of the network's constructor: the ``model`` section and the spec."""
        kind = MODEL_REGISTRY.get_cls(chosen_network(self))
        fields = self.config_fields()['model']
        options = network_options(self._cfg.model, fields, kind, self.network_arguments)
        of_team = network_arguments(self) if self.is_for_teams else {}
        return {**options, 'spec': self.spec, **of_team, **self.layers}

    def _acting_output(self, obs: Any) -> tuple[torch.Tensor, int]:
        """Returns the output that the network acts by, [B, size, ...], and its right size."""
        return self.model(obs), self.distribution.size

    # learning

    def init_learn(self) -> None:
        """Makes what only learning needs; called once, with the network in place."""
        if self.update is not None:
            self.update.init_learn()

    def forward_learn(self, data: Batch) -> Metrics | Iterable[Callable[[], Metrics]]:
        """Updates the network by one batch [B, ...], or yields functions that each do one of several updates.

        Called by the learner, off-policy for each batch of a replay buffer, on-policy for each round.
        """
        return self.train_step(self.columns(data))

    def columns(self, data: Batch) -> Rows:
        """Returns what an update reads, as tensors on the device [B, ...]: its ``inputs`` and the numbers that it draws.

        Called once for the data of ``forward_learn``. Overridden by policies that compute further columns.
        """
        if IS_DEMO in self.update.inputs:
            data = data.replace(is_demo=marks_of(data))
        columns = data.columns
        rows = {name: self.tensor(columns[name]) for name in self.update.inputs if name in columns}
        return rows | self.update.drawn(self.rng, len(data), self.tensor)

    def reset_targets(self) -> None:
        """Synchronises copies of the network with it, after new weights were loaded."""
        if self.update is not None:
            self.update.reset_targets()

    # acting

    masked = staticmethod(without_forbidden)

    def init_collect(self) -> None:
        """Makes what only collection needs; called once."""

    def init_eval(self) -> None:
        """Makes what only evaluation needs; called once."""

    def get_setting_collect(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Returns arguments for the collector's ``forward``, such as ``eps``, from counters such as ``envstep``."""
        return {}

    def forward_collect(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        """Returns a ``Batch`` with ``action`` [n, ...] and all further columns that the transition needs.

        Called by the collector for the envs ``env_id`` [n] that wait for an action, whose observations are ``obs`` [n, ...];
        ``settings`` are those of ``get_setting_collect``. A policy that does not explore acts as in evaluation.
        """
        return self.forward_eval(obs, env_id)

    def forward_eval(self, obs: Array, env_id: IntArray) -> Batch:
        """Returns a ``Batch`` with the ``action`` [n, ...] that the policy thinks best; called by the evaluator."""
        raise NotImplementedError

    def forward_greedy(self, obs: Array, env_id: IntArray) -> Batch:
        """Acts as in evaluation, for a collector that does not explore.

        Overridden by policies whose transitions need further columns, or whose evaluations may draw actions.
        """
        return self.forward_eval(obs, env_id)

    def action_prob(self, obs: Array, output: Batch, **settings: Any) -> FloatArray | None:
        """Returns the probability that ``forward_collect`` takes the Discrete actions that it has taken, [n]; None: unknown.

        Called when data are recorded, for the arguments and the output of ``forward_collect``.
        """
        return None

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

    # recording

    def process_transition(self, obs: Array, output: Batch, timestep: TimeStep) -> dict[str, Array]:
        """Returns the columns of the step's transitions, [n, ...]: what training samples consist of.

        Called by the collector after each step of its envs, with the observations acted on, what ``forward_collect``
        returned for them, and the step's ``TimeStep``.
        """
        reward = rewards_of(timestep.obs) if self.has_own_rewards else timestep.reward
        state = {'state': output['state']} if 'state' in output else {}
        return {
            'obs': obs,
            'next_obs': timestep.obs,
            'action': output['action'],
            'reward': reward.astype(np.float32, copy=False),
            'terminated': timestep.terminated,
            'truncated': timestep.truncated,
            **state,
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

    def ends(self, block: Batch, apart: BoolArray) -> tuple[BoolArray, BoolArray]:
        """Returns where nothing follows what learns, and where the row below is none of its episode.

        ``apart``: see ``apart_rows``, bool [T, N]. Both are bool [T, N] or, if agents have rewards of their own, [T, N, A].
        """
        return ends_of_agents(block, apart) if self.has_own_rewards else (block['terminated'], apart)

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

    def __repr__(self) -> str:
        size = sum(parameter.numel() for parameter in self.model.parameters())
        return f'{type(self).__name__}({size} parameters, device {self.device})\n{self.model!r}'
