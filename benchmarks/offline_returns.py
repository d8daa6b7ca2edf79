"""Returns of offline learners beside d3rlpy's: the same arrays, networks, options, updates and 100 episodes, by one thread.

usage: python benchmarks/offline_returns.py pendulum cartpole --peer-python D3/bin/python [--seeds 0-4] [--updates 5000]
       python benchmarks/offline_returns.py hopper --seeds 0-2 --updates 30000  # rlframe alone

A NAME is a policy, or the beginning of the name of data, which are those of ``docs/make_data.py``; the peer is d3rlpy 2.8 in
an environment of its own. What is judged is the last policy, not the best one. CPU seconds are those of learning. Each run
becomes a record of ``offline_returns.json``; those that are there are not repeated, those of other options go.
"""

from __future__ import annotations

import argparse
import hashlib
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
from arguments import program  # noqa: E402
from offline_episodes import returns  # noqa: E402

RECORDS = HERE / 'offline_returns.json'
PEER = HERE / 'peers' / 'w15_offline_returns.py'
PAGE = HERE.parent / 'docs' / 'how_to' / 'recorded_data.md'
START, END = '<!-- table of benchmarks/offline_returns.py -->', '<!-- end of it -->'
ENVS = {
    'pendulum': ('Pendulum-v1', 0.98),
    'cartpole': ('CartPole-v1', 0.99),
    'hopper': ('Hopper-v4', 0.99),
}
"""The first word of the name of data to their env, and our discount in it."""
PEERS = ('peer', 'theirs', 'encoders', 'layer_norm', 'scale')
"""What only d3rlpy's side of a case reads."""


@dataclass(frozen=True)
class Case:
    """A learner of ours and one of d3rlpy's, with options that mean the same."""

    policy: str
    peer: str
    """Its class; empty: rlframe learns alone."""
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
    decays: bool = False
    """Whether our learning rates fall to 0 along a line. By constant ones, Hopper's last policy is luck."""
    scale: float = 2.0
    """Largest action."""
    top: float = 1.0
    """Share of the episodes that is learned from, by return."""

    @property
    def env(self) -> str:
        """The env of the data."""
        return ENVS[self.data.split('_')[0]][0]

    @property
    def discount(self) -> float:
        """Our weight of the next reward."""
        return ENVS[self.data.split('_')[0]][1]

    @property
    def name(self) -> str:
        """What tables call it."""
        return self.policy if self.top == 1 else f'{self.policy}, best {self.top:.0%}'

    def learn_of(self, updates: int) -> dict[str, Any]:
        """Returns our options of ``policy.learn`` for a run of some updates."""
        if not self.decays:
            return self.learn
        line = {'type': 'linear', 'end': 0.0, 'decay': updates * self.learn['batch_size']}  # transitions
        rates = {name: rate for name, rate in self.learn.items() if name.startswith('learning_rate')}
        return self.learn | {name: line | {'start': rate} for name, rate in rates.items()}

    def digest(self, side: str) -> str:
        """Names the options of a side: records of others are not of this case. Ours do not hang on the peer's."""
        options = asdict(self)
        if side == 'rlframe':
            options = {name: value for name, value in options.items() if name not in PEERS}
        return hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()[:8]

    def answers(self, word: str) -> bool:
        """Whether it is meant by a policy, or by the beginning of the name of its data."""
        return word == self.policy or self.data.startswith(word)


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


IQL = ('actor_encoder_factory', 'critic_encoder_factory', 'value_encoder_factory')
"""The networks of d3rlpy's IQL."""
HOPPER = {
    'hopper_medium_replay': {'actor_beta': 0.05, 'critic_beta': 0.5},
    'hopper_medium_expert': {'actor_beta': 0.1, 'critic_beta': 0.01},
}
"""Hopper's data, and the weights that ReBRAC's authors chose for D4RL's data of the same names."""


def _of_hopper(data: str, weights: dict[str, float]) -> tuple[Case, ...]:
    """Returns the cases of Hopper, by layers of 256, with the coefficients of their papers and larger steps."""
    slow = {'batch_size': 256, 'learning_rate': 3e-4}
    # values must go through an episode in 30,000 updates, where the papers have a million
    fast = {'target_theta': 0.05, 'batch_size': 256}
    rate = fast | {'learning_rate': 1e-3}
    rates = fast | {'learning_rate_actor': 1e-3, 'learning_rate_critic': 1e-3}

    theirs = {'batch_size': 256, 'gamma': 0.99, 'tau': 0.05}
    theirs |= {'actor_learning_rate': 1e-3, 'critic_learning_rate': 1e-3}

    def case(policy: str, learn: Any, peer: str = '', other: Any = None, **facts: Any) -> Case:
        facts = {'widths': (256, 256), 'normalize_obs': True, 'decays': True, 'scale': 1.0} | facts
        return Case(policy, peer, data, learn, theirs | (other or {}), **facts)

    return (
        case('bc', slow),
        case('bc', slow, top=0.1),
        # the paper has a beta of 3, for rewards a third as large
        case(
            'iql',
            rate | {'expectile': 0.7, 'beta': 1.0},
            'IQL',
            {'expectile': 0.7, 'weight_temp': 1.0},
            encoders=IQL,
        ),
        # by a temperature of 1, a batch is a single row
        case('awac', rate | {'temperature': 3.0}, 'AWAC', {'lam': 3.0}),
        case('td3_bc', rates | {'alpha': 2.5}, 'TD3PlusBC', {'alpha': 2.5}),
        case(
            'rebrac',
            rates | weights,
            'ReBRAC',
            weights,
            layer_norm=('critic_encoder_factory',),
            widths=(256, 256, 256),
        ),
    )


