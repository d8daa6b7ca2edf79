"""EpisodeLog: counts returns and lengths of episodes, so that no env has to."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlframe.data.timestep import NO_INFO, FloatArray, IntArray
from rlframe.errors import EpisodeTooLongError
from rlframe.run.metrics import ScalarWriter, write_record
from rlframe.run.progress import Progress
from rlframe.utils.every import Every
from rlframe.utils.field import option
from rlframe.utils.schema import (
    COUNT,
    DICT,
    INT,
    TEXT,
    array,
    check_state,
    list_of,
    load_arrays,
    part,
    saved_arrays,
)
from rlframe.worker.collector.rollout import Step

ALL = 'all'
INFO_METRICS = option(
    ALL,
    doc="numbers of an episode's last info to log under info/NAME: 'all', a list of names, or None",
    may_change=True,
)
"""The option ``info_metrics`` of collectors and evaluators."""
OTHERS = frozenset(
    [
        *('eval_episode_return', 'abnormal', 'TimeLimit.truncated', 'bad_transition'),
        *('elapsed_step', 'env_id', 'players.env_id', 'reward', 'terminated'),  # EnvPool's
    ]
)
"""Entries of an info that rlframe, Gymnasium or EnvPool add for themselves."""

Wanted = Collection[str] | None
"""The names that are logged; None: all."""
WINDOW = 100
"""Episodes that a windowed mean is taken over."""
ENDED = ('window', 'recent', 'info_names', 'info_sums')
"""Keys of the state of an ``EpisodeLog`` that are about ended episodes; those of infos may be missing."""


def wanted_names(value: Any) -> Wanted:
    """Returns the names that a value of the option ``info_metrics`` selects; on the command line ``drag,lift``."""
    if value == ALL:
        return None
    if isinstance(value, str):
        return frozenset(name.strip() for name in value.strip('[]').split(','))
    return frozenset(map(str, value or ()))


def numbers_of(info: Mapping[str, Any], wanted: Wanted = None) -> dict[str, float]:
    """Returns the finite numbers in the last info of an episode; booleans count as 0 and 1.

    ``wanted`` are the names to look at; None: all that an env reports itself.
    """
    found = {}
    for name, value in info.items():
        if (name in wanted) if wanted is not None else not (name in OTHERS or str(name).startswith('_')):
            number = _number(value)
            if math.isfinite(number):
                found[str(name)] = number
    return found


def _number(value: Any) -> float:
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, np.complexfloating) or not isinstance(value, int | float | np.bool_ | np.number):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # an int that no float holds
        return math.nan


def success_in(info: Mapping[str, Any]) -> float:
    """Returns whether an episode with this last info succeeded, 0 to 1; NaN if it does not tell.

    Gymnasium-Robotics says ``success`` in mazes, and ``is_success`` elsewhere.
    """
    given = info['is_success'] if 'is_success' in info else info.get('success')
    number = _number(np.asarray(given)) if isinstance(given, np.ndarray | list) else _number(given)
    return number if 0 <= number <= 1 else math.nan


def checked_sums(sums: Any) -> dict[str, list[float]]:
    """Returns sums that a worker sent, without entries that are none."""
    return {
        str(name)[:100]: [float(number) for number in pair]
        for name, pair in (sums.items() if isinstance(sums, Mapping) else ())
        if isinstance(pair, list | tuple) and len(pair) == 2 and all(map(_is_sum, pair)) and pair[1] > 0
    }


def _is_sum(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(_number(value))


class InfoSums:
    """Sums up the numbers that ``info_metrics`` selects, by name, for means over the episodes that have them."""

    def __init__(self, info_metrics: Any = ALL) -> None:
        self._wanted = wanted_names(info_metrics)
        self.is_off = self._wanted is not None and not self._wanted
        """Whether nothing is counted."""
        self._sums: dict[str, list[float]] = {}  # name to sum and count

    def count(self, info: Mapping[str, Any]) -> None:
        """Counts the info of an ended episode."""
        self.add({name: (number, 1) for name, number in numbers_of(info, self._wanted).items()})

    def add(self, sums: Mapping[str, Any]) -> None:
        """Adds the sums of another object, as ``take`` returned them."""
        for name, (total, count) in sums.items():
            entry = self._sums.setdefault(name, [0.0, 0.0])
            entry[0] += float(total)
            entry[1] += float(count)

    def take(self) -> dict[str, list[float]]:
        """Returns and clears sum and count of each name."""
        sums = self._sums
        self._sums = {}
        return sums

    def means(self) -> dict[str, float]:
        """Returns and clears the means, by tag."""
        return {f'rollout/info/{name}': total / count for name, (total, count) in self.take().items()}

    def state_dict(self) -> dict[str, Any]:
        """Returns a copy of the sums, empty if there are none."""
        if not self._sums:
            return {}
        return {'info_names': [*self._sums], 'info_sums': np.array([*self._sums.values()])}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the sums."""
        sums: FloatArray = state.get('info_sums', np.zeros((0, 2)))
        self._sums = dict(zip(state.get('info_names', ()), sums.tolist(), strict=True))


