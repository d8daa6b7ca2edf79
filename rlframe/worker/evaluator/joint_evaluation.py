"""JointEvaluation: evaluations of several seeds in one rollout."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlframe.data.timestep import Array, Batch, IntArray
from rlframe.worker.evaluator.serial_evaluator import EvaluatedEpisodes, InteractionSerialEvaluator


class Request(NamedTuple):
    """An evaluation that a seed wants."""

    evaluator: InteractionSerialEvaluator
    episodes: int
    settings: Mapping[str, Any]
    """Further arguments of the policy's ``forward``."""

    def alone(self) -> EvaluatedEpisodes | Exception:
        """Plays the episodes of this seed alone; returns them, or its error."""
        try:
            return self.evaluator.play(self.episodes, False, self.settings)
        except Exception as error:
            return error


class JointEvaluation:
    """Plays the evaluations that several seeds want at the same time, in one rollout over the envs of all.

    Each seed has its own part of the envs, N, in which the episodes have its seeds and its policy acts: what it gets is what it
    gets alone. Evaluations are played alone if they differ in their options, are filmed, do not share their episodes evenly
    over the envs, or have a vector env, whose envs cannot wait for each other, and if the rollout of all fails.

    ``make_env`` creates a number of envs for evaluation.
    """

    def __init__(self, make_env: Callable[[int], Any]) -> None:
        self._make_env = make_env
        self._env: Any = None

    def answer(self, requests: Mapping[int, Request], everyone: Sequence[int]) -> dict[int, Any]:
        """Returns the ``EvaluatedEpisodes`` of each request, or why they could not be played."""
        given = list(requests.values())
        first = given[0]
        env_num = first.evaluator._env.env_num
        is_alike = all((one.episodes, one.settings) == (first.episodes, first.settings) for one in given)
        if len(given) == 1 or not is_alike or first.episodes % env_num or not first.evaluator._env.can_hold:
            return {i: one.alone() for i, one in requests.items()}
        # as many envs as there are seeds now
        if self._env is None or self._env.env_num != env_num * len(given):
            self.close()
            self._env = self._make_env(env_num * len(given))
        joint = _JointEvaluator([one.evaluator for one in given], self._env)
        try:
            whole = joint.play(first.episodes * len(given), False, first.settings)
        except Exception:  # perhaps of one seed
            self.close()
            return {i: one.alone() for i, one in requests.items()}
        return {i: whole.of_envs(slice(k * env_num, (k + 1) * env_num)) for k, i in enumerate(requests)}

    def close(self) -> None:
        """Closes the envs."""
        if self._env is not None:
            self._env.close()
        self._env = None


class _JointEvaluator(InteractionSerialEvaluator):
    """Plays the episodes of several evaluators, whose envs stand one behind the other."""

    def __init__(self, own: Sequence[InteractionSerialEvaluator], env: Any) -> None:
        self._own = own
        self._own_num = env.env_num // len(own)
        super().__init__(own[0]._cfg, env, _JointFace([one._policy for one in own], self._own_num))
        self.on_step = self._tell

    def _tell(self) -> None:
        """Tells all runs that there is progress."""
        for evaluator in self._own:
            if evaluator.on_step is not None:
                evaluator.on_step()

    def _seeds(self, env_id: IntArray) -> list[int | None]:
        self._begun[env_id] += 1
        owner, own_id = np.divmod(env_id, self._own_num)
        number = (self._begun[env_id] - 1) * self._own_num + own_id
        return [self._own[i].seed_of(int(k)) for i, k in zip(owner, number, strict=True)]


class _JointFace:
    """The eval faces of several policies, each of which acts in its own part of the envs, ``env_num`` of them."""

    def __init__(self, faces: Sequence[Any], env_num: int) -> None:
        self._faces, self._env_num = faces, env_num
        self._acting = [getattr(face.forward, 'on_rows', None) or face.forward for face in faces]

    def forward(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        """Returns the actions of n envs, [n, ...], in rising order."""
        ends = np.searchsorted(env_id, np.arange(len(self._faces) + 1) * self._env_num)
        actions = []
        for i, act in enumerate(self._acting):
            own = slice(ends[i], ends[i + 1])
            if own.start < own.stop:
                actions.append(act(obs[own], env_id[own] - i * self._env_num, **settings)['action'])
        return Batch.unchecked({'action': np.concatenate(actions)}, len(env_id))

    def reset(self, env_id: IntArray | None) -> None:
        """Resets what policies keep of episodes in some envs, or in all."""
        for i, face in enumerate(self._faces):
            own = None if env_id is None else env_id[env_id // self._env_num == i] - i * self._env_num
            if own is None or len(own):
                face.reset(own)
