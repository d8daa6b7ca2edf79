"""The interface of serial evaluators, and the monitor that counts episodes without bias."""

from __future__ import annotations

import copy
import logging
import zlib
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from easydict import EasyDict

from rlframe.data.timestep import Array, IntArray
from rlframe.run.film import Film
from rlframe.run.metrics import ScalarWriter
from rlframe.scores import exact_text, goal_of, number_text, reaches, stop_value_problem
from rlframe.utils.every import Every, interval
from rlframe.utils.field import Configurable, Section, option
from rlframe.utils.schema import COUNT, INT, NUMBER, Kind, check_state
from rlframe.utils.seed import EVALUATE
from rlframe.worker.collector.base_serial_collector import Resettable
from rlframe.worker.collector.episode_log import episode_quota

SaveCheckpoint = Callable[[str], Any]

SCORE = Kind(
    'a number, or the result of a metric: a dict or None',
    lambda value: NUMBER.fits(value) or value is None or isinstance(value, Mapping),
)


class Picture(NamedTuple):
    """A compressed picture; pictures of most envs become a hundred times smaller."""

    content: bytes
    shape: tuple[int, ...]
    """[C, H, W]."""


class Clip(NamedTuple):
    """The pictures of one finished episode; no pictures if it cannot be shown any more."""

    return_: float
    place: tuple[int, int]
    """Env, and number of the episode in it."""
    pictures: Sequence[Picture]


