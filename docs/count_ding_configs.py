"""Counts how many of DI-engine's own configs compile and train here, and writes the tables of ``docs/from_ding.md``.

usage: pip download DI-engine==0.5.3 --no-deps && unzip -q DI_engine-*.whl -d ding
       python docs/count_ding_configs.py ding                       # prints what compiles
       python docs/count_ding_configs.py ding --train 2000 --write  # trains it, too, and writes the tables

Read are all files below a folder ``config`` whose policy exists here; DI-engine itself need not be installed. A config
trains with everything that it says, but with small evaluations, a short random start, a small replay buffer, envs in the
training process, and on a GPU only if there is one. What it learns from is made: the data of offline policies, of reward models and of an expert that
would act are random actions in its env. Offline policies are trained for as many updates as others for env steps.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import process_time
from typing import Any

from rlframe.app.collect import CollectRequest, collect
from rlframe.config import compile_config, read_config
from rlframe.config.components import plain_type
from rlframe.config.ding_convert import Draft
from rlframe.config.ding_table import type_here
from rlframe.config.schema import REWARD_MODELS
from rlframe.errors import ConfigErrors, EnvError, MissingDependencyError, RLFrameError
from rlframe.pipeline import SerialPipeline
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import to_plain

PAGE = Path(__file__).with_name('from_ding.md')
BEGIN, END = '<!-- count_ding_configs.py begins -->', '<!-- count_ding_configs.py ends -->'
SMALL = {
    'env.evaluator_env_num': 1,
    'env.n_evaluator_episode': 1,
    'env.stop_value': 1e9,
    'policy.eval.evaluator.eval_freq': 10**9,  # only before and after training
    'policy.eval.evaluator.max_episode_len': 100,
    'policy.device': 'auto',  # some name a GPU
}
MOST = {'policy.random_collect_size': 500, 'policy.other.replay_buffer.replay_buffer_size': 10_000}
WIDTH = 8
"""Channels of a light network for images, and units of its other layers."""
DATA = 'policy.collect.collector.data'
EXPERT = 'model_path'
DEMONSTRATIONS = 'policy.other.replay_buffer.init_from'
MADE = 'made.npz'
"""Name of the data that are made."""
SEEN = 'type', 'protocol', 'frame_skip', 'frame_stack'
"""Options that change what a game shows."""
QUICK: dict[str, dict[str, Any]] = {
    'trex': {'updates': 20, 'ensemble': 1},
    'drex': {'updates': 20, 'ensemble': 1, 'clone_updates': 20, 'episodes_per_noise': 1},
}
"""Options of reward models that learn before training."""
TRAINS, SLOW, NEEDS, FAILS = 'trains', 'slow', 'needs', 'fails'
STARTING = 300
"""Seconds that a training process may take beyond ten times its limit, to start and to end its last round."""


def main(words: Sequence[str] | None = None) -> int:
    """Counts, trains if asked to, prints or writes the tables, and returns the exit code."""
    args = _parser().parse_args(words)
    if args.one:
        answer = train(args.folder, args.train, args.limit, args.light)
        sys.stdout.write(json.dumps(answer) + '\n')
        return 0
    rows = [row for file in sorted(args.folder.rglob('config/**/*.py')) if (row := compiled(file))]
    if args.train:
        saved = json.loads(args.saved.read_text()) if args.saved and args.saved.exists() else {}
        with ThreadPoolExecutor(args.jobs) as pool:
            for row, answer in pool.map(lambda row: (row, _outcome(row, saved, args)), rows):
                row['outcome'] = saved[row['file']] = answer
                if args.saved and answer:
                    args.saved.write_text(json.dumps(saved, indent=1))
    text = '\n'.join(tables(rows, args.train))
    sys.stdout.write(text + '\n')
    if args.write:
        page = PAGE.read_text(encoding='utf-8')
        before, after = page.partition(BEGIN)[0], page.partition(END)[2]
        PAGE.write_text(f'{before}{BEGIN}\n\n{text}\n\n{END}{after}', encoding='utf-8')
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('folder', type=Path, help="DI-engine's unpacked wheel, or any folder")
    parser.add_argument(
        '--train', type=int, default=0, metavar='STEPS', help='env steps to train (default: 0)'
    )
    parser.add_argument('--limit', type=int, default=120, help='CPU seconds for each training (default: 120)')
    parser.add_argument('--light', action='store_true', help='cut networks of images to a few channels')
    parser.add_argument('--jobs', type=int, default=2, help='trainings at a time (default: 2)')
    parser.add_argument(
        '--saved', type=Path, help='JSON file of trainings; only those that failed are repeated'
    )
    parser.add_argument('--write', action='store_true', help=f'replace the tables of {PAGE.name}')
    parser.add_argument('--one', action='store_true', help=argparse.SUPPRESS)
    return parser


def compiled(file: Path) -> dict[str, Any] | None:
    """Returns the policy of a config and the reason why it does not compile, '' if it does.

    None for files that are no config, and for those of policies that do not exist here.
    """
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        try:
            main_config, create_config = read_config(file)
        except RLFrameError as error:
            if 'create_config' not in file.read_text(encoding='utf-8') or file.name == '__init__.py':
                return None
            sys.stderr.write(f'not read: {file}: {str(error).splitlines()[0]}\n')
            return None
        kind = plain_type(Draft(to_plain(main_config), to_plain(create_config)).kind('policy'))
        policy = type_here(kind) if isinstance(kind, str) else ''
        if policy not in POLICY_REGISTRY.names():
            return None
        try:
            compile_config(main_config, create_config)
        except RLFrameError as error:
            return {'file': str(file), 'policy': policy, 'reason': reason(error), 'outcome': None}
    return {'file': str(file), 'policy': policy, 'reason': '', 'outcome': None}


def reason(error: RLFrameError) -> str:
    """Returns the first mistake that an error names, without its values."""
    first = error.errors[0] if isinstance(error, ConfigErrors) else error
    text = re.sub(r"(env type|policy|evaluator) '[^']*'", r'\1', first.message).partition('. Registered')[0]
    return f'`{first.where.removeprefix("create_config.")}`: {text}' if first.where else text


def _outcome(row: dict[str, Any], saved: dict[str, Any], args: argparse.Namespace) -> Any:
    """Returns how a training of a config ends, as ``[one of the four words, more]``; None if it does not compile."""
    known = saved.get(row['file'])
    if row['reason'] or (known and known[0] != FAILS):
        return known
    words = [row['file'], '--one', '--train', str(args.train), '--limit', str(args.limit)]
    words += ['--light'] if args.light else []
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [sys.executable, __file__, *words],
                capture_output=True,
                text=True,
                cwd=folder,
                timeout=10 * args.limit + STARTING,
            )
        except subprocess.TimeoutExpired:
            answer = [FAILS, 'no answer within the limit']
        else:
            lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines() or ['']
            answer = json.loads(lines[-1]) if done.returncode == 0 else [FAILS, lines[-1]]
    sys.stderr.write(f'{row["file"]}: {" ".join(map(str, answer))}\n')
    return answer


def _small(cfg: Any, light: bool) -> dict[str, Any]:
    """Returns the options of a config that make its training small."""
    overrides: dict[str, Any] = dict(SMALL)
    for key, most in MOST.items():
        section = cfg
        for name in key.split('.')[:-1]:
            section = section.get(name) or {}
        if (given := section.get(key.rpartition('.')[2])) is not None:
            overrides[key] = min(given, most)
    if light and (layers := cfg.policy.model.get('conv_layers')):
        overrides['policy.model.conv_layers'] = [[WIDTH, *rest] for _, *rest in layers]
        widths = {'encoder_hidden_size_list': [WIDTH], 'lstm_hidden_size': WIDTH}
        overrides |= {f'policy.model.{key}': new for key, new in widths.items() if key in cfg.policy.model}
    return overrides


def _recorded(cfg: Any) -> dict[str, Any]:
    """Returns options that name data of random actions for all that learns from data; records them in this folder."""
    options: dict[str, Any] = {}
    if cfg.policy.collect.collector.type == 'dataset':
        options[DATA] = MADE
    if cfg.policy.collect.get(EXPERT):
        options |= {f'policy.collect.{EXPERT}': None, DEMONSTRATIONS: MADE}
    elif (cfg.policy.other.replay_buffer or {}).get('init_from'):
        options[DEMONSTRATIONS] = MADE
    models = to_plain(cfg.get(REWARD_MODELS) or {})
    for name, model in models.items():
        if 'data' in model and model['data'] is None:
            own = {'data': MADE, **QUICK.get(model['type'], {})}
            options |= {f'{REWARD_MODELS}.{name}.{key}': value for key, value in own.items()}
    if options:
        names = SEEN if cfg.env.type == 'atari' else ()
        words = tuple(f'env.{name}={cfg.env[name]!r}' for name in names)
        collect(None, CollectRequest(1000, MADE, overrides=words), cfg.env.env_id)
    return options


def train(file: Path, steps: int, limit: int, light: bool) -> list[str]:
    """Trains a config in this process and this folder; returns one of the four words, and more about it.

    Args:
        file: The config.
        steps: Budget in env steps, or in updates from recorded data.
        limit: CPU seconds of the process after which training ends with the next round.
        light: Whether networks that read images get a few channels.
    """
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        pair = read_config(file)
        if 'subprocess' in str(pair[1].get('env_manager', {}).get('type')):
            pair[1].env_manager.type = 'base'
        cfg = compile_config(*pair)
        small = _small(cfg, light)
        deadline = process_time() + limit
        try:
            small |= _recorded(cfg)
            budget = 'max_train_iter' if DATA in small else 'max_env_step'
            cfg = compile_config(*pair, overrides=small, seed=0, **{budget: steps})
            with SerialPipeline(cfg) as pipeline:
                pipeline.run(after_step=lambda _: process_time() > deadline)
        except (EnvError, MissingDependencyError) as error:
            where = f'the env `{cfg.env.env_id}`' if error.where == 'env.env_id' else f'`{error.where}`'
            return [NEEDS, f'compiles; {where} needs a package that is not installed where this was counted']
        except RLFrameError as error:
            return [FAILS, f'compiles; {str(error).splitlines()[0]}']
    counts = pipeline.progress.envstep, pipeline.progress.train_iter, pipeline.evaluations
    word = FAILS if not all(counts) else TRAINS if pipeline.complete else SLOW
    return [word, '{} env steps, {} updates, {} evaluations'.format(*counts)]


def tables(rows: list[dict[str, Any]], steps: int) -> Iterable[str]:
    """Yields the lines of the tables."""
    columns: list[tuple[str, Any]] = [
        ('configs', lambda row: True),
        ('compile', lambda row: not row['reason']),
    ]
    if steps:
        columns += [
            (f'train {steps:,} env steps', lambda row: (row['outcome'] or [''])[0] == TRAINS),
            ('train, slowly', lambda row: (row['outcome'] or [''])[0] == SLOW),
            ('need a package or data', lambda row: (row['outcome'] or [''])[0] == NEEDS),
        ]
    yield '| policy | ' + ' | '.join(name for name, _ in columns) + ' |'
    yield '|---' * (1 + len(columns)) + '|'
    policies = sorted({row['policy'] for row in rows})
    for title, chosen in [*((f'`{name}`', {name}) for name in policies), ('all', set(policies))]:
        counts = [sum(row['policy'] in chosen and test(row) for row in rows) for _, test in columns]
        yield f'| {title} | ' + ' | '.join(map(str, counts)) + ' |'
    reasons = collections.Counter(row['reason'] for row in rows if row['reason'])
    outcomes = [row['outcome'] for row in rows if row['outcome']]
    reasons.update(text for word, text in outcomes if word in (NEEDS, FAILS))
    yield ''
    yield '| configs | reason |'
    yield '|---|---|'
    for text, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
        yield f'| {count} | {text} |'


if __name__ == '__main__':
    sys.exit(main())
