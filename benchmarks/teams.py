"""Teams of MPE2 beside BenchMARL's: the same games, choices of actions, frames and evaluations, by one thread.

usage: python benchmarks/teams.py PEER_PYTHON [GAME.ALGORITHM ...] [--frames 60000] [--seeds 0]

PEER_PYTHON is the interpreter of an environment with BenchMARL 1.5, torch, pettingzoo and mpe2. Both sides use settings of their
own: BenchMARL its defaults, rlframe those of ``OPTIONS``. A frame is a step of all agents; a return is the mean over the
agents, of 30 episodes of the greedy policy. CPU seconds are those outside evaluations. Each run becomes a record of ``teams.json``;
those that are there are not repeated. Writes a table into docs/how_to/teams.md, and docs/curves/teams.png.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ['OMP_NUM_THREADS'] = '1'  # before torch is imported

from arguments import program

from rlframe import config
from rlframe.app.seeds import parse_seeds
from rlframe.entry.arguments import count
from rlframe.pipeline import SerialPipeline

HERE = Path(__file__).parent
RECORDS = HERE / 'teams.json'
PEER = HERE / 'peers' / 'w16_teams.py'
PAGE = HERE.parent / 'docs' / 'how_to' / 'teams.md'
PICTURE = HERE.parent / 'docs' / 'curves' / 'teams.png'
START, END = '<!-- table of benchmarks/teams.py -->', '<!-- end of it -->'

CYCLES = 100
"""Steps of an episode, as in BenchMARL's tasks."""
EPISODES = 30
"""Episodes of an evaluation."""
LOOKS = 10
"""Evaluations of a run."""
LOWEST = -1000
"""Returns below it are cut off in the picture."""
GAMES = {
    'spread': ('simple_spread_v3', {}, {}),
    'speaker_listener': ('simple_speaker_listener_v4', {'pad': True}, {'groups': 'separate'}),
    'reference': ('simple_reference_v3', {}, {}),
}
"""The name of each game, arguments of the env, and options of the policy: agents that see different things share no network."""
ON_POLICY: dict[str, Any] = {
    'normalize_obs': True,
    'model': {'encoder_hidden_size_list': [64, 64]},
    'learn': {'epoch_per_collect': 8, 'batch_size': 500, 'learning_rate': 1e-3, 'value_norm': True, 'entropy_weight': 0.01},
    'collect': {'n_sample': 2000, 'discount_factor': 0.98, 'gae_lambda': 0.95},
}  # fmt: skip
OFF_POLICY: dict[str, Any] = {
    'discount_factor': 0.98,
    'model': {'encoder_hidden_size_list': [64, 64]},
    'learn': {'update_per_collect': 1, 'batch_size': 128, 'learning_rate': 1e-3, 'target_update_freq': None, 'target_theta': 0.005},
    'collect': {'n_sample': 10},
    'other': {'eps': {'type': 'linear', 'start': 1.0, 'end': 0.05, 'decay': 20_000}, 'replay_buffer': {'replay_buffer_size': 100_000}},
}  # fmt: skip
OPTIONS: dict[str, dict[str, Any]] = {'mappo': ON_POLICY, 'ippo': ON_POLICY, 'qmix': OFF_POLICY}
"""Options of the policies; ``ippo`` is PPO on a row for each agent."""
CASES = [f'{game}.{algorithm}' for game in GAMES for algorithm in OPTIONS]