CASES = (
    _continuous('td3_bc', 'TD3PlusBC', {'alpha': 2.5}, {'alpha': 2.5}, normalize_obs=True),
    _continuous(
        'iql',
        'IQL',
        {'expectile': 0.7, 'beta': 3.0},
        {'expectile': 0.7, 'weight_temp': 3.0},
        encoders=IQL,
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
    *(case for data, weights in HOPPER.items() for case in _of_hopper(data, weights)),
)


def ours(case: Case, data: Path, updates: int, seed: int) -> dict[str, Any]:
    """Learns in this process, and returns the returns and the CPU seconds of learning."""
    discounts = {} if case.policy == 'bc' else {'discount_factor': case.discount}
    main = dict(
        exp_name='side',
        env=dict(env_id=case.env, evaluator_env_num=1, n_evaluator_episode=1),
        policy=dict(
            cuda=False,
            normalize_obs=case.normalize_obs,
            model=dict(encoder_hidden_size_list=list(case.widths)) | case.model,
            learn=case.learn_of(updates),
            eval=dict(evaluator=dict(eval_freq=10**9)),
            **discounts,
        ),
    )
    create = dict(
        env=dict(type='gym'),
        policy=dict(type=case.policy),
        collector=dict(type='dataset', data=str(data), top=case.top),
    )
    with SerialPipeline(config.compile_config(main, create, seed=seed)) as pipeline:
        start = time.process_time()
        for _ in range(updates):
            pipeline.step()
        spent = time.process_time() - start
        face = pipeline.policy.eval_mode
        found = returns(case.env, lambda obs: face.forward(obs, np.arange(len(obs)))['action'])
    return {'cpu_seconds': spent, 'returns': found}


def run(side: str, case: Case, data: Path, updates: int, seed: int, peer: str | None) -> dict[str, Any]:
    """Lets one side learn in a process of its own, and returns its record."""
    if side == 'rlframe':
        words = [sys.executable, __file__, '--side', str(CASES.index(case))]
        rest = [str(data), str(updates), str(seed)]
    else:
        words = [str(peer), str(PEER), json.dumps(asdict(case))]
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
        'policy': case.name,
        'data': case.data,
        'updates': updates,
        'seed': seed,
        'options': case.digest(side),
        'mean': round(statistics.fmean(values), 2),
        'cpu_seconds': round(found['cpu_seconds'], 1),
    }


def read() -> list[dict[str, Any]]:
    """Returns the records of today's options."""
    found: list[dict[str, Any]] = json.loads(RECORDS.read_text(encoding='utf-8')) if RECORDS.exists() else []
    known = {case.digest(side) for case in CASES for side in ('rlframe', 'd3rlpy')}
    return [record for record in found if record['options'] in known]


def write(records: list[dict[str, Any]]) -> None:
    """Writes all records, in order."""
    lines = ',\n'.join(f' {json.dumps(record)}' for record in sorted(records, key=key))
    RECORDS.write_text(f'[\n{lines}\n]\n', encoding='utf-8')


def key(record: dict[str, Any]) -> tuple[Any, ...]:
    """Returns what tells a record from the others."""
    return tuple(record[name] for name in ('policy', 'data', 'updates', 'side', 'seed'))


def spread(means: list[float]) -> str:
    """Returns the mean of seeds, and their standard deviation if there are several; empty if there is none."""
    deviation = f' ± {statistics.stdev(means):.1f}' if len(means) > 1 else ''
    return f'{statistics.fmean(means):.1f}{deviation}' if means else ''


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
        both = [sides.get('rlframe', []), sides.get('d3rlpy', [])]
        means = [[record['mean'] for record in side] for side in both]
        seeds = min(len(side) for side in means if side)
        spent = [f'{statistics.median(r["cpu_seconds"] for r in side):.0f}' if side else '' for side in both]
        lines.append(
            f'| `{policy}` | `{data}` | {updates:,} | {seeds} | {" | ".join([*map(spread, means), *spent])} |'
        )
    return '\n'.join(lines)


def main() -> None:
    """Measures what is missing, and writes a table of all records into the page."""
    if sys.argv[1:2] == ['--side']:
        number, data, updates, first = sys.argv[2:]
        print(json.dumps(ours(CASES[int(number)], Path(data), int(updates), int(first))))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('names', nargs='+', metavar='NAME', help='policies, or beginnings of names of data')
    parser.add_argument(
        '--peer-python',
        type=program,
        metavar='PYTHON',
        help='interpreter that has d3rlpy; without it rlframe learns alone',
    )
    parser.add_argument('--data', type=Path, default=HERE.parent / 'data', help='folder of the data sets')
    parser.add_argument('--seeds', default='0-4')
    parser.add_argument('--updates', type=int, default=5_000)
    args = parser.parse_args()
    if unknown := [name for name in args.names if not any(case.answers(name) for case in CASES)]:
        parser.error(
            f'no case {unknown[0]!r}; there are {", ".join(sorted({case.policy for case in CASES}))}'
        )
    chosen = [case for case in CASES if any(map(case.answers, args.names))]
    for seed in parse_seeds(args.seeds):
        for case in chosen:
            for side in ('rlframe', 'd3rlpy') if case.peer and args.peer_python else ('rlframe',):
                if (case.name, case.data, args.updates, side, seed) in map(key, read()):
                    continue
                path = args.data.resolve() / f'{case.data}.npz'
                found = run(side, case, path, args.updates, seed, args.peer_python)
                write([*read(), found])
    lines = table(read())
    print(lines)
    before, rest = PAGE.read_text(encoding='utf-8').split(START)
    after = rest.split(END)[1]
    PAGE.write_text(f'{before}{START}\n\n{lines}\n\n{END}{after}', encoding='utf-8')


if __name__ == '__main__':
    main()
