"""A game of cooperating agents as one env: a step of all agents is one row, with the state of the game beside what they see."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces

from rlframe.data.observation import ACTION_MASK, fields_of, has_mask, mask_parts, pack, zero_obs
from rlframe.data.team import LAST_ACTION, OWN, PRESENT, REWARDS, STATE, of_all
from rlframe.data.timestep import Array
from rlframe.envs.agents import Running, Turns, columns_of, has_mask_in_info, is_in_turns, make_any
from rlframe.envs.padded_game import PaddedGame, spaces_of
from rlframe.errors import ConfigError, IncompatibleError
from rlframe.utils.seed import generator_of
from rlframe.utils.serialize import leaves

if TYPE_CHECKING:
    Env = gymnasium.Env[dict[str, Any], Array]
else:
    Env = gymnasium.Env

logger = logging.getLogger(__name__)

TRIED_STEPS = 25
"""Random steps that tell whether agents compete."""
SHOWN = ('render_modes', 'render_fps')
"""What a game says of its pictures."""
TEAM_REWARDS = ('sum', 'mean')
"""How the rewards of agents become that of the team."""
LINE, MARGIN, LEAST = 14, 4, 320
"""Height of a line of text, the space around lines, and the least width of a picture with a caption, in pixels."""


class Team(Env):
    """A game of A agents that work together, and act at once or in turn.

    Its observations are a ``Dict``: ``agents``, what each sees, [A, ...]; ``state``, that of the game, if it has a method
    ``state``, else what all agents see, one after the other; ``present``, who acts next, or would behind a time limit, [A]; ``last_action`` and ``rewards``,
    those of the step before, [A, ...]; ``action_mask``, [A N], if the game has masks. The rows of absent agents are what they
    saw last, zeros before they came, and zeros in a state that is what all agents see; their actions are ignored. In a game in turns all but the next agent count as
    absent, and there are no ``rewards``, as agents earn while others act. The info at the end has the return of each agent. Below pictures, ``lines`` says what
    each agent did and earned.

    Args:
        game: As for ``agents.Agents``: a module with PettingZoo's ``parallel_env``, or ``env``, or ``'module:name'``.
        team_reward: 'sum' or 'mean' of the rewards of the agents.
        pad: Whether smaller spaces of agents are padded to the largest; see ``PaddedGame``.
        kwargs: Passed on to the game.

    Raises:
        EnvError: If the game cannot be made.
        IncompatibleError: If agents have different spaces, actions that are neither Discrete nor a Box, or compete.
    """

    metadata = {'render_modes': ['rgb_array']}

    def __init__(
        self,
        game: str,
        team_reward: Literal['sum', 'mean'] = 'sum',
        pad: bool = False,
        render_mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        if team_reward not in TEAM_REWARDS:
            expected = f'one of {list(TEAM_REWARDS)}'
            raise ConfigError('bad value', where='env.kwargs.team_reward', got=team_reward, expected=expected)
        self.render_mode = render_mode
        kwargs |= {} if render_mode is None else {'render_mode': render_mode}
        self.game_name = game
        first: Any = make_any(game, kwargs)
        self.is_in_turns = is_in_turns(first)
        """Whether agents act one after the other."""
        if self.is_in_turns:
            logger.info('%s: agents act in turn; those who wait count as absent', game)
        check_not_rivals(first, game)
        first = padded(first, game) if pad else first
        own = getattr(first, 'metadata', None) or {}
        self.metadata = {**Team.metadata, **{name: own[name] for name in SHOWN if name in own}}
        agents = list(first.possible_agents)
        self.agents = [name if isinstance(name, str) else f'agent_{name}' for name in agents]
        """The names of the agents."""
        seen, action = spaces_of(first, agents, game)
        if not isinstance(action, spaces.Discrete | spaces.Box):
            raise IncompatibleError(
                f'agents of {game} cannot be a team by their actions',
                where='env.env_id',
                got=repr(action),
                expected='Discrete or Box',
                remedy=f'agents:{game} plays it with a row for each agent.',
            )

        # masks, and whether the game is one of a team
        in_info = not has_mask(seen) and bool(mask_parts(action)) and has_mask_in_info(first)
        self._has_mask = in_info or has_mask(seen)
        if in_info:
            seen = spaces.Dict(observation=seen, action_mask=spaces.MultiBinary(int(action.n)))  # type: ignore[union-attr]  # only Discrete has masks
        kind = Turns if self.is_in_turns else Running
        self.running = kind(first, game, action, in_info)
        """The game, with the agents that are present."""
        check_cooperation(self.running, action, game)
        self._mean = team_reward == 'mean'

        count = self._count = self.running.count
        own = {name: part for name, part in fields_of(seen).items() if name != ACTION_MASK}
        self._is_inner = self._has_mask and list(own) == ['observation']
        self._has_parts = bool(own) and not self._is_inner
        self._own = spaces.Dict(own, sort_keys=False) if self._has_parts else own.get('observation', seen)
        self._is_discrete = isinstance(action, spaces.Discrete)
        self.action_space = of_all(action, count)
        free = spaces.Box(-np.inf, np.inf, action.shape, np.float32)
        last = spaces.Discrete(int(action.n) + 1) if isinstance(action, spaces.Discrete) else free
        parts: dict[str, Any] = {
            OWN: of_all(self._own, count),
            STATE: self._state_space(first),
            PRESENT: spaces.MultiBinary(count),
            LAST_ACTION: of_all(last, count),
        }
        if not self.is_in_turns:
            parts[REWARDS] = spaces.Box(-np.inf, np.inf, (count,), np.float32)
        if self._has_mask:
            parts[ACTION_MASK] = spaces.MultiBinary(count * mask_parts(action)[0])
        self._parts = parts
        self.observation_space = spaces.Dict(parts, sort_keys=False)
        self._unseen = self._with_mask(unseen(self._own), mask_parts(action))
        self._returns = np.zeros(count)
        self._given: dict[str, Any] = {}  # attributes of the game that were set

    def _with_mask(self, seen: Any, choices: tuple[int, ...]) -> Any:
        """Returns what an agent sees as the game gives it, with a mask that allows the first choice, if there are masks."""
        if not self._has_mask:
            return seen
        mask = np.eye(1, choices[0], dtype=np.int8)[0]
        return {**(seen if self._has_parts else {'observation': seen}), ACTION_MASK: mask}

    @property
    def live_games(self) -> list[Any]:
        """The game, in a list."""
        return [self.running.game]

    # attributes of the game, such as a level, which env.schedule sets

    def has_wrapper_attr(self, name: str) -> bool:
        return hasattr(self._owner(name), name)

    def get_wrapper_attr(self, name: str) -> Any:
        return getattr(self._owner(name), name)

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        owner = self._owner(name)
        if owner is self:
            return super().set_wrapper_attr(name, value, force=force)
        setattr(owner, name, value)
        self._given[name] = value
        return True

    def _owner(self, name: str) -> Any:
        """Returns the game if it alone has a public attribute, which is no method, else the team."""
        value = None if name.startswith('_') else getattr(self.running.game, name, None)
        return self if hasattr(self, name) or value is None or callable(value) else self.running.game

    def _state_space(self, game: Any) -> Any:
        """Returns the space of the state of the game or, if it has none, of what all agents see."""
        game.reset(seed=0)
        try:
            state = np.asarray(game.state())
        except (AttributeError, NotImplementedError):
            self.has_state = False
            """Whether the game tells its state; else it is what all agents see."""
            size = sum(int(np.prod(part.shape or (1,))) for part in _plain(self._own)) * self._count
            logger.info('%s has no state(): it is what all agents see', self.game_name)
            return spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.has_state = True
        own = getattr(game, 'state_space', None)
        if isinstance(own, spaces.Box) and own.shape == state.shape:
            return own
        return spaces.Box(-np.inf, np.inf, state.shape, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self._begin(int(self.np_random.integers(2**31)))
        return self._obs(), {}

    def _begin(self, seed: int) -> None:
        """Begins a game."""
        found = self.running.begin(seed)
        self._next = self.running.present
        self._acted: dict[int, Array] = {}
        self._seen = [found.get(i, self._unseen) for i in range(self._count)]
        self._last = zero_obs(self._parts[LAST_ACTION])
        self._rewards = np.zeros(self._count, np.float32)
        self._returns = np.zeros(self._count)

    def step(self, action: Array) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        answers = self._move(np.asarray(action))
        each = [float(answer[0]) for answer in answers.values()]
        reward = sum(each) / (len(each) if self._mean else 1)
        is_over = not self.running.present
        # an end at a time limit is an end
        truncated = is_over and any(answer[2] and not answer[1] for answer in answers.values())
        info: dict[str, Any] = {}
        if is_over:
            info = {f'return_of_{name}': own for name, own in self.returns().items()}
        return self._obs(), reward, is_over and not truncated, truncated, info

    def _move(self, action: Array) -> dict[int, Any]:
        """Makes the moves of the agents, and returns what the game says of each."""
        acting = self.running.present
        found, answers = self.running.move(action)
        for i, seen in found.items():
            self._seen[i] = seen
        self._next = self.running.present or self.running.cut_off
        # actions and rewards of those who acted
        start = np.asarray(getattr(self.action_space, 'start', 0))
        done = action - start + 1 if self._is_discrete else action
        self._last = zero_obs(self._parts[LAST_ACTION])
        self._last[acting] = done[acting]
        self._acted = {i: action[i] for i in acting}
        self._rewards = np.zeros(self._count, np.float32)
        for i, answer in answers.items():
            self._rewards[i] = answer[0]
        self._returns += self._rewards
        return answers

    def _obs(self) -> dict[str, Any]:
        present = np.zeros(self._count, np.int8)
        present[self._next] = 1
        rows = [seen['observation'] if self._is_inner else seen for seen in self._seen]
        obs = {
            OWN: columns_of(self._own, rows),
            STATE: self._state(rows),
            PRESENT: present,
            LAST_ACTION: self._last,
        }
        if REWARDS in self._parts:
            obs[REWARDS] = self._rewards
        if self._has_mask:
            masks = np.stack([seen[ACTION_MASK] for seen in self._seen]).astype(np.int8)
            # the choice of an absent agent means nothing
            masks[present == 0] = np.eye(1, masks.shape[1], dtype=np.int8)
            obs[ACTION_MASK] = masks.reshape(-1)
        return obs

    def _state(self, rows: list[Any]) -> Array:
        if self.has_state:
            return np.asarray(self.running.game.state(), self._parts[STATE].dtype)
        shown = self.running.alive or self._next or self._acted
        found = []
        for i, row in enumerate(rows):
            for _, leaf in leaves(pack(self._own, row, 'unsafe')[None]):
                numbers = leaf.reshape(-1) if i in shown else np.zeros(leaf.size)
                found.append(numbers / 255 if is_image(leaf) else numbers)
        return np.concatenate(found, dtype=np.float32)

    def returns(self) -> dict[str, float]:
        """Returns the return of each agent so far, by its name."""
        return {name: float(own) for name, own in zip(self.agents, self._returns, strict=True)}

    def lines(self) -> list[str]:
        """Returns what each agent did and earned in the last step, and its return so far, a line for each."""
        return [self._line(i, name) for i, name in enumerate(self.agents)]

    def _line(self, i: int, name: str) -> str:
        if i in self._acted:
            did = np.array2string(self._acted[i], precision=2, suppress_small=True)
            text = f'{did}, reward {self._rewards[i]:g}'
        else:
            text = 'acts next' if i in self._next else 'absent'
        return f'{name}: {text}, return {self._returns[i]:g}'

    def render(self) -> Any:
        """Returns what the game draws; below a picture, a line for each agent."""
        drawn = getattr(self.running.game, 'render', lambda: None)()
        if self.render_mode != 'rgb_array' or drawn is None:
            return drawn
        return with_caption(np.asarray(drawn), self.lines())

    def close(self) -> None:
        self.running.game.close()

    def get_state(self) -> dict[str, Any]:
        """Returns the seed and the moves of the game, its attributes that were set, and the state of the generator of seeds."""
        running = self.running
        return {
            'rng': self.np_random.bit_generator.state,
            'seed': running.seed,
            'moves': np.array(running.moves),
            'given': dict(self._given),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Replays the moves of the game: exact only if the seed given to ``reset`` determines all randomness."""
        for name, value in state.get('given', {}).items():
            if self._owner(name) is not self:
                self.set_wrapper_attr(name, value)
        self._begin(int(state['seed']))
        for action in state['moves']:
            self._move(action)
        self.np_random = generator_of(state['rng'])


