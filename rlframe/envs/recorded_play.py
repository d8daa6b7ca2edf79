"""Transitions to learn from: of hand-written controllers that err more or less, and of MiniGrid's own bot."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np

from rlframe.data.timestep import Array, FloatArray
from rlframe.envs.cartpole_expert import expert
from rlframe.envs.gym_env import import_needed

ERRORS = 0.0, 0.3, 0.6, 1.0
"""Probabilities of a random action; episodes take turns."""
DOORKEY = 'MiniGrid-DoorKey-8x8-v0'


def swing_up(obs: FloatArray) -> FloatArray:
    """Returns a torque in Pendulum-v1: it gives the pendulum the energy that it has upright, and holds it there."""
    cos, sin, spin = obs
    angle = math.atan2(sin, cos)
    if cos > 0.8:
        return np.array([np.clip(-8 * angle - 2 * spin, -2, 2)], np.float32)
    missing = 15 * (1 - cos) - spin**2 / 2
    return np.array([2 * np.sign(spin * missing) or 2], np.float32)


def doorkey_bot(env: Any) -> Callable[[Any], int]:
    """Returns MiniGrid's bot for the episode that begins in a DoorKey env: it fetches the key, opens the door and goes to the goal."""
    bots = import_needed('minigrid.utils.baby_ai_bot', DOORKEY)
    world = env.unwrapped
    world.room_from_pos = lambda *place: None  # the bot asks it of every env, for descriptions with a place
    door = bots.ObjDesc('door')
    door.find_matching_objs(env)
    world.instrs = bots.GoToInstr(door)  # the bot reads BabyAI's instructions, which have no goals
    bot = bots.BabyAIBot(env)
    bot.stack[:] = [  # the last one first
        bots.GoNextToSubgoal(bot, (world.width - 2, world.height - 2)),
        bots.OpenSubgoal(bot, reason='KeepKey'),
        bots.GoNextToSubgoal(bot, door, reason='Open'),
    ]

    def play(obs: Any) -> int:
        action = bot.replan()
        is_beside_goal = action == world.actions.done
        return int(world.actions.forward if is_beside_goal else action)

    return play


def record(
    env: Any,
    begin: Callable[[Any], Callable[[Any], Any]],
    episodes: int,
    errors: Sequence[float] = ERRORS,
    seed: int = 0,
) -> dict[str, Array]:
    """Lets a controller play some episodes, whose probabilities of a random action take turns.

    Args:
        env: The env, which is closed in the end.
        begin: Returns the controller of an episode, which maps observations to actions, by the env at its beginning.
        episodes: Number of episodes.
        errors: Probabilities of a random action.
        seed: Seed of the first episode, and of random actions.

    Returns:
        A row for each env step, [T, ...]: ``obs``, ``next_obs``, ``action``, ``reward``, ``terminated``, ``truncated`` and
        ``episode``, counted from 0.
    """
    env.action_space.seed(seed)
    rng = np.random.default_rng(seed)
    rows = []
    for episode in range(episodes):
        obs, _ = env.reset(seed=seed + episode)
        play = begin(env)
        done = False
        while not done:
            is_random = rng.random() < errors[episode % len(errors)]
            action = env.action_space.sample() if is_random else play(obs)
            next_obs, reward, terminated, truncated, _ = env.step(action)
            rows.append((obs, next_obs, action, np.float32(reward), terminated, truncated, episode))
            obs = next_obs
            done = terminated or truncated
    env.close()
    names = 'obs', 'next_obs', 'action', 'reward', 'terminated', 'truncated', 'episode'
    return {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def pendulum() -> dict[str, Array]:
    """Returns 40 episodes of Pendulum-v1."""
    return record(gymnasium.make('Pendulum-v1'), lambda env: swing_up, 40)


def cartpole() -> dict[str, Array]:
    """Returns 80 episodes of CartPole-v1."""
    return record(gymnasium.make('CartPole-v1'), lambda env: expert, 80)


def cartpole_demos() -> dict[str, Array]:
    """Returns 10 episodes of CartPole-v1 without errors."""
    return record(gymnasium.make('CartPole-v1'), lambda env: expert, 10, errors=(0.0,))


def pendulum_demos() -> dict[str, Array]:
    """Returns 10 episodes of Pendulum-v1 without errors."""
    return record(gymnasium.make('Pendulum-v1'), lambda env: swing_up, 10, errors=(0.0,))


def doorkey_demos() -> dict[str, Array]:
    """Returns 20 episodes of MiniGrid's bot in MiniGrid-DoorKey-8x8-v0, whose cells in view are one-hot, as a vector."""
    wrappers = import_needed('minigrid.wrappers', DOORKEY)
    cells = wrappers.ImgObsWrapper(wrappers.OneHotPartialObsWrapper(gymnasium.make(DOORKEY)))
    return record(gymnasium.wrappers.FlattenObservation(cells), doorkey_bot, 20, errors=(0.0,))
