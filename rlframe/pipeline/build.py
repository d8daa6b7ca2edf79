"""From a compiled config to workers: one short function for each, used by every pipeline."""

from __future__ import annotations

import copy
import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from rlframe._version import __version__
from rlframe.config.schema import ExperimentConfig
from rlframe.data.timestep import EnvSpec
from rlframe.errors import BufferUnderflowError, CheckpointMismatchError, named_during
from rlframe.registry import (
    BACKEND_REGISTRY,
    BUFFER_REGISTRY,
    ENV_MANAGER_REGISTRY,
    ENV_REGISTRY,
    POLICY_REGISTRY,
    named_object,
)
from rlframe.run.checkpoint_tree import compare_configs
from rlframe.run.film import check_encoder
from rlframe.run.machine import demand_memory, let_threads_sleep
from rlframe.run.manifest import naming_version
from rlframe.run.progress import Progress
from rlframe.run.read_checkpoint import load_checkpoint
from rlframe.utils import schema
from rlframe.utils.field import ResolvedConfig
from rlframe.utils.files import printable
from rlframe.utils.seed import component_rng, set_seed
from rlframe.worker.replay_buffer.hindsight import check_goals

if TYPE_CHECKING:
    from torch import nn

    from rlframe.backend import Backend
    from rlframe.envs import EnvFactory, IEnvManager
    from rlframe.pipeline.learner_aggregator import LearnerAggregator
    from rlframe.pipeline.serial import SerialPipeline
    from rlframe.policy import CollectMode, EvalMode, Policy
    from rlframe.policy.parts.expert import Expert
    from rlframe.worker import BaseLearner, BaseSerialCommander, IBuffer, ISerialCollector, ISerialEvaluator
    from rlframe.worker.collector.remote_collection import Parts

logger = logging.getLogger('rlframe.checkpoint')

State = Mapping[str, Any]

ROUND: schema.Schema = {
    'warm': schema.FLAG,
    'evaluated_at': schema.INT,
    'idle_rounds': schema.COUNT,
    'stopped': schema.FLAG,
    'past_goal': schema.FLAG,
}
"""State of a ``LoopState``."""
EXPORTED = 'rlframe.export.loaded:load_policy'
"""What loads an exported policy."""
ENV_NBYTES = 4096
"""The least that an env needs."""


class Stateful(Protocol):
    """A part of a run that is saved in checkpoints: a worker, or any other object with these two methods."""

    def state_dict(self) -> State:
        """Returns everything that the part needs to continue, as plain values, arrays and tensors."""

    def load_state_dict(self, state: Any, /) -> object:
        """Continues from ``state_dict()``."""


