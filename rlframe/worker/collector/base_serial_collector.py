"""The interface of serial collectors, and the base class of collectors that step envs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from easydict import EasyDict

from rlframe.data.faces import attribute_of
from rlframe.data.recorder import step_columns
from rlframe.data.timestep import Array, FloatArray, IntArray
from rlframe.data.trajectory import TrajectoryRecorder
from rlframe.errors import ConfigError, EnvError, nearest
from rlframe.run.metrics import ScalarWriter
from rlframe.run.progress import Progress
from rlframe.utils.every import interval
from rlframe.utils.field import Configurable, ResolvedConfig, Section, option
from rlframe.utils.schema import COUNT, DICT, INT, check_state, part
from rlframe.utils.seed import COLLECT, env_seed, incarnation_seed
from rlframe.worker.collector.ding_policy import as_rows
from rlframe.worker.collector.episode_log import INFO_METRICS, EpisodeLog, too_long
from rlframe.worker.collector.rollout import Rollout, Step

SCHEDULE = 'env_schedule'
"""Name of a curriculum's values among the settings of a round."""
STATE = {
    'env': DICT,
    'rollout': DICT,
    'log': DICT,
    'recorder': DICT,
    'last_print_iter': INT,
    'discarded': COUNT,
}
ONE = 'one collector'
"""The form of a collector that is alone and waited for."""


class Resettable(ABC):
    """A collector or an evaluator: both use an env and a face of a policy, which can be replaced."""

    policy_face = 'collect_mode'
    """The face of a policy that it uses."""
    _policy: Any = None

    @abstractmethod
    def reset_env(self, _env: Any = None) -> None:
        """Replaces the env, or resets the current one."""

    def reset_data(self, data: Any) -> None:
        """Replaces the recorded data, in a worker that uses data instead of envs.

        Raises:
            ConfigError: By default, as a worker that steps envs takes no data.
        """
        raise ConfigError(
            f'{type(self).__name__} steps envs, it reads no recorded data', where='data', got=type(data)
        )

    def reset_policy(self, _policy: Any = None) -> None:
        """Replaces the policy, or resets the current one."""
        if _policy is not None:
            self._policy = _policy
        if self._policy is None:
            raise ValueError(f'reset_policy needs a policy: the {self.policy_face} of one')
        self._policy.reset(None)

    def _attribute(self, name: str, default: Any, policy: Any = None) -> Any:
        """Returns an attribute of a policy, by default of the current one; ``default`` if it does not exist."""
        return attribute_of(self._policy if policy is None else policy, name, default)

    def reset(self, _policy: Any = None, _env: Any = None) -> None:
        """Calls ``reset_env`` and ``reset_policy``, and begins its own counters and scores anew."""
        self.reset_env(_env)
        self.reset_policy(_policy)
        self._forget_counts()

    @abstractmethod
    def _forget_counts(self) -> None:
        """Begins the counters and scores anew that belong to this worker alone."""


