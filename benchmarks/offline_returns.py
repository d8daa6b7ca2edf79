"""Returns of offline learners beside d3rlpy's: the same arrays, networks, options, updates and 100 episodes, by one thread.

usage: python benchmarks/offline_returns.py PEER_PYTHON [NAME ...] [--data data] [--seeds 0-4] [--updates 5000]

PEER_PYTHON is the interpreter of an environment with d3rlpy 2.8; the data are those of ``docs/make_data.py``. What is judged
is the last policy, not the best one. CPU seconds are those of learning. Each run becomes a record of
``offline_returns.json``; those that are there are not repeated.
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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

os.environ['OMP_NUM_THREADS'] = '1'  # before torch is imported

import numpy as np

from rlframe import config
from rlframe.app.seeds import parse_seeds
from rlframe.pipeline import SerialPipeline

HERE = Path(__file__).parent
sys.path.append(str(HERE / 'peers'))
from offline_episodes import returns  # noqa: E402

RECORDS = HERE / 'offline_returns.json'
PEER = HERE / 'peers' / 'w15_offline_returns.py'
PAGE = HERE.parent / 'docs' / 'how_to' / 'recorded_data.md'
START, END = '<!-- table of benchmarks/offline_returns.py -->', '<!-- end of it -->'


@dataclass(frozen=True)
class Case:
    """A learner of ours and one of d3rlpy's, with options that mean the same."""

    policy: str
    peer: str
    data: str
    learn: dict[str, Any]
    """Our options of ``policy.learn``."""
    theirs: dict[str, Any]
    """All of their arguments, but those of the networks."""
    encoders: tuple[str, ...] = ('actor_encoder_factory', 'critic_encoder_factory')
    """Their networks."""
    layer_norm: tuple[str, ...] = ()
    """Those of them whose layers are normalized."""
    widths: tuple[int, ...] = (64, 64)
    model: dict[str, Any] = field(default_factory=dict)
    """Our options of ``policy.model``."""
    normalize_obs: bool = False
    scale: float = 2.0
    """Largest action."""

    @property
    def env(self) -> str:
        """The env of the data."""
        return {'pendulum': 'Pendulum-v1', 'cartpole': 'CartPole-v1'}[self.data.split('_')[0]]


def _continuous(policy: str, peer: str, learn: Any = None, theirs: Any = None, **facts: Any) -> Case:
    """Returns a case of Pendulum."""
    rate = {'learning_rate_actor': 1e-3, 'learning_rate_critic': 1e-3}
    ours = {'batch_size': 256} | (rate if policy in ('td3_bc', 'rebrac') else {'learning_rate': 1e-3})
    other = {'batch_size': 256, 'gamma': 0.98, 'actor_learning_rate': 1e-3, 'critic_learning_rate': 1e-3}
    return Case(policy, peer, 'pendulum_replay', ours | (learn or {}), other | (theirs or {}), **facts)


def _discrete(policy: str, peer: str, learn: Any, theirs: Any, **facts: Any) -> Case:
    """Returns a case of CartPole."""
    ours = {'batch_size': 64, 'learning_rate': 1e-3, 'kappa': 1.0, 'target_update_freq': 200} | learn
    other = {'batch_size': 64, 'gamma': 0.99, 'learning_rate': 1e-3, 'target_update_interval': 200} | theirs
    model = {'dueling': False}
    return Case(policy, peer, 'cartpole_replay', ours, other, ('encoder_factory',), model=model, **facts)


CASES = {
    case.policy: case
    for case in (
        _continuous('td3_bc', 'TD3PlusBC', {'alpha': 2.5}, {'alpha': 2.5}, normalize_obs=True),
        _continuous(
            'iql',
            'IQL',
            {'expectile': 0.7, 'beta': 3.0},
            {'expectile': 0.7, 'weight_temp': 3.0},
            encoders=('actor_encoder_factory', 'critic_encoder_factory', 'value_encoder_factory'),
        ),
        _continuous('awac', 'AWAC', {'temperature': 1.0}, {'lam': 1.0}),
        _continuous(
            'rebrac',
            'ReBRAC',
            {'actor_beta': 0.05, 'critic_beta': 0.05},
            {'actor_beta': 0.05, 'critic_beta': 0.05},
            layer_norm=('critic_encoder_factory',),
            widths=(64, 64, 64),
        ),
        _discrete('discrete_cql', 'DiscreteCQL', {'conservative_weight': 1.0}, {'alpha': 1.0}),
        _discrete(
            'discrete_bcq',
            'DiscreteBCQ',
            {'threshold': 0.3, 'logit_decay': 0.01},
            {'action_flexibility': 0.3, 'beta': 0.01, 'share_encoder': False},
        ),
    )
}


