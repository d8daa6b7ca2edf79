"""The verbs of the command line: the arguments of each, and the function that runs it and returns the exit code.

Nothing heavy is imported before a verb runs. Its work is done by functions that Python programs can call, too.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys

from rlframe.entry.arguments import (
    A_CONFIG,
    CHECKPOINT,
    CONFIG,
    JSON,
    LOOK,
    LOOK_UP,
    OWN,
    RUNS,
    TRUST,
    USE,
    Args,
    arg,
    count,
    episodes,
    flag,
    overrides,
    seed,
    verb,
)
from rlframe.entry.arguments import VERBS as VERBS
from rlframe.registry import REGISTRIES

A_PICTURE = 'a .png or .svg file (default: '
MODES = ('serial', 'parallel', 'coordinator', 'learner', 'collector')

KINDS = (
    'config',
    'policy',
    'model',
    'reward_model',
    'learner_hook',
    'run_hook',
    'buffer',
    'env',
    'backend',
    'logger',
)
"""Kinds of files that ``rlframe new`` writes."""


@verb(
    USE,
    'train a policy in an env, or by a config (the default verb)',
    (
        '--env CartPole-v1 --policy ppo',
        '--env CartPole-v1 --policy dqn --seeds 0-4 --jobs 2',
        '--data cartpole_expert --policy bc',
        '-c cartpole_dqn --seed 1 policy.learn.batch_size=128 env_manager.type=gym_vector',
        '--resume cartpole_dqn_seed0 --train-iter 1e4',
    ),
    arg(
        '--env',
        'env to train in without a config file, with settings that suit its spaces: an id of Gymnasium, envpool:ID,'
        ' pettingzoo:ID, team:ID (agents that work together), agents:ID, overcooked:ID, MODULE:ID or MODULE:CLASS; list env shows those that are installed.'
        ' The run ends at the reward threshold of the env, if it has one, or after --env-step (default: 1,000,000 on-policy,'
        ' 200,000 off-policy)',
        'ID',
    ),
    arg(
        '--data',
        'recorded data to learn from without a config file; several are mixed. The policy is evaluated in the env of the data'
        ' (or of --env), or on a tenth of their episodes if that cannot be created, for --train-iter updates (default: 20,000)',
        'DATA',
        nargs='+',
        action='extend',
    ),
    arg(
        '--policy',
        'with --env: the policy, or MODULE:CLASS (default: one that suits the actions); with --data: one that learns from data'
        ' (default: bc)',
        'NAME',
    ),
    CONFIG,
    flag('--download', 'with --data: let Minari fetch an id that is not on this machine'),
    arg(
        '--resume',
        'resume from this run folder or checkpoint; "auto": from the newest run of the config, if any;'
        ' collector.backend=ray and such continue it with other collectors',
        'DIR',
    ),
    seed("experiment (default: the config's, else 0)"),
    arg('--seeds', 'one run for each of these seeds, such as 0-4 or 0,3,7, in processes', 'SEEDS'),
    arg('--jobs', 'with --seeds: processes at a time (default: as many as the cores allow)', 'N', type=count),
    flag('--stacked', 'with --seeds: seeds share a process, and make their updates and evaluations together'),
    arg(
        '-m --mode',
        'serial (the default): all in this process; parallel: a coordinator here, which starts a learner and collectors;'
        ' coordinator, learner, collector: one role, for runs on several machines',
        choices=MODES,
    ),
    arg(
        '--join',
        'with -m learner or collector: address of the coordinator, which it prints when it starts',
        'ADDRESS',
    ),
    arg(
        '--name',
        'with -m learner or collector: name of the worker, by which the run recognises it when it joins again',
        'NAME',
    ),
    arg(
        '--out',
        'the run folder, which must not exist or be empty (default: a new one here, NAME_seedN); with --seeds, the folder that'
        ' gets a run folder for each seed',
        'FOLDER',
    ),
    arg('--exp-name', 'option exp_name, and name of the run folder here; --out takes any folder', 'NAME'),
    arg('--learners', 'processes that share each update; torchrun starts them, too', 'N', type=count),
    arg('--env-step', 'budget in env steps', 'N', type=count),
    arg('--train-iter', 'budget in train iterations', 'N', type=count),
    TRUST,
    overrides('file'),
)
def train(args: Args) -> int:
    """Trains, and shows the progress."""
    from rlframe.entry.train import run

    return run(args)


@verb(
    USE,
    'search over the options of a policy or a config with Ray Tune',
    (
        '--env CartPole-v1 --policy ppo',
        '--env CartPole-v1 --policy dqn --search default policy.learn.batch_size=64 --env-step 1e5',
        '-c cartpole_dqn --search "policy.learn.learning_rate=loguniform(1e-4,1e-2)" --num-samples 8 --scheduler asha'
        ' --env-step 20000',
    ),
    arg('--env', 'env to search in without a config file, as train --env takes it', 'ID'),
    arg('--policy', 'with --env: the policy, or MODULE:CLASS (default: one that suits the actions)', 'NAME'),
    CONFIG,
    arg(
        '--search',
        'an option and what it is drawn from: uniform(a,b), loguniform(a,b), randint(a,b), choice(a,b,...), grid(a,b,...);'
        ' "default": the default space of the policy, without options that are given otherwise (the default with --env)',
        'KEY=DOMAIN',
        nargs='+',
        action='extend',
        default=[],
    ),
    arg('-n --num-samples', 'number of samples to draw (default: 1; 16 of a default space)', 'N', type=count),
    arg(
        '--scheduler',
        'which trials end early or copy better ones: asha, hyperband, median, pbt or none (the default; asha with a'
        ' default space)',
        'NAME',
    ),
    arg(
        '--interval',
        'evaluations between two decisions of pbt, and before the first one of median, and of asha without a budget'
        ' (default: 4)',
        'N',
        type=count,
    ),
    arg('--algorithm', 'search algorithm: random (the default) or optuna', 'NAME', default='random'),
    arg('--metric', 'metric that compares trials (default: %(default)s)', default='eval/mean_reward'),
    arg(
        '--mode',
        'whether a higher (max) or lower (min) metric is better (default: max)',
        choices=('max', 'min'),
        default='max',
    ),
    arg(
        '--stop',
        'end a trial when a key of its results reaches a value',
        'KEY=VALUE',
        nargs='+',
        action='extend',
        default=[],
    ),
    arg('--env-step', 'budget of each trial in env steps', 'N', type=count),
    arg('--train-iter', 'budget of each trial in train iterations', 'N', type=count),
    arg('--time-budget', 'ends the whole search after this time', 'SECONDS', type=float),
    arg(
        '--max-concurrent',
        'trials at a time (default: as many as the CPUs allow)',
        'N',
        type=count,
        default=0,
    ),
    arg(
        '--max-failures',
        'how often a failed trial resumes from its last checkpoint (default: 0)',
        'N',
        type=int,
        default=0,
    ),
    seed('draws'),
    arg('--out', 'the results folder, which must not exist (default: NAME_tune here)', 'FOLDER'),
    arg('--resume', 'resume the search of this results folder, if you trust it', 'DIR'),
    flag('--restart-errored', 'with --resume: restart trials that failed'),
    overrides('file in all trials'),
)
def tune(args: Args) -> int:
    """Searches, and reports the best result."""
    from rlframe.entry.tune import run

    return run(args)


@verb(
    USE,
    'score a checkpoint on episodes that training never saw',
    ('cartpole_dqn_seed0', 'cartpole_dqn_seed0 --episodes 10 --json', 'cartpole_dqn_seed0 --video films'),
    CHECKPOINT,
    *episodes(default=100),
    arg(
        '--video',
        'write films of the worst, median and best episode to this folder; every step is drawn, which takes time',
        'DIR',
    ),
    TRUST,
    JSON,
    overrides('run'),
)
def eval_(args: Args) -> int:
    """Scores a checkpoint; tells the progress of a long evaluation on stderr."""
    from rlframe.app.scoring import Request, score
    from rlframe.display.text import say

    request = Request(args.episodes, args.seed, args.video, args.overrides, args.trust, flag='--')
    found = score(args.checkpoint, request, lambda text: sys.stderr.write(f'rlframe: {text}\n'))
    if args.json:
        say(json.dumps({**found.facts(), 'video': args.video}))
    else:
        path = found.checkpoint
        say(f'{path.parent.parent.name}/{path.name}: {found!r}')
        if args.video:
            say(f'films of the worst, median and best of them: {args.video}')
    return 0


@verb(
    USE,
    'show a trained policy in a window or as text; a game of two players is played against you',
    (
        'cartpole_dqn_seed0',
        'cartpole_dqn_seed0 --episodes 3 --human',
        'tictactoe_selfplay_dqn_seed0 --episodes 2',
        'foraging_mappo_seed0 --seat player_0',
    ),
    CHECKPOINT,
    *episodes(default=1),
    arg('--seat', 'agent of a team for which you type the actions: its name or number', 'AGENT'),
    arg('--fps', 'env steps shown per second', 'N', type=float),
    flag(
        '--human',
        'show a window (default: if there is a display; otherwise the text that the env draws, or a summary)',
    ),
    TRUST,
    JSON,
    overrides('run'),
)
def play(args: Args) -> int:
    """Plays episodes; with ``--json``, they are shown on stderr."""
    from rlframe.app.play import play_run
    from rlframe.app.scoring import Request
    from rlframe.display.text import say
    from rlframe.run.read_checkpoint import open_checkpoint

    stream = sys.stderr if args.json else sys.stdout
    is_coloured = stream.isatty() and not os.environ.get('NO_COLOR')

    def show(line: str) -> None:
        stream.write((line if is_coloured else re.sub(r'\x1b\[[0-9;]*m', '', line)) + '\n')
        stream.flush()

    def ask(prompt: str) -> str:
        stream.write(prompt)
        stream.flush()
        if not (line := sys.stdin.readline()):
            stream.write('\n')
            raise EOFError
        return line

    request = Request(args.episodes, args.seed, None, args.overrides, args.trust, flag='--')
    opened = open_checkpoint(args.checkpoint)
    played = play_run(opened, request, show, args.fps, args.human, ask, args.seat)
    if args.json:
        returns, lengths, endings = ([episode[i] for episode in played] for i in range(3))
        found = {'checkpoint': str(opened.path), 'returns': returns, 'lengths': lengths, 'endings': endings}
        of_agents = [episode.of_agents for episode in played]
        say(json.dumps(found | ({'returns_of_agents': of_agents} if any(of_agents) else {})))
    return 0


@verb(
    USE,
    'write a trained policy for use without its config and env',
    ('cartpole_dqn_seed0', 'cartpole_dqn_seed0 --format artifact onnx --out my_policy'),
    CHECKPOINT,
    arg(
        '--format',
        'artifact (the default): a folder for rlframe.load; state_dict: weights alone; torch_export, onnx: a function from'
        ' observations to actions that needs no rlframe',
        'FORMAT',
        nargs='+',
        default=['artifact'],
    ),
    arg('--out', 'the folder to write to (default: the folder export of the run)', 'DIR'),
    TRUST,
    overrides('run'),
)
def export(args: Args) -> int:
    """Exports a policy, and tells how to use each file."""
    from rlframe.display.text import say
    from rlframe.export import FORMATS, export_policy

    more = dict(trust=args.trust, overrides=args.overrides)
    for name, path in export_policy(args.checkpoint, args.format, args.out, **more).items():
        say(f'{name}: {path}; use it: {FORMATS[name].usage.format(path=str(path))}')
    return 0


@verb(
    LOOK,
    'draw the curves of one or many runs',
    (
        'cartpole_dqn_seed0',
        'cartpole_dqn_seed* cartpole_ppo_seed* --out cartpole.png',
        'runs --metric eval/mean_reward --metric train/total_loss',
    ),
    RUNS,
    arg(
        '--metric',
        'what to draw, a panel for each (default: eval/mean_reward)',
        'TAG',
        action='append',
        default=[],
    ),
    arg('--out', f'{A_PICTURE}both, in the folder of a single run, else in the current folder)', 'FILE'),
    arg('--title', 'title of the picture (default: the env)'),
    arg('--smooth', 'draw means of N values (default: 1)', 'N', type=int, default=1),
)
def plot(args: Args) -> int:
    """Draws curves, and tells the files."""
    from rlframe.app.figure import plot
    from rlframe.display.text import say

    say('\n'.join(map(str, plot(args.runs, args.metric, args.out, args.title, args.smooth))))
    return 0


@verb(
    LOOK,
    'compare runs: options, scores with intervals, steps to the goal',
    ('cartpole_dqn_seed* cartpole_ppo_seed*', 'runs --out comparison.png', 'run_a run_b --json'),
    RUNS,
    arg('--out', f'the picture: {A_PICTURE}compare.png)', 'FILE'),
    JSON,
)
def compare(args: Args) -> int:
    """Compares runs."""
    from rlframe.app.comparison import as_text
    from rlframe.app.figure import compare
    from rlframe.display.text import say

    found, picture = compare(args.runs, args.out)
    if args.json:
        say(json.dumps(found | {'picture': picture and str(picture)}))
    else:
        say(as_text(found) + (f'\n\npicture: {picture}' if picture else ''))
    return 0


@verb(
    LOOK,
    'write one HTML page about a run, which needs no network',
    ('cartpole_dqn_seed0', 'cartpole_dqn_seed0 --out page.html'),
    arg('run_folder', 'run folder', 'RUN'),
    arg('--out', 'the page (default: RUN/report.html)', 'FILE'),
)
def report(args: Args) -> int:
    """Writes the page, and tells its path."""
    from rlframe.app.page import write_report
    from rlframe.display.text import say

    say(str(write_report(args.run_folder, args.out)))
    return 0


@verb(
    OWN,
    'begin your own config, policy, model, hook, env or other part',
    ('config my_config --env CartPole-v1 --policy ppo', 'policy my_policy', 'learner_hook my_hook'),
    arg('kind', f'one of {", ".join(KINDS)}', 'KIND', choices=KINDS),
    arg('name', 'name of the file without .py, and of the component in configs', 'NAME'),
    arg(
        '--env',
        'with config: the env, whose spaces decide the settings, as train --env takes it',
        'ID',
    ),
    arg('--policy', 'with config: the policy (default: one that fits)', 'NAME'),
)
def new(args: Args) -> int:
    """Writes a file to the current folder, and tells the commands that use it."""
    from pathlib import Path

    from rlframe.app.new import new_config, new_file
    from rlframe.display.text import say

    if args.kind == 'config' and args.env is None:
        args.parser.error('which env? Give --env, for example --env CartPole-v1')
    if args.kind != 'config' and (args.env or args.policy):
        args.parser.error('--env and --policy go with: rlframe new config')
    if args.kind == 'config':
        file, commands = new_config(args.name, Path.cwd(), args.env, args.policy)
    else:
        file, commands = new_file(args.kind, args.name, Path.cwd())
    say('\n'.join([f'wrote {file.name}; it runs as it is:', *(f'  {command}' for command in commands)]))
    return 0


@verb(
    OWN,
    'convert a config of DI-engine, and list all changes with reasons',
    ('cartpole_dqn_config.py', 'cartpole_dqn_config.py --out my_config.py'),
    arg('file', 'config of DI-engine, a Python file; DI-engine is not needed', 'FILE'),
    arg('--out', 'the file to write (default: NAME_rlframe.py)', 'FILE'),
    flag(
        '--parallel',
        "translate a config of DI-engine's parallel mode to rlframe's (-m parallel), and not to Ray actors",
    ),
    JSON,
)
def import_ding(args: Args) -> int:
    """Writes the translated config, and tells the changes."""
    from rlframe.app.new import ding_text, import_ding
    from rlframe.display.text import say_result

    say_result(import_ding(args.file, args.out, args.parallel), ding_text, args.json)
    return 0


@verb(
    OWN,
    'report all mistakes of a config at once, or describe its run',
    ('cartpole_dqn', 'my_config.py policy.learn.batch_size=256', 'my_config.py --no-env'),
    arg('config', A_CONFIG, 'FILE'),
    flag(
        '--no-env',
        'check the options only: otherwise one env is created and closed, whose spaces tell whether the policy fits and how'
        ' large networks and replay buffer become',
    ),
    JSON,
    overrides('file'),
)
def check_config(args: Args) -> int:
    """Describes the run of a config; 2 if the config has mistakes."""
    from rlframe.app.check_config import check_config, mistakes_of, text_of
    from rlframe.display.text import say_result
    from rlframe.errors import ConfigError

    try:
        found = check_config(args.config, args.overrides, with_env=not args.no_env)
    except ConfigError as error:
        if not args.json:
            raise
        found = {'valid': False, 'config': args.config, 'mistakes': mistakes_of(error)}
        say_result(found, text_of, args.json)
        return error.exit_code
    say_result({'valid': True, 'mistakes': [], **found}, text_of, args.json)
    return 0


@verb(
    OWN,
    'check an env: its mistakes, its speed, and the policies that fit',
    ('CartPole-v1', 'my_env:MyEnv', "my_env:MyEnv --wrappers FlattenObservation 'env.kwargs.size=8'"),
    arg('env', 'Gymnasium id, MODULE:ID or MODULE:CLASS', 'ID'),
    arg(
        '--wrappers',
        'wrappers, innermost first: a name of gymnasium.wrappers, or MODULE:CLASS',
        'WRAPPER',
        nargs='+',
        default=[],
    ),
    arg('--steps', 'random env steps to check (default: 300)', 'N', type=int, default=300),
    seed('episodes (default: 0)', default=0),
    arg(
        '--timeout', 'longest time of one call of the env (default: 30)', 'SECONDS', type=float, default=30.0
    ),
    JSON,
    overrides('section env'),
)
def check_env(args: Args) -> int:
    """Reports on an env; 1 if it has errors."""
    from rlframe.app.check_env import check_env, section_of, text_of
    from rlframe.app.starting import env_options
    from rlframe.display.text import say_result

    if args.steps < 1 or args.timeout <= 0 or not 0 <= args.seed < 2**32:
        args.parser.error('--steps and --timeout must be above 0, --seed in [0, 4294967296)')
    section = section_of(args.env, env_options(args.overrides))
    if args.wrappers:
        section['wrappers'] = [*args.wrappers, *section.get('wrappers', ())]
    report = check_env(section, args.steps, args.seed, args.timeout)
    if report['good']:
        report['next'] = ' '.join([report['next'], *map(shlex.quote, args.overrides)])
    say_result(report, text_of, args.json)
    return 0 if report['good'] else 1


@verb(
    LOOK_UP,
    'show the registered components, the options of one, or the envs that are installed',
    ('', 'policy', 'policy dqn', 'env', 'env Hopper', '--plugins'),
    arg(
        'kind',
        'show this kind only; env: also the ids of envs that are installed',
        nargs='?',
        choices=tuple(REGISTRIES),
    ),
    arg(
        'name',
        'show the options of this component; env: or the ids that contain this, with their spaces',
        nargs='?',
    ),
    flag('--plugins', 'show the plug-ins of installed packages'),
)
def list_(args: Args) -> int:
    """Shows components and plug-ins, without importing torch."""
    from rlframe.app.explain import component, component_text, kinds_text, plugins_text
    from rlframe.display.text import say_result

    if args.plugins:
        say_result(None, plugins_text)
    elif args.kind == 'env' and args.name not in REGISTRIES['env'].names():
        from rlframe.app.list_envs import envs_text

        say_result(args.name, envs_text)
    elif args.name is None:
        say_result(args.kind, kinds_text)
    else:
        say_result(component(args.kind, args.name), component_text)
    return 0


@verb(
    LOOK_UP,
    'describe an option: values, defaults, unit, names elsewhere',
    ('policy.learn.batch_size', 'gamma', 'replay_buffer.advanced'),
    arg(
        'key',
        "dotted key of an option or a section, the end of one, another framework's name for one, or a component as KIND.NAME",
        'KEY',
    ),
    JSON,
)
def explain(args: Args) -> int:
    """Describes an option or a component."""
    from rlframe.app.explain import explain, text_of
    from rlframe.display.text import say_result

    say_result(explain(args.key), text_of, args.json)
    return 0


from rlframe.entry import data_verbs as data_verbs  # noqa: E402  they are listed behind the others
