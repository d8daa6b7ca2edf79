"""Policy: one network seen through four faces, each with just the functions that its user needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from easydict import EasyDict

from rlframe.data.faces import Acting, CollectMode, CommandMode, EvalMode, Forward, LearnMode, Metrics, by_env
from rlframe.data.observation import has_mask
from rlframe.data.staging import Staging
from rlframe.data.timestep import Array, Batch, EnvSpec, IntArray, TimeStep, to_tensor
from rlframe.errors import CheckpointMismatchError, ConfigError
from rlframe.policy.ding_form import as_own_rows
from rlframe.policy.parts.actions import IMPOSSIBLE, ActionMap, is_own, mask_of, masked, obeying
from rlframe.policy.parts.compiled import (
    COMPILE,
    CUDA_GRAPH,
    PRECISION,
    check_device,
    prepare_updates,
    resolve_device,
)
from rlframe.policy.parts.fit import check_fit, check_network, check_sizes
from rlframe.policy.parts.memory import Memory
from rlframe.policy.parts.network import create_network, network_options, own_fields, without_own_model
from rlframe.policy.parts.normalize import NORMALIZE_OBS, NORMALIZE_REWARD, Normalizer
from rlframe.policy.parts.optim import NAN_POLICY
from rlframe.policy.parts.options import INFERENCE, INIT_FROM, ModelConfig
from rlframe.policy.parts.random_policy import random_collect_mode
from rlframe.policy.parts.random_shift import RANDOM_SHIFT, RandomShift, check_shift
from rlframe.policy.parts.ranks import MAX_LEARNER_RESTARTS, NUM_LEARNERS
from rlframe.policy.parts.sequences import Rows
from rlframe.registry import MODEL_REGISTRY
from rlframe.run.checkpoint_tree import compare_states
from rlframe.utils.field import Configurable, Field, Section, defaults_of, option
from rlframe.utils.lazy import torch
from rlframe.utils.schema import DICT, GENERATOR, NETWORK, TENSOR, check_state, part, part_of
from rlframe.utils.seed import component_rng, drawing_weights, restore_generator

if TYPE_CHECKING:
    from rlframe.model.core import Draws
    from rlframe.model.distributions import ActionDistribution
    from rlframe.policy.parts.optim import Optimizer
    from rlframe.policy.parts.ranks import Ranks


class LearnConfig(Section):
    """Section ``learn`` of every policy."""

    num_learners: int = option(NUM_LEARNERS)
    max_learner_restarts: int = option(MAX_LEARNER_RESTARTS)
    random_shift: int = option(RANDOM_SHIFT)
    nan_policy: Literal['raise', 'skip', 'ignore'] = option(NAN_POLICY)


N_SAMPLE = Field(
    None, range='[1, inf)', unit='training samples', doc='samples collected per round, over all envs'
)
"""Option ``collect.n_sample`` of every policy."""


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


class Policy(Configurable):
    """Base of all policies; docs/how_to/own_algorithm.md shows what a subclass overrides.

    A subclass defines its network (``default_model``), its update (``forward_learn``, with the optimizers that it names
    in ``optimizers``), how it acts (``forward_collect``, ``forward_eval``) and what it records
    (``process_transition``). If its network has a core (``model.core``), ``_memory`` keeps the recurrent states of running
    episodes.

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
    supports_action_mask = False
    """Whether it never takes an action that the observation's ``action_mask`` forbids."""
    corrects_lag = False
    """Whether a policy that learns from fresh data may also learn from data of older weights, as its update corrects for them."""
    is_recurrent = False
    """Whether its actions depend on earlier steps of the episode."""
    inputs: tuple[str, ...] = ()
    """Columns of training samples that ``columns`` makes into tensors for an update, where there are such."""
    ranks: Ranks | None = None
    """The learners that share each update; None: there is one."""
    loads = 0
    """How often its state was loaded."""
    compiled_parts: tuple[str, ...] = ()
    """Methods that ``compile`` makes into machine code: functions of the tensors of an update, without effects.

    ``cuda_graph`` records ``update_tensors``, a whole update that only reads and changes tensors.
    """
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
        self._cfg, self.spec = self.resolve_config(cfg), spec
        self._has_mask = has_mask(spec.observation_space)
        is_class = spec.action_space.shape == () and hasattr(spec.action_space, 'n')
        self._one_a_row = ('reward', 'action') if is_class else ('reward',)
        fields = tuple(enable_field or ('learn', 'collect', 'eval'))
        self._fields = tuple(field for field in fields if field != 'command')
        self.check_spec(spec, self._cfg)
        self.device = resolve_device(self._cfg)
        self._on_cpu = self.device.type == 'cpu'
        self.tensor: Callable[[Any], Any] = to_tensor if self._on_cpu else Staging(self.device)
        """Returns a column as a tensor on the device; one with fields becomes a dict of tensors."""
        self.rng = component_rng(seed, 'policy', rank)
        self._normalizer, self._shift = Normalizer(self._cfg, spec), RandomShift(self._cfg, spec, self.rng)
        self._given_model = model
        self.optimizers: dict[str, Optimizer] = {}
        self.learned: list[Any] = []
        """Parts that learning changes, beside network and optimizers: with ``state_dict`` and ``load_state_dict``."""
        self._draws = seed, 'evaluation', rank
        self._eval_rng = component_rng(*self._draws)
        self._memory: Memory | None = None
        self.generator = torch.Generator(self.device)
        with drawing_weights(self.generator, seed, rank):
            self.model = (model if model is not None else self.create_model()).to(self.device)
            self.draws = self._draws_of_layers()
            for field in self._fields:
                getattr(self, f'init_{field}')()
        if not self.is_recurrent and not self._has_core and is_own(self) and not is_own(self.model):
            check_network(self.model, self._acting_output, type(self).__name__, spec, self.tensor)
        if 'learn' in self._fields:
            prepare_updates(self, self._cfg, self.device)
        if self._has_core:
            self._memory, self.is_recurrent = self._make_memory(), True

    # what a subclass defines

    def default_model(self) -> str:
        """Returns the registered name of the network to build, if ``model.type`` names none."""
        raise NotImplementedError

    def create_model(self) -> torch.nn.Module:
        """Returns the network; called once, unless one was given. Overridden to add parts, such as a further head."""
        kind, name = MODEL_REGISTRY.get_cls(self._network), self._network['type']
        network: torch.nn.Module = create_network(kind, self.model_kwargs(), type(self).__name__, name)
        return network

    @property
    def _network(self) -> dict[str, Any]:
        return {**self._cfg.model, 'type': self._cfg.model.type or self.default_model()}

    def model_kwargs(self) -> dict[str, Any]:
        """Returns the arguments of the network's constructor: the ``model`` section and the spec."""
        kind, fields = MODEL_REGISTRY.get_cls(self._network), self.config_fields()['model']
        return network_options(self._cfg.model, fields, kind, self.network_arguments) | {'spec': self.spec}

    def init_learn(self) -> None:
        """Makes what only learning needs: optimizers, target networks; called once, with the network in place."""

    def init_collect(self) -> None:
        """Makes what only collection needs; called once."""

    def init_eval(self) -> None:
        """Makes what only evaluation needs; called once."""

    def forward_learn(self, data: Batch) -> Metrics | Iterable[Callable[[], Metrics]]:
        """Updates the network by one batch [B, ...], or yields functions that each do one of several updates.

        Called by the learner, off-policy for each batch of a replay buffer, on-policy for each round.
        """
        raise NotImplementedError

    def columns(self, data: Batch) -> Rows:
        """Returns what an update reads, as tensors on the device [B, ...]: the columns of ``inputs`` that there are.

        Called once for the data of ``forward_learn``. Overridden by policies that compute further columns, or draw numbers.
        """
        columns = data.columns
        return {name: self.tensor(columns[name]) for name in self.inputs if name in columns}

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

    def process_transition(self, obs: Array, output: Batch, timestep: TimeStep) -> dict[str, Array]:
        """Returns the columns of the step's transitions, [n, ...]: what training samples consist of.

        Called by the collector after each step of its envs, with the observations acted on, what ``forward_collect``
        returned for them, and the step's ``TimeStep``.
        """
        return {
            'obs': obs,
            'next_obs': timestep.obs,
            'action': output['action'],
            'reward': timestep.reward.astype(np.float32, copy=False),
            'terminated': timestep.terminated,
            'truncated': timestep.truncated,
        }

    def get_train_sample(self, block: Batch) -> Batch:
        """Turns a block of columns [T, N, ...] into training samples [M, ...].

        Called once a round, and only for on-policy policies: returns and advantages are computed here.
        """
        return block

    def _monitor_vars(self) -> list[str]:
        return ['cur_lr', 'total_loss']

    def _state_dict_learn(self) -> dict[str, Any]:
        optimizers = {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()}
        state = {**self._state_dict_model(), **self._acting_state(), 'optimizers': optimizers}
        for learned in self.learned:
            state |= learned.state_dict()
        return state

    def _load_state_dict_learn(self, state: Mapping[str, Any]) -> None:
        self.loads += 1
        self._load_model(state)
        if 'rng' in state:
            self._load_acting_state(state)
        if self.optimizers:
            check_state(state, {'optimizers': dict.fromkeys(self.optimizers, DICT)})
        for name, optimizer in self.optimizers.items():
            with part(f'optimizers.{name}'):
                optimizer.load_state_dict(state['optimizers'][name])
        for learned in self.learned:
            learned.load_state_dict(state)

    def reset_targets(self) -> None:
        """Synchronises copies of the network with it, after new weights were loaded."""

    def _reset(self, env_id: IntArray | None = None) -> None:
        """Resets the recurrent state of these envs' episodes, or of all, in collection and evaluation."""

    def reset_collect(self, env_id: IntArray | None = None) -> None:
        """Resets the recurrent state that collection keeps for these envs, or for all; extend it with ``super()``."""
        self._reset(env_id)
        if self._memory is not None:
            self._memory.collect.reset(env_id)

    def reset_eval(self, env_id: IntArray | None = None) -> None:
        """Resets what evaluation keeps for these envs, or for all; extend it with ``super()``.

        Draws begin anew whenever all episodes do, so that an evaluation depends on nothing but the weights.
        """
        self._reset(env_id)
        if self._memory is not None:
            self._memory.evaluation.reset(env_id)
        if env_id is None:
            self._eval_rng = component_rng(*self._draws)

    def get_setting_learn(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Returns arguments for the learner's ``forward``, after learning rates have followed their schedules."""
        for optimizer in self.optimizers.values():
            optimizer.set_envstep(info['envstep'])
        return {}

    def get_setting_collect(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Returns arguments for the collector's ``forward``, such as ``eps``, from counters such as ``envstep``."""
        return {}

    def get_setting_eval(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Returns arguments for the evaluator's ``forward``."""
        return {}

    @property
    def _action_space(self) -> Any:
        """The action space, of a kind that ``check_spec`` accepts."""
        return self.spec.action_space

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
    def check_spec(cls, spec: EnvSpec, cfg: EasyDict) -> None:
        """Checks that the policy can act in an env, and that sizes given in ``cfg.model`` are the env's.

        Raises:
            IncompatibleError: If it cannot; the spaces and the policies that could, or actions without bounds, are named.
            ConfigError: If a size differs.
        """
        check_fit(cls, spec)
        check_shift(cfg, spec)
        check_sizes(spec, cfg.model)
        ActionMap(spec)

    # the faces

    @property
    def learn_mode(self) -> LearnMode:
        """The functions that update the policy."""
        return LearnMode(
            partial(self._learn, self._normalizer.learning(self._shift.learning(self.forward_learn))),
            self._reset,
            self.__repr__,
            self._monitor_vars,
            self.get_attribute,
            self.set_attribute,
            self._state_dict_learn,
            self._load_state_dict_learn,
        )

    def _learn(self, learn: Callable[..., Any], data: Batch, **settings: Any) -> Any:
        """Learns from a batch, after one in DI-engine's form got the columns and shapes that updates read."""
        columns = data.columns
        end = columns.get('terminated')
        shapes = [columns[name].shape for name in self._one_a_row if name in columns]
        if end is None or shapes.count(end.shape) < len(shapes):
            data = as_own_rows(data, self._one_a_row)
        return learn(data, **settings)

    @property
    def collect_mode(self) -> CollectMode:
        """The functions that act to explore, and make training samples."""
        return self._recording(self.forward_collect)

    @property
    def greedy_collect_mode(self) -> CollectMode:
        """The functions that act as well as the policy can, whatever the settings, and make training samples."""
        return self._recording(lambda obs, env_id, **settings: self.forward_greedy(obs, env_id))

    def random_collect_mode(self, rng: np.random.Generator) -> CollectMode:
        """Returns the functions that act at random, and make training samples.

        Args:
            rng: Generator of the actions.
        """
        return random_collect_mode(self.collect_mode, self.spec, rng, self.is_recurrent)

    def _recording(self, forward: Forward) -> CollectMode:
        """Returns a collect face that acts by ``forward``."""
        normalizer = self._normalizer
        return CollectMode(
            by_env(normalizer.acting(obeying(forward, self)), self.spec),
            normalizer.recording(self.process_transition),
            normalizer.sampling(self.get_train_sample),
            normalizer.forgetting(self.reset_collect),
            self.get_attribute,
            self.set_attribute,
            self._state_dict_model,
            self._load_model,
        )

    @property
    def eval_mode(self) -> EvalMode:
        """The functions that act as well as the policy can."""
        return EvalMode(
            by_env(self._normalizer.acting(obeying(self.forward_eval, self)), self.spec),
            self.reset_eval,
            self.get_attribute,
            self.set_attribute,
            self._state_dict_model,
            self._load_model,
        )

    @property
    def command_mode(self) -> CommandMode:
        """The functions that turn counters into settings."""
        return CommandMode(self.get_setting_learn, self.get_setting_collect, self.get_setting_eval)

    def get_attribute(self, name: str) -> Any:
        """Returns an attribute by name: the result of ``_get_<name>``, a value that was set, or the option of that name.

        Raises:
            AttributeError: If it does not exist.
        """
        if hasattr(self, f'_get_{name}'):
            return getattr(self, f'_get_{name}')()
        if (own := self._name_of(name)) in vars(self):
            return getattr(self, own)
        for section in (self._cfg, self._cfg.collect, self._cfg.learn):
            if name in section:
                return section[name]
        raise AttributeError(f'{type(self).__name__} has no attribute {name!r}')

    def set_attribute(self, name: str, value: Any) -> None:
        """Sets a named fact."""
        setattr(self, self._name_of(name), value)

    def _name_of(self, name: str) -> str:
        return name if name in vars(self) else f'_{name}'

    # shared parts

    def masked(self, value: torch.Tensor, obs: Any) -> torch.Tensor:
        """Returns values of actions [B, A] with -1e8 for those that the masks of observations, tensors [B, ...], forbid."""
        return masked(value, mask_of(obs), IMPOSSIBLE)

    @cached_property
    def distribution(self) -> ActionDistribution:
        """The distribution over actions whose parameters an actor outputs."""
        from rlframe.model.distributions import distribution_for

        return distribution_for(self.spec.action_space, self._cfg.get('parameters_of_choice', False))

    @cached_property
    def _actions(self) -> ActionMap:
        """The map between the actions of a distribution and those of the env."""
        return ActionMap(self.spec)

    @property
    def _has_core(self) -> bool:
        return self._cfg.model.get('core') is not None

    @property
    def _draws_in_eval(self) -> bool:
        """Whether evaluation draws actions (``eval.deterministic``); that of an exported function is always the best."""
        return not self._cfg.eval.get('deterministic', True)

    def _make_memory(self) -> Memory:
        shape = getattr(self.model, 'state_shape', None)
        if shape is None:
            raise ConfigError(
                f'the network {type(self.model).__name__} has no state_shape, so it has no memory',
                where='policy.model.core',
                got=self._cfg.model['core'],
                expected=f'None, or a network like {self.default_model()!r}',
            )
        return Memory(tuple(shape))

    def _remember(self, env_id: IntArray, is_evaluation: bool = False) -> dict[str, Array]:
        """Sets the episodes that the next action continues, and returns the column ``state`` if there is a core."""
        return {} if self._memory is None else self._memory.begin(env_id, is_evaluation)

    def _step(self, obs: Any) -> Any:
        """Does a step of the network with a core in the episodes that ``_remember`` set, and returns its output."""
        assert self._memory is not None  # the network has a core
        network = self.model.act if self._memory.is_evaluation else self.model.step
        return self._memory.step(network, obs, self.tensor)

    def _acting_state(self) -> dict[str, Any]:
        """Returns what acting changes, as part of the policy's state: generator, running statistics, recurrent states."""
        state = {**self._normalizer.state_dict(running=True), 'rng': self.rng.bit_generator.state}
        if self.draws is not None:
            state['generator'] = self.generator.get_state()
        return state if self._memory is None else state | {'episodes': self._memory.collect.state_dict()}

    def _load_acting_state(self, state: Mapping[str, Any]) -> None:
        """Continues from ``_acting_state()``."""
        check_state(state, {'rng': GENERATOR} | ({} if self._memory is None else {'episodes': DICT}))
        self._normalizer.load_state_dict(state)
        self.rng.bit_generator.state = state['rng']
        if self.draws is not None:
            check_state(state, {'generator': TENSOR})
            restore_generator(self.generator, state['generator'])
        if self._memory is not None:
            self._memory.collect.load_state_dict(state['episodes'])

    def _get_acting(self) -> Acting:
        normalizer = self._normalizer
        return Acting(self._acting_state, self._load_acting_state, normalizer.state_dict, normalizer.absorb)

    def _draws_of_layers(self) -> Draws | None:
        """Lets the network's layers draw from the policy's generator; None if it has no layers that draw."""
        from rlframe.model.core import draw_from

        return draw_from(self.model, self.generator)

    def _acting_output(self, obs: Any) -> tuple[torch.Tensor, int]:
        """Returns the output that the network acts by, [B, size, ...], and its right size."""
        raise NotImplementedError

    def _state_dict_model(self) -> dict[str, Any]:
        return {'model': self.model.state_dict(), **self._normalizer.state_dict()}

    def _load_model(self, state: Mapping[str, Any]) -> None:
        """Loads the network and the normalisation statistics of its observations.

        Raises:
            CheckpointMismatchError: If a layer is missing or has another shape; both shapes are named.
        """
        saved = part_of(state, 'model', NETWORK)
        if differing := compare_states(saved, self.model.state_dict(), 'model.'):
            raise CheckpointMismatchError(
                'the weights belong to another network: ' + '; '.join(differing), where='policy.model'
            )
        self._normalizer.load_state_dict(state)
        self.model.load_state_dict(saved)

    def __repr__(self) -> str:
        size = sum(parameter.numel() for parameter in self.model.parameters())
        return f'{type(self).__name__}({size} parameters, device {self.device})\n{self.model!r}'