class ISerialCollector(Configurable, Resettable):
    """Turns env steps into training samples, one call at a time.

    A subclass defines ``reset_env``, ``collect``, ``state_dict`` and ``load_state_dict``; everything else has a
    default. It needs no constructor: ``_prepare`` creates its own parts.

    Args:
        cfg: Options of the collector.
        env: Env manager; can be set later with ``reset_env``. A collector that steps no envs accepts its data here, too:
            the public signature has a position for an env only.
        policy: Collect face of a policy; can be set later with ``reset_policy``.
        tb_logger: Writes metrics; None writes none. The caller closes it.
        exp_name: Has no effect; part of DI-engine's signature.
        instance_name: Name of this collector, for the log.
        seed: Seed of the experiment.
        rank: Index of this collector among those of the experiment.
        progress: Counters shared with the other workers, which ``reset`` keeps; its own if not given.
        data: Recorded data, for a collector that steps no envs; can be set later with ``reset_data``.
    """

    _cfg: ResolvedConfig
    config: dict[str, Any] = {}
    _env: Any = None
    _progress: Progress
    _owns_progress = False
    _log: EpisodeLog | None = None  # of a collector that counts episodes
    on_step: Callable[[], None] | None = None
    """Called after each step of the envs, if not None; an exception that it raises ends the run."""
    discarded: int = 0
    """Env steps that were discarded."""

    def __init__(  # noqa: PLR0913  # six are the public signature
        self,
        cfg: EasyDict | Mapping[str, Any] | None,
        env: Any = None,
        policy: Any = None,
        tb_logger: ScalarWriter | None = None,
        exp_name: str = 'default_experiment',
        instance_name: str = 'collector',
        *,
        seed: int = 0,
        rank: int = 0,
        progress: Progress | None = None,
        data: Any = None,
    ) -> None:
        self._cfg = self.resolve_config(cfg)
        self._tb_logger, self._instance_name = tb_logger, instance_name
        self._seed, self._rank = seed, rank
        self._owns_progress = progress is None
        self._progress = progress if progress is not None else Progress()
        self._prepare()
        if env is not None:
            self.reset_env(env)
        elif data is None:
            data = self._data_of_config()
        if data is not None:
            self.reset_data(data)
        if policy is not None:
            self.reset_policy(policy)

    def _prepare(self) -> None:
        """Creates parts that depend on the constructor's other arguments, before envs, data and policy are set."""

    def _data_of_config(self) -> Any:
        """Returns the data that the options name, used if the constructor gets neither envs nor data; None: none."""
        return None

    @classmethod
    def open_data(cls, cfg: Mapping[str, Any]) -> Any:
        """Returns the data named by the config, for the argument ``data``; None if the collector steps envs."""
        return None

    @abstractmethod
    def collect(self, per_collect_target: Any, *args: Any, **settings: Any) -> Any:
        """Collects and returns training samples or episodes.

        A subclass declares what it accepts. A pipeline passes, by name: ``train_iter``, the train iterations so far;
        ``policy_kwargs``, arguments of the policy's ``forward``, such as ``eps``; and, only with
        ``policy.random_collect_size``, before training, ``random_collect=True``, as the policy acts at random, with
        ``record_random_collect``: whether the metrics include the episodes of such a call.

        Args:
            per_collect_target: Number of training samples or episodes; None: the policy's attribute ``n_sample`` or
                ``n_episode``.
            args: Arguments of a subclass.
            settings: Arguments of a subclass, by name.

        Returns:
            Rows as a ``Batch``, or whatever ``training_data`` accepts.
        """

    def training_data(self, collected: Any) -> Any:
        """Returns the part of the result of ``collect`` that goes to the replay buffer or learner."""
        return collected

    @property
    def envstep(self) -> int:
        """Env steps collected so far, over all envs; by default the shared counter, which ``collect`` must increase."""
        return self._progress.envstep

    @envstep.setter
    def envstep(self, value: int) -> None:
        self._progress.envstep = value

    def _forget_counts(self) -> None:
        """Begins ``envstep`` and the other counters anew, unless other workers share them: those are of the run."""
        if self._owns_progress:
            self._progress.load_state_dict(Progress().state_dict())
        self.discarded = 0

    def mean_return(self) -> float:
        """Returns the mean return of the last episodes, NaN if it is not known."""
        return float('nan') if self._log is None else self._log.window_mean()

    def last_episodes(self) -> FloatArray:
        """Returns return, length and success (NaN if unknown) of the last episodes, at most 100, [n, 3]."""
        return np.zeros((0, 3)) if self._log is None else self._log.last()

    def take_episodes(self) -> FloatArray:
        """Returns and clears return, length and success of the episodes that are not in a record yet, [n, 3]."""
        return np.zeros((0, 3)) if self._log is None else self._log.take_recent()

    def take_infos(self) -> dict[str, list[float]]:
        """Returns and clears sum and count of the numbers in the infos of these episodes, by name."""
        return {} if self._log is None else self._log.take_infos()

    def status(self) -> str:
        """Returns text for the progress line in addition to counts and scores; empty by default."""
        return ''

    @property
    def form(self) -> str:
        """Who collects, in words: a collector can load the states of others of the same form."""
        return ONE

    @property
    def why_inexact(self) -> str:
        """The reason why two runs with the same seed may differ; empty if they cannot."""
        return ''

    @property
    def unsaved(self) -> Mapping[int, str]:
        """Envs whose state could not be saved or restored, with the reasons."""
        return {}

    def settle(self) -> None:
        """Prepares ``state_dict``: episodes that cannot be saved are restarted, here and in the resumed run."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Returns all that the next ``collect`` depends on, as nested dicts and lists of numbers, text and arrays."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state from ``state_dict()``."""

    def begin_anew(self, state: Mapping[str, Any]) -> None:
        """Continues a run whose state is that of collectors of another ``form``: with new episodes.

        It may take over counts; by default it takes nothing.
        """
        self.reset_env()
        self.reset_policy()

    def close(self) -> None:
        """Closes the envs; may be called twice."""
        if self._env is not None:
            self._env.close()


