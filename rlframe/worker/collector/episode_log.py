"""EpisodeLog: counts returns and lengths of episodes, so that no env has to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlframe.data.timestep import NO_INFO, FloatArray, IntArray
from rlframe.errors import EpisodeTooLongError
from rlframe.utils.schema import TEXT, array, check_state, list_of
from rlframe.worker.collector.info_metrics import ALL, InfoSums
from rlframe.worker.collector.rollout import Step

WINDOW = 100
"""Episodes that a windowed mean is taken over."""


class Episodes(NamedTuple):
    """The episodes that one step ended."""

    env_id: IntArray
    """[n]."""
    return_: FloatArray
    """Undiscounted sum of rewards, or the env's ``info['eval_episode_return']`` if it gives one, [n]."""
    length: FloatArray
    """Env steps, [n]."""
    info: Sequence[Mapping[str, Any]]
    """Infos of the envs at the last step."""


NO_EPISODES = Episodes(np.zeros(0, np.int64), np.zeros(0), np.zeros(0), ())


class EpisodeLog:
    """Sums up the episodes of N envs as they are stepped.

    An episode whose last info has ``game_goes_on`` is a part of a game, as where a lost life ends it: the log counts the
    game, once it is over.

    Args:
        env_num: Number of envs, N.
        info_metrics: Numbers of infos to count: value of the option of that name.
    """

    def __init__(self, env_num: int, info_metrics: Any = ALL) -> None:
        self._return = np.zeros(env_num)
        self._length = np.zeros(env_num, np.int64)
        self._before = np.zeros(env_num, np.int64)  # of the running game, env steps of earlier episodes
        # return, length and success of episodes, [n, 3]: the last ones up to the last summary, and all since
        self._window: FloatArray = np.zeros((0, 3))
        self._recent: list[FloatArray] = []
        self._infos = InfoSums(info_metrics)  # since the last summary
        self._whole: IntArray | None = None  # last ids that were seen to name all envs in order

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
        env_id = step.timestep.env_id
        if env_id is self._whole or self._is_whole(env_id):
            self._return += step.timestep.reward
            self._length += 1
        else:
            self._return[env_id] += step.timestep.reward
            self._length[env_id] += 1
            self.forget(step.abnormal)
        ended = step.finished
        if len(ended) == 0:
            return NO_EPISODES
        has_info = step.timestep.info[0] is not NO_INFO
        if has_info and len(ended := self._over(step)) == 0:
            return NO_EPISODES
        entries = np.empty((len(ended), 3))
        entries[:, 0], entries[:, 1], entries[:, 2] = self._return[ended], self._length[ended], np.nan
        infos: Sequence[Mapping[str, Any]] = ()
        if has_info:
            info_of = dict(zip(env_id.tolist(), step.timestep.info, strict=True))
            infos = [info_of[env] for env in ended.tolist()]
            for entry, info in zip(entries, infos, strict=True):
                if info.get('eval_episode_return') is not None:
                    entry[0] = np.asarray(info['eval_episode_return']).item()
                entry[2] = np.asarray(info.get('is_success', np.nan)).item()
                if not self._infos.is_off:
                    self._infos.count(info)
        self.forget(ended)
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
        recent, self._recent = self._recent, []
        return np.concatenate(recent) if recent else np.zeros((0, 3))

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

    def _last(self) -> FloatArray:
        """Returns the entries of the last ``WINDOW`` episodes, [n, 3]."""
        return np.concatenate([self._window, *self._recent[-WINDOW:]])[-WINDOW:]

    def window_mean(self) -> float:
        """Returns the mean return of the last ``WINDOW`` episodes, NaN if none ended."""
        last = self._last()
        return float(last[:, 0].mean()) if len(last) else float('nan')

    def summary(self) -> dict[str, float]:
        """Returns means over the window and over the episodes since the last summary, and forgets the latter."""
        returns = np.concatenate(self._recent)[:, 0]
        window = self._window = self._last()
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

    def state_dict(self) -> dict[str, Any]:
        """Returns a copy of all counts."""
        recent = np.concatenate(self._recent) if self._recent else np.zeros((0, 3))
        return {
            'return': self._return.copy(),
            'length': self._length.copy(),
            'window': self._window.copy(),
            'recent': recent,
            **({'before': self._before.copy()} if self._before.any() else {}),
            **self._infos.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state from ``state_dict()``."""
        envs = len(self._return)
        counts = {'return': array('f', self._return.shape), 'length': array('iu', (envs,))}
        check_state(state, {**counts, 'window': array('f', (None, 3)), 'recent': array('f', (None, 3))})
        check_state(state, {'before?': array('iu', (envs,))})
        names = list_of(TEXT, len(state.get('info_sums', ())))
        check_state(state, {'info_sums?': array('f', (None, 2)), 'info_names?': names})
        self._return, self._length = state['return'].copy(), state['length'].copy()
        self._before = state['before'].copy() if 'before' in state else np.zeros(envs, np.int64)
        self._window = state['window'].copy()
        self._recent = [state['recent'].copy()] if len(state['recent']) else []
        self._infos.load_state_dict(state)


def too_long(lengths: IntArray, limit: int, section: str) -> EpisodeTooLongError:
    """Returns the error about an episode that exceeds a limit.

    Args:
        lengths: Env steps of the running episodes, [N].
        limit: Limits of an episode.
        section: Section of the config with the limit.
    """
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