def shown_ranks(count: int) -> list[int]:
    """Returns the ranks by return, 0 for the worst, of the clips in a video of so many episodes, at most four."""
    if count <= 4:
        return [*range(count)]
    middle = (count // 2 - 1, count // 2) if count % 2 else ((count - 1) // 2, count // 2)
    return [0, *middle, count - 1]


class Clips:
    """Collects pictures of running episodes, and keeps the worst, the median and the best of ``n_episode`` episodes.

    A finished episode whose rank cannot become one of these is dropped at once, so memory is limited by the running episodes
    and a few finished ones.
    """

    def __init__(self, n_episode: int) -> None:
        self._n_episode = n_episode
        self._running: dict[int, list[Picture]] = {}
        self._ended: list[Clip] = []  # by return

    def add(self, env_id: int, image: Array) -> None:
        """Adds a picture, uint8 [H, W, C] or [C, H, W], to the running episode of an env."""
        first = image if image.shape[0] in (1, 3) else np.moveaxis(image, -1, 0)
        picture = Picture(zlib.compress(first.tobytes(), 1), first.shape)
        self._running.setdefault(env_id, []).append(picture)

    def end(self, env_id: int, number: int, return_: float) -> None:
        """Ends the running episode of an env, the ``number``-th that counts."""
        if not (self._running or self._ended):  # nothing is filmed
            return
        self._ended.append(Clip(return_, (env_id, number), self._running.pop(env_id, [])))
        self._ended.sort(key=lambda clip: clip[:2])
        missing = self._n_episode - len(self._ended)
        wanted = shown_ranks(self._n_episode)
        self._ended = [
            clip if any(rank <= each <= rank + missing for each in wanted) else clip._replace(pictures=[])
            for rank, clip in enumerate(self._ended)
        ]

    def _at(self, rank: int) -> Clip:
        """Returns the clip of a rank, or the nearest one that has pictures, if the evaluation ended early."""
        kept = [i for i, clip in enumerate(self._ended) if clip.pictures]
        if not kept:
            raise ValueError('no frames were given to update_video')
        return self._ended[min(kept, key=lambda i: abs(i - rank))]

    def video(self) -> Array:
        """Returns the clips to show, uint8 [1 to 4, T, C, H, W]; shorter ones are padded with their last picture."""
        clips = [self._at(rank) for rank in shown_ranks(len(self._ended)) or [0]]
        frames = [[_unpacked(picture) for picture in clip.pictures] for clip in clips]
        longest = max(map(len, frames))
        return np.stack([np.stack(own + [own[-1]] * (longest - len(own))) for own in frames])

    def films(self) -> list[Film]:
        """Returns the films of the worst, the median and the best episode; fewer of fewer than three episodes."""
        count = len(self._ended)
        ranks = {'worst': 0, 'median': count // 2, 'best': count - 1}
        if count < 3:
            ranks = {'worst': 0, 'best': 1} if count == 2 else {'episode': 0}
        clips = {label: self._at(rank) for label, rank in ranks.items()}
        return [
            Film(label, clip.return_, [np.moveaxis(_unpacked(picture), 0, -1) for picture in clip.pictures])
            for label, clip in clips.items()
        ]


def _unpacked(picture: Picture) -> Array:
    return np.frombuffer(zlib.decompress(picture.content), np.uint8).reshape(picture.shape)


class EvalResult(NamedTuple):
    """The result of one ``submit``."""

    stop: bool
    """Whether the policy is good enough to stop training."""
    info: dict[str, Any]
    """One value per episode under each name, ``eval_episode_return`` first."""
    train_iter: int
    envstep: int
    score: Any = np.nan
    """The score that was compared: the mean return."""
    is_best: bool = False
    """Whether it was better than every earlier score."""


class EvaluatorConfig(Section):
    """Options of every evaluator."""

    eval_freq: int | str = interval(1000, 'interval between two evaluations')
    n_episode: int | None = option(
        None,
        range='[1, inf)',
        unit='episodes',
        doc='number of episodes of one evaluation; set by env.n_evaluator_episode',
        may_change=True,
    )
    stop_value: float | str | None = option(
        None,
        unit="return in the env's own unit",
        doc='mean that ends training; set by env.stop_value',
        check=stop_value_problem,
        may_change=True,
    )


class ISerialEvaluator(Configurable, Resettable):
    """Evaluates a policy at intervals, keeps the best score and decides when it is good enough.

    A subclass defines ``reset_env``, ``eval`` and ``close``; everything else has a default.

    ``submit`` and ``poll`` are the two halves of ``eval``, for evaluators whose results come later; here a result is
    available at once. An evaluator whose results come later sets ``answers_later``, and evaluates the policy as it was
    at ``submit``.

    Args:
        cfg: Options of the evaluator.
        env: Env manager; can be set later with ``reset_env``. An evaluator that steps no envs accepts its data here, too:
            the public signature has a position for an env only.
        policy: Eval face of a policy; can be set later with ``reset_policy``.
        tb_logger: Writes metrics; None writes none. The caller closes it.
        exp_name: Has no effect; part of DI-engine's signature.
        instance_name: Name of this evaluator, for the log.
        seed: Seed of the experiment.
        purpose: Purpose of the episodes; each purpose has its own seeds.
        data: Data to evaluate on, for an evaluator that steps no envs; can be set later with ``reset_data``.
    """

    policy_face = 'eval_mode'
    _cfg: EvaluatorConfig

    worst: Any = -np.inf
    """Lower bound of all scores."""
    answers_later = False
    """Whether ``poll`` may return a result after the policy was trained further."""
    scores_returns = True
    """Whether scores are mean returns of episodes, and so comparable with an env's reward threshold."""

    def __init__(  # noqa: PLR0913  # six are the public signature
        self,
        cfg: EasyDict | Mapping[str, Any] | None,
        env: Any = None,
        policy: Any = None,
        tb_logger: ScalarWriter | None = None,
        exp_name: str = 'default_experiment',
        instance_name: str = 'evaluator',
        *,
        seed: int = 0,
        purpose: str = EVALUATE,
        data: Any = None,
    ) -> None:
        self._cfg = self.resolve_config(cfg)
        self._tb_logger, self._instance_name = tb_logger, instance_name
        self._seed, self._purpose = seed, purpose
        self._eval_freq = Every.of(self._cfg.eval_freq)
        self.stop_value: Any = goal_of(self._cfg.stop_value)
        """Mean return that ends training, or None."""
        self._logger = logging.getLogger(f'rlframe.{instance_name}')
        self._env: Any = None
        self._policy: Any = None
        self._results: list[EvalResult] = []
        self.on_step: Callable[[], None] | None = None
        """Called after each step of the envs; an exception that it raises aborts the evaluation."""
        self._forget_counts()
        if env is not None:
            self.reset_env(env)
        if data is not None:
            self.reset_data(data)
        if policy is not None:
            self.reset_policy(policy)

    def _forget_counts(self) -> None:
        """Begins the record of the scores and the count of iterations between evaluations anew."""
        self.last_eval_iter = -1
        """Train iteration at which the last evaluation was due; -1 before the first."""
        self.last_eval_envstep = 0
        """Env steps at that moment."""
        self.best: Any = self.worst
        """Highest mean return so far."""
        self.latest: Any = np.nan
        """Mean return of the last evaluation."""

    def should_eval(self, train_iter: int, envstep: int = -1) -> bool:
        """Whether an evaluation is due: before training, then every ``eval_freq``, if there was an update since the last.

        Args:
            train_iter: Train iterations so far.
            envstep: Env steps so far; needed for an ``eval_freq`` in env steps.

        Raises:
            ValueError: If it is needed and missing.
        """
        every = self._eval_freq
        if every.in_env_steps and envstep < 0:
            raise ValueError(
                f'eval_freq is in env steps ({every.length}): call should_eval(train_iter, envstep)'
            )
        if train_iter == self.last_eval_iter:
            return False
        last = every.now(max(self.last_eval_iter, 0), self.last_eval_envstep)
        if train_iter != 0 and every.now(train_iter, envstep) - last < every.after(last):
            return False
        self.last_eval_iter = train_iter
        self.last_eval_envstep = max(envstep, 0)
        return True

    @property
    def last_due(self) -> dict[str, int]:
        """The counters when the last evaluation was due, by the names of their attributes."""
        return {'last_eval_iter': self.last_eval_iter, 'last_eval_envstep': self.last_eval_envstep}

    @last_due.setter
    def last_due(self, due: Mapping[str, int]) -> None:
        self.last_eval_iter = due['last_eval_iter']
        self.last_eval_envstep = due.get('last_eval_envstep', 0)

    def reached(self, score: Any) -> bool:
        """Whether a score reaches ``stop_value``, up to rounding."""
        return self.stop_value is not None and reaches(score, self.stop_value)

    @abstractmethod
    def eval(  # the name is DI-engine's; no code is evaluated
        self,
        save_ckpt_fn: SaveCheckpoint | None = None,
        train_iter: int = -1,
        envstep: int = -1,
        n_episode: int | None = None,
    ) -> tuple[bool, dict[str, Any]]:
        """Evaluates the policy, and passes its score to ``judge``.

        Args:
            save_ckpt_fn: Saves the policy as the best; passed to ``judge``.
            train_iter: Train iterations so far; -1 if unknown.
            envstep: Env steps so far; -1 if unknown.
            n_episode: Episodes to play; by default, as configured.

        Returns:
            Whether to stop training, and the results: under each name, a list with one value per episode.
        """

    def judge(self, score: float, save_ckpt_fn: SaveCheckpoint | None = None, train_iter: int = -1) -> bool:
        """Records a score as the latest one and, if it is higher than all earlier ones, as the best one.

        Args:
            score: The mean return.
            save_ckpt_fn: Called with ``'ckpt_best.pth.tar'`` if the score is the best.
            train_iter: Train iterations so far; before the first, training never stops.

        Returns:
            Whether to stop training.
        """
        self.latest = float(score)
        if self.latest > self.best:
            self.best = self.latest
            if save_ckpt_fn is not None:
                save_ckpt_fn('ckpt_best.pth.tar')
        return self.reached(self.latest) and train_iter > 0

    def submit(
        self,
        save_ckpt_fn: SaveCheckpoint | None = None,
        train_iter: int = -1,
        envstep: int = -1,
        n_episode: int | None = None,
    ) -> None:
        """Requests an evaluation, whose result ``poll`` returns."""
        before = self.best
        stop, info = self.eval(save_ckpt_fn, train_iter, envstep, n_episode)
        is_best = self.best is not before
        self._results.append(EvalResult(stop, info, train_iter, envstep, self.score, is_best))

    def poll(self) -> list[EvalResult]:
        """Returns the results that are available, in the order of the requests."""
        results = self._results
        self._results = []
        return results

    def wait(self) -> None:
        """Waits until ``poll`` has the results of all requests."""

    @property
    def pending(self) -> int:
        """Number of requested evaluations without a result."""
        return 0

    @property
    def score(self) -> float:
        """The last score as a number, higher is better; NaN if there is none."""
        return float(self.latest)

    def describe(self, score: Any) -> str:
        """Returns a score as text; empty if there is none."""
        return number_text(score) if np.isfinite(score) else ''

    @property
    def goal(self) -> str:
        """The score that ends training, in words; empty if there is none."""
        success = self._cfg.get('stop_success')
        texts = [] if success is None else [f'success {exact_text(success)}']
        if isinstance(self.stop_value, int | float):
            texts.insert(0, exact_text(self.stop_value))
        elif self.stop_value is not None:
            texts.insert(0, self.describe(self.stop_value))
        return ' or '.join(texts)

    def status(self) -> str:
        """Returns the progress of a running evaluation for a live display; empty if none is running."""
        return ''

    def summary(self) -> dict[str, float]:
        """Returns the last and the best score under their names in a pipeline's results."""
        return {'eval/mean_reward': self.latest, 'eval/best_mean_reward': self.best}

    @abstractmethod
    def close(self) -> None:
        """Closes the env; may be called twice."""

    def state_dict(self) -> dict[str, Any]:
        """Returns when the last evaluation was due, and the best score."""
        return {**self.last_due, 'best': float(self.best), 'latest': float(self.latest)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state from ``state_dict()``."""
        score = NUMBER if NUMBER.fits(self.worst) else SCORE
        check_state(
            state, {'last_eval_iter': INT, 'last_eval_envstep?': COUNT, 'best': score, 'latest': score}
        )
        self.last_due = state
        self.best = state['best']
        self.latest = state['latest']


class VectorEvalMonitor:
    """Collects the results of ``n_episode`` episodes in ``env_num`` envs without favouring short ones.

    Each env has a quota fixed in advance, ``n_episode // env_num`` or one more. Its *first* episodes count, up to the
    quota.

    Args:
        env_num: Number of envs, N.
        n_episode: Episodes to count; with fewer than N the last envs have a quota of 0.
    """

    def __init__(self, env_num: int, n_episode: int) -> None:
        self._quota = episode_quota(env_num, n_episode)
        self._reward: list[list[float]] = [[] for _ in range(env_num)]
        self._info: list[list[Mapping[str, Any]]] = [[] for _ in range(env_num)]
        self.clips = Clips(n_episode)
        """Pictures of the episodes."""

    def of_envs(self, own: slice) -> VectorEvalMonitor:
        """Returns the results of some of the envs, without pictures."""
        found = copy.copy(self)
        found._quota = self._quota[own]
        found._reward = self._reward[own]
        found._info = self._info[own]
        return found

    def is_finished(self) -> bool:
        """Whether every env has reached its quota."""
        return all(len(got) >= quota for got, quota in zip(self._reward, self._quota, strict=True))

    def unfinished(self) -> IntArray:
        """Returns the envs that have not reached their quota, [n]."""
        return np.flatnonzero(
            [len(got) < quota for got, quota in zip(self._reward, self._quota, strict=True)]
        )

    def update_info(self, env_id: int, info: Mapping[str, Any]) -> None:
        """Records the info of an env about an ended episode."""
        if len(self._info[env_id]) < self._quota[env_id]:
            self._info[env_id].append({name: _plain(value) for name, value in info.items()})

    def update_reward(self, env_id: int, reward: Any) -> None:
        """Records the return of an ended episode; episodes beyond the quota are not counted."""
        if len(self._reward[env_id]) < self._quota[env_id]:
            self._reward[env_id].append(float(_plain(reward)))
            self.clips.end(env_id, len(self._reward[env_id]), self._reward[env_id][-1])

    def update_video(self, imgs: Mapping[int, Array]) -> None:
        """Adds a frame, uint8 [H, W, C] or [C, H, W], to the running episode of each given env."""
        for env_id, image in imgs.items():
            if len(self._reward[env_id]) < self._quota[env_id]:
                self.clips.add(env_id, image)

    def get_video(self) -> Array:
        """Returns the clips of the worst, median and best episodes, uint8 [1 to 4, T, C, H, W].

        Shorter clips are padded with their last frame. With more than three clips, four are returned, two of them
        around the median.
        """
        return self.clips.video()

    def get_episode_return(self) -> list[float]:
        """Returns the counted returns in env order."""
        return [reward for got in self._reward for reward in got]

    def get_latest_reward(self, env_id: int) -> float:
        """Returns the return of the last counted episode of an env."""
        if not self._reward[env_id]:
            raise ValueError(f'env {env_id} has finished no episode')
        return self._reward[env_id][-1]

    def get_current_episode(self) -> int:
        """Returns the number of episodes counted."""
        return sum(len(got) for got in self._reward)

    def get_episode_info(self) -> dict[str, Any] | None:
        """Returns the infos of all episodes, a list per name and ``<name>_mean`` of numbers; None if empty."""
        infos = [info for got in self._info for info in got]
        names = [name for name in (infos[0] if infos else {}) if all(name in info for info in infos)]
        if not names:
            return None
        gathered: dict[str, Any] = {name: [info[name] for info in infos] for name in names}
        for name in names:
            if all(isinstance(value, int | float) for value in gathered[name]):
                gathered[f'{name}_mean'] = float(np.mean(gathered[name]))
        return gathered


def _plain(value: Any) -> Any:
    """Converts an array or tensor to a number or a list."""
    if hasattr(value, 'tolist'):
        value = value.tolist()
        while isinstance(value, list) and len(value) == 1:
            value = value[0]
    return value
