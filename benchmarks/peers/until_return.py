"""The rule of W8 by which either side has reached a return, and its clocks. Needs gymnasium and numpy only."""

import json
import math
from collections.abc import Callable, Sequence
from time import perf_counter, process_time
from typing import Any

import gymnasium
import numpy as np

FIRST_LOOK, EPISODES = 10, 100
"""Episodes of a first look, and of the evaluation that follows if its mean is at the return."""


def mean_return(envs: Sequence[Any], seeds: Sequence[int], act: Callable[[Any], Any]) -> float:
    """Plays one episode in each env, all at the same time, and returns the mean of their returns.

    Args:
        envs: The envs.
        seeds: The seed of each.
        act: Returns actions for a list of observations.
    """
    obs = [env.reset(seed=seed)[0] for env, seed in zip(envs, seeds, strict=True)]
    running, returns = list(range(len(envs))), np.zeros(len(envs))
    while running:
        actions = act([obs[i] for i in running])
        going = []
        for i, action in zip(running, actions, strict=True):
            obs[i], reward, terminated, truncated, _ = envs[i].step(action)
            returns[i] += reward
            if not (terminated or truncated):
                going.append(i)
        running = going
    return float(returns.mean())


class UntilReturn:
    """Watches a policy in training until the mean return of 100 episodes is the published one.

    Args:
        env_id: Whose episodes are played, in envs apart from those of training.
        goal: Mean return to be reached.
        every: Env steps of training between two looks.
        seed: Of the run; both sides play the same episodes in their k-th look.
        act: The best actions for a list of observations.
        cpu_seconds: CPU seconds, without those of looks, after which training ends.
    """

    def __init__(
        self,
        env_id: str,
        goal: float,
        every: int,
        seed: int,
        act: Callable[[Any], Any],
        cpu_seconds: float = math.inf,
    ) -> None:
        self._envs = [gymnasium.make(env_id) for _ in range(EPISODES)]
        self._goal, self._every, self._act = goal, every, act
        self._cpu_seconds = cpu_seconds
        self._seeds = np.random.default_rng([8, seed])
        self._next = every
        self._evaluating = np.zeros(2)  # seconds and CPU seconds
        self._start = self._now()
        self.reached: float | None = None
        """The mean of the 100 episodes that reached the goal."""
        self.curve: list[tuple[float, int, float]] = []
        """CPU seconds, env steps and mean return of each first look."""

    def _now(self) -> Any:
        return np.array([perf_counter(), process_time()])

    def is_over(self, env_steps: int) -> bool:
        """Looks at the policy if it is time to, and says whether the return is reached or the time is spent."""
        if env_steps < self._next:
            return False
        self._next = env_steps - env_steps % self._every + self._every
        before = self._now()
        trained = float((before - self._start - self._evaluating)[1])
        first = self._mean_return(FIRST_LOOK)
        self.curve.append((round(trained, 2), env_steps, round(first, 2)))
        if first >= self._goal:
            mean = self._mean_return(EPISODES)
            self.reached = mean if mean >= self._goal else None
        self._evaluating += self._now() - before
        return self.reached is not None or trained >= self._cpu_seconds

    def _mean_return(self, episodes: int) -> float:
        seeds = self._seeds.integers(2**31, size=episodes).tolist()
        return mean_return(self._envs[:episodes], seeds, self._act)

    def print_result(self, peer: str, env_steps: int) -> None:
        """Prints what was measured as one JSON line; the time of looks is counted apart."""
        total, looks = self._now() - self._start, self._evaluating
        names = ('seconds', 'cpu_seconds', 'look_seconds', 'look_cpu_seconds')
        measured = dict(zip(names, (float(round(x, 2)) for x in (*(total - looks), *looks)), strict=True))
        print(
            json.dumps(
                {
                    'peer': peer,
                    **measured,
                    'env_steps': env_steps,
                    'reached': self.reached,
                    'curve': self.curve,
                }
            ),
            flush=True,
        )
