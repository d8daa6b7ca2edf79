"""Trains rlframe and SB3 with equal options on the same envs, and compares the returns over seeds.

usage: python benchmarks/whole_runs.py --peer-python PYTHON [--rows NAME ...] [--seeds 0 1 ... 9]
       python benchmarks/whole_runs.py --report

PYTHON has stable_baselines3. Finished runs are kept in benchmarks/whole_runs.json and skipped, so an interrupted command goes
on where it was; to measure a run again, remove its record. ``--report`` writes the table into docs/conformance.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE / 'peers'))
from arguments import program  # noqa: E402
from until_return import mean_return  # noqa: E402

if TYPE_CHECKING:
    from time_to_return import Record

ROOT = HERE.parent
PAGE = ROOT / 'docs' / 'conformance.md'
MARKS = '<!-- whole runs -->', '<!-- /whole runs -->'
SIDES = OWN, PEER = 'rlframe', 'sb3'
EPISODES = 100
"""Greedy episodes behind the training; both sides play the same ones."""
Act = Callable[[Any], Any]


@dataclass(frozen=True)
class Row:
    """What both sides train: an env, a budget that leaves room to learn more, and options that mean the same."""

    policy: str
    env_id: str
    env_steps: int
    envs: int
    ours: dict[str, Any]
    """Keys behind ``policy.``, with what docs/conformance.md names."""
    theirs: dict[str, Any]
    noise: float = 0.0
    """Standard deviation of the noise that theirs adds to actions, in units of [-1, 1]."""
    hidden: tuple[int, ...] = (64, 64)
    """Units of the hidden layers of each network."""

    @property
    def name(self) -> str:
        """Name on the command line."""
        return f'{self.policy}:{self.env_id}'


_PPO = {'learn.advantage_ddof': 1, 'learn.entropy_weight': 0.0}
_REPLAY = {
    'collect.n_sample': 1,
    'learn.update_per_collect': 1,
    'other.replay_buffer.replay_buffer_size': 50_000,
}
_THEIR_REPLAY = {'train_freq': 1, 'gradient_steps': 1, 'buffer_size': 50_000}

ROWS = (
    Row(
        'ppo',
        'CartPole-v1',
        12_288,
        8,
        _PPO
        | {
            'collect.n_sample': 256,
            'collect.discount_factor': 0.98,
            'collect.gae_lambda': 0.8,
            'learn.batch_size': 64,
            'learn.epoch_per_collect': 10,
            'learn.learning_rate': 1e-3,
        },
        {
            'n_steps': 32,
            'gamma': 0.98,
            'gae_lambda': 0.8,
            'batch_size': 64,
            'n_epochs': 10,
            'learning_rate': 1e-3,
        },
    ),
    Row('a2c', 'CartPole-v1', 40_000, 8, {}, {}),
    Row(
        'dqn',
        'Acrobot-v1',
        20_000,
        1,
        {
            'double': False,
            'model.dueling': False,
            'discount_factor': 0.99,
            'random_collect_size': 1000,
            'collect.n_sample': 4,
            'learn.update_per_collect': 4,
            'learn.batch_size': 128,
            'learn.learning_rate': 6.3e-4,
            'learn.kappa': 1.0,
            'learn.grad_clip_norm': 10.0,
            'learn.target_update_freq': 250,
            'other.eps': {'type': 'linear', 'start': 1.0, 'end': 0.1, 'decay': 5000},
            'other.replay_buffer.replay_buffer_size': 50_000,
        },
        {
            'learning_starts': 1000,
            'train_freq': 4,
            'gradient_steps': 4,
            'batch_size': 128,
            'learning_rate': 6.3e-4,
            'target_update_interval': 250,
            'exploration_fraction': 0.25,
            'exploration_final_eps': 0.1,
            'buffer_size': 50_000,
        },
        hidden=(256, 256),
    ),
    Row(
        'sac',
        'Pendulum-v1',
        4_000,
        1,
        _REPLAY
        | {
            'random_collect_size': 100,
            **{f'learn.learning_rate_{part}': 1e-3 for part in ('actor', 'critic', 'alpha')},
        },
        _THEIR_REPLAY | {'learning_starts': 100, 'learning_rate': 1e-3},
    ),
    Row(
        'td3',
        'LunarLanderContinuous-v3',
        15_000,
        1,
        _REPLAY | {'random_collect_size': 1000, 'collect.noise_sigma': 0.1},
        _THEIR_REPLAY | {'learning_starts': 1000},
        noise=0.1,
        hidden=(128, 128),
    ),
    Row(
        'ppo',
        'LunarLander-v3',
        131_072,
        16,
        _PPO
        | {
            'collect.n_sample': 4096,
            'collect.discount_factor': 0.999,
            'collect.gae_lambda': 0.98,
            'learn.batch_size': 64,
            'learn.epoch_per_collect': 4,
        },
        {'n_steps': 256, 'gamma': 0.999, 'gae_lambda': 0.98, 'batch_size': 64, 'n_epochs': 4},
    ),
)


def play(env_id: str, act: Act) -> float:
    """Returns the mean return of greedy episodes, which have the same seeds for every run."""
    import gymnasium

    envs = [gymnasium.make(env_id) for _ in range(EPISODES)]
    return mean_return(envs, range(10_000, 10_000 + EPISODES), act)


def config_of(row: Row, seed: int) -> Any:
    """Returns the compiled config of a row."""
    from rlframe.config import compile_config

    main = {'env': {'env_id': row.env_id, 'collector_env_num': row.envs}, 'policy': {'cuda': False}}
    create = {'env': {'type': 'gym'}, 'policy': {'type': row.policy}}
    own = row.ours | {'model.encoder_hidden_size_list': list(row.hidden)}
    overrides = {f'policy.{key}': value for key, value in own.items()}
    return compile_config(main, create, overrides=overrides, seed=seed, max_env_step=row.env_steps)


def train_ours(row: Row, seed: int) -> tuple[int, float]:
    """Trains rlframe, and returns env steps and the mean return."""
    from rlframe.pipeline import SerialPipeline

    with SerialPipeline(config_of(row, seed)) as pipeline:
        pipeline.evaluator.should_eval = lambda *_: False
        while not pipeline.finished:
            pipeline.step()
        face = pipeline.policy.eval_mode
        return pipeline.progress.envstep, play(
            row.env_id, lambda obs: face.forward(obs, np.arange(len(obs)))['action']
        )


def train_theirs(row: Row, seed: int) -> tuple[int, float]:
    """Trains SB3, and returns env steps and the mean return."""
    import stable_baselines3
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.noise import NormalActionNoise

    env = make_vec_env(row.env_id, row.envs, seed=seed)
    options = dict(row.theirs)
    if row.noise:
        size = env.action_space.shape[0]
        options['action_noise'] = NormalActionNoise(np.zeros(size), np.full(size, row.noise))
    kind = getattr(stable_baselines3, row.policy.upper())
    net = {'net_arch': list(row.hidden)}
    model = kind('MlpPolicy', env, seed=seed, device='cpu', policy_kwargs=net, **options)
    model.learn(row.env_steps)
    return model.num_timesteps, play(row.env_id, lambda obs: model.predict(obs, deterministic=True)[0])


def run_side(row: Row, seed: int, side: str, peer_python: str) -> dict[str, Any]:
    """Trains one side in a process of its own, in a folder that goes away.

    Raises:
        RuntimeError: If it fails, with the last line that it wrote.
    """
    from time_to_return import answer_of  # it needs rich, which SB3's interpreter may lack

    python, own = (sys.executable, [str(ROOT)]) if side == OWN else (peer_python, [])
    path = os.pathsep.join([*own, *filter(None, [os.environ.get('PYTHONPATH')])])
    command = [python, str(Path(__file__).resolve()), '--one', row.name, str(seed), side]
    with tempfile.TemporaryDirectory() as folder:
        found = answer_of(command, {'PYTHONPATH': path}, f'{row.name} seed {seed}, {side}', folder)
    return {'config': row.name, 'seed': seed, 'side': side, **found}


def scores(records: Sequence[Record], row: Row, side: str) -> list[float]:
    """Returns the returns of a side, seed by seed."""
    return [each['return'] for each in records if (each['config'], each['side']) == (row.name, side)]


def table(records: Sequence[Record]) -> str:
    """Returns the table of all rows that both sides have trained, and the probability of improvement over all of them."""
    from rlframe.app.comparison import estimate, improvement

    head = '| policy | env | env steps | seeds | rlframe | SB3 | P(rlframe > SB3) |'
    lines, pairs = [head, '|---' * head.count(' | ') + '|---|'], []
    for row in ROWS:
        both = [scores(records, row, side) for side in SIDES]
        if not all(both):
            continue
        pairs.append(both)
        cells = [interval(*estimate(each).values(), digits=1) for each in both]
        seeds = ', '.join(dict.fromkeys(str(len(each)) for each in both))
        chance = interval(*improvement(both).values(), digits=2)
        lines.append(
            f'| `{row.policy}` | {row.env_id} | {row.env_steps:,} | {seeds} | {" | ".join(cells)} | {chance} |'
        )
    if len(pairs) > 1:
        lines.append(f'| all | | | | | | {interval(*improvement(*pairs).values(), digits=2)} |')
    return '\n'.join(lines)


def interval(value: float, low: float, high: float, digits: int) -> str:
    """Returns a value and its interval as text."""
    return f'{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]'


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains what is missing and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    names = [row.name for row in ROWS]
    parser.add_argument(
        '--rows', nargs='+', choices=names, default=names, metavar='POLICY:ENV', help='only these'
    )
    parser.add_argument('--seeds', nargs='+', type=int, default=list(range(10)))
    parser.add_argument(
        '--peer-python', type=program, default=sys.executable, help='interpreter that has SB3'
    )
    parser.add_argument('--results', type=Path, default=HERE / 'whole_runs.json', help='file of records')
    parser.add_argument('--report', action='store_true', help='train nothing, write the table')
    parser.add_argument('--one', nargs=3, metavar=('ROW', 'SEED', 'SIDE'), help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.one:
        name, seed, side = args.one
        (row,) = (row for row in ROWS if row.name == name)
        import torch

        torch.set_num_threads(1)
        steps, score = (train_ours if side == OWN else train_theirs)(row, int(seed))
        print(json.dumps({'peer': side, 'env_steps': steps, 'return': score}))
        return
    from time_to_return import Results

    results = Results(args.results, args.report)
    jobs = [
        (row, seed, side) for seed in args.seeds for row in ROWS if row.name in args.rows for side in SIDES
    ]
    for row, seed, side in [] if args.report else jobs:
        if results.has(row.name, seed, side):
            continue
        try:
            results.add(run_side(row, seed, side, args.peer_python))
        except RuntimeError as error:
            sys.exit(str(error))
        print(f'{row.name} seed {seed}, {side}: {results.records[-1]["return"]:.1f}', flush=True)
    text = table(results.records)
    print(text)
    if args.report:
        before, _, rest = PAGE.read_text(encoding='utf-8').partition(MARKS[0])
        PAGE.write_text(
            f'{before}{MARKS[0]}\n{text}\n{MARKS[1]}{rest.partition(MARKS[1])[2]}', encoding='utf-8'
        )
        print(f'wrote {PAGE}')


if __name__ == '__main__':
    main()
