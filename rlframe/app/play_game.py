"""A game against a trained policy: a person moves in the terminal, the policy moves for the other player."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np

from rlframe.data.faces import EvalMode
from rlframe.data.observation import has_mask
from rlframe.data.players import outcome
from rlframe.data.timestep import Array, Batch, EnvSpec, IntArray
from rlframe.envs.env_manager import BaseEnvManager
from rlframe.errors import ConfigError
from rlframe.policy.parts.actions import mask_of
from rlframe.utils.seed import SCORE, env_seed
from rlframe.worker.collector.joint_policy import JointPolicy

Say = Callable[[str], None]
Ask = Callable[[str], str]
MARKS = ('.', 'X', 'O')
"""A free cell, one with a piece of the person, and one of the policy."""


def play_game(
    env: Any, spec: EnvSpec, agent: EvalMode, episodes: int, seed: int, say: Say, ask: Ask
) -> list[tuple[float, int, str]]:
    """Plays games, in which the person begins every second one, the first included.

    Args:
        env: The game, as an env.
        spec: Spec of one player.
        agent: The policy.
        episodes: Number of games.
        seed: Seed of the games.
        say: Shows lines of text.
        ask: Returns the answer of the person to a prompt; its ``EOFError`` ends the games.

    Returns:
        The return of the policy in each finished game, its length in env steps, and ``win``, ``draw`` or ``loss`` of the
        policy.

    Raises:
        ConfigError: If a person cannot choose among the actions of the game.
    """
    if spec.player_num != 2 or type(spec.action_space).__name__ != 'Discrete':
        raise ConfigError(
            f'a person plays games of two players with numbered actions, and {spec.name} has {spec.player_num} players'
            f' with {spec.action_space!r}',
            where='env.env_id',
            remedy='rlframe eval plays against the opponents of the config.',
        )
    joint = JointPolicy([person(spec, say, ask), agent])
    played = []
    with closing(BaseEnvManager([lambda: env])) as manager:
        manager.launch()
        joint.assign_players(manager.spec, 1)
        for number in range(episodes):
            joint.seating[0] = (0, 1) if number % 2 == 0 else (1, 0)
            say(f'game {number + 1}: {"you begin" if number % 2 == 0 else "the policy begins"}; Ctrl-D ends')
            try:
                played.append(_play(manager, joint, env_seed(seed, 0, number, SCORE), say))
            except EOFError:
                say('ended before the game was over')
                break
    return played


def _play(manager: BaseEnvManager, joint: JointPolicy, seed: int, say: Say) -> tuple[float, int, str]:
    """Plays one game, and prints the winner."""
    manager.reset(seed=[seed])
    joint.reset(None)
    returns = np.zeros(joint.player_num)
    length = 0
    done = False
    own, other = joint.seating[0].argsort()  # players of the person and of the policy
    # play
    while not done:
        active = joint.view(manager.obs).active[0]
        action = joint.forward(manager.obs, manager.ready)['action']
        if active[other]:
            say(f'the policy plays {int(action[0, other])}')
        step = manager.step(action, manager.ready)
        seen = joint.view(step.obs)
        returns, length = returns + seen.reward[0], length + 1
        done = bool(step.terminated[0] or step.truncated[0])
    # say who won
    say(board_text(seen.obs[0, own]))
    wins, draws = outcome(returns)
    if draws[own]:
        text, result = 'a draw', 'draw'
    elif wins[own]:
        text, result = 'you win', 'loss'
    else:
        text, result = 'the policy wins', 'win'
    say(text)
    return float(returns[other]), length, result


def person(spec: EnvSpec, say: Say, ask: Ask) -> EvalMode:
    """Returns a player that shows its observation and asks for a legal action until it gets one.

    Args:
        spec: Spaces of one player.
        say: Shows lines of text.
        ask: Returns the answer to a prompt.
    """
    space: Any = spec.action_space
    first, count = int(space.start), int(space.n)

    def choose(obs: Array) -> int:
        mask = mask_of(obs[None])[0] if has_mask(spec.observation_space) else np.ones(count, np.bool_)
        return chosen(obs, mask, first, say, ask)

    def forward(obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        actions = np.array([choose(row) for row in obs], space.dtype)
        return Batch.unchecked({'action': actions}, len(env_id))

    def get_attribute(name: str) -> Any:
        raise AttributeError(f'a person has no attribute {name!r}')

    def ignore(*given: Any) -> None: ...

    return EvalMode(forward, ignore, get_attribute, ignore, dict, ignore)


def chosen(obs: Any, mask: Array, first: int, say: Say, ask: Ask, who: str = '') -> int:
    """Shows a person an observation, and asks for an action until it is a legal one.

    Args:
        obs: The observation of one player, or of one agent.
        mask: Whether each action is legal, bool [N].
        first: The smallest action.
        say: Shows lines of text.
        ask: Returns the answer to a prompt.
        who: Stands in front of the observation.
    """
    legal = (np.flatnonzero(mask) + first).tolist()
    say(f'{who}{board_text(obs, legal, first, len(mask))}')
    choices = ', '.join(map(str, legal))
    while True:
        text = ask(f'your action ({choices}): ').strip()
        if text.lstrip('-').isdecimal() and int(text) in legal:
            return int(text)
        is_action = text.lstrip('-').isdecimal() and first <= int(text) < first + len(mask)
        what = f'{text} is not legal now' if is_action else f'{text!r} is no action'
        say(f'{what}; choose one of {choices}')


def board_text(obs: Any, legal: list[int] | None = None, first: int = 0, count: int = 0) -> str:
    """Returns the observation of the person as text.

    A board with a plane for the pieces of each player, [rows, columns, 2] with its own first as in PettingZoo, is drawn:
    free cells have the numbers of their actions if each cell has one, and columns if each column has one. Anything else is
    shown as numbers.

    Args:
        obs: The observation of one player.
        legal: Actions that are legal now; None: none are shown.
        first: The smallest action.
        count: Number of actions.
    """
    board = obs['observation'] if obs.dtype.names and 'observation' in obs.dtype.names else obs
    if board.dtype.names or board.ndim != 3 or board.shape[2] != 2:
        return str(board)
    rows, columns, _ = board.shape
    cells = [[MARKS[1 if own else 2 * bool(others)] for own, others in row] for row in board.tolist()]
    if count == rows * columns:
        for action in legal or ():
            row, column = divmod(action - first, columns)
            cells[row][column] = str(action)
    lines = [' '.join(f'{cell:>2}' for cell in row) for row in cells]
    if count == columns:
        lines.append(' '.join(f'{first + column:>2}' for column in range(columns)))
    return '\n'.join(lines)