class Inexactness:
    """Collects the reasons why a run may differ from one with the same seed that was never interrupted."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        """The reasons; empty if it cannot differ."""

    def note(self, reason: str) -> None:
        """Adds a reason and warns of it once; '' is no reason."""
        if reason and reason not in self.reasons:
            self.reasons.append(reason)
            logger.warning('this run cannot be repeated or resumed bit for bit: %s', reason)


class Part(NamedTuple):
    """A part of a run whose state two functions return and restore."""

    state_dict: Callable[[], State]
    load_state_dict: Callable[[State], object]


def collector_part(collector: ISerialCollector, note: Callable[[str], None]) -> Part:
    """Returns a collector as a part that continues with other collectors, and says what could not be restored.

    Args:
        collector: The collector.
        note: Receives the reasons why the run is not exact: other collectors, or an env whose state could not be restored.
    """

    def save() -> dict[str, Any]:
        return {'form': collector.form, **collector.state_dict()}

    def load(state: State) -> None:
        schema.check_state(state, {'form': schema.TEXT})
        if state['form'] == collector.form:
            collector.load_state_dict(state)
        else:
            collector.begin_anew(state)
            note(
                f'the run changed from {printable(state["form"])} to {collector.form}: running episodes, seeds of envs and generators of'
                ' collectors begin anew; networks, optimizers, replay buffer, counters and schedules are kept'
            )
        for env, why in collector.unsaved.items():
            note(f'the state of env {env} could not be restored: {why}')

    return Part(save, load)


@dataclasses.dataclass
class LoopState:
    """State of the training loop itself between two rounds."""

    warm: bool = False
    """Whether the replay buffer has been filled at random, if that was requested."""
    evaluated_at: int = -1
    """Train iterations at the last evaluation."""
    idle_rounds: int = 0
    """Rounds in a row without enough data for an update."""
    stopped: bool = False
    """Whether an evaluation reached the stop value, so that training ended."""
    past_goal: bool = False
    """Whether a solved run continues until a budget is spent."""

    def idle(self, held: int, needed: int, most: int) -> None:
        """Counts a round without an update.

        Args:
            held: Transitions in the replay buffer.
            needed: Transitions that an update needs.
            most: Such rounds in a row that are allowed.

        Raises:
            BufferUnderflowError: If there were more.
        """
        self.idle_rounds += 1
        if self.idle_rounds > most:
            raise BufferUnderflowError(
                f'after {most} rounds the replay buffer still holds {held} of the {needed} transitions that an update needs',
                remedy='Raise policy.random_collect_size or policy.collect.n_sample, or lower policy.learn.batch_size.',
            )

    def state_dict(self) -> State:
        """Returns all fields."""
        return dataclasses.asdict(self)

    def load_state_dict(self, state: State, /) -> None:
        """Restores all fields."""
        for field in dataclasses.fields(self):
            setattr(self, field.name, state[field.name])


class TrainingRun:
    """What runs of serial and of parallel mode have in common: how they end, and what they close."""

    loop: LoopState
    """State of its loop."""

    def __init__(self) -> None:
        self._inexact = Inexactness()
        self._closers = ExitStack()

    @property
    def stopped(self) -> bool:
        """Whether training ended because an evaluation reached the stop value."""
        return self.loop.stopped

    @property
    def past_goal(self) -> bool:
        """Whether a solved run continues until a budget is spent."""
        return self.loop.past_goal

    @property
    def solved(self) -> bool:
        """Whether an evaluation reached the stop value."""
        return self.stopped or self.past_goal

    @property
    def exact(self) -> bool:
        """Whether the run equals, bit for bit, an uninterrupted run with the same seed."""
        return not self._inexact.reasons

    def cleanup(self) -> None:
        """Ends workers, closes envs, logs and files, what was opened last first; may be called twice."""
        self._closers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.cleanup()


def set_threads(cfg: ExperimentConfig) -> None:
    """Sets the number of torch's threads; idle threads sleep."""
    let_threads_sleep()
    import torch

    torch.set_num_threads(cfg.num_threads)


def make_factory(cfg: ExperimentConfig) -> EnvFactory:
    """Returns the factory of the config's envs."""
    factory = ENV_REGISTRY.build(cfg.env, cfg.env)
    ENV_MANAGER_REGISTRY.get_cls(cfg.env.manager).describe(factory)
    return factory


def make_env(cfg: ExperimentConfig, factory: EnvFactory, env_num: int) -> IEnvManager:
    """Creates ``env_num`` envs that training data comes from, under the config's manager."""
    _check_env_num(env_num, 'env.collector_env_num')
    manager = _managed(cfg.env.manager, factory.for_training(), env_num, None)
    if cfg.env.get('schedule'):
        manager.schedule = factory.first_schedule()  # type: ignore[attr-defined]  # rules.py checks it
    return manager


def _check_env_num(env_num: int, where: str) -> None:
    demand_memory(env_num * ENV_NBYTES, f'a set of {env_num:,} envs', where)


def _managed(
    section: Mapping[str, Any], factory: EnvFactory, env_num: int, render_mode: str | None
) -> IEnvManager:
    return ENV_MANAGER_REGISTRY.get_cls(section).from_factory(factory, env_num, section, render_mode)


def collector_backend(cfg: ExperimentConfig, factory: EnvFactory) -> Backend:
    """Returns the backend of the collector, which owns the collector's envs or data; the caller has to close it."""
    return _opened(cfg.policy.collect.collector, factory, lambda backend: backend.open_collector(cfg))


def evaluator_backend(cfg: ExperimentConfig, factory: EnvFactory) -> Backend:
    """Returns the backend of the evaluator, which owns the evaluator's envs or data; the caller has to close it."""
    return _opened(cfg.policy.eval.evaluator, factory, lambda backend: backend.open_evaluator(cfg))


def buffer_backend(cfg: ExperimentConfig, factory: EnvFactory) -> Backend:
    """Returns the backend of the replay buffer; the caller has to close it."""
    return _opened(cfg.policy.other.replay_buffer or {}, factory, lambda backend: backend.open_buffer(cfg))


def _opened(section: Mapping[str, Any], factory: EnvFactory, open_: Callable[[Backend], None]) -> Backend:
    backend = get_backend_cls(section)(factory)
    try:
        open_(backend)
    except BaseException:
        backend.close()
        raise
    return backend


