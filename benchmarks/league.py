"""Plays a policy trained in a league against a random player and against its past self of half the training.

usage: league.py RUN [GAMES]

The policy begins every other game. Against its past self the first two moves are random, as two greedy players would
play the same two games for ever. Prints one JSON line with the shares of won, drawn and lost games.
"""

import argparse
import importlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import rlframe
from rlframe.entry.arguments import count
from rlframe.errors import CheckpointError
from rlframe.export import export_policy
from rlframe.run.read_checkpoint import load_checkpoint
from rlframe.run.write_checkpoint import save_checkpoint

OPENING = 2


def player(weights: Mapping[str, Any], manifest: Mapping[str, Any], folder: Path) -> Any:
    """Returns a policy with other weights than the run's newest ones."""
    facts = {name: manifest[name] for name in ('policy', 'env', 'progress', 'config')}
    saved = save_checkpoint(folder / 'ckpt', {'policy': weights, 'progress': manifest['progress']}, facts)
    return rlframe.load(export_policy(saved, out=folder / 'export', trust=True)['artifact'])


def move(policy: Any, observation: dict[str, Any], rng: np.random.Generator) -> int:
    """Returns the best legal action of a policy, or a random one."""
    mask = observation['action_mask']
    if policy is None:
        return int(rng.choice(np.flatnonzero(mask)))
    return int(policy.act(observation['observation'], mask))


def play(env: Any, players: list[Any], rng: np.random.Generator, opening: int) -> float:
    """Returns the reward of the first player."""
    env.reset(seed=int(rng.integers(2**31)))
    total, moves = 0.0, 0
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, _ = env.last()
        seat = env.possible_agents.index(agent)
        total += reward if seat == 0 else 0.0
        action = None
        if not (terminated or truncated):
            action = move(players[seat] if moves >= opening else None, observation, rng)
            moves += 1
        env.step(action)
    return total


def match(env: Any, mine: Any, other: Any, games: int, opening: int) -> dict[str, float]:
    """Returns the shares of games that a player wins, draws and loses; it begins every other one."""
    rng, results = np.random.default_rng(0), []
    for game in range(games):
        seat = game % 2
        reward = play(env, [mine, other] if seat == 0 else [other, mine], rng, opening)
        results.append(reward if seat == 0 else -reward)
    outcomes = np.sign(results)
    return {name: float((outcomes == sign).mean()) for name, sign in (('won', 1), ('drawn', 0), ('lost', -1))}


def main() -> None:
    """Plays both matches of a run."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('run', metavar='RUN')
    parser.add_argument('games', nargs='?', type=count, default=500)
    args = parser.parse_args()
    try:
        state, manifest = load_checkpoint(f'{args.run}/ckpt/latest', buffer=False)
    except CheckpointError as error:
        parser.error(str(error))
    now, players = manifest['progress']['train_iter'], state['coordinator']['weights']
    past = [name for name in players if name.startswith('main_')]
    half = min(past, key=lambda name: abs(int(name.rpartition('_')[2]) - now / 2))
    weights = {'main': state['policy'], half: players[half]['weights']}
    with tempfile.TemporaryDirectory() as folder:
        mine, old = (player(weights[name], manifest, Path(folder) / name) for name in ('main', half))
    env_id = manifest['config']['main_config']['env']['env_id']
    env = importlib.import_module(f'pettingzoo.{env_id}').env()
    result = {
        'run': args.run,
        'train_iter': now,
        'against random': match(env, mine, None, args.games, 0),
        f'against {half}': match(env, mine, old, args.games, OPENING),
    }
    print(json.dumps(result))


if __name__ == '__main__':
    main()
