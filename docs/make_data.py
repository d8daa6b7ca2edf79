"""Makes data sets of rlframe's own with shipped configs: trains, and records what it replays, a medium policy and an expert.

usage: python docs/make_data.py pendulum               # into data/, with a line of docs/data.json for each
       python docs/make_data.py --page                 # writes the table of docs/how_to/recorded_data.md

They are not the data sets of D4RL: other policies in other versions of the envs.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import NamedTuple

from rlframe.entry.__main__ import main

ROOT = Path(__file__).parent
TABLE = ROOT / 'data.json'
PAGE = ROOT / 'how_to' / 'recorded_data.md'
SEED = 0
START, END = '<!-- table of docs/make_data.py -->', '<!-- end -->'


class Made(NamedTuple):
    """How the data sets of an env are made."""

    config: str
    steps: int
    """Env steps of training."""
    medium: int
    """Env steps after which the medium policy is taken; the run is the beginning of the other one."""
    rows: int = 100_000
    """Env steps of the medium and the expert data."""


DATA = {
    'pendulum': Made('pendulum_sac', 5_000, 1_064, 20_000),
    'cartpole': Made('cartpole_dqn', 50_000, 2_504, 20_000),
    'lunarlander': Made('lunarlander_dqn', 100_000, 25_000, 50_000),
}
"""Data sets by env. Replay is the whole replay buffer; medium and expert act as in training."""


def run(*words: str) -> str:
    """Runs a command of rlframe, and returns it."""
    command = ' '.join(('rlframe', *words))
    sys.stdout.write(f'{command}\n')
    sys.stdout.flush()
    if code := main([*words]):
        raise SystemExit(code)
    return command


def make(name: str, folder: Path) -> None:
    """Makes the data sets of an env."""
    made = DATA[name]
    runs = {'expert': made.steps, 'medium': made.medium}
    for kind, steps in runs.items():
        path = folder / f'{name}_{kind}_run'
        if not path.exists():
            options = ['policy.collect.collector.mark_episodes=true', 'env.stop_value=never']
            run(
                'train',
                '-c',
                made.config,
                '--seed',
                str(SEED),
                '--env-step',
                str(steps),
                '--out',
                str(path),
                *options,
            )
    expert, medium = (folder / f'{name}_{kind}_run' for kind in runs)
    sources = {
        'replay': [str(expert / 'ckpt' / 'latest'), '--replay'],
        'medium': [str(medium / 'ckpt' / 'latest'), '-n', str(made.rows), '--explore'],
        'expert': [str(expert), '-n', str(made.rows), '--explore'],
    }
    for kind, words in sources.items():
        path = folder / f'{name}_{kind}.npz'
        if not path.exists():
            run('collect', *words, '--out', str(path))
        note(f'{name}_{kind}', path, made)


def note(name: str, path: Path, made: Made) -> None:
    """Writes the line of a data set."""
    from rlframe.app.data_report import inspect_data

    found = inspect_data(path)
    table = json.loads(TABLE.read_text(encoding='utf-8')) if TABLE.exists() else {}
    table[name] = {
        'env': found['env'],
        'config': made.config,
        'seed': SEED,
        'rows': found['rows'],
        'episodes': found['episodes']['count'],
        'return': found['episodes']['return']['mean'],
        'std': found['episodes']['return']['std'],
        'sha256': found['sha256'],
        'problems': len(found['problems']),
    }
    TABLE.write_text(json.dumps(table, indent=2, sort_keys=True) + '\n', encoding='utf-8')


def write_page() -> None:
    """Writes the table of the page."""
    table = json.loads(TABLE.read_text(encoding='utf-8'))
    lines = [
        '| data | config, seed | env steps | episodes | return | SHA-256 of the arrays |',
        '|---|---|---|---|---|---|',
    ]
    for name, row in table.items():
        lines.append(
            f'| `{name}` | `{row["config"]}`, {row["seed"]} | {row["rows"]:,} | {row["episodes"]:,} |'
            f' {row["return"]:,.1f} ± {row["std"]:,.1f} | `{row["sha256"][:16]}` |'
        )
    page = PAGE.read_text(encoding='utf-8')
    before, rest = page.split(START)
    after = rest.split(END)[1]
    PAGE.write_text(f'{before}{START}\n\n' + '\n'.join(lines) + f'\n\n{END}{after}', encoding='utf-8')


if __name__ == '__main__':
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('names', nargs='*', help=f'of {", ".join(DATA)}')
    parser.add_argument('--out', type=Path, default=Path('data'))
    parser.add_argument('--page', action='store_true', help='only write the table')
    args = parser.parse_args()
    for name in args.names:
        make(name, args.out)
    if args.page:
        write_page()