def unseen(space: Any) -> Any:
    """Returns the observation of an agent that has seen nothing: zeros, or what is nearest to them in a space."""
    if isinstance(space, spaces.Dict):
        return {name: unseen(part) for name, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(unseen(part) for part in space)
    if isinstance(space, spaces.Box):
        return np.clip(np.zeros(space.shape), space.low, space.high).astype(space.dtype)
    return np.zeros(space.shape or (), space.dtype) + np.asarray(getattr(space, 'start', 0), space.dtype)


def is_image(rows: Array) -> bool:
    """Whether rows [n, ...] are images of bytes."""
    return rows.dtype == np.uint8 and rows.ndim > 3


def _plain(space: Any) -> list[Any]:
    parts = fields_of(space)
    return [leaf for part in parts.values() for leaf in _plain(part)] if parts else [space]


def padded(game: Any, name: str) -> PaddedGame:
    """Returns a game whose agents have the largest of their spaces.

    Raises:
        IncompatibleError: If agents act in turn, or have other spaces than ``PaddedGame`` takes.
    """
    if not is_in_turns(game):
        return PaddedGame(game, name)
    raise IncompatibleError(
        f'the agents of {name} act in turn',
        where='env.kwargs.pad',
        got=True,
        expected='False',
        remedy="supersuit's pad_observations_v0 and pad_action_space_v0 pad such a game.",
    )


def check_not_rivals(game: Any, name: str) -> None:
    """Refuses a game some of whose agents are called adversaries, as in MPE2.

    Raises:
        IncompatibleError: If there are such agents.
    """
    foes = [str(agent) for agent in game.possible_agents if 'adversary' in str(agent)]
    if foes:
        raise competing(name, f'agents {foes}', is_in_turns(game))


def competing(name: str, got: str, in_turns: bool) -> IncompatibleError:
    """Returns the error about a game whose agents are no team."""
    remedy = f'agents:{name} trains one policy by the reward of each.'
    return IncompatibleError(
        f'the agents of {name} compete: what one earns, others lose',
        where='env.env_id',
        got=got,
        expected='agents that cooperate',
        remedy=f'pettingzoo:{name} plays it by self-play.' if in_turns else remedy,
    )


def drawn_action(space: Any, seen: Any, rng: np.random.Generator) -> Any:
    """Returns a random action of an agent, one that the mask of what it sees allows."""
    if not isinstance(space, spaces.Discrete):
        return rng.uniform(space.low, space.high).astype(space.dtype)
    mask = seen[ACTION_MASK] if isinstance(seen, dict) and ACTION_MASK in seen else np.ones(space.n)
    allowed = np.flatnonzero(mask)
    return int(rng.choice(allowed if len(allowed) else space.n)) + space.start


def check_cooperation(running: Running, action: Any, name: str) -> None:
    """Plays some random steps, and refuses a game in which one agent earns what others lose.

    Raises:
        IncompatibleError: If the rewards of steps are not 0, and their sums are.
    """
    rng = np.random.default_rng(0)
    seen = running.begin(0)
    first = next(iter(seen.values()))
    earned = []
    for _ in range(TRIED_STEPS):
        drawn = [drawn_action(action, seen.get(i, first), rng) for i in range(running.count)]
        found, answers = running.move(np.stack(drawn))
        seen |= found
        rewards = np.array([answer[0] for answer in answers.values()])
        if rewards.any():
            earned.append(rewards)
        if not running.present:
            break
    if earned and all(abs(each.sum()) < 1e-9 * np.abs(each).sum() for each in earned):
        raise competing(name, f'rewards {earned[0].tolist()}', isinstance(running, Turns))


def with_caption(picture: Array, lines: Sequence[str]) -> Array:
    """Returns a picture with black lines on white below it; one that is too narrow gets white on its right.

    Args:
        picture: uint8 [H, W, 3].
        lines: The lines, from the top.

    Returns:
        uint8; without pillow, which films need, the picture itself.
    """
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        return picture
    height, width = picture.shape[:2]
    strip = Image.new('RGB', (max(width, LEAST), LINE * len(lines) + 2 * MARGIN), 'white')
    draw = ImageDraw.Draw(strip)
    for number, line in enumerate(lines):
        draw.text((MARGIN, MARGIN + LINE * number), line, 'black')
    wide = np.full((height, strip.width, 3), 255, np.uint8)
    wide[:, :width] = picture[:, :, :3]
    return np.concatenate([wide, np.asarray(strip)])