class Episodes(NamedTuple):
    """The episodes that ended in one step."""

    env_id: IntArray
    """[n]."""
    return_: FloatArray
    """Undiscounted sum of rewards, or the env's ``info['eval_episode_return']`` if it gives one, [n]."""
    length: FloatArray
    """Env steps, [n]."""
    info: Sequence[Mapping[str, Any]]
    """Infos of the envs at the last step."""


NO_EPISODES = Episodes(np.zeros(0, np.int64), np.zeros(0), np.zeros(0), ())


def with_ended(log: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the state of an ``EpisodeLog`` with the ended episodes of another one."""
    running = {name: value for name, value in log.items() if name not in ENDED}
    return running | {name: other[name] for name in ENDED if name in other}


class EpisodeLog:
    """Counts the env steps and the episodes of N envs, and writes records of them.

    An episode whose last info has ``game_goes_on`` is a part of a game, as where a lost life ends it: the log counts the
    game, once it is over.

    Args:
        env_num: Number of envs, N.
        info_metrics: Numbers of infos to count: value of the option of that name.
        progress: Counters shared with the other workers; new ones if not given.
        print_freq: Interval between two records: train iterations, or ``'N env steps'``; None writes none.
        tb_logger: Writes records; None writes none.
        instance_name: Name of the collector, for the text log.
    """

    def __init__(
        self,
        env_num: int,
        info_metrics: Any = ALL,
        *,
        progress: Progress | None = None,
        print_freq: int | str | None = None,
        tb_logger: ScalarWriter | None = None,
        instance_name: str = 'collector',
    ) -> None:
        self.progress = progress if progress is not None else Progress()
        self.logger = logging.getLogger(f'rlframe.{instance_name}')
        self.last_print_iter = 0
        """Train iteration at which the last record was written."""
        self.seconds = 0.0
        """Time spent collecting since the last record, which the collector adds."""
        self._steps = 0  # since the last record
        self._print_every = None if print_freq is None else Every.of(print_freq)
        self._tb_logger = tb_logger
        self._infos = InfoSums(info_metrics)  # since the last summary
        self.begin(env_num)

    def begin(self, env_num: int) -> None:
        """Begins anew with other envs; the counters and the rhythm of the records continue."""
        self._return = np.zeros(env_num)
        self._length = np.zeros(env_num, np.int64)
        self._before = np.zeros(env_num, np.int64)  # of the running game, env steps of earlier episodes
        # return, length and success of episodes, [n, 3]: the last ones up to the last summary, and all since
        self._window: FloatArray = np.zeros((0, 3))
        self._recent: list[FloatArray] = []
        self._infos.take()
        self._whole: IntArray | None = None  # last ids that were seen to name all envs in order

    def count(self, envstep: int, episodes: int = 0) -> None:
        """Counts env steps taken and episodes ended that no ``update`` has counted."""
        self.progress.envstep += envstep
        self.progress.episodes += episodes
        self._steps += envstep

    def _is_whole(self, env_id: IntArray) -> bool:
        if len(env_id) != len(self._return) or (env_id[:-1] > env_id[1:]).any():
            return False
        self._whole = env_id
        return True

    @property
    def lengths(self) -> IntArray:
        """Env steps of each env's running episode, [N]."""
        return self._length - self._before if self._before.any() else self._length

    def update(self, step: Step) -> Episodes:
        """Counts the rows of a step and returns the episodes that it ended."""
        # running episodes
        env_id = step.timestep.env_id
        self.progress.envstep += len(env_id)
        self._steps += len(env_id)
        if env_id is self._whole or self._is_whole(env_id):
            self._return += step.timestep.reward
            self._length += 1
        else:
            self._return[env_id] += step.timestep.reward
            self._length[env_id] += 1
            if len(step.abnormal):
                self.forget(step.abnormal)
        # ended episodes
        ended = step.finished
        if len(ended) == 0:
            return NO_EPISODES
        has_info = step.timestep.info[0] is not NO_INFO
        if has_info and len(ended := self._over(step)) == 0:
            return NO_EPISODES
        entries = np.empty((len(ended), 3))
        entries[:, 0] = self._return[ended]
        entries[:, 1] = self._length[ended]
        entries[:, 2] = np.nan
        # results that infos have
        infos: Sequence[Mapping[str, Any]] = ()
        if has_info:
            info_of = dict(zip(env_id.tolist(), step.timestep.info, strict=True))
            infos = [info_of[env] for env in ended.tolist()]
            for entry, info in zip(entries, infos, strict=True):
                if info.get('eval_episode_return') is not None:
                    entry[0] = np.asarray(info['eval_episode_return']).item()
                entry[2] = success_in(info)
                if not self._infos.is_off:
                    self._infos.count(info)
        self.forget(ended)
        self.progress.episodes += len(ended)
        self._recent.append(entries)
        return Episodes(ended, entries[:, 0], entries[:, 1], infos or (NO_INFO,) * len(ended))

    def _over(self, step: Step) -> IntArray:
        """Returns the envs whose game is over, and begins the next episode of games that go on."""
        rows = np.flatnonzero(step.done).tolist()
        going_on = np.array([bool(step.timestep.info[row].get('game_goes_on')) for row in rows])
        if not going_on.any():
            return step.finished
        continued: IntArray = step.finished[going_on]
        self._before[continued] = self._length[continued]
        over: IntArray = step.finished[~going_on]
        return over

    def forget(self, env_id: IntArray) -> None:
        """Begins anew to count the episodes of these envs."""
        self._return[env_id] = 0.0
        self._length[env_id] = self._before[env_id] = 0

    def forget_recent(self) -> None:
        """Forgets the episodes that ended since the last summary."""
        self._recent = []
        self._infos.take()

    def take_recent(self) -> FloatArray:
        """Returns and clears return, length and success of the episodes ended since the last summary, [n, 3]."""
        recent = self._recent
        self._recent = []
        return np.concatenate([np.zeros((0, 3)), *recent])

    def take_infos(self) -> dict[str, list[float]]:
        """Returns and clears sum and count of the numbers in the infos of these episodes, by name."""
        return self._infos.take()

    def add(self, entries: FloatArray, infos: Mapping[str, Any] | None = None) -> None:
        """Counts episodes of another log, as ``take_recent`` and ``take_infos`` returned them."""
        if len(entries):
            self._recent.append(entries)
            self._infos.add(infos or {})

    def has_recent(self) -> bool:
        """Whether an episode ended since the last summary."""
        return bool(self._recent)

    def last(self) -> FloatArray:
        """Returns the entries of the last ``WINDOW`` episodes, [n, 3]."""
        return np.concatenate([self._window, *self._recent[-WINDOW:]])[-WINDOW:]

    def window_mean(self) -> float:
        """Returns the mean return of the last ``WINDOW`` episodes, NaN if none ended."""
        last = self.last()
        return float(last[:, 0].mean()) if len(last) else float('nan')

    def summary(self) -> dict[str, float]:
        """Returns means over the window and over the episodes since the last summary, and forgets the latter."""
        returns = np.concatenate(self._recent)[:, 0]
        window = self._window = self.last()
        self._recent = []
        values = {
            'rollout/ep_rew_mean': window[:, 0].mean(),
            'rollout/ep_len_mean': window[:, 1].mean(),
            'rollout/interval_rew_mean': returns.mean(),
            'rollout/interval_rew_std': returns.std(),
            'rollout/interval_rew_min': returns.min(),
            'rollout/interval_rew_max': returns.max(),
            'rollout/interval_episodes': float(len(returns)),
        }
        if not np.isnan(window[:, 2]).all():
            values['rollout/success_rate'] = np.nanmean(window[:, 2])
        return {tag: float(value) for tag, value in values.items()} | self._infos.means()

    def report(self, train_iter: int, more: Callable[[], Mapping[str, float]]) -> None:
        """Writes a record if it is time for one, with the metrics that ``more`` returns, which is called only then."""
        every = self._print_every
        if every is None or not self._recent:
            return
        now = every.now(train_iter, self.progress.envstep)
        if not every.has_passed(self.last_print_iter, now):
            return
        values = self.summary() | dict(more())
        values['time/collect_fps'] = self._steps / max(self.seconds, 1e-9)
        values['rollout/episodes'] = self.progress.episodes
        self.last_print_iter = now
        self.seconds = 0.0
        self._steps = 0
        write_record(self._tb_logger, values, self.progress.envstep, train_iter=train_iter)
        self.logger.info(
            'envstep %d, train_iter %d: return %.1f over %d episodes',
            self.progress.envstep,
            train_iter,
            values['rollout/interval_rew_mean'],
            values['rollout/interval_episodes'],
        )

    def state_dict(self) -> dict[str, Any]:
        """Returns a copy of all counts."""
        recent = np.concatenate([np.zeros((0, 3)), *self._recent])
        return {
            **saved_arrays(self, ('return', 'length', 'window')),
            'recent': recent,
            **({'before': self._before.copy()} if self._before.any() else {}),
            **self._infos.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state from ``state_dict()``."""
        envs = len(self._return)
        three = array('f', (None, 3))
        check_state(state, {'window': three, 'recent': three, 'before?': array('iu', (envs,))})
        names = list_of(TEXT, len(state.get('info_sums', ())))
        check_state(state, {'info_sums?': array('f', (None, 2)), 'info_names?': names})
        load_arrays(self, ('return', 'length'), state)
        self._before = state['before'].copy() if 'before' in state else np.zeros(envs, np.int64)
        self._window = state['window'].copy()
        self._recent = [state['recent'].copy()] if len(state['recent']) else []
        self._infos.load_state_dict(state)

    def take_over(self, state: Mapping[str, Any]) -> None:
        """Takes over the ended episodes in the state of another collector, if it counts any, and when it wrote a record."""
        check_state(state, {'log?': DICT, 'last_print_iter?': INT, 'discarded?': COUNT})
        if 'log' in state:
            with part('log'):
                self.load_state_dict(with_ended(self.state_dict(), state['log']))
        self.last_print_iter = state.get('last_print_iter', 0)


def too_long(lengths: IntArray, limit: int, section: str) -> EpisodeTooLongError:
    """Returns the error about an episode that exceeds the limit; ``lengths`` are the running episodes of N envs."""
    return EpisodeTooLongError(
        f'env {int(lengths.argmax())}: an episode of more than {limit} env steps',
        where=f'{section}.max_episode_len',
        remedy="Does the env end its episodes? env.wrappers=[dict(type='TimeLimit', max_episode_steps=1000)] does.",
    )


def episode_quota(env_num: int, n_episode: int) -> IntArray:
    """Returns the number of episodes for each env to play, [N]: the same number, the first envs one more.

    A quota that is fixed beforehand, and filled by each env's *first* episodes, favours no length; "the first that
    finish" would favour short ones.
    """
    if env_num < 1 or n_episode < 1:
        raise ValueError(f'env_num and n_episode must be >= 1, got {env_num} and {n_episode}')
    quota = np.full(env_num, n_episode // env_num)
    quota[: n_episode % env_num] += 1
    return quota
