"""Games in PettingZoo's parallel interface whose agents act at once."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
from zoo import Toy


class Meeting:
    """Three agents see the same place of four, and earn 1 each for naming it; an episode has ``length`` steps.

    Args:
        length: Steps of an episode.
    """

    metadata: dict[str, Any] = {'name': 'meeting'}
    render_mode = None
    possible_agents = ['a', 'b', 'c']

    def __init__(self, length: int = 6) -> None:
        self._length = length

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        return gymnasium.spaces.Box(0, 9, (5,), np.float32)

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        return gymnasium.spaces.Discrete(4)

    def _obs(self) -> dict[str, Any]:
        self._place = int(self._rng.integers(4))
        return {
            agent: np.float32([*np.eye(4)[self._place], i]) for i, agent in enumerate(self.possible_agents)
        }

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self._rng, self._left = np.random.default_rng(seed), self._length
        return self._obs(), {agent: {} for agent in self.possible_agents}

    def step(self, actions: dict[str, int]) -> Any:
        assert list(actions) == self.possible_agents and all(
            type(action) is int for action in actions.values()
        )
        reward = {agent: float(action == self._place) for agent, action in actions.items()}
        self._left -= 1
        over = dict.fromkeys(actions, self._left == 0)
        return self._obs(), reward, over, dict.fromkeys(actions, False), {agent: {} for agent in actions}

    def close(self) -> None: ...


class Different(Meeting):
    """The second agent sees less and can do more than the others."""

    def observation_space(self, agent: str) -> Any:
        return gymnasium.spaces.Box(0, 9, (3 if agent == 'b' else 5,), np.float32)

    def action_space(self, agent: str) -> Any:
        return gymnasium.spaces.Discrete(6 if agent == 'b' else 4)

    def _obs(self) -> Any:
        obs = super()._obs()
        return obs | {'b': obs['b'][:3]}


class Echo:
    """Two agents act in turn (PettingZoo's AEC interface); both earn 1 if the second repeats what the first chose.

    Args:
        rounds: Turns of each agent.
        sign: What the first agent earns for each 1 of the second.
        is_cut_off: Whether the game ends at a time limit.
    """

    metadata: dict[str, Any] = {'name': 'echo'}
    render_mode = None
    possible_agents = ['caller', 'echo']

    def __init__(self, rounds: int = 3, sign: int = 1, is_cut_off: bool = False) -> None:
        self._rounds, self._sign, self._is_cut_off = rounds, sign, is_cut_off

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        return gymnasium.spaces.Box(-1, 9, (2,), np.float32)

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        return gymnasium.spaces.Discrete(3)

    def observe(self, agent: str) -> Any:
        return np.float32([self._called if agent == 'echo' else -1, self._left])

    def last(self) -> None: ...

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents, self.agent_selection = list(self.possible_agents), 'caller'
        self._called, self._left = -1, self._rounds
        self._tell(0.0, False)

    def _tell(self, earned: float, is_over: bool) -> None:
        self.rewards = {'caller': self._sign * earned, 'echo': earned}
        ends = dict.fromkeys(self.possible_agents, is_over), dict.fromkeys(self.possible_agents, False)
        self.terminations, self.truncations = reversed(ends) if self._is_cut_off else ends

    def step(self, action: int | None) -> None:
        agent = self.agent_selection
        self.agent_selection = 'echo' if agent == 'caller' else 'caller'
        if action is None:
            assert self.terminations[agent] or self.truncations[agent]
            self.agents.remove(agent)
            return
        if agent == 'caller':
            self._called = action
            return self._tell(0.0, False)
        self._left -= 1
        self._tell(float(action == self._called), self._left == 0)

    def close(self) -> None: ...


def echo(**kwargs: Any) -> Echo:
    return Echo(**kwargs)


BOX = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
CHOICE = gymnasium.spaces.Discrete(4, start=-1)
OBS: dict[str, Any] = {
    'box': BOX,
    'dict': gymnasium.spaces.Dict(
        x=gymnasium.spaces.Dict(y=BOX, z=CHOICE), w=gymnasium.spaces.Box(0, 255, (4, 4, 1), np.uint8)
    ),
    'tuple': gymnasium.spaces.Tuple((BOX, gymnasium.spaces.MultiBinary(2))),
}
ACTIONS: dict[str, Any] = {
    'discrete': CHOICE,
    'multi': gymnasium.spaces.MultiDiscrete([2, 3], start=[1, -1]),
    'box': gymnasium.spaces.Box(np.float32([-1, 0]), np.float32([1, 5])),
    'dict': gymnasium.spaces.Dict(a=CHOICE, b=gymnasium.spaces.MultiBinary(2)),
    'hybrid': gymnasium.spaces.Tuple((gymnasium.spaces.Discrete(2), gymnasium.spaces.Tuple((BOX, BOX)))),
}
MASKED = {'discrete': (4, 0), 'multi': (5, 2), 'dict': (4, 0), 'hybrid': (2, 1)}
"""Entries of a mask, and the lowest choice if the first is forbidden, for those of ``ACTIONS`` that have masks."""


class Crowd:
    """Agents that come and go, each step of which says whose it is; refuses actions that are none, or of absent agents.

    Args:
        obs: One of ``OBS``; its first number becomes the number of the agent, divided by 10.
        act: One of ``ACTIONS``.
        mask: ``'obs'`` or ``'info'``, where a mask is; its first entry forbids the lowest choice.
        lives: First and last step of each agent; the first one is 0 if it is there at the beginning.
        comes_back: Whether the last agent comes once more when it has gone.
        fault: What the game does wrong in its second step.
    """

    metadata: dict[str, Any] = {'name': 'crowd'}
    render_mode = None

    def __init__(
        self,
        obs: str = 'box',
        act: str = 'discrete',
        mask: str = '',
        lives: Any = ((0, 6), (0, 6), (0, 6)),
        comes_back: bool = False,
        fault: str = '',
    ) -> None:
        self.possible_agents = [f'agent {i}' for i in range(len(lives))]
        self._obs, self._act = copy.deepcopy(OBS[obs]), ACTIONS[act]
        self._size, self._lowest = MASKED.get(act, (1, -np.inf))
        self._mask, self._lives, self._fault = mask, lives, fault
        self._comes_back = comes_back

    def observation_space(self, agent: str) -> Any:
        mask = gymnasium.spaces.MultiBinary(self._size)
        return (
            gymnasium.spaces.Dict(observation=self._obs, action_mask=mask)
            if self._mask == 'obs'
            else self._obs
        )

    def action_space(self, agent: str) -> Any:
        return self._act

    def _seen(self, agents: list[str]) -> Any:
        obs, infos = {}, {}
        mask = np.int8([0] + [1] * (self._size - 1))
        for agent in agents:
            seen = self._obs.sample()
            first = seen['x']['y'] if isinstance(seen, dict) else seen[0] if isinstance(seen, tuple) else seen
            first[0] = self.possible_agents.index(agent) / 10
            obs[agent] = {'observation': seen, 'action_mask': mask} if self._mask == 'obs' else seen
            infos[agent] = {'action_mask': mask} if self._mask == 'info' else {}
        return obs, infos

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self._obs.seed(seed)
        self._step, self._returned = 0, False
        listed = zip(self.possible_agents, self._lives, strict=True)
        self.agents = [agent for agent, (first, _) in listed if first == 0]
        return self._seen(self.agents)

    def _check(self, action: Any) -> None:
        is_array = not isinstance(action, int | tuple | dict)
        assert self._act.contains(np.asarray(action, self._act.dtype) if is_array else action), action
        choice = (
            action['a'] if isinstance(action, dict) else action[0] if isinstance(action, tuple) else action
        )
        assert not self._mask or np.ravel(choice)[0] >= self._lowest

    def step(self, actions: dict[str, Any]) -> Any:
        assert list(actions) == self.agents, f'{list(actions)} acted, and {self.agents} are there'
        for action in actions.values():
            self._check(action)
        self._step += 1
        acted, last = list(self.agents), self.possible_agents[-1]
        lives = dict(zip(self.possible_agents, self._lives, strict=True))
        terminated = {agent: lives[agent][1] <= self._step for agent in acted}
        if self._returned and last in terminated:
            terminated[last] = True
        come = [agent for agent, (first, _) in lives.items() if first == self._step]
        if self._comes_back and self._step == lives[last][1] + 2:
            self._returned, come = True, [*come, last]
        self.agents = [a for a in self.possible_agents if a in come or (a in acted and not terminated[a])]
        columns = [dict.fromkeys(acted, float(self._step)), terminated, dict.fromkeys(acted, False)]
        if self._fault and self._step == 2:
            self._break(columns)
        obs, infos = self._seen([*acted, *come])
        return obs, *columns, infos

    def _break(self, columns: Any) -> None:
        if self._fault == 'no reward':
            del columns[0]['agent 1']
        elif self._fault == 'unknown':
            self.agents = [*self.agents, 'somebody']
        else:
            self.agents.remove('agent 1')

    def close(self) -> None: ...


def crowd(**kwargs: Any) -> Crowd:
    return Crowd(**kwargs)


class Pair(Toy):
    """Two agents see whether they chose the same in the step before, and each earns 1 more for it; the first begins with
    what the last episode of this env ended with."""

    observation_space = gymnasium.spaces.Tuple([gymnasium.spaces.Box(0, 9, (2,), np.float32)] * 2)
    action_space = gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(2)] * 2)

    def __init__(self, length: int = 5, masked: bool = False) -> None:
        self.length, self._same, self._masked = length, False, masked

    def obs(self) -> Any:
        return tuple(np.float32([self._same, i]) for i in range(2))

    def info(self) -> dict[str, Any]:
        return {'action_mask': [np.int8([1, 1]), np.int8([0, 1])]} if self._masked else {}

    def act(self, action: Any) -> Any:
        assert not self._masked or action[1] == 1
        self._same = action[0] == action[1]
        return [int(self._same), 0.5]


gymnasium.register('Pair-v0', 'agent_games:Pair')


MATRIX = np.array([[8.0, -12.0, -12.0], [-12.0, 0.0, 0.0], [-12.0, 0.0, 0.0]])
"""Payoffs whose best joint choice is beside the worst ones (Son et al., QTRAN (2019), table 1)."""


DILEMMA = np.array([[[3.0, 3.0], [0.0, 5.0]], [[5.0, 0.0], [1.0, 1.0]]])
"""Rewards of both agents: together they earn most by choosing 0, and each alone by choosing 1, whatever the other does."""


class Matrix:
    """Two agents choose once, and earn what a matrix [N, N, 2] says of both choices."""

    metadata: dict[str, Any] = {'name': 'matrix'}
    render_mode = None
    possible_agents = ['row', 'column']

    def __init__(self, payoff: Any) -> None:
        self._payoff = payoff

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        return gymnasium.spaces.Box(0, 1, (1,), np.float32)

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        return gymnasium.spaces.Discrete(len(self._payoff))

    def _told(self, what: Any) -> dict[str, Any]:
        return dict.fromkeys(self.possible_agents, what)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        return self._told(np.ones(1, np.float32)), self._told({})

    def step(self, actions: dict[str, int]) -> Any:
        earned = self._payoff[actions['row'], actions['column']].tolist()
        self.agents = []
        obs, *ends = (self._told(what) for what in (np.ones(1, np.float32), True, False, {}))
        return obs, dict(zip(self.possible_agents, earned, strict=True)), *ends

    def close(self) -> None: ...


def matrix() -> Matrix:
    return Matrix(np.stack([MATRIX / 2, MATRIX / 2], 2))


def dilemma() -> Matrix:
    return Matrix(DILEMMA)


def parallel_env(**kwargs: Any) -> Meeting:
    return Meeting(**kwargs)