def get_backend_cls(section: Mapping[str, Any]) -> type[Backend]:
    """Returns the backend that the section of a collector, an evaluator or a replay buffer names."""
    return BACKEND_REGISTRY.get_cls(
        {'type': section.get('backend', 'local'), 'import_names': section.get('import_names')}
    )


def make_eval_env(
    cfg: ExperimentConfig, factory: EnvFactory, env_num: int, render_mode: str | None = None
) -> IEnvManager:
    """Creates ``env_num`` envs for evaluation.

    Envs that the config's manager would drop are restarted, so that each plays its share. A batch size is limited to
    the number of envs.
    """
    if render_mode is not None:
        check_encoder('policy.eval.evaluator.render.render_freq')
    _check_env_num(env_num, 'env.evaluator_env_num')
    section = copy.deepcopy(cfg.env.manager)
    if section.get('on_error') == 'drop':
        section['on_error'] = 'restart'
    if (section.get('batch_size') or 0) > env_num:
        section['batch_size'] = None
    with named_during('evaluation'):
        return _managed(section, factory, env_num, render_mode)


def make_policy(
    cfg: ExperimentConfig,
    spec: EnvSpec,
    model: nn.Module | None = None,
    fields: tuple[str, ...] | None = None,
    rank: int = 0,
) -> Policy:
    """Creates the policy, with the weights of ``policy.init_from`` if that is set."""
    from rlframe.policy import create_policy

    if model is None:
        check_policy(cfg, spec)
    start = cfg.policy.init_from or ''
    saved = _initial(start) if start else None
    policy = create_policy(cfg.policy, spec, model=model, enable_field=fields, seed=cfg.seed, rank=rank)
    if saved is not None:
        load_network(policy, *saved, cfg, start)
        if fields is None or 'learn' in fields:
            policy.reset_targets()
    if fields is None or 'collect' in fields:
        policy.expert = make_expert(cfg, spec)
    return policy


