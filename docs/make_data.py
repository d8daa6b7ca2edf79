"""Makes data sets of rlframe's own with shipped configs: trains, and records what it replays, a medium policy and an expert.

usage: python docs/make_data.py pendulum               # into data/, with a line of docs/data.json for each
       python docs/make_data.py --page                 # writes the table of docs/how_to/recorded_data.md

They are not the data sets of D4RL: other policies in other versions of the envs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from results_rows import DATA, DATA_TABLE, HERE

from rlframe.entry.__main__ import main
from rlframe.errors import ConfigError

PAGE = HERE / 'how_to' / 'recorded_data.md'
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
    options: Sequence[str] = ()
    """Options of the run that replace those of the config, as ``KEY=VALUE``."""
    seed: int = 0
    more: Sequence[str] = ()
    """Also ``'medium_replay'``, the replay buffer of the medium policy, ``'medium_expert'``, the data of both, or ``'demos'``."""
    demos: int = 0
    """Env steps of the expert's demonstrations, some ten episodes."""
    is_recorded: bool = False
    """Whether replay is recorded beside training, as the replay buffer has sums over several steps."""


ROBOT = ['medium_replay', 'medium_expert']


def _robot(env_id: str, medium: int) -> Made:
    """Returns how the data sets of a robot are made."""
    options = [f'env.env_id={env_id}', 'env_manager.type=env_pool', 'env_manager.num_threads=1']
    return Made('mujoco_crossq', 100_000, medium, options=options, more=ROBOT)


RECIPES = {
    'pendulum': Made('pendulum_sac', 5_000, 1_064, 20_000),
    'cartpole': Made('cartpole_dqn', 50_000, 2_504, 20_000),
    'lunarlander': Made(
        'lunarlander_dqn', 100_000, 25_000, 50_000, seed=7, more=['demos'], demos=2_500, is_recorded=True
    ),
    'hopper': _robot('Hopper-v4', 85_000)._replace(more=[*ROBOT, 'demos'], demos=10_000),
    'halfcheetah': _robot('HalfCheetah-v4', 25_000),
    'walker2d': _robot('Walker2d-v4', 55_000),
}
"""How data sets are made, by env. Replay is the whole replay buffer; medium and expert act as in training, demos do not."""


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
    made = RECIPES[name]
    runs = {'expert': made.steps, 'medium': made.medium}
    for kind, steps in runs.items():
        path = folder / f'{name}_{kind}_run'
        if not path.exists():
            words = f'train -c {made.config} --seed {made.seed} --env-step {steps} --out {path}'.split()
            options = ['policy.collect.collector.mark_episodes=true', 'env.stop_value=never']
            if made.is_recorded:
                beside = 'replay' if kind == 'expert' else 'medium_replay'
                options.append(f'policy.collect.record={folder}/{name}_{beside}.npz')
            run(*words, *options, *made.options)
    expert, medium = (folder / f'{name}_{kind}_run' for kind in runs)
    sources = {
        'replay': [str(expert / 'ckpt' / 'latest'), '--replay'],
        'medium': [str(medium / 'ckpt' / 'latest'), '-n', str(made.rows), '--explore'],
        'expert': [str(expert), '-n', str(made.rows), '--explore'],
        'medium_replay': [str(medium / 'ckpt' / 'latest'), '--replay'],
        'demos': [str(expert), '-n', str(made.demos)],
    }
    for kind in ('replay', 'medium', 'expert', *made.more):
        path = folder / f'{name}_{kind}.npz'
        if not path.exists() and kind in sources:
            run('collect', *sources[kind], '--out', str(path))
        if not path.exists():
            join([folder / f'{name}_{part}.npz' for part in kind.split('_')], path)
        note(f'{name}_{kind}', path, made)


def join(parts: Sequence[Path], path: Path) -> None:
    """Writes the episodes of several data sets one after another."""
    from rlframe.data.formats import read_recording, write_recording

    recordings = [read_recording(part) for part in parts]
    columns = {
        name: np.concatenate([np.asarray(one.columns[name]) for one in recordings])
        for name in recordings[0].columns
    }
    before = 0
    numbers = []
    for one in recordings:
        numbers.append(np.asarray(one.columns['episode']) + before)
        before = int(numbers[-1].max()) + 1
    columns['episode'] = np.concatenate(numbers)
    facts = {name: fact for name, fact in recordings[0].facts.items() if name in ('env', 'spec')}
    write_recording(replace(recordings[0], columns=columns, facts=facts), path)


def ready(name: str, folder: Path = DATA) -> Path:
    """Returns the file of a data set, which is made if it is not there.

    Raises:
        ConfigError: If it has other rows than those that are noted.
    """
    from rlframe.app.data_report import inspect_data

    path = folder / f'{name}.npz'
    if not path.exists():
        make(name.split('_')[0], folder)
    found = inspect_data(path)['sha256']
    noted = json.loads(DATA_TABLE.read_text(encoding='utf-8')).get(name, {}).get('sha256', '')
    if found != noted:
        raise ConfigError(
            'these are other data than those that are noted',
            where=str(path),
            got=found,
            expected=noted,
            remedy=f'python docs/make_data.py {name.split("_")[0]} notes those that are there.',
        )
    return path


def note(name: str, path: Path, made: Made) -> None:
    """Writes the line of a data set."""
    from rlframe.app.data_report import inspect_data

    found = inspect_data(path)
    table = json.loads(DATA_TABLE.read_text(encoding='utf-8'))
    table[name] = {
        'env': found['env'],
        'config': made.config,
        'seed': made.seed,
        'rows': found['rows'],
        'episodes': found['episodes']['count'],
        'return': found['episodes']['return']['mean'],
        'std': found['episodes']['return']['std'],
        'sha256': found['sha256'],
        'problems': len(found['problems']),
    }
    DATA_TABLE.write_text(json.dumps(table, indent=2, sort_keys=True) + '\n', encoding='utf-8')


def write_page() -> None:
    """Writes the table of the page."""
    table = json.loads(DATA_TABLE.read_text(encoding='utf-8'))
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
    parser.add_argument('names', nargs='*', help=f'of {", ".join(RECIPES)}')
    parser.add_argument('--out', type=Path, default=DATA)
    parser.add_argument('--page', action='store_true', help='only write the table')
    args = parser.parse_args()
    for name in args.names:
        make(name, args.out)
    if args.page:
        write_page()
