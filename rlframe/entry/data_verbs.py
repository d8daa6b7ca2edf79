"""The verbs about recorded data; see ``verbs``."""

from __future__ import annotations

from rlframe.entry.arguments import JSON, LOOK, TRUST, USE, Args, arg, count, flag, overrides, seed, verb


@verb(
    USE,
    'record env steps of a policy as data to learn from',
    (
        'cartpole_dqn_seed0 -n 100000 --out cartpole_expert',
        'cartpole_dqn_seed0/ckpt/latest --replay --out cartpole_replay.npz',
        '--random --env CartPole-v1 -n 10000 --out cartpole_random.parquet',
    ),
    arg('checkpoint', 'a run folder (its best checkpoint), or a checkpoint', 'RUN', nargs='?'),
    flag('--random', 'record random actions, in the env of --env'),
    arg('--env', 'with --random: the env, as train --env takes it', 'ID'),
    flag('--replay', 'write the replay buffer of the checkpoint instead of playing'),
    arg(
        '-n --steps',
        'env steps, rounded up to whole episodes (default: 100,000)',
        'N',
        type=count,
        default=100_000,
    ),
    arg('--out', 'the data, which must not exist', 'DATA', required=True),
    arg(
        '--format',
        'minari (a folder, the default), npz or parquet (default: by the ending of DATA)',
        'FORMAT',
    ),
    flag('--explore', 'act as in training, by drawn actions or with noise (default: as in evaluation)'),
    arg(
        '--eps',
        'with --explore: share of random actions of a policy such as dqn (default: as at the checkpoint)',
        'EPS',
        type=float,
    ),
    seed('episodes (default: 0)', default=0),
    TRUST,
    JSON,
    overrides('run'),
)
def collect(args: Args) -> int:
    """Records, shows the progress on stderr, and keeps whole episodes after Ctrl-C."""
    from rlframe.entry.collect import run

    return run(args)


@verb(
    LOOK,
    'describe recorded data: episodes, returns, spaces, and what is wrong',
    ('cartpole_expert', 'cartpole_replay.npz --env CartPole-v1', 'cartpole_expert --out returns.png --json'),
    arg(
        'data',
        'a folder of Minari or the id of one on this machine, or a .npz, .parquet or .hdf5 file',
        'DATA',
    ),
    arg(
        '--env',
        'check the data against this env: spaces, and episodes that are replayed from their seeds',
        'ID',
    ),
    arg('--out', 'a .png or .svg file for a histogram of the returns', 'FILE'),
    arg(
        '--memory',
        'GiB that the data may occupy in memory; more is read from disk (default: 4)',
        'GiB',
        type=float,
        default=4.0,
    ),
    flag('--download', 'let Minari fetch an id that is not on this machine'),
    JSON,
)
def data(args: Args) -> int:
    """Describes data; 1 if something is wrong with them."""
    from rlframe.app.data_report import data_text, inspect_data
    from rlframe.display.text import say_result

    found = inspect_data(args.data, args.env, args.out, args.memory, args.download)
    say_result(found, data_text, args.json)
    return 1 if found['problems'] else 0