def ours(case: Case, data: Path, updates: int, seed: int) -> dict[str, Any]:
    """Learns in this process, and returns the returns and the CPU seconds of learning."""
    is_continuous = case.data.startswith('pendulum')
    main = dict(
        exp_name='side',
        env=dict(env_id=case.env, evaluator_env_num=1, n_evaluator_episode=1),
        policy=dict(
            cuda=False,
            discount_factor=0.98 if is_continuous else 0.99,
            normalize_obs=case.normalize_obs,
            model=dict(encoder_hidden_size_list=list(case.widths)) | case.model,
            learn=case.learn,
            eval=dict(evaluator=dict(eval_freq=10**9)),
        ),
    )
    create = dict(
        env=dict(type='gym'),
        policy=dict(type=case.policy),
        collector=dict(type='dataset', data=str(data)),
    )
    with SerialPipeline(config.compile_config(main, create, seed=seed)) as pipeline:
        start = time.process_time()
        for _ in range(updates):
            pipeline.step()
        spent = time.process_time() - start
        face = pipeline.policy.eval_mode
        found = returns(case.env, lambda obs: face.forward(obs, np.arange(len(obs)))['action'])
    return {'cpu_seconds': spent, 'returns': found}


def run(side: str, case: Case, data: Path, updates: int, seed: int, peer: str) -> dict[str, Any]:
    """Lets one side learn in a process of its own, and returns its record."""
    if side == 'rlframe':
        words = [sys.executable, __file__, '--side', case.policy]
        rest = [str(data), str(updates), str(seed)]
    else:
        words = [peer, str(PEER), json.dumps(asdict(case))]
        rest = [str(data), case.env, str(updates), str(seed)]
    path = os.pathsep.join([str(HERE), os.environ.get('PYTHONPATH', '')])
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*words, *rest],
            capture_output=True,
            text=True,
            cwd=folder,
            env=os.environ | {'PYTHONPATH': path},
            check=False,
        )
    if done.returncode:
        raise SystemExit(done.stderr)
    found = json.loads(done.stdout.strip().splitlines()[-1])
    values = found['returns']
    return {
        'side': side,
        'policy': case.policy,
        'data': case.data,
        'updates': updates,
        'seed': seed,
        'mean': round(statistics.fmean(values), 2),
        'cpu_seconds': round(found['cpu_seconds'], 1),
    }


def read() -> list[dict[str, Any]]:
    """Returns all records."""
    found: list[dict[str, Any]] = json.loads(RECORDS.read_text(encoding='utf-8')) if RECORDS.exists() else []
    return found


def write(records: list[dict[str, Any]]) -> None:
    """Writes all records, in order."""
    lines = ',\n'.join(f' {json.dumps(record)}' for record in sorted(records, key=key))
    RECORDS.write_text(f'[\n{lines}\n]\n', encoding='utf-8')


def key(record: dict[str, Any]) -> tuple[Any, ...]:
    """Returns what tells a record from the others."""
    return tuple(record[name] for name in ('policy', 'data', 'updates', 'side', 'seed'))


def table(records: list[dict[str, Any]]) -> str:
    """Returns a line for each learner: mean and standard deviation over seeds, and median CPU seconds."""
    groups: dict[tuple[Any, ...], dict[str, list[dict[str, Any]]]] = {}
    for record in records:
        groups.setdefault(key(record)[:3], {}).setdefault(record['side'], []).append(record)
    lines = [
        '| policy | data | updates | seeds | rlframe | d3rlpy | CPU s | CPU s, d3rlpy |',
        '|---|---|---|---|---|---|---|---|',
    ]
    for (policy, data, updates), sides in groups.items():
        if len(sides) < 2:
            continue
        both = [sides['rlframe'], sides['d3rlpy']]
        means = [[record['mean'] for record in side] for side in both]
        seeds = min(map(len, means))
        shown = [
            f'{statistics.fmean(one):.1f} ± {statistics.stdev(one) if seeds > 1 else 0:.1f}' for one in means
        ]
        spent = [f'{statistics.median(record["cpu_seconds"] for record in side):.0f}' for side in both]
        lines.append(f'| `{policy}` | `{data}` | {updates:,} | {seeds} | {" | ".join([*shown, *spent])} |')
    return '\n'.join(lines)


def main() -> None:
    """Measures what is missing, and writes a table of all records into the page."""
    if sys.argv[1:2] == ['--side']:
        name, data, updates, seed = sys.argv[2:]
        print(json.dumps(ours(CASES[name], Path(data), int(updates), int(seed))))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('peer', metavar='PEER_PYTHON')
    parser.add_argument('names', nargs='*', metavar='NAME', help=f'of {", ".join(CASES)}; all by default')
    parser.add_argument('--data', type=Path, default=HERE.parent / 'data', help='folder of the data sets')
    parser.add_argument('--seeds', default='0-4')
    parser.add_argument('--updates', type=int, default=5_000)
    args = parser.parse_args()
    if unknown := sorted(set(args.names) - set(CASES)):
        parser.error(f'no case {unknown[0]!r}; there are {", ".join(CASES)}')
    for seed in parse_seeds(args.seeds):
        for name in args.names or CASES:
            case = CASES[name]
            for side in ('rlframe', 'd3rlpy'):
                if (name, case.data, args.updates, side, seed) in map(key, read()):
                    continue
                path = args.data.resolve() / f'{case.data}.npz'
                found = run(side, case, path, args.updates, seed, args.peer)
                write([*read(), found])
    lines = table(read())
    print(lines)
    before, rest = PAGE.read_text(encoding='utf-8').split(START)
    after = rest.split(END)[1]
    PAGE.write_text(f'{before}{START}\n\n{lines}\n\n{END}{after}', encoding='utf-8')


if __name__ == '__main__':
    main()