class SerialCollectorConfig(Section):
    """Options of every collector that steps envs."""

    deepcopy_obs: bool = option(False, ignored='rows are always copied', may_change=True)
    transform_obs: bool = option(False, ignored='policies convert observations themselves', may_change=True)
    max_episode_len: int = option(
        1_000_000,
        range='[1, inf)',
        unit='env steps',
        doc='an episode that is longer is an error',
        may_change=True,
    )
    collect_print_freq: int | str | None = interval(
        100, 'interval between two records of metrics; None: none are written'
    )
    info_metrics: str | list[Any] | None = INFO_METRICS
    mark_episodes: bool = option(
        False,
        doc="add the columns env_id and episode_step, by which a replay buffer 'sequence' finds the steps of an episode",
    )
    info_columns: list[str] = option(
        [], doc='names of numbers in infos that rows carry as columns of their own; reward models read them'
    )


class SerialCollector(ISerialCollector):
    """Base class of serial collectors, which steps envs, counts, records and logs.

    Env i starts with the seed f(seed, rank, i), or the one given to ``env.seed``.
    """

    _cfg: SerialCollectorConfig
    _log: EpisodeLog
    episode_recorder: Any = None
    """Records the env steps of the run, if it is to: see ``EpisodeRecorder``."""
    unit = 'n_sample'
    """The attribute of a policy that says how much a call collects by default."""

    def _prepare(self) -> None:
        self._mark_episodes: bool = self._cfg.mark_episodes
        self._info_columns: list[str] = self._cfg.info_columns
        self._max_episode_len: int = self._cfg.max_episode_len
        self._log = EpisodeLog(
            0,
            self._cfg.info_metrics,
            progress=self._progress,
            print_freq=self._cfg.collect_print_freq,
            tb_logger=self._tb_logger,
            instance_name=self._instance_name,
        )
        self._logger = self._log.logger
        self._rollout: Any = None
        self._warned_of_lost = False

    def reset_env(self, _env: Any = None) -> None:
        if _env is not None:
            self._env = _env
            self._env.launch()
            given = getattr(self._env, 'given_seeds', {})
            seeds = [env_seed(self._seed, self._rank, i, COLLECT) for i in range(self._env.env_num)]
            self._env.reset(seed=[given.get(i, own) for i, own in enumerate(seeds)])
        elif self._env is not None:
            self._env.reset()
        self._begin()

    def reset_policy(self, _policy: Any = None) -> None:
        super().reset_policy(None if _policy is None else as_rows(_policy, lambda: self._env.spec))
        self._default_target = self._attribute(self.unit, None)
        self._on_policy: bool = self._attribute('on_policy', False)
        if self._rollout is None:
            self._begin()
        else:
            self._rollout.policy = self._policy

    def _begin(self) -> None:
        """Creates the parts that depend on both env and policy; a new policy continues the running episodes."""
        if self._env is None or self._policy is None:
            return
        self._rollout = Rollout(self._env, self._policy)
        self._log.begin(self._env.env_num)
        self._recorder = self._make_recorder(self._env.env_num)

    def _make_recorder(self, env_num: int, policy: Any = None) -> TrajectoryRecorder:
        """Creates a recorder of the n-step rows that a policy needs, by default the current one."""
        return TrajectoryRecorder(
            env_num,
            nstep=self._attribute('nstep', 1, policy),
            discount_factor=self._attribute('discount_factor', 1.0, policy),
        )

    def _target(self, given: int | None) -> int:
        """Returns the amount to collect in a call: the given number, or the policy's."""
        if self._env is None or self._policy is None:
            raise ValueError('collect needs an env and a policy; give them to the constructor or to reset()')
        target = given if given is not None else self._default_target
        if target is None or target < 1:
            raise ValueError(f'collect needs {self.unit} >= 1, got {target}')
        return int(target)

    def _settings(self, policy_kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
        """Returns the arguments of the policy's ``forward``; the envs get the values of a curriculum among them."""
        settings = dict(policy_kwargs or {})
        if (values := settings.pop(SCHEDULE, None)) is not None:
            self._env.schedule = values
        return settings

    @property
    def carried(self) -> int:
        """Env steps carried over to the next call."""
        return len(self._recorder) + self._recorder.held

    @property
    def why_inexact(self) -> str:
        return getattr(self._env, 'why_inexact', '')

    def _record(self, step: Step, stamp: Array, level_seeds: Array | None, reserve: int) -> None:
        """Counts a step and passes its rows, with the columns ``collect_iter`` and ``seed``, to the recorder."""
        if self.on_step is not None:
            self.on_step()
        count = len(step.done)
        episode_step = self._log.lengths[step.timestep.env_id] if self._mark_episodes else None
        self._log.update(step)
        if self.episode_recorder is not None:
            self._write_down(step)
        if count:
            self._append(step, stamp, level_seeds, episode_step, reserve)
        if len(step.abnormal):
            self._discard(step)

    def _write_down(self, step: Step) -> None:
        """Passes a step to what records the run."""
        recorder = self.episode_recorder
        if len(step.done):
            columns = step_columns(step.obs, step.output['action'], step.timestep)
            recorder.add(columns, step.timestep.env_id, step.done)
        if len(step.abnormal):
            recorder.discard(step.abnormal)

    def _append(
        self, step: Step, stamp: Array, level_seeds: Array | None, episode_step: Array | None, reserve: int
    ) -> None:
        """Passes the rows of a step to the recorder."""
        rows = self._policy.process_transition(step.obs, step.output, step.timestep)
        env_id = step.timestep.env_id
        if 'reward' in rows:
            rows['reward'] = rows['reward'].astype(np.float32, copy=False)
        rows['collect_iter'] = stamp[: len(env_id)]
        if episode_step is not None:
            rows['env_id'] = env_id.astype(np.int32)
            rows['episode_step'] = episode_step.astype(np.int32)
        if level_seeds is not None:
            rows['seed'] = level_seeds[env_id]
        for name in self._info_columns:
            rows[name] = info_column(name, step.timestep.info)
        self._recorder.append(rows, env_id, step.done, reserve)

    def _discard(self, step: Step) -> None:
        dropped = len(step.abnormal)
        dropped += self._recorder.discard(step.abnormal, self._kept_samples(step.abnormal))
        self.discarded += dropped
        self._logger.warning(
            'abnormal step of env %s: %d env steps discarded', step.abnormal.tolist(), dropped
        )

    def _kept_samples(self, env_id: Any) -> Any:
        """Returns how many finished samples of these envs to keep if their running episode is discarded; None: all."""
        return None

    def _more_metrics(self) -> dict[str, float]:
        """Returns further metrics for a record."""
        return {}

    def _check_lengths(self) -> None:
        """Raises ``EpisodeTooLongError`` if a running episode exceeds the length that the config allows."""
        if self._log.lengths.max() > self._max_episode_len:
            raise too_long(self._log.lengths, self._max_episode_len, 'policy.collect.collector')

    def state_dict(self) -> dict[str, Any]:
        """Returns everything that the next ``collect`` depends on: envs, half-collected rows, counts."""
        return {
            'env': self._env.state_dict(),
            'rollout': self._rollout.state_dict(),
            'log': self._log.state_dict(),
            'recorder': self._recorder.state_dict(),
            'last_print_iter': self._log.last_print_iter,
            'discarded': self.discarded,
            'unsaved': {str(env): why for env, why in self.unsaved.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(state, STATE)
        with part('env'):
            lost = self._env.load_state_dict(state['env'])
        for name, keeper in (('rollout', self._rollout), ('log', self._log), ('recorder', self._recorder)):
            with part(name):
                keeper.load_state_dict(state[name])
        self._log.last_print_iter, self.discarded = state['last_print_iter'], state['discarded']
        self._forget(lost)
        if self.unsaved:
            self._logger.warning(
                'the saved state of some envs does not fit: they begin a new episode, and the resumed run is not exact: %s',
                _listed(self.unsaved),
            )

    def begin_anew(self, state: Mapping[str, Any]) -> None:
        """Begins new episodes with seeds of their own, and takes over the episodes that ended."""
        self._seed = incarnation_seed(self._seed, self._rank, self._progress.envstep)
        self.reset_env(self._env)
        self.reset_policy()
        self._log.take_over(state)
        self.discarded = state.get('discarded', 0)

    @property
    def unsaved(self) -> Mapping[int, str]:
        unsaved: Mapping[int, str] = self._env.unsaved
        return unsaved

    def settle(self) -> None:
        """Starts a new episode in each env whose state cannot be saved; call it before ``state_dict``.

        The unfinished episode is discarded and counted in ``discarded``, both in this run and in the resumed one, so
        that the two stay identical.
        """
        lost = self._env.restart_lost()
        if self._forget(lost) and not self._warned_of_lost:
            self._warned_of_lost = True
            self._logger.warning(
                'the state of some envs cannot be saved: they begin a new episode at every checkpoint; with get_state() and'
                ' set_state(state) they would continue their episodes: %s',
                _listed(self.unsaved),
            )

    def _forget(self, env_id: IntArray) -> bool:
        if not len(env_id):
            return False
        self._log.forget(env_id)
        self.discarded += self._recorder.discard(env_id)
        if self.episode_recorder is not None:
            self.episode_recorder.discard(env_id)
        self._policy.reset(env_id)
        return True


def info_column(name: str, infos: Sequence[Mapping[str, Any]]) -> Array:
    """Returns what infos of n envs have under a name, [n, ...].

    Raises:
        EnvError: If one has nothing there, or no numbers.
    """
    missing = [info for info in infos if name not in info]
    if missing:
        raise EnvError(
            f'an info of the env has no {name!r}.{nearest(name, missing[0])} It has: {list(missing[0])}',
            where='policy.collect.collector.info_columns',
        )
    column = np.stack([np.asarray(info[name]) for info in infos])
    if column.dtype.kind not in 'biuf':
        raise EnvError(
            f'{name!r} of infos is {infos[0][name]!r}, which is no number',
            where='policy.collect.collector.info_columns',
        )
    return column


def _listed(reasons: Mapping[int, str]) -> str:
    """Returns the envs grouped by reason."""
    envs: dict[str, list[int]] = {}
    for env, why in reasons.items():
        envs.setdefault(why, []).append(env)
    return '; '.join(f'env {", ".join(map(str, own))}: {why}' for why, own in envs.items())
