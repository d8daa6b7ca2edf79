"""Games in which all agents act at once, as a vector env with a row for each agent: one policy acts for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space

from rlframe.data.composite import Composite, by_rows
from rlframe.data.observation import ACTION_MASK, has_mask, mask_parts
from rlframe.data.timestep import Array, BoolArray, EnvSpec, FloatArray
from rlframe.envs.action_mask import masked_space, with_mask
from rlframe.envs.contract import Remarks, remark_mask
from rlframe.envs.gym_env import import_needed, make_by_id
from rlframe.envs.padded_game import PaddedGame
from rlframe.envs.player_env import shared_spaces
from rlframe.errors import ConfigError, EnvContractError, EnvError
from rlframe.registry import nearest
from rlframe.utils.seed import generator_of

if TYPE_CHECKING:
    VectorEnv = gymnasium.vector.VectorEnv[Any, Any, Any]
else:
    VectorEnv = gymnasium.vector.VectorEnv


MOST_GAMES = 100
"""Games after which each agent must have acted once."""


class Running:
    """A game whose agents may come and go, each known by its number among ``possible_agents``; see ``Agents``."""

    def __init__(self, game: Any, name: str, action_space: Any, has_mask: bool) -> None:
        self.game, self._name = game, name
        self._agents = list(game.possible_agents)
        self.count = len(self._agents)
        """Agents, P."""
        self._action_space, self._has_mask = action_space, has_mask
        self._games = 0
        self._waiting = set(range(len(self._agents)))  # agents that have never acted
        self.present: list[int] = []
        """The agents that act next."""
        self.cut_off: list[int] = []
        """Behind a time limit, those that would have acted on."""
        self.seed = 0
        self.moves: list[Array] = []
        """The seed of the game and the actions of all agents so far, which are its state for checkpoints."""

    def begin(self, seed: int) -> dict[int, Any]:
        """Begins a game, and returns the observation of each agent that is present."""
        self.seed = seed
        self.moves = []
        answer = self.game.reset(seed=seed)
        obs, infos = answer if isinstance(answer, tuple) else (answer, {})
        self._listed = self._now_listed()
        self.present = [i for i in self._listed if self._agents[i] in obs]
        self._waiting.difference_update(self.present)
        self._games += 1
        if not self.present or (self._waiting and self._games > MOST_GAMES):
            never = [self._agents[i] for i in sorted(self._waiting)] or self._agents
            raise self._broken(f'{never} did not act in {self._games} games')
        return {i: self._seen(i, obs, infos, 'reset()', False) for i in self.present}

    def move(self, actions: Array) -> tuple[dict[int, Any], dict[int, tuple[float, bool, bool]]]:
        """Makes the moves of the present agents; ``actions`` has a row for every agent, [P, ...].

        Returns:
            The observation of each agent that acted or came; reward, ``terminated`` and ``truncated`` of each that acted.
        """
        self.moves.append(np.array(actions))
        acting = self.present
        obs, *columns, infos = self.game.step({self._agents[i]: self._own(actions[i]) for i in acting})
        answers: dict[int, Any] = {}
        for i in acting:
            agent = self._agents[i]
            if any(agent not in column for column in (obs, *columns)):
                raise self._broken(f'step() told nothing of {agent!r}, which acted')
            answers[i] = tuple(column[agent] for column in columns)
        over = [i for i in acting if any(answers[i][1:])]

        # who comes and who stays
        before = self._listed
        self._listed = self._now_listed()
        come = [i for i in self._listed if i not in before and i not in acting and self._agents[i] in obs]
        staying = [i for i in acting if i not in over]
        lost = [self._agents[i] for i in staying if i not in self._listed]
        if lost:
            raise self._broken(f'{lost} left, and neither terminated nor truncated is True')
        self.present = sorted(staying + come)
        self.cut_off = [i for i, answer in answers.items() if answer[2] and not answer[1]]
        self._waiting.difference_update(come)
        return {i: self._seen(i, obs, infos, 'step()', i in over) for i in acting + come}, answers

    @property
    def alive(self) -> list[int]:
        """The agents whose game goes on."""
        return self.present

    def _now_listed(self) -> list[int]:
        """Returns the agents that the game lists; all, if it has no list."""
        listed = list(getattr(self.game, 'agents', self._agents))
        unknown = [agent for agent in listed if agent not in self._agents]
        if unknown:
            raise self._broken(f'{unknown} are none of the possible_agents {self._agents}')
        return [i for i, agent in enumerate(self._agents) if agent in listed]

    def _own(self, action: Any) -> Any:
        if isinstance(self._action_space, Composite):
            return self._action_space.of_rows(action)
        return int(action) if isinstance(self._action_space, gymnasium.spaces.Discrete) else action

    def _seen(self, i: int, obs: Any, infos: Any, what: str, is_over: bool) -> Any:
        """Returns the observation of an agent, with its action mask."""
        agent = self._agents[i]
        if not self._has_mask:
            return obs[agent]
        name = f'{agent} of {self._name}'
        return with_mask(obs[agent], infos.get(agent, {}), self._action_space, name, what, is_over)[0]

    def _broken(self, what: str) -> EnvContractError:
        return EnvContractError(
            f'{self._name}: {what}',
            remedy="Each agent of PettingZoo's parallel games is one of possible_agents, and is told of the result of its every"
            ' action; with supersuit.black_death_v3, all play to the end.',
        )


class Turns(Running):
    """A game whose agents act one after the other (PettingZoo's AEC interface): only the next one is present."""

    def begin(self, seed: int) -> dict[int, Any]:
        self.seed = seed
        self.moves = []
        self.game.reset(seed=seed)
        self._select()
        return self._observed()

    def move(self, actions: Array) -> tuple[dict[int, Any], dict[int, tuple[float, bool, bool]]]:
        self.moves.append(np.array(actions))
        game = self.game
        paid = self.alive
        self.game.step(self._own(actions[self.present[0]]))
        columns = game.rewards, game.terminations, game.truncations
        answers: dict[int, Any] = {
            i: tuple(column.get(self._agents[i], 0) for column in columns) for i in paid
        }
        found = self._observed()
        after = self._agents.index(game.agent_selection)
        self.cut_off = [after] if after in answers and answers[after][2] and not answers[after][1] else []
        self._select()
        return found, answers

    @property
    def alive(self) -> list[int]:
        return self._now_listed()

    def _select(self) -> None:
        """Lets agents leave whose game is over, and notes the next one."""
        game = self.game
        while game.agents and (
            game.terminations[game.agent_selection] or game.truncations[game.agent_selection]
        ):
            game.step(None)
        self.present = [self._agents.index(game.agent_selection)] if game.agents else []

    def _observed(self) -> dict[int, Any]:
        """Returns what each agent sees whose game goes on, or has just ended."""
        return {i: self.game.observe(self._agents[i]) for i in self._now_listed()}


class Agents(VectorEnv):
    """The agents of N / P games of P agents: row k P + i is agent i of game k.

    An episode of a row begins when its agent comes, and ends when it leaves; a new game begins when all have left.

    Args:
        num_envs: Number of rows N, a multiple of P. 1 is allowed for reading the spaces; ``reset`` then raises.
        game: A module with PettingZoo's ``parallel_env``, such as ``'mpe2.simple_spread_v3'``; ``'module:name'`` of what
            makes such a game; or ``'module:ID'`` of an env in Gymnasium that has a ``Tuple`` of spaces, such as
            ``'lbforaging:Foraging-8x8-2p-1f-v3'``.
        pad: Whether smaller spaces of agents are padded to the largest; see ``PaddedGame``.
        kwargs: Passed on to the game.

    Raises:
        ConfigError: If N is no multiple of P.
        EnvError: If the game cannot be made.
        IncompatibleError: If the agents have different spaces.
    """

    metadata = {'autoreset_mode': gymnasium.vector.AutoresetMode.SAME_STEP}

    def __init__(self, num_envs: int, game: str, pad: bool = False, **kwargs: Any) -> None:
        first = make_game(game, kwargs, pad)
        agents = list(first.possible_agents)
        self._count = len(agents)
        if num_envs != 1:
            self._check_rows(num_envs)
        self.num_envs, self.game_name = num_envs, game
        space, action_space = shared_spaces(first, agents, game)
        rows = by_rows(action_space)

        # find out where masks are
        masked = not has_mask(space) and has_mask_in_info(first)
        first.close()
        first = make_game(game, kwargs, pad)
        if masked and not mask_parts(rows):
            masked = False
            remark_mask({ACTION_MASK: None}, EnvSpec(space, rows, name=game), Remarks())

        self.single_observation_space = masked_space(space, rows, game) if masked else space
        self.single_action_space = rows
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(rows, num_envs)
        more = max(num_envs // self._count, 1) - 1
        self.live_games = [first, *(make_game(game, kwargs, pad) for _ in range(more))]
        """The games."""
        self._running = [Running(each, game, rows, masked) for each in self.live_games]
        self.present_agents = np.zeros(num_envs, np.bool_)
        """True for rows whose agent acts next, [N]; other rows have the observation of a row that acts."""

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._check_rows(self.num_envs)
        super().reset(seed=seed)
        return self._rows([self._begun(running) for running in self._running]), {}

    def _check_rows(self, rows: int) -> None:
        count = self._count
        if rows % count:
            near = [max(rows // count, 1) * count, (rows // count + 1) * count]
            raise ConfigError(
                f'each of the {count} agents of a game is a row',
                where='env',
                got=f'{rows} rows',
                expected=f'a multiple of {count}, such as {" or ".join(map(str, dict.fromkeys(near)))}',
                remedy='Set env.collector_env_num, evaluator_env_num and n_evaluator_episode.',
            )

    def step(self, actions: Any) -> tuple[Any, FloatArray, BoolArray, BoolArray, dict[str, Any]]:
        reward = np.zeros(self.num_envs)
        terminated, truncated = np.zeros((2, self.num_envs), np.bool_)
        final = np.full(self.num_envs, None, object)
        found = []
        for k, running in enumerate(self._running):
            start = k * self._count
            seen, answers = running.move(actions[start : start + self._count])
            for i, answer in answers.items():
                reward[start + i], terminated[start + i], truncated[start + i] = answer
                if any(answer[1:]):
                    final[start + i] = seen[i]
            found.append(seen if running.present else self._begun(running))
        is_over = terminated | truncated
        info = {'final_obs': final, '_final_obs': is_over} if is_over.any() else {}
        return self._rows(found), reward, terminated, truncated, info

    def _begun(self, running: Running) -> dict[int, Any]:
        """Begins a game with the next seed, and returns the observations of its agents."""
        return running.begin(int(self.np_random.integers(2**31)))

    def _rows(self, seen: list[dict[int, Any]]) -> Any:
        """Returns the observations of all rows as columns, and notes which of them are present."""
        rows: list[Any] = []
        for k, (running, obs) in enumerate(zip(self._running, seen, strict=True)):
            own = self.present_agents[k * self._count : (k + 1) * self._count]
            own[:] = False
            own[running.present] = True
            rows += [obs[i if is_present else running.present[0]] for i, is_present in enumerate(own)]
        return columns_of(self.single_observation_space, rows)

    def get_state(self) -> dict[str, Any]:
        """Returns the seeds and moves of the running games, and the state of the generator of seeds."""
        return {
            'rng': self.np_random.bit_generator.state,
            'seeds': [running.seed for running in self._running],
            'moves': [np.array(running.moves) for running in self._running],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Replays the moves of the games: exact only if the seed given to ``reset`` determines all randomness."""
        seen = []
        for running, seed, moves in zip(self._running, state['seeds'], state['moves'], strict=True):
            last = running.begin(seed)
            for actions in moves:
                last, _ = running.move(actions)
            seen.append(last)
        self._rows(seen)
        self.np_random = generator_of(state['rng'])

    def close_extras(self, **kwargs: Any) -> None:
        for game in self.live_games:
            game.close()


def has_mask_in_info(game: Any) -> bool:
    """Resets a game, and returns whether the infos of its agents contain action masks."""
    answer = game.reset(seed=0)
    return isinstance(answer, tuple) and any(ACTION_MASK in info for info in answer[1].values())


def columns_of(space: Any, rows: list[Any]) -> Any:
    """Returns observations of a space as columns, with a leading axis in each of its parts."""
    if isinstance(space, gymnasium.spaces.Dict):
        return {name: columns_of(part, [row[name] for row in rows]) for name, part in space.items()}
    if isinstance(space, gymnasium.spaces.Tuple):
        return tuple(columns_of(part, [row[i] for row in rows]) for i, part in enumerate(space))
    return np.stack(rows)


class TupleGame:
    """Gives PettingZoo's parallel interface to a Gymnasium env for P agents, with tuples as spaces and a list as reward.

    Each episode has a new env, so that its seed alone determines it; envs may keep something of the last episode.

    Args:
        env_id: The id of the env.
        kwargs: Passed on to it.

    Raises:
        EnvError: If an observation or an action is no tuple of P parts.
    """

    def __init__(self, env_id: str, kwargs: dict[str, Any]) -> None:
        self.env_id, self.kwargs = env_id, kwargs
        self.env = self._made()
        spaces = self.env.observation_space, self.env.action_space
        if not all(isinstance(space, gymnasium.spaces.Tuple) for space in spaces):
            raise EnvError(
                f'{env_id} is no env for several agents',
                where='env.kwargs',
                got=spaces[1],
                expected='observations and actions that are tuples',
                remedy='Take the id without agents: in front.',
            )
        self.obs_spaces, self.action_spaces = spaces
        self.possible_agents = list(range(len(self.action_spaces)))

    def _made(self) -> Any:
        return make_by_id(self.env_id, self.kwargs)

    def observation_space(self, agent: int) -> Any:
        return self.obs_spaces[agent]

    def action_space(self, agent: int) -> Any:
        return self.action_spaces[agent]

    def reset(self, seed: int) -> tuple[dict[int, Any], dict[int, Any]]:
        self.env.close()
        self.env = self._made()
        obs, info = self.env.reset(seed=seed)
        return dict(enumerate(obs)), self._infos(info)

    def step(self, actions: dict[int, Any]) -> tuple[dict[int, Any], ...]:
        obs, reward, *over, info = self.env.step(tuple(actions.values()))
        columns = [dict.fromkeys(self.possible_agents, flag) for flag in over]
        return dict(enumerate(obs)), dict(enumerate(reward)), *columns, self._infos(info)

    def _infos(self, info: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
        """Returns the action mask of each agent, if there are masks."""
        return {i: {ACTION_MASK: mask} for i, mask in enumerate(info.get(ACTION_MASK, ()))}

    @property
    def metadata(self) -> dict[str, Any]:
        """What the env says of its pictures."""
        return dict(self.env.metadata or {})

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()


def make_game(name: str, kwargs: dict[str, Any], pad: bool = False) -> Any:
    """Returns a game with PettingZoo's parallel interface, whose smaller spaces may be padded.

    Raises:
        EnvError: If the game cannot be created, or does not have the parallel interface.
        MissingDependencyError: If a package is not installed.
    """
    game = make_any(name, kwargs)
    if is_in_turns(game):
        raise EnvError(
            f'{name} is no game in which all agents act at once',
            where='env.kwargs',
            remedy=f'Agents that work together, and act in turn, are a team: --env team:{name}. Else a game in turns is played'
            ' by self-play: --env pettingzoo:ID.',
        )
    return PaddedGame(game, name) if pad else game


def make_any(name: str, kwargs: dict[str, Any]) -> Any:
    """Returns a game with PettingZoo's parallel interface or, if there is none, with that of a game in turns.

    Raises:
        EnvError: If the game cannot be created, or has neither interface.
        MissingDependencyError: If a package is not installed.
    """
    module, _, maker = name.partition(':')
    found = import_needed(module, name, 'env.kwargs')
    if maker in gymnasium.registry:
        return TupleGame(maker, kwargs)
    make = (
        getattr(found, maker, None) if maker else getattr(found, 'parallel_env', getattr(found, 'env', None))
    )
    if not callable(make):
        known = sorted(own for own in vars(found) if callable(vars(found)[own]) and not own.startswith('_'))
        what = repr(maker) if maker else "function 'parallel_env' or 'env'"
        raise EnvError(f'{module} has no {what}.{nearest(maker, known)}'.rstrip('.'), where='env.kwargs')
    try:
        game = make(**kwargs)
    except TypeError as error:
        raise EnvError(f'cannot make {name!r}: {error}', where='env.kwargs') from error
    if not hasattr(game, 'possible_agents'):
        raise EnvError(
            f'{name} is no game of several agents',
            where='env.kwargs',
            got=type(game).__name__,
            expected="PettingZoo's parallel or AEC interface, with possible_agents",
        )
    return game


def is_in_turns(game: Any) -> bool:
    """Whether the agents of a game act one after the other."""
    return hasattr(game, 'last')
