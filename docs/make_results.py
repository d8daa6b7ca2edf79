"""Measures the shipped configs, and writes ``docs/results.md``, its pictures and the first line of each config.

usage: python docs/make_results.py                                    # from docs/results.json
       python docs/make_results.py configs/x.py --seeds 0 1 2         # train and score first
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, median
from typing import Any

HERE = Path(__file__).parent
CONFIGS = HERE.parent / 'configs'
RECORDS, PAGE, PICTURES = HERE / 'results.json', HERE / 'results.md', HERE / 'curves'
HEAD = """# Results

This page shows the results of the shipped configs. Each row is one run of `python -m rlframe.entry -c CONFIG --seed SEED`. `return` is
the output of `python -m rlframe.entry eval RUN_FOLDER`: mean and standard deviation of the best checkpoint over 100 episodes that
training never saw, unless a note gives another number. Configs of [parallel mode](parallel.md) ran with `-m parallel`, over
`flask_fs`. Wall seconds cover the whole process, imports and evaluations included, with one torch thread; other work on the machine
makes them longer. With other versions of torch and numpy, the same seed gives other numbers. `python docs/make_results.py` generates
this page from `docs/results.json`, and trains and scores again if you pass a config and seeds.

`published` lists published results for the same env and algorithm, mostly of single runs.
"""
Run = Mapping[str, Any]


def main() -> None:
    """Measures the given config, if any, and writes the page, the pictures and the first lines."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('config', nargs='?', type=Path)
    parser.add_argument('--seeds', nargs='+', type=int, default=[0, 1, 2])
    parser.add_argument('--jobs', type=int, default=1, help='how many seeds are trained at a time')
    parser.add_argument('--episodes', type=int, default=100, help='to score the best checkpoint by')
    parser.add_argument('--note', default='', help='a remark on these runs for the page')
    parser.add_argument('--minutes', type=float, help='time limit of a run, which is then stopped and scored')
    args = parser.parse_args()
    if args.config:
        with ThreadPoolExecutor(args.jobs) as pool:
            one = partial(measure, args.config.resolve(), episodes=args.episodes, minutes=args.minutes)
            for run in pool.map(one, args.seeds):
                record(run | ({'note': args.note} if args.note else {}))
    write(json.loads(RECORDS.read_text(encoding='utf-8')))


