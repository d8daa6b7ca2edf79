"""InteractionSerialEvaluator: lets a policy play whole episodes and averages their returns."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, Literal

import numpy as np

from rlframe.data.timestep import IntArray
from rlframe.errors import EnvContractError, named_during
from rlframe.registry import SERIAL_EVALUATOR_REGISTRY
from rlframe.run.film import DEFAULT_FPS
from rlframe.run.metrics import write_record
from rlframe.scores import reaches
from rlframe.utils.field import Section, option
from rlframe.utils.seed import env_seed, preserved_rng
from rlframe.worker.collector.ding_policy import as_rows
from rlframe.worker.collector.episode_log import INFO_METRICS, EpisodeLog, Episodes, numbers_of, success_in
from rlframe.worker.collector.rollout import EpisodeLimit, Rollout, Step
from rlframe.worker.evaluator.base_serial_evaluator import (
    EvaluatorConfig,
    ISerialEvaluator,
    SaveCheckpoint,
    VectorEvalMonitor,
)
from rlframe.worker.evaluator.eval_metric import INFO, METRICS, evaluation_metrics, success_rate


class EvaluatedEpisodes:
    """Counts the episodes of one evaluation; ``limit`` cuts long episodes.

    ``can_begin_anew`` says whether an env whose episode was cut can start the next one while others continue.
    """

    def __init__(self, env_num: int, n_episode: int, limit: EpisodeLimit, can_begin_anew: bool) -> None:
        self.monitor = VectorEvalMonitor(env_num, n_episode)
        self.counted: IntArray = self.monitor.unfinished()
        """The envs that are playing an episode that counts, [n]."""
        self._n_episode, self._limit, self._can_begin_anew = n_episode, limit, can_begin_anew
        # of each env, its episodes: length, whether it was cut, and the numbers of its last info
        self._facts: list[list[tuple[int, bool, dict[str, float]]]] = [[] for _ in range(env_num)]
        self._left: IntArray = np.zeros(0, np.int64)  # envs whose running episode does not count

    def count(self, ended: Episodes) -> None:
        """Counts the episodes that ended in the last step, also by a cut."""
        cut = self._limit.cut
        if not len(ended.env_id):
            return
        for env_id, return_, length, info in zip(*ended, strict=True):
            if env_id in self.counted:
                self.monitor.update_reward(int(env_id), return_)
                self.monitor.update_info(int(env_id), _episode_info(info))
                self._facts[env_id].append((int(length), bool(env_id in cut), numbers_of(info)))
        if not self._can_begin_anew:
            self._left = np.union1d(self._left, cut)
        self.counted = np.setdiff1d(self.monitor.unfinished(), self._left)

    def begin_anew(self) -> None:
        """Counts all envs again that owe an episode, after every env was reset."""
        self._left = self._left[:0]
        self.counted = self.monitor.unfinished()

    def result(self) -> dict[str, Any]:
        """Returns the values of every episode, in env order.

        Numbers of infos are under ``info/NAME``, NaN for an episode without that number.
        """
        facts = [fact for own in self._facts for fact in own]
        names = dict.fromkeys(name for *_, numbers in facts for name in numbers)
        return {
            'eval_episode_return': self.monitor.get_episode_return(),
            'eval_episode_len': [length for length, *_ in facts],
            'eval_episode_cut': [is_cut for _, is_cut, _ in facts],
            **(self.monitor.get_episode_info() or {}),
            **{INFO + name: [numbers.get(name, math.nan) for *_, numbers in facts] for name in names},
        }

    def of_envs(self, own: slice) -> EvaluatedEpisodes:
        """Returns the episodes of some of the envs."""
        found = copy.copy(self)
        found.monitor = self.monitor.of_envs(own)
        found._facts = self._facts[own]
        return found

    def progress(self) -> str:
        """Returns the progress of the evaluation."""
        return f'{self.monitor.get_current_episode()} of {self._n_episode} episodes, {self._limit.env_step:,} env steps'

    def warning(self) -> str:
        """Returns a warning about cut episodes, or an empty string."""
        cut = sum(is_cut for own in self._facts for _, is_cut, _ in own)
        if not cut:
            return ''
        played = self.monitor.get_current_episode()
        return (
            f'{cut} of {played} evaluated episodes did not end within {self._limit.max_episode_len:,} env steps'
            ' (evaluator.max_episode_len) and count with their return so far. If the env never ends an episode,'
            " env.wrappers=[dict(type='TimeLimit', max_episode_steps=1000)] ends it"
        )


def _episode_info(info: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an env's information on a whole episode: ``episode_info`` and ``is_success``."""
    found = dict(info.get('episode_info') or {})
    success = success_in(info)
    return found if math.isnan(success) else found | {'is_success': success}


class RenderConfig(Section):
    """Section ``render`` of an evaluator."""

    render_freq: int = option(
        -1,
        range='[-1, inf)',
        unit='in units of mode',
        doc='interval between evaluations that are filmed; -1: none',
        may_change=True,
        reaches='process',  # it may start ffmpeg
    )
    mode: Literal['train_iter', 'envstep'] = option('train_iter', doc='unit of render_freq', may_change=True)


