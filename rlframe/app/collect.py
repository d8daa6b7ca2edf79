"""``rlframe collect``: records env steps of a trained policy, of an earlier one or of random actions."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlframe import config
from rlframe.app.scoring import Request, played_config
from rlframe.app.starting import overridden_start
from rlframe.config.schema import ExperimentConfig
from rlframe.data.formats import check_target, write_recording
from rlframe.data.observation import has_mask
from rlframe.data.recorder import EpisodeRecorder, step_columns
from rlframe.data.recording import STEP, Recording
from rlframe.data.timestep import Array, Batch, BoolArray, EnvSpec, FloatArray, IntArray
from rlframe.errors import ConfigError
from rlframe.pipeline import build
from rlframe.pipeline.recording import env_facts, return_facts
from rlframe.policy.parts.actions import mask_of
from rlframe.policy.parts.random_policy import random_opponent
from rlframe.run.read_checkpoint import OpenCheckpoint, open_checkpoint
from rlframe.scores import mean_interval, number_text
from rlframe.utils.seed import env_seed, set_seed
from rlframe.worker.collector.rollout import EpisodeLimit, Rollout, Step

RECORD = 'record'
"""Purpose of the seeds of recorded episodes, which training and evaluation never use."""
Tell = Callable[[int, list[float]], object]
"""Is told the env steps so far, and the returns of the episodes that ended."""


Prob = Callable[[Array, Batch], FloatArray | None]
"""Returns the probabilities of actions, [n], by the observations and the output of what acted."""


def _unknown(obs: Array, output: Batch) -> None:
    return None


class CollectRequest(NamedTuple):
    """The data that a user asks for."""

    steps: int
    """Env steps, at least: episodes are whole."""
    out: str
    """Path of the data."""
    format: str | None = None
    """Name of the format; None: by the ending of the path."""
    seed: int = 0
    """Selects the episodes."""
    explore: bool = False
    """Whether the policy acts as in training, and not as in evaluation."""
    eps: float | None = None
    """Share of random actions of a policy that explores by them; None: as at the checkpoint."""
    overrides: tuple[str, ...] = ()
    """Options that replace those of the run."""
    trust: bool = False
    """Whether the config of a foreign run may reach beyond the run."""


class Behaviour(NamedTuple):
    """What acts, and in which env."""

    cfg: ExperimentConfig
    policy: Any
    """Its collect or eval face."""
    settings: dict[str, Any]
    """Arguments of its ``forward``."""
    facts: dict[str, Any]
    """Facts about it, as JSON values."""
    prob: Prob = _unknown
    """Returns the probability that it takes the actions that it took, [n]; None: unknown."""


class Collected(NamedTuple):
    """The result of a collection."""

    path: Path
    rows: int
    returns: list[float]
    """Return of each episode."""
    sha256: str
    interrupted: bool
    """Whether it ended before its time."""

    def facts(self) -> dict[str, Any]:
        """Returns the result as JSON values."""
        found = self._asdict() | {'path': str(self.path), 'episodes': len(self.returns)}
        found['returns'] = {'mean': float(np.mean(self.returns)), 'std': float(np.std(self.returns))}
        return found

    def __repr__(self) -> str:
        mean = float(np.mean(self.returns))
        count = len(self.returns)
        interval = mean_interval(mean, float(np.std(self.returns)), count)
        more = f' (95 % interval {interval})' if interval is not None else ''
        return (
            f'{self.rows:,} env steps in {count:,} episodes, return {number_text(mean)}{more};'
            f' SHA-256 {self.sha256[:12]}'
        )


def collect(
    source: str | Path | None,
    request: CollectRequest,
    env: str | None = None,
    tell: Tell = lambda rows, returns: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Collected:
    """Records env steps, and writes the whole episodes even if it is interrupted.

    Args:
        source: Run folder or checkpoint of the policy; None: actions are random.
        request: What is to be recorded.
        env: Id of the env of random actions.
        tell: Called after every step of the envs.
        should_stop: Whether to end at once.

    Raises:
        ConfigError: If the request is invalid, or no episode has ended before the interruption.
        CheckpointError: If the checkpoint is damaged.
    """
    check_target(Path(request.out), request.format)
    if not 0 <= request.seed < 2**32:
        raise ConfigError('bad value', where='--seed', got=request.seed, expected='an int in [0, 4294967296)')
    if request.eps is not None and not 0 <= request.eps <= 1:
        raise ConfigError('bad value', where='--eps', got=request.eps, expected='a number in [0, 1]')
    set_seed(request.seed)
    behaviour = _random(env, request) if source is None else _trained(open_checkpoint(source), request)
    factory = build.make_factory(behaviour.cfg)
    with ExitStack() as closers:
        folder = Path(closers.enter_context(tempfile.TemporaryDirectory(prefix='rlframe-record-')))
        recorder = EpisodeRecorder(folder / 'columns')
        closers.callback(recorder.close)
        env_num = behaviour.cfg.env.collector_env_num
        manager = build.make_eval_env(behaviour.cfg, factory, env_num)
        closers.callback(manager.close)
        rows = _Collection(manager, behaviour, recorder, request)
        rows.play(tell, should_stop)
        if not rows.returns:
            raise ConfigError(
                'no episode has ended: nothing is recorded',
                where='--out',
                remedy='Record longer, or end episodes by env.wrappers=[dict(type="TimeLimit", max_episode_steps=1000)].',
            )
        recording = recorder.recording(rows.facts(factory.spec))
        return _written(recording, request, rows.returns, should_stop())


def _written(
    recording: Recording, request: CollectRequest, returns: list[float], interrupted: bool
) -> Collected:
    path = write_recording(recording, request.out, request.format)
    return Collected(path, len(recording), returns, recording.digest(), interrupted)


def _trained(opened: OpenCheckpoint, request: CollectRequest) -> Behaviour:
    """Returns the policy of a checkpoint."""
    state = opened.state(buffer=False)  # verified before its config is used
    cfg = played_config(opened, Request(1, request.seed, None, request.overrides, request.trust))
    build.set_threads(cfg)
    spec = build.make_factory(cfg).spec
    if spec.player_num > 1:
        raise ConfigError(
            f'{spec.name} has {spec.player_num} players; the steps of one are recorded', where='checkpoint'
        )
    policy = build.make_policy(cfg, spec, fields=('collect', 'eval', 'command'))
    build.load_network(policy, state, opened.manifest, cfg, str(opened.path))
    progress = opened.manifest.get('progress', {})
    face: Any = policy.eval_mode
    settings: dict[str, Any] = {}
    if request.explore:
        face = policy.collect_mode
        settings = dict(policy.command_mode.get_setting_collect(progress))
    if request.eps is not None:
        if 'eps' not in settings:
            raise ConfigError(
                'only a policy that explores by random actions has an eps',
                where='--eps',
                got=request.eps,
                expected='None' if request.explore else '--explore beside it',
            )
        settings['eps'] = request.eps
    facts = _origin(opened, cfg) | {
        'score': opened.manifest.get('score'),
        'acts': 'explores' if request.explore else 'greedily',
        'settings': {
            name: float(value) for name, value in settings.items() if isinstance(value, int | float)
        },
    }
    return Behaviour(cfg, face, settings, facts, _probability(policy, request.explore, settings))


def _probability(policy: Any, explores: bool, settings: Mapping[str, Any]) -> Prob:
    """Returns what knows how probable the actions of a policy are: Discrete ones of a policy without a memory."""
    if type(policy.spec.action_space).__name__ != 'Discrete' or policy.is_recurrent:
        return _unknown
    if not explores:
        return _unknown if policy._draws_in_eval else lambda obs, output: np.ones(len(output), np.float32)
    seen = policy._normalizer.obs or (lambda obs: obs)
    return lambda obs, output: policy.action_prob(seen(obs), output, **settings)


def _origin(opened: OpenCheckpoint, cfg: ExperimentConfig) -> dict[str, Any]:
    """Returns which policy acts: that of a checkpoint."""
    return {
        'policy': cfg.policy.type,
        'run': opened.path.parent.parent.name,
        'checkpoint': opened.path.name,
        'envstep': opened.manifest.get('progress', {}).get('envstep'),
    }


def _random(env: str | None, request: CollectRequest) -> Behaviour:
    """Returns random actions in an env."""
    main, create = overridden_start(env, None, request.overrides)
    cfg = config.compile_config(main, create, overrides=request.overrides, seed=request.seed)
    spec = build.make_factory(cfg).spec
    facts = {'policy': 'random', 'acts': 'at random'}
    is_class = type(spec.action_space).__name__ == 'Discrete'
    return Behaviour(
        cfg, random_opponent(spec, request.seed), {}, facts, _of_all(spec) if is_class else _unknown
    )


def _of_all(spec: EnvSpec) -> Prob:
    """Returns the probability of each of the actions that a mask allows, or of all."""
    has_masks = has_mask(spec.observation_space)
    space: Any = spec.action_space

    def prob(obs: Array, output: Batch) -> FloatArray:
        count = mask_of(obs).sum(1) if has_masks else np.full(len(output), space.n)
        return (1 / count).astype(np.float32)

    return prob


class _Collection:
    """Plays whole episodes, an equal share of the env steps in each env."""

    def __init__(
        self, env: Any, behaviour: Behaviour, recorder: EpisodeRecorder, request: CollectRequest
    ) -> None:
        self.returns: list[float] = []
        """Return of each episode, in the order in which they ended."""
        self._seeds: list[int] = []
        self._env = env
        self._behaviour = behaviour
        self._recorder = recorder
        self._request = request
        self._begun = 0  # episodes
        self._own = np.zeros(env.env_num, np.int64)  # seed of the running episode, [N]
        self._following = self._own.copy()  # seed of the one that has just begun
        self._sums = np.zeros(env.env_num)
        self._rows = np.zeros(env.env_num, np.int64)  # of whole episodes, and of the running one
        self._share = -(-request.steps // env.env_num)
        self._is_due = np.ones(env.env_num, np.bool_)

    def play(self, tell: Tell, should_stop: Callable[[], bool]) -> None:
        """Plays until every env has its share."""
        env = self._env
        env.launch()
        limit = EpisodeLimit(env.spec, env.env_num)
        rollout = Rollout(env, self._behaviour.policy, self._next_seeds, limit)
        env.reset(seed=self._next_seeds(np.arange(env.env_num)))
        self._own = self._following.copy()
        self._behaviour.policy.reset(None)
        limit.begin()
        while self._is_due.any() and not should_stop():
            ready = env.ready[self._is_due[env.ready]] if env.can_hold else None
            self._take(rollout.step(ready, **self._behaviour.settings))
            tell(int(self._rows.sum()), self.returns)

    def _next_seeds(self, env_id: IntArray) -> list[int]:
        """Returns the seeds of new episodes."""
        seeds = [env_seed(self._request.seed, 0, self._begun + i, RECORD) for i in range(len(env_id))]
        self._begun += len(env_id)
        self._following[env_id] = seeds
        return seeds

    def _take(self, step: Step) -> None:
        """Records the rows of the envs that owe some."""
        env_id = step.timestep.env_id
        due = self._is_due[env_id]
        if due.any():
            columns = step_columns(step.obs, step.output['action'], step.timestep)
            prob = self._behaviour.prob(step.obs, step.output)
            if prob is not None:
                columns['action_prob'] = prob
            own = columns if due.all() else {name: column[due] for name, column in columns.items()}
            self._recorder.add(own, env_id[due], step.done[due])
        self._rows[env_id[due]] += 1
        self._sums[env_id] += step.timestep.reward
        if len(step.abnormal):
            self._recorder.discard(step.abnormal)
        for env in step.finished.tolist():
            if self._is_due[env]:
                self.returns.append(float(self._sums[env]))
                self._seeds.append(int(self._own[env]))
                self._is_due[env] = self._rows[env] < self._share
        restarted = np.concatenate([step.finished, step.abnormal])
        self._sums[restarted] = 0.0
        self._own[restarted] = self._following[restarted]

    def facts(self, spec: EnvSpec) -> dict[str, Any]:
        """Returns the facts that are written with the data."""
        behaviour = self._behaviour.facts | return_facts(self.returns)
        more = {'seed': self._request.seed, 'seeds': self._seeds, 'env_num': self._env.env_num}
        return env_facts(self._behaviour.cfg, spec) | {'behaviour': behaviour} | more


def collect_replay(source: str | Path, request: CollectRequest) -> Collected:
    """Writes the replay buffer of a checkpoint as recorded data.

    Raises:
        ConfigError: If the run has none, or its rows are no single env steps.
    """
    check_target(Path(request.out), request.format)
    opened = open_checkpoint(source)
    state: Mapping[str, Any] = opened.state(buffer=True)
    cfg = played_config(opened, Request(1, request.seed, None, request.overrides, request.trust))
    spec = build.make_factory(cfg).spec
    policy = build.make_policy(cfg, spec, fields=('collect',))
    recording = replay_recording(state.get('replay_buffer'), policy, str(opened.path))
    returns = recording.episodes().return_
    behaviour = _origin(opened, cfg) | {'acts': 'as in training: its replay buffer'} | return_facts(returns)
    facts = env_facts(cfg, spec) | {'behaviour': behaviour, 'seed': cfg.seed}
    return _written(dataclasses.replace(recording, facts=facts), request, returns.tolist(), False)


def replay_recording(state: Any, policy: Any, where: str) -> Recording:
    """Returns the rows of a replay buffer as a recording, whose actions are those of the env.

    Args:
        state: State of the replay buffer in a checkpoint.
        policy: The policy that filled it, which knows how it stores actions.
        where: The checkpoint, for errors.

    Raises:
        ConfigError: If there is no replay buffer, or its rows are no single env steps.
    """
    if state is None:
        raise ConfigError(
            'this checkpoint has no replay buffer',
            where=where,
            remedy="Name ckpt/latest of an off-policy run that keeps it (checkpoint.replay_buffer='every'), or record the"
            ' policy: without --replay.',
        )
    kind, storage = state.get('kind'), state.get('storage', {})
    columns = storage.get('columns') if kind == 'RingStorage' else None
    if columns is None or not set(STEP) <= columns.keys():
        raise ConfigError(
            f'this replay buffer holds {kind or "nothing"}, not single env steps',
            where=where,
            remedy='Record the next run as it trains: policy.collect.record=DATA.',
        )
    if 'value_gamma' in columns:
        raise ConfigError(
            'the rewards in this replay buffer are sums over n steps',
            where=where,
            remedy='Train with policy.nstep=1, or record the next run as it trains: policy.collect.record=DATA.',
        )
    rows = {name: np.asarray(columns[name]) for name in STEP}
    done = rows['terminated'] | rows['truncated']
    if {'env_id', 'episode_step'} <= columns.keys():
        begins = np.asarray(columns['episode_step']) == 0
        chain = _by_env(np.asarray(columns['env_id']), begins)
    else:
        chain = _by_observation(rows['obs'], rows['next_obs'], done)
    order = np.argsort(chain, kind='stable')
    rows = {name: column[order] for name, column in rows.items()}
    rows['action'] = policy.env_action(rows['action'])
    is_last = np.append(chain[order][1:] != chain[order][:-1], True)
    rows['truncated'] = rows['truncated'] | (
        is_last & ~rows['terminated']
    )  # episodes that were still running
    return Recording(rows | {'episode': chain[order]}, {}, where, 'replay buffer')


def _by_env(env_id: IntArray, begins: BoolArray) -> IntArray:
    """Returns the episode of each row, [n], by its env and the rows that begin an episode; in order of their first rows."""
    chain = np.zeros(len(env_id), np.int64)
    running: dict[int, int] = {}
    count = 0
    for row, (env, is_first) in enumerate(zip(env_id.tolist(), begins.tolist(), strict=True)):
        if is_first or env not in running:
            running[env] = count
            count += 1
        chain[row] = running[env]
    return chain


def _by_observation(obs: Array, next_obs: Array, done: BoolArray) -> IntArray:
    """Returns the episode of each row, [n]: a row goes on with the oldest episode that waits for its observation."""
    chain = np.zeros(len(obs), np.int64)
    waiting: dict[bytes, list[int]] = {}
    count = 0
    for row, is_last in enumerate(done.tolist()):
        found = waiting.get(obs[row].tobytes())
        if found:
            chain[row] = found.pop(0)
        else:
            chain[row] = count
            count += 1
        if not is_last:
            waiting.setdefault(next_obs[row].tobytes(), []).append(int(chain[row]))
    return chain