def measure(config: Path, seed: int, episodes: int = 100, minutes: float | None = None) -> dict[str, Any]:
    """Trains a config with a seed, for a limited time, and scores its best checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        words = ['-c', str(config), '--seed', str(seed), '--exp-name', 'run', *_mode(config)]
        began = time.monotonic()
        was_stopped = _train(folder, words, minutes)
        seconds = time.monotonic() - began
        records = (Path(folder) / 'run' / 'metrics.jsonl').read_text(encoding='utf-8').splitlines()
        lines = [json.loads(line) for line in records]
        curve = [[x['envstep'], round(x['eval/mean_reward'], 3)] for x in lines if 'eval/mean_reward' in x]
        score = json.loads(_rlframe(folder, 'eval', 'run', '--episodes', str(episodes), '--json'))
    return {
        'config': config.stem,
        'seed': seed,
        'env_steps': lines[-1]['envstep'],
        'updates': lines[-1]['train_iter'],
        'seconds': round(seconds, 1),
        'best': max(mean for _, mean in curve),
        'mean': round(score['mean'], 3),
        'std': round(score['std'], 3),
        'curve': curve,
        'where': f'{_cpu()}; Python {platform.python_version()}, '
        + ', '.join(f'{name} {version(name)}' for name in ('torch', 'numpy', 'gymnasium'))
        + f'; {datetime.date.today()}',
    } | ({'note': f'not run to the end: stopped after {minutes:g} minutes'} if was_stopped else {})


def _mode(config: Path) -> list[str]:
    """Returns the flag of the mode that a config is written for."""
    return ['-m', 'parallel'] if 'comm_learner' in config.read_text(encoding='utf-8') else []


def _train(folder: str, words: Sequence[str], minutes: float | None) -> bool:
    """Trains, and returns whether the time limit stopped it."""
    with subprocess.Popen(
        [sys.executable, '-m', 'rlframe.entry', *words], cwd=folder, stdout=subprocess.DEVNULL
    ) as run:
        try:
            run.wait(None if minutes is None else 60 * minutes)
        except subprocess.TimeoutExpired:
            run.terminate()  # it saves, and exits with 143
            return run.wait() == 143
    if run.returncode:
        raise subprocess.CalledProcessError(run.returncode, run.args)
    return False


def _rlframe(folder: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, '-m', 'rlframe.entry', *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def _cpu() -> str:
    info = Path('/proc/cpuinfo')
    found = re.search(r'model name\s*:\s*(.*)', info.read_text(encoding='utf-8')) if info.exists() else None
    return found[1] if found else platform.processor()


def record(run: Run) -> None:
    """Records a run, replacing an earlier one of the same config and seed."""
    records = json.loads(RECORDS.read_text(encoding='utf-8'))
    key = run['config'], run['seed']
    runs = [old for old in records['runs'] if (old['config'], old['seed']) != key] + [run]
    records['runs'] = sorted(runs, key=lambda x: (x['config'], x['seed']))
    text = json.dumps(records, indent=1, ensure_ascii=False)
    text = re.sub(r'\[\s+(-?[\d.]+),\s+(-?[\d.]+)\s+\]', r'[\1, \2]', text)  # points of a curve, one a line
    RECORDS.write_text(text + '\n', encoding='utf-8')


def write(records: Mapping[str, Any]) -> None:
    """Writes the page, the pictures and the first lines of the configs."""
    PAGE.write_text(page(records), encoding='utf-8')
    for name, runs in by_config(records).items():
        file = CONFIGS / f'{name}.py'
        lines = file.read_text(encoding='utf-8').split('\n')
        lines[0] = first_line(lines[0], runs)
        file.write_text('\n'.join(lines), encoding='utf-8')
    PICTURES.mkdir(exist_ok=True)
    for env, runs in by_env(records).items():
        draw(env, runs)


def by_config(records: Mapping[str, Any]) -> dict[str, list[Run]]:
    """Groups the runs by config."""
    return _grouped(records['runs'], lambda run: run['config'])


def by_env(records: Mapping[str, Any]) -> dict[str, list[Run]]:
    """Groups the runs by env, as named in the first line of their config."""
    return _grouped(records['runs'], lambda run: title(run['config'])[1])


def _grouped(runs: Iterable[Run], key: Any) -> dict[str, list[Run]]:
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return groups


def title(config: str) -> tuple[str, str]:
    """Returns the algorithm and the env in the first line of a config."""
    first = (CONFIGS / f'{config}.py').read_text(encoding='utf-8').split(':')[0]
    algorithm, env = first.strip('"').split(' on ')
    return algorithm, env


def first_line(old: str, runs: Sequence[Run]) -> str:
    """Returns the first line of a config, with the results after the colon."""
    seeds, means = [run['seed'] for run in runs], [run['mean'] for run in runs]
    steps, seconds = median(run['env_steps'] for run in runs), median(run['seconds'] for run in runs)
    note = f'; {runs[0]["note"]}' if 'note' in runs[0] else ''
    what = f'seeds {seeds[0]}-{seeds[-1]}' if len(seeds) > 1 else f'seed {seeds[0]}'
    closing = '"""' if old.endswith('"""') else ''
    worst = f' (worst {_number(min(means))})' if len(seeds) > 1 else ''
    return f'{old.split(":")[0]}: return {_number(fmean(means))}, {what}{worst}, {steps:,.0f} env steps, {seconds:,.0f} s{note}.{closing}'


def _number(value: float, like: float | None = None) -> str:
    """Formats a number with digits that suit its size, or the size of another number."""
    return f'{value:.3f}' if abs(value if like is None else like) < 2 else f'{value:.1f}'


def page(records: Mapping[str, Any]) -> str:
    """Returns the text of ``docs/results.md``."""
    parts = [
        HEAD,
        '| config | mean of the seeds | worst | published |',
        '|---|---|---|---|',
    ]
    for name, runs in by_config(records).items():
        means = [run['mean'] for run in runs]
        published = records['published'].get(name, '')
        parts.append(f'| {_link(name)} | {_number(fmean(means))} | {_number(min(means))} | {published} |')
    for env, runs in by_env(records).items():
        parts += [
            f'\n## {env}\n',
            f'![Returns of evaluations while training](curves/{_slug(env)}.png)\n',
            TABLE,
        ]
        parts += [_row(run) for run in runs]
        notes = {run['config']: run['note'] for run in runs if 'note' in run}
        parts += [f'\n`{name}`: {note}.' for name, note in notes.items()]
    machines = sorted({run['where'] for run in records['runs']})
    return '\n'.join([*parts, '\n## Machines\n', *(f'- {machine}' for machine in machines), ''])


TABLE = '| config | seed | env steps | updates | wall seconds | best evaluation | return |\n|---|---|---|---|---|---|---|'


def _row(run: Run) -> str:
    scores = f'{_number(run["best"])} | {_number(run["mean"])} +- {_number(run["std"], run["mean"])}'
    numbers = f'{run["env_steps"]:,} | {run["updates"]:,} | {run["seconds"]:,}'
    return f'| {_link(run["config"])} | {run["seed"]} | {numbers} | {scores} |'


def _link(config: str) -> str:
    return f'[{config}](../configs/{config}.py)'


def _slug(env: str) -> str:
    return re.sub(r'\W+', '_', env).strip('_')


def draw(env: str, runs: Sequence[Run]) -> None:
    """Draws the returns of the evaluations of all runs in an env, one colour an algorithm and one line a seed."""
    import matplotlib as mpl

    mpl.use('Agg')
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout='constrained')
    for i, (config, group) in enumerate(_grouped(runs, lambda run: run['config']).items()):
        for run in group:
            steps, means = zip(*run['curve'], strict=True)
            label = title(config)[0] if run is group[0] else None
            axes.plot(steps, means, color=f'C{i}', alpha=0.8, linewidth=1.2, label=label)
    axes.set(title=env, xlabel='env steps', ylabel='return of an evaluation')
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(PICTURES / f'{_slug(env)}.png', dpi=110, metadata={'Software': None})
    plt.close(figure)


if __name__ == '__main__':
    main()
