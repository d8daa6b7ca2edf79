"""BattleInteractionSerialEvaluator: measures a policy against opponents, from every seat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from rlframe.data.players import outcome
from rlframe.data.timestep import IntArray
from rlframe.registry import SERIAL_EVALUATOR_REGISTRY
from rlframe.utils.field import option
from rlframe.worker.collector.joint_policy import JointPolicy
from rlframe.worker.collector.rollout import Step
from rlframe.worker.evaluator.serial_evaluator import (
    EvaluatedEpisodes,
    InteractionConfig,
    InteractionSerialEvaluator,
)


class BattleInteractionConfig(InteractionConfig):
    """Options of ``BattleInteractionSerialEvaluator``."""

    opponent: Literal['random', 'self'] = option(
        'random',
        doc="opponent of the policy in a training run: 'random' (legal actions), or 'self'",
        may_change=True,
    )


@SERIAL_EVALUATOR_REGISTRY.register('battle_interaction')
class BattleInteractionSerialEvaluator(InteractionSerialEvaluator):
    """Lets the first of several policies play whole episodes against the others, and averages its returns.

    ``policy`` is a list with one eval face for each player, of which the first is evaluated, or a single one for
    self-play. Seats are shared equally: the policies move by one seat from episode to episode, so in a game of two each
    plays first in every second episode. The mean, the best score and the stop value refer to the first policy.

    For each episode, ``eval`` also returns ``return_j``, the return of policy j, ``seat``, the player of the first
    policy, and ``win``, ``draw`` and ``loss``, of which one is 1; and the mean of each.
    """

    _cfg: BattleInteractionConfig

    def reset_policy(self, _policy: Any = None) -> None:
        """Takes over other policies, and measures the first; or resets the present ones."""
        super().reset_policy(None if _policy is None else JointPolicy(_policy))

    def _play(self, episodes: int, render: bool, settings: Mapping[str, Any]) -> EvaluatedEpisodes:
        self._env.launch()
        env_num = self._env.env_num
        self._policy.assign_players(self._env.spec, env_num)
        self._return = np.zeros((env_num, self._policy.player_num))  # of each player
        self._ended = np.zeros(env_num, np.int64)  # episodes of each env
        self._change_seats(np.arange(env_num))
        return super()._play(episodes, render, settings)

    def _change_seats(self, env_id: IntArray) -> None:
        """Seats the policies for the next episode of these envs: in episode k, policy j acts for player j + k."""
        episode = self._ended[env_id] * self._env.env_num + env_id
        player = np.arange(self._policy.player_num)
        self._policy.seating[env_id] = (player - episode[:, None]) % self._policy.player_num

    def _judged(self, step: Step) -> Step:
        """Returns a step with the rewards of the first policy, and with the results of finished episodes."""
        env_id, timestep = step.timestep.env_id, step.timestep
        rewards = self._policy.view(timestep.obs).reward
        self._return[env_id] += rewards
        seat = self._policy.seating[env_id].argmin(1)  # of policy 0
        reward = rewards[np.arange(len(env_id)), seat]
        step = step._replace(timestep=timestep._replace(reward=reward))
        if len(step.finished):
            infos: list[Mapping[str, Any]] = [dict(info) for info in timestep.info]
            for row in np.flatnonzero(step.done).tolist():
                infos[row] = {'episode_info': self._facts(int(env_id[row]), int(seat[row]))}
            step = step._replace(timestep=step.timestep._replace(info=infos))
            self._ended[step.finished] += 1
            self._change_seats(step.finished)
        self._return[step.finished] = self._return[step.abnormal] = 0.0
        return step

    def _facts(self, env: int, seat: int) -> dict[str, Any]:
        """Returns the results of the episode that an env has just finished."""
        wins, draws = outcome(self._return[env])
        won, drawn = bool(wins[seat]), bool(draws[seat])
        of_policies = self._return[env][np.argsort(self._policy.seating[env])]
        return {
            'seat': seat,
            'win': float(won),
            'draw': float(drawn),
            'loss': float(not won and not drawn),
            **{f'return_{j}': float(value) for j, value in enumerate(of_policies)},
        }

    def _more_metrics(self, info: Mapping[str, Any]) -> dict[str, float]:
        values = {f'eval/{name}_rate': info[f'{name}_mean'] for name in ('win', 'draw', 'loss')}
        seats, wins = np.array(info['seat']), np.array(info['win'])
        for seat in np.unique(seats).tolist():
            values[f'eval/win_rate_seat_{seat}'] = float(wins[seats == seat].mean())
        return values
