"""InteractionSerialEvaluator: lets a policy play whole episodes and averages their returns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from rlframe.data.timestep import IntArray
from rlframe.errors import EnvContractError, MissingDependencyError
from rlframe.registry import SERIAL_EVALUATOR_REGISTRY
from rlframe.utils.field import Field
from rlframe.utils.metrics import write_record
from rlframe.utils.seed import env_seed, preserved_rng
from rlframe.worker.collector.base_serial_evaluator import ISerialEvaluator, SaveCheckpoint, VectorEvalMonitor
from rlframe.worker.collector.episode_log import EpisodeLog, too_long
from rlframe.worker.collector.rollout import Rollout, Step


@SERIAL_EVALUATOR_REGISTRY.register('interaction')
class InteractionSerialEvaluator(ISerialEvaluator):
    """Plays ``n_episode`` episodes, an equal share in each env, and averages their returns.

    Episode k of every evaluation begins with the seed f(seed, k), whatever was trained before, so that evaluations are
    comparable, repeat no episode and leave the randomness of training alone.
    """

    config = dict(
        render=dict(
            render_freq=Field(
                -1,
                int,
                '[-1, inf)',
                'in units of mode',
                'between evaluations that are filmed; -1: none',
                may_change=True,
            ),
            mode=Field(
                'train_iter',
                str,
                '',
                '',
                'what render_freq counts',
                choices=('train_iter', 'envstep'),
                may_change=True,
            ),
        ),
        figure_path=Field(
            None, str, '', '', 'folder for a picture of the returns of each evaluation', may_change=True
        ),
        max_episode_len=Field(
            1_000_000, int, '[1, inf)', 'env steps', 'an episode that is longer is an error', may_change=True
        ),
        max_abnormal=Field(
            100,
            int,
            '[0, inf)',
            'episodes',
            "thrown away for info['abnormal'] in one evaluation; more is an error",
            may_change=True,
        ),
    )

    def reset_env(self, _env: Any = None) -> None:
        if _env is not None:
            self._env = _env
        self._last_render = -np.inf

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
            n_episode: Episodes to play; as configured where not given.
            force_render: Whether to film this evaluation even if none is due.
            policy_kwargs: Arguments of the policy's ``forward``.

        Returns:
            Whether the mean reached ``stop_value`` (never before training began), and the values of every episode:
            ``eval_episode_return``, ``eval_episode_len`` and what the envs gave as ``info['episode_info']``.

        Raises:
            ValueError: If the number of episodes is not known.
            EpisodeTooLongError: If an episode does not end.
            EnvContractError: If too many are abnormal.
        """
        episodes = n_episode if n_episode is not None else self._cfg.n_episode
        if self._env is None or self._policy is None or not episodes:
            raise ValueError('eval needs an env, a policy and n_episode')
        render = force_render or self._should_render(train_iter, envstep)
        start = perf_counter()
        with preserved_rng():
            monitor, lengths = self._play(int(episodes), render, dict(policy_kwargs or {}))
        seconds = perf_counter() - start
        returns = monitor.get_episode_return()
        info = {
            'eval_episode_return': returns,
            'eval_episode_len': lengths,
            **(monitor.get_episode_info() or {}),
        }
        self._report(info, seconds, train_iter, envstep)
        if render and self._tb_logger is not None and hasattr(self._tb_logger, 'add_video'):
            self._tb_logger.add_video('eval/video', monitor.get_video(), envstep)
        if self._cfg.figure_path:
            self._draw(returns, envstep)
        self.latest = float(np.mean(returns))
        if self.latest > self.best:
            self.best = self.latest
            if save_ckpt_fn is not None:
                save_ckpt_fn('ckpt_best.pth.tar')
        return self.stop_value is not None and self.latest >= self.stop_value and train_iter > 0, info

    def _play(
        self, episodes: int, render: bool, settings: dict[str, Any]
    ) -> tuple[VectorEvalMonitor, list[int]]:
        env = self._env
        env.launch()
        self._begun = np.zeros(env.env_num, np.int64)  # episodes begun in each env, [N]
        env.reset(seed=self._seeds(np.arange(env.env_num)))
        self._policy.reset(None)
        rollout, log = Rollout(env, self._policy, self._seeds), EpisodeLog(env.env_num)
        monitor, abnormal = VectorEvalMonitor(env.env_num, episodes), 0
        lengths: list[list[int]] = [[] for _ in range(env.env_num)]
        counted = monitor.unfinished()
        while not monitor.is_finished():
            acting = np.intersect1d(env.ready, counted, assume_unique=True) if env.can_hold else None
            if render:
                shown = counted if acting is None else acting
                monitor.update_video({int(i): env.render(int(i)) for i in shown})
            step = rollout.step(acting if acting is None or len(acting) < env.env_num else None, **settings)
            if self.on_step is not None:
                self.on_step()
            abnormal += len(step.abnormal)
            step = self._judged(step)
            finished = log.update(step)
            for env_id, return_, length, info in zip(*finished, strict=True):
                if env_id in counted:
                    monitor.update_reward(int(env_id), return_)
                    monitor.update_info(int(env_id), _told(info))
                    lengths[env_id].append(int(length))
            if len(finished.env_id):
                counted = monitor.unfinished()
            self._check_limits(log, abnormal)
        return monitor, [length for got in lengths for length in got]

    def _judged(self, step: Step) -> Step:
        """Returns a step with the rewards that count, and with what is to be told of episodes that ended."""
        return step

    def _seeds(self, env_id: IntArray) -> list[int | None]:
        """Returns the seeds of the next episodes of these envs: episode k in all is the k-th of the fixed list."""
        self._begun[env_id] += 1
        number = (self._begun[env_id] - 1) * len(self._begun) + env_id
        return [env_seed(self._seed, 0, int(k), self._purpose) for k in number]

    def _check_limits(self, log: EpisodeLog, abnormal: int) -> None:
        if abnormal > self._cfg.max_abnormal:
            raise EnvContractError(
                f'{abnormal} episodes of one evaluation were declared abnormal by their env',
                where='policy.eval.evaluator.max_abnormal',
            )
        if log.lengths.max() > self._cfg.max_episode_len:
            raise too_long(log.lengths, self._cfg.max_episode_len, 'policy.eval.evaluator')

    def _should_render(self, train_iter: int, envstep: int) -> bool:
        freq, mode = self._cfg.render.render_freq, self._cfg.render.mode
        now = train_iter if mode == 'train_iter' else envstep
        if freq < 0 or now - self._last_render < freq:
            return False
        self._last_render = now
        return True

    def _report(self, info: Mapping[str, Any], seconds: float, train_iter: int, envstep: int) -> None:
        returns = np.array(info['eval_episode_return'])
        values = {
            'eval/mean_reward': returns.mean(),
            'eval/std_reward': returns.std(),
            'eval/min_reward': returns.min(),
            'eval/max_reward': returns.max(),
            'eval/mean_ep_length': float(np.mean(info['eval_episode_len'])),
            'eval/episodes': float(len(returns)),
            'time/eval_seconds': seconds,
        }
        if 'is_success_mean' in info:
            values['eval/success_rate'] = info['is_success_mean']
        values |= self._more_metrics(info)
        write_record(self._tb_logger, values, envstep, train_iter=train_iter)
        self._logger.info(
            'evaluation at envstep %d, train_iter %d: return %.2f +- %.2f over %d episodes (%.1f s)',
            envstep,
            train_iter,
            values['eval/mean_reward'],
            values['eval/std_reward'],
            len(returns),
            seconds,
        )

    def _more_metrics(self, info: Mapping[str, Any]) -> dict[str, float]:
        """Returns what else of an evaluation belongs into a record."""
        return {}

    def _draw(self, returns: list[float], envstep: int) -> None:
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise MissingDependencyError(
                'pictures need matplotlib',
                where='policy.eval.evaluator.figure_path',
                remedy='pip install matplotlib',
            ) from error
        figure = Figure(figsize=(6, 3), layout='tight')
        axes = figure.add_subplot(
            xlabel='episode', ylabel='return', title=f'evaluation at env step {envstep}'
        )
        axes.bar(range(len(returns)), returns)
        axes.axhline(
            float(np.mean(returns)), color='black', linestyle='--', label=f'mean {np.mean(returns):.1f}'
        )
        axes.legend()
        folder = Path(self._cfg.figure_path)
        folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(folder / f'eval_{envstep:09d}.png')

    def close(self) -> None:
        if self._env is not None:
            self._env.close()


def _told(info: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what an env says of a whole episode: ``episode_info`` and ``is_success``."""
    told = dict(info.get('episode_info') or {})
    if 'is_success' in info:
        told['is_success'] = float(np.asarray(info['is_success']).item())
    return told