class InteractionConfig(EvaluatorConfig):
    """Options of ``InteractionSerialEvaluator``."""

    render: RenderConfig
    figure_path: str | None = option(
        None, ignored='the metrics have the returns of each evaluation', may_change=True, reaches='file'
    )
    max_episode_len: int | None = option(
        None,
        range='[1, inf)',
        unit='env steps',
        doc='longest episode; a longer one is cut and counts with its return so far. None: 27,000 if the env has no time limit',
        may_change=True,
    )
    stop_success: float | None = option(
        None,
        range='(0, 1]',
        unit='share of episodes',
        doc='set by env.stop_success',
        may_change=True,
    )
    max_abnormal: int = option(
        100,
        range='[0, inf)',
        unit='episodes',
        doc="discarded because of info['abnormal'] in one evaluation; more is an error",
        may_change=True,
    )
    metrics: list[Any] = option(METRICS)
    info_metrics: str | list[Any] | None = INFO_METRICS


@SERIAL_EVALUATOR_REGISTRY.register('interaction')
class InteractionSerialEvaluator(ISerialEvaluator):
    """Plays ``n_episode`` episodes, an equal share in each env, and averages their returns.

    Episode k of every evaluation starts with the seed f(seed, k), where a seed given to ``env.seed`` comes first, so evaluations are comparable, repeat no episode and
    do not affect the randomness of training.
    """

    _cfg: InteractionConfig

    together: Callable[[InteractionSerialEvaluator, int, Mapping[str, Any]], Any] | None = None
    """Plays so many episodes together with the evaluators of other seeds, with arguments of ``forward``; None: it plays alone."""
    _running: EvaluatedEpisodes | None = None
    _warned = False
    _filming = False

    def reset_env(self, _env: Any = None) -> None:
        if _env is not None:
            self._env = _env
            self._seed = next(iter(getattr(_env, 'given_seeds', {}).values()), self._seed)
        self._last_render = -np.inf

    def reset_policy(self, _policy: Any = None) -> None:
        super().reset_policy(None if _policy is None else as_rows(_policy, lambda: self._env.spec))

    def eval(  # the name is DI-engine's; no code is evaluated
        self,
        save_ckpt_fn: SaveCheckpoint | None = None,
        train_iter: int = -1,
        envstep: int = -1,
        n_episode: int | None = None,
        force_render: bool = False,
        policy_kwargs: Mapping[str, Any] | None = None,
    ) -> tuple[bool, dict[str, Any]]:
        """Measures the policy.

        Args:
            save_ckpt_fn: Called with ``'ckpt_best.pth.tar'`` when the mean return is higher than ever before.
            train_iter: Train iterations so far.
            envstep: Env steps so far.
            n_episode: Episodes to play; by default, as configured.
            force_render: Whether to film this evaluation even if none is due.
            policy_kwargs: Arguments of the policy's ``forward``.

        Returns:
            Whether the mean reached ``stop_value``, or the success rate ``stop_success`` (never before training began), and the values of every episode:
            ``eval_episode_return``, ``eval_episode_len``, ``eval_episode_cut`` (whether a limit ended it), the envs'
            ``info['episode_info']``, and the numbers in their last ``info`` under ``info/NAME``.

        Raises:
            ValueError: If the number of episodes is not known.
            EnvContractError: If too many are abnormal, or do not tell the success that ``stop_success`` is about.
        """
        episodes = n_episode if n_episode is not None else self._cfg.n_episode
        if self._env is None or self._policy is None or not episodes:
            raise ValueError('eval needs an env, a policy and n_episode')
        render = force_render or self._should_render(train_iter, envstep)
        settings = dict(policy_kwargs or {})
        start = perf_counter()
        with preserved_rng(), named_during('evaluation'):
            if self.together is None or render:
                played = self.play(int(episodes), render, settings)
            else:
                played = self.together(self, int(episodes), settings)
        info = played.result()
        self._report(info, perf_counter() - start, train_iter, envstep)
        self._warn_once(played.warning())
        if render:
            self._show(played.monitor, envstep)
        reached = self.judge(float(np.mean(info['eval_episode_return'])), save_ckpt_fn, train_iter)
        return reached or (self._succeeds(info) and train_iter > 0), info

    def _succeeds(self, info: Mapping[str, Any]) -> bool:
        """Whether enough episodes succeeded to end training."""
        goal = self._cfg.stop_success
        rate = success_rate(info)
        if goal is not None and rate is None:
            raise EnvContractError(
                'the envs do not tell the success of each episode',
                where='env.stop_success',
                got=goal,
                expected='None',
                remedy="Or give info['is_success'] in the last step of every episode.",
            )
        return goal is not None and rate is not None and reaches(rate, goal)

    def _show(self, monitor: VectorEvalMonitor, envstep: int) -> None:
        """Hands the pictures of an evaluation to the writer of metrics, if it takes any."""
        writer: Any = self._tb_logger
        if hasattr(writer, 'add_video'):
            writer.add_video('eval/video', monitor.get_video(), envstep)
        if hasattr(writer, 'add_films'):
            fps = self._env.spec.render_fps or DEFAULT_FPS
            writer.add_films(monitor.clips.films(), envstep, fps)

    def play(self, episodes: int, render: bool, settings: Mapping[str, Any]) -> EvaluatedEpisodes:
        """Plays episodes and returns them; ``render``: whether to film them; ``settings``: further arguments of ``forward``."""
        try:
            return self._play(episodes, render, settings)
        finally:
            self._running = None

    def _play(self, episodes: int, render: bool, settings: Mapping[str, Any]) -> EvaluatedEpisodes:
        # begin
        env = self._env
        env.launch()
        self._begun = np.zeros(env.env_num, np.int64)  # episodes started in each env, [N]
        limit = EpisodeLimit(env.spec, env.env_num, self._cfg.max_episode_len)
        self._running = played = EvaluatedEpisodes(env.env_num, episodes, limit, env.can_begin_anew)
        rollout = Rollout(env, self._policy, self._seeds, limit)
        log = EpisodeLog(env.env_num, None)
        self._begin_all(log, limit)
        abnormal = 0
        while not played.monitor.is_finished():
            if not len(played.counted):
                self._begin_all(log, limit)
                played.begin_anew()
            # act, in envs whose episodes count
            counted = played.counted
            acting = np.intersect1d(env.ready, counted, assume_unique=True) if env.can_hold else None
            if render:
                shown = np.intersect1d(env.ready, counted)  # others still show their last episode
                played.monitor.update_video({int(i): env.render(int(i)) for i in shown})
            self._filming = render
            step = rollout.step(acting if acting is None or len(acting) < env.env_num else None, **settings)
            self._filming = False
            if self.on_step is not None:
                self.on_step()
            # count
            abnormal += len(step.abnormal)
            played.count(log.update(self._judged(step)))
            if abnormal > self._cfg.max_abnormal:
                raise EnvContractError(
                    f'{abnormal} episodes of one evaluation were declared abnormal by their env',
                    where='policy.eval.evaluator.max_abnormal',
                )
        return played

    def _begin_all(self, log: EpisodeLog, limit: EpisodeLimit) -> None:
        """Begins a new episode in every env."""
        every = np.arange(self._env.env_num)
        self._env.reset(seed=self._seeds(every))
        self._policy.reset(None)
        log.forget(every)
        limit.begin()

    def _judged(self, step: Step) -> Step:
        """Returns a step with the rewards that count, and with the results of finished episodes."""
        return step

    def _seeds(self, env_id: IntArray) -> list[int | None]:
        """Returns the seeds of the next episodes of these envs: episode k in all is the k-th of the fixed list."""
        if self._filming and self._running is not None:  # the last pictures, before the envs are reset
            last = np.intersect1d(env_id, self._running.counted)
            self._running.monitor.update_video({int(i): self._env.render(int(i)) for i in last})
        self._begun[env_id] += 1
        number = (self._begun[env_id] - 1) * len(self._begun) + env_id
        return [self.seed_of(int(k)) for k in number]

    def seed_of(self, number: int) -> int:
        """Returns the seed of an episode of the fixed list."""
        return env_seed(self._seed, 0, number, self._purpose)

    def status(self) -> str:
        return f'evaluating: {self._running.progress()}' if self._running is not None else ''

    def _warn_once(self, warning: str) -> None:
        """Logs the first warning about limits; later evaluations only log the number of cut episodes."""
        if warning and not self._warned:
            self._warned = True
            self._logger.warning('%s', warning)

    def _should_render(self, train_iter: int, envstep: int) -> bool:
        freq, mode = self._cfg.render.render_freq, self._cfg.render.mode
        now = train_iter if mode == 'train_iter' else envstep
        if freq < 0 or now - self._last_render < freq:
            return False
        self._last_render = now
        return True

    def _report(self, info: Mapping[str, Any], seconds: float, train_iter: int, envstep: int) -> None:
        measured = evaluation_metrics(info, seconds, self._cfg.metrics, self._cfg.info_metrics)
        values = {**measured, **self._more_metrics(info)}
        rate = success_rate(info)
        success = '' if rate is None else f', success {rate:.2f}'
        cut = sum(info['eval_episode_cut'])
        write_record(self._tb_logger, values, envstep, train_iter=train_iter)
        self._logger.info(
            'evaluation at envstep %d, train_iter %d: return %.2f +- %.2f%s over %d episodes%s (%.1f s)',
            envstep,
            train_iter,
            values['eval/mean_reward'],
            values['eval/std_reward'],
            success,
            len(info['eval_episode_return']),
            f', {cut} of them cut' if cut else '',
            seconds,
        )

    def _more_metrics(self, info: Mapping[str, Any]) -> dict[str, float]:
        """Returns further values of an evaluation for its record."""
        return {}

    def close(self) -> None:
        if self._env is not None:
            self._env.close()