def settings(game: str, algorithm: str) -> tuple[dict[str, Any], dict[str, Any], int]:
    """Returns both parts of our config, and the env steps of a frame: a row of each agent is one for ``ippo``."""
    name, kwargs, options = GAMES[game]
    kwargs = {**kwargs, 'game': f'mpe2.{name}', 'max_cycles': CYCLES}
    policy = {**OPTIONS[algorithm], 'cuda': False, 'eval': dict(evaluator=dict(eval_freq=10**9))}
    factor = 1
    if algorithm == 'ippo':
        factor = 3 if game == 'spread' else 2
        policy['collect'] = {**policy['collect'], 'n_sample': policy['collect']['n_sample'] * factor}
        policy['learn'] = {**policy['learn'], 'batch_size': policy['learn']['batch_size'] * factor}
        env = dict(env_id='rlframe.envs.agents:Agents', kwargs=kwargs)
    else:
        policy |= options
        env = dict(env_id='rlframe.envs.team_env:Team', kwargs={**kwargs, 'team_reward': 'mean'})
    envs = 10 * factor
    env |= dict(collector_env_num=envs, evaluator_env_num=envs, n_evaluator_episode=EPISODES * factor)
    create = dict(
        env=dict(type='gym'),
        env_manager=dict(type='gym_vector' if algorithm == 'ippo' else 'base'),
        policy=dict(type='ppo' if algorithm == 'ippo' else algorithm),
        collector=dict(type='sample'),
    )
    return dict(exp_name='side', env=env, policy=policy), create, factor


def ours(game: str, algorithm: str, frames: int, seed: int) -> None:
    """Trains in this process, and prints a line for each evaluation."""
    main, create, factor = settings(game, algorithm)
    spent = 0.0
    with SerialPipeline(config.compile_config(main, create, seed=seed)) as pipeline:
        for look in range(1, LOOKS + 1):
            start = time.process_time()
            while pipeline.collector.envstep < look * frames * factor // LOOKS:
                pipeline.step()
            spent += time.process_time() - start
            _, info = pipeline.evaluator.eval()
            steps = pipeline.collector.envstep // factor
            line = {'steps': steps, 'return': statistics.fmean(info['eval_episode_return']), 'seconds': spent}
            print(json.dumps(line, default=float), flush=True)