def _initial(path: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Returns the state and the manifest of a checkpoint, or those of the policy in a folder that was exported."""
    if not (Path(path).expanduser() / 'policy.json').is_file():
        return load_checkpoint(path, buffer=False)
    loaded = named_object(EXPORTED, 'policy.init_from')(path, device='cpu')
    said = loaded.description
    manifest = {'policy': said['policy']['type'], 'env': said['env'], 'rlframe': __version__}
    return {'policy': loaded.policy.collect_mode.state_dict()}, manifest


def make_expert(cfg: ExperimentConfig, spec: EnvSpec) -> Expert | None:
    """Returns the expert that acts in some of the envs; None if the config names none.

    Raises:
        CheckpointError: If it is no exported policy.
        ConfigError: If it acts in other spaces.
    """
    path = cfg.policy.collect.get('model_path')
    if path is None:
        return None
    from rlframe.policy.parts.expert import KEY, Expert

    load = named_object(EXPORTED, KEY)
    env_num = cfg.env.collector_env_num
    acts_in = min(max(round(cfg.policy.collect['expert_share'] * env_num), 1), env_num - 1)
    return Expert(load(path, device='cpu', stack_frames=False).policy, acts_in, spec)


def _policy_state(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the state of the policy in the state of a checkpoint, of a pipeline or of a learner."""
    learner = state.get('learner')
    holder = state if 'policy' in state or not isinstance(learner, Mapping) else learner
    found = holder.get('policy')
    if not isinstance(found, Mapping) or 'model' not in found:
        raise CheckpointMismatchError('this checkpoint contains no policy network')
    return found


def check_policy(cfg: ExperimentConfig, spec: EnvSpec) -> None:
    """Checks that the config's policy can act in an env, without creating it.

    Raises:
        IncompatibleError: With the spaces of policy and env, and the policies that fit.
        ResourceError: With the memory that the network needs.
    """
    from rlframe.pipeline.memory_needs import blank_network
    from rlframe.policy.parts.fit import check_fit

    kind = POLICY_REGISTRY.get(cfg.policy.type)
    if hasattr(kind, 'supported_actions'):
        check_fit(kind, spec)
    check_goals(cfg.policy.other.get('replay_buffer'), spec)
    blank_network(cfg.policy, spec)


def load_network(
    policy: Policy, state: Mapping[str, Any], manifest: Mapping[str, Any], cfg: ExperimentConfig, where: str
) -> None:
    """Gives a policy the weights of a checkpoint.

    Args:
        policy: The policy to load them into.
        state: State of the checkpoint, of a pipeline or of a learner.
        manifest: Its manifest.
        cfg: The config of the policy.
        where: Path of the checkpoint.

    Raises:
        CheckpointMismatchError: If it contains no network or another one; with the policies, envs, layers and config
            keys that differ.
    """
    with (
        naming_version(manifest),
        named_mismatch(manifest, cfg, where),
        schema.loading(where),
        schema.part('policy'),
    ):
        saved = _policy_state(state)
        parts = policy.collect_mode.state_dict().keys() | saved.keys() & {'normalizer'}
        policy.collect_mode.load_state_dict({name: saved[name] for name in parts if name in saved})


@contextmanager
def named_mismatch(manifest: Mapping[str, Any], cfg: ExperimentConfig, where: str) -> Iterator[None]:
    """Adds the checkpoint and the differing policies, envs and ``policy.model`` keys to a mismatch error."""
    try:
        yield
    except CheckpointMismatchError as error:
        saved = manifest.get('config', {}).get('main_config', {}).get('policy', {})
        differing = [
            *compare_configs({'type': manifest.get('policy')}, {'type': cfg.policy.type}, 'policy.'),
            *compare_configs(saved.get('model', {}), cfg.policy.model, 'policy.model.'),
        ]
        error.where = where
        here = (cfg.policy.type, env_name(cfg.env))
        there = _made_by(manifest)
        if here != there:
            places = (f'policy {policy!r} in {env}' for policy, env in (there, here))
            error.message = f'it was saved by {" and is given to ".join(places)}: {error.message}'
        if differing and 'config' in manifest:
            error.remedy = f'Keys that differ: {"; ".join(differing)}.'
        raise


def _made_by(manifest: Mapping[str, Any]) -> tuple[str, str]:
    """Returns the type of the policy that a checkpoint is of, and the env in which it was trained."""
    saved = manifest.get('config', {}).get('main_config', {}).get('env', {})
    name = env_name(saved) if 'env_id' in saved else manifest.get('env', 'an unknown env')
    return manifest.get('policy', 'of an unknown type'), name


def env_name(section: Mapping[str, Any]) -> str:
    """Returns the name of the env in the ``env`` section of a config."""
    env_id = section.get('env_id', 'an unknown env')
    return env_id if isinstance(env_id, str) else getattr(env_id, '__qualname__', repr(env_id))


def random_actor(cfg: ExperimentConfig, policy: Policy, rank: int = 0) -> CollectMode:
    """Returns the policy's collect face, acting at random."""
    return policy.random_collect_mode(component_rng(cfg.seed, 'random_collect', rank))


def prepare(cfg: ExperimentConfig) -> None:
    """Prepares a worker's process for a config: global generators, threads."""
    set_seed(cfg.seed)
    set_threads(cfg)


def make_collector_parts(
    cfg: ExperimentConfig, factory: EnvFactory, rank: int, policy_rank: int, model: Any = None
) -> Parts:
    """Creates envs, policy and collector for a worker that gets its weights from elsewhere.

    Args:
        cfg: The worker's own config.
        factory: Creates its envs.
        rank: Rank of the worker, from which the seeds of its envs derive.
        policy_rank: Rank from which the generator of its policy derives.
        model: A network that replaces the one named in the config.
    """
    from rlframe.worker import create_serial_collector
    from rlframe.worker.collector.remote_collection import Parts

    env = make_env(cfg, factory, cfg.env.collector_env_num)
    progress = Progress()
    policy = make_policy(cfg, factory.spec, model, ('collect',), policy_rank)
    given = {'policy': policy.collect_mode, 'seed': cfg.seed, 'rank': rank, 'progress': progress}
    collector = create_serial_collector(cfg.policy.collect.collector, env=env, **given)
    return Parts(collector, env, progress, policy.collect_mode, random_actor(cfg, policy, rank))


def make_buffer(cfg: ExperimentConfig, factory: EnvFactory, **common: Any) -> IBuffer | None:
    """Creates the replay buffer; None for an on-policy policy."""
    section = cfg.policy.other.replay_buffer
    if section is None:
        return None
    buffer: IBuffer = BUFFER_REGISTRY.build(section, section, seed=buffer_seed(cfg), **common)
    give_goals(buffer, factory)
    return buffer


def give_goals(buffer: IBuffer, factory: EnvFactory) -> None:
    """Tells a replay buffer with hindsight how its envs reward goals.

    Raises:
        IncompatibleError: If they do not say how.
    """
    hindsight = getattr(buffer, 'hindsight', None)
    if hindsight is not None:
        hindsight.goals = factory.goals()


def buffer_seed(cfg: ExperimentConfig) -> int:
    """Returns the seed of the replay buffer."""
    return int(component_rng(cfg.seed, 'replay_buffer').integers(2**32))


def make_learner(
    cfg: ExperimentConfig, policy: Policy, group: LearnerAggregator | None = None, **common: Any
) -> BaseLearner:
    """Creates the learner; with a group, it leads that."""
    from rlframe.worker import create_learner

    if group is None:
        return create_learner(cfg.policy.learn.learner, policy=policy.learn_mode, **common)
    face = group.deal_with_learner_start(
        policy.learn_mode
    )  # what it returns is of all learners, so nothing is left to reduce
    learner = create_learner(cfg.policy.learn.learner, policy=face, dist_info=(0, 1), **common)
    learner.group = group
    return learner


def make_evaluator(
    cfg: ExperimentConfig, backend: Backend, policy: Policy, spec: EnvSpec, **common: Any
) -> ISerialEvaluator:
    """Creates the evaluator, in a backend that ``evaluator_backend`` returned.

    If the config has no stop value, an evaluator that scores returns uses the env's reward threshold.
    """
    evaluator = backend.make_evaluator(cfg, policy, **common)
    is_open = evaluator.stop_value is None and cfg.policy.eval.evaluator.get('stop_value') is None
    if is_open and evaluator.scores_returns:
        evaluator.stop_value = spec.reward_threshold
    return evaluator


def with_opponents(
    cfg: ExperimentConfig, mode: EvalMode, spec: EnvSpec, seed: int
) -> EvalMode | list[EvalMode]:
    """Returns the evaluated policy and its opponents, if any, as the evaluator's section says."""
    if cfg.policy.eval.evaluator.get('opponent') != 'random':
        return mode
    from rlframe.policy.parts.random_policy import random_opponent

    return [mode, *(random_opponent(spec, seed, rank) for rank in range(spec.player_num - 1))]


def make_commander(pipeline: SerialPipeline) -> BaseSerialCommander:
    """Creates the commander."""
    from rlframe.worker import create_commander

    section = pipeline.cfg.policy.other.commander
    workers = (pipeline.learner, pipeline.collector, pipeline.evaluator, pipeline.replay_buffer)
    return create_commander(section, *workers, policy=pipeline.policy.command_mode)


def fill_at_random(pipeline: SerialPipeline) -> None:
    """Fills the replay buffer with data of random actions, if the config asks for it."""
    cfg, collector, buffer = pipeline.cfg, pipeline.collector, pipeline.replay_buffer
    count = cfg.policy.random_collect_size
    if count == 0 or buffer is None:
        return
    data = _collected_at_random(collector, pipeline.policy, random_actor(cfg, pipeline.policy), count)
    if pipeline.reward_models is not None:
        data = pipeline.reward_models.pay(data)
    buffer.push(data, pipeline.progress.envstep)


def _collected_at_random(collector: ISerialCollector, policy: Policy, actor: CollectMode, count: int) -> Any:
    collector.reset_policy(actor)
    collected = collector.collect(count, random_collect=True, record_random_collect=False)
    collector.reset_policy(policy.collect_mode)
    return collector.training_data(collected)


def random_collect(
    policy_cfg: ResolvedConfig,
    policy: Policy,
    collector: ISerialCollector,
    collector_env: IEnvManager | None = None,
    commander: BaseSerialCommander | None = None,
    replay_buffer: IBuffer | None = None,
    postprocess_data_fn: Callable[[Any], Any] | None = None,
) -> None:
    """Fills the replay buffer with data of random actions, in a training loop that you wrote yourself.

    Args:
        policy_cfg: The section ``policy`` of a compiled config, whose ``random_collect_size`` says how much.
        policy: The policy, which collects again afterwards.
        collector: The collector.
        collector_env: Has no effect: the collector has its envs.
        commander: Has no effect: random actions have no settings.
        replay_buffer: Takes the data; None if there is none, as for a policy that learns on-policy.
        postprocess_data_fn: Returns the data to push, from those collected.
    """
    _, seed = policy_cfg._env_and_seed or (None, 0)
    actor = policy.random_collect_mode(component_rng(seed, 'random_collect'))
    data = _collected_at_random(collector, policy, actor, policy_cfg['random_collect_size'])
    if replay_buffer is not None:
        replay_buffer.push(data if postprocess_data_fn is None else postprocess_data_fn(data), 0)


def films(cfg: ExperimentConfig) -> bool:
    """Whether evaluations are to be filmed."""
    render: Mapping[str, Any] = cfg.policy.eval.evaluator.get('render') or {}
    return int(render.get('render_freq', -1)) >= 0