def run(side: str, case: str, frames: int, seed: int, peer: str) -> dict[str, Any]:
    """Lets one side train in a process of its own, and returns its record."""
    game, algorithm = case.split('.')
    if side == 'rlframe':
        words = [sys.executable, __file__, '--side', game, algorithm, str(frames), str(seed)]
    else:
        every = max(frames // LOOKS // 6000, 1) * 6000  # BenchMARL's batches have 6,000 frames
        words = [peer, '-W', 'ignore', str(PEER), GAMES[game][0], algorithm]
        facts = {'frames': frames, 'cycles': CYCLES, 'every': every, 'episodes': EPISODES, 'seed': seed}
        words += [word for name, value in facts.items() for word in (f'--{name}', str(value))]
    with tempfile.TemporaryDirectory() as folder:
        words += [] if side == 'rlframe' else ['--folder', folder]
        done = subprocess.run(words, capture_output=True, text=True, cwd=folder, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"steps"')]
    curve = [[line['steps'], round(line['return'], 2), round(line['seconds'], 1)] for line in lines]
    return {'case': case, 'frames': frames, 'side': side, 'seed': seed, 'curve': curve}


def read() -> list[dict[str, Any]]:
    """Returns all records."""
    found: list[dict[str, Any]] = json.loads(RECORDS.read_text(encoding='utf-8')) if RECORDS.exists() else []
    return found


def key(record: dict[str, Any]) -> tuple[Any, ...]:
    """Returns what tells a record from the others."""
    return tuple(record[name] for name in ('case', 'frames', 'side', 'seed'))


def write(records: list[dict[str, Any]]) -> None:
    """Writes all records, in order."""
    lines = ',\n'.join(f' {json.dumps(record)}' for record in sorted(records, key=key))
    RECORDS.write_text(f'[\n{lines}\n]\n', encoding='utf-8')


def pairs(records: list[dict[str, Any]]) -> dict[tuple[str, int], dict[str, list[dict[str, Any]]]]:
    """Returns the records of each case that both sides have, by side."""
    found: dict[tuple[str, int], dict[str, list[dict[str, Any]]]] = {}
    for record in sorted(records, key=key):
        found.setdefault((record['case'], record['frames']), {}).setdefault(record['side'], []).append(record)
    return {case: sides for case, sides in found.items() if len(sides) == 2}


def table(records: list[dict[str, Any]]) -> str:
    """Returns a line for each case: the mean return of the last evaluations, and frames a CPU second with learning."""
    lines = [
        '| game, algorithm | frames | seeds | rlframe | BenchMARL | frames a CPU second | BenchMARL | ratio |',
        '|---|---|---|---|---|---|---|---|',
    ]
    for (case, frames), sides in pairs(records).items():
        both = [sides['rlframe'], sides['benchmarl']]
        ends = [[record['curve'][-1] for record in side] for side in both]
        returns = [f'{statistics.fmean(end[1] for end in side):.1f}' for side in ends]
        speeds = [statistics.median(end[0] / end[2] for end in side) for side in ends]
        seeds = min(map(len, both))
        shown = ' | '.join(
            [*returns, *(f'{speed:,.0f}' for speed in speeds), f'{speeds[0] / speeds[1]:.1f}x']
        )
        lines.append(f'| {case.replace(".", ", ")} | {frames:,} | {seeds} | {shown} |')
    return '\n'.join(lines)


def draw(records: list[dict[str, Any]]) -> None:
    """Draws the curves of both sides: a panel for each game, a colour for each algorithm."""
    import matplotlib

    matplotlib.use('agg')
    from matplotlib import pyplot

    measured = [game for game in GAMES if any(case.startswith(f'{game}.') for case, _ in pairs(records))]
    figure, panels = pyplot.subplots(
        1, len(measured), figsize=(1 + 4 * len(measured), 3.8), constrained_layout=True, squeeze=False
    )
    for panel, game in zip(panels[0], measured, strict=True):
        for number, algorithm in enumerate(OPTIONS):
            for (case, _), sides in pairs(records).items():
                if case != f'{game}.{algorithm}':
                    continue
                for side, style in (('rlframe', '-'), ('benchmarl', ':')):
                    for record in sides[side]:
                        steps, returns, _ = zip(*record['curve'], strict=True)
                        panel.plot(steps, returns, style, color=f'C{number}', label=f'{algorithm}, {side}')
        panel.set_title(GAMES[game][0])
        panel.set_xlabel('frames')
        panel.set_ylim(max(panel.get_ylim()[0], LOWEST), 0)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc='outside lower center', ncols=len(labels), fontsize='small')
    panels[0, 0].set_ylabel('return of an agent')
    figure.savefig(PICTURE, dpi=110)


def main() -> None:
    """Measures what is missing; writes the table and the picture."""
    if sys.argv[1:2] == ['--side']:
        game, algorithm, frames, seed = sys.argv[2:]
        ours(game, algorithm, int(frames), int(seed))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('peer', type=program, metavar='PEER_PYTHON')
    parser.add_argument(
        'cases', nargs='*', metavar='GAME.ALGORITHM', help=f'of {", ".join(CASES)}; all by default'
    )
    parser.add_argument('--frames', type=count, default=60_000, help='a multiple of 6,000')
    parser.add_argument('--seeds', type=parse_seeds, default='0')
    args = parser.parse_args()
    if unknown := sorted(set(args.cases) - set(CASES)):
        parser.error(f'no case {unknown[0]!r}; there are {", ".join(CASES)}')
    for seed in args.seeds:
        for case in args.cases or CASES:
            for side in ('rlframe', 'benchmarl'):
                if (case, args.frames, side, seed) not in map(key, read()):
                    found = run(side, case, args.frames, seed, args.peer)
                    write([*read(), found])
                    print(key(found), found['curve'][-1], flush=True)
    records = read()
    lines = table(records)
    print(lines)
    before, rest = PAGE.read_text(encoding='utf-8').split(START)
    after = rest.split(END)[1]
    PAGE.write_text(f'{before}{START}\n\n{lines}\n\n{END}{after}', encoding='utf-8')
    draw(records)


if __name__ == '__main__':
    main()
