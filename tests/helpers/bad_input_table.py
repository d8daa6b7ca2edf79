"""The table of bad inputs: row and case to what is given; what the user sees is in tests/errors/root.json."""

from __future__ import annotations

from bad_inputs import BC, PENDULUM, RUN, Case, bad_env, broken, file, option, pair, tune
from runs import DQN, PPO

ENV, MODEL = 'env.env_id', 'policy.model'
RATE = 'policy.learn.learning_rate'

FILES = {
    '1': Case('ConfigError', ('-c', 'missing.py')),
    '2 folder': Case('ConfigError', ('-c', '<file>')),
    '2 suffix': file('x', name='a.txt'),
    '2 empty': file(' '),
    '3': file('x = 1\nmain_config = dict(\n'),
    '4': file('x = 1\nmain_config = y\n'),
    '5': file('main_config = {}\n'),
    '13': file(pair('dict(env=dict(stop_value=1))')),
    '63 twice': file('a: 1\na: 2\n', name='a.yaml'),
    '63 tab': file('a:\n\tb: 1\n', name='a.yaml'),
    '63 float': file(
        'main_config: {env: {env_id: CartPole-v1}, policy: {learn: {learning_rate: 1e-4}}}\n'
        'create_config: {policy: {type: dqn}}\n',
        name='a.yaml',
    ),
    '66 number': file(pair("dict(env=dict(env_id='X', kwargs={3: 1}))")),
    '66 items': file(pair("dict(env=dict(env_id='X', kwargs={'items': 1}))")),
    'encoding': file('', name='a.yaml', edit='latin'),
    'nested': file('a: ' + '[' * 6_000, name='a.yaml'),
}
OPTIONS = {
    '6': option('policy.learn.lerning_rate=1'),
    '6 lr': option('policy.learn.lr=1'),
    '6 gamma': option('policy.gamma=1'),
    '7': option('policy.batch_size=1'),
    '8': option(f"{RATE}='3e-4'"),
    '9 zero': option(f'{RATE}=0'),
    '9 negative': option(f'{RATE}=-1'),
    '9 inf': option(f'{RATE}=inf'),
    '9 nan': file(pair("dict(env=dict(env_id='X'), policy=dict(learn=dict(learning_rate=nan)))")),
    '10': option('policy.discount_factor=1.5'),
    '11': option('env.collector_env_num=True'),
    '12 zero': option('env.collector_env_num=0'),
    '12 negative': option('env.collector_env_num=-3'),
    '12 fraction': option('env.collector_env_num=2.5'),
    '16': option('policy.type=dqnn', error='RegistryError'),
    '22': option(f'{MODEL}.obs_shape=5'),
    '25 negative': option('policy.collect.n_sample=-1'),
    '25 zero': option('policy.collect.n_sample=0'),
    '26 both': option('policy.collect.n_episode=4'),
    '26 neither': option('policy.collect.n_sample=none'),
    '27': option('policy.collect.n_sample=50', base=PPO),
    '28': option('policy.learn.batch_size=501'),
    '30 on-policy': option('replay_buffer.type=naive', base=PPO),
    '30 off-policy': option('replay_buffer=none'),
    '32': option('collector.backend=rays'),
    '33': option('collector.backend=ray', error='MissingDependencyError', absent='ray'),
    'ray start': option('collector.backend=ray', error='ResourceError', edit='ray tmp'),
    '35': option('policy.cuda=True', error='DeviceError'),
    '62 negative': option('seed=-1'),
    '62 large': option(f'seed={2**40}'),
    '62 text': option('seed=abc'),
    '64': option('exp_name=../../x'),
    '65': option('replay_buffer.replay_buffer_size=1e12', error='ResourceError'),
    '68 episodes': option('env.n_evaluator_episode=0'),
    '68 stop': option('env.stop_value=high'),
    '69 flag': Case('', (*DQN, '--bogus')),
    '69 no config': Case('', ('train',)),
    'wrappers': option("env.wrappers=[dict(type='Flat')]"),
    'wrapper text': option('env.wrappers=[Flat]'),
}
ENVS = {
    '14': option(f'{ENV}=CartPole-v9', error='EnvError'),
    '14 module': option(f'{ENV}=highway-fast-v0', error='EnvError', absent='highway_env'),
    '15': option(f'{ENV}=ALE/Pong-v5', error='MissingDependencyError', absent='ale_py'),
    '18': option(f'{ENV}=Pendulum-v1', error='IncompatibleError'),
    '19': option(f'{ENV}=CartPole-v1', base=PENDULUM, error='IncompatibleError'),
    '20': bad_env('graph', error='IncompatibleError'),
    '21 vector': option(f'{MODEL}.conv_layers=[[8,3,1]]', error='IncompatibleError'),
    '21 layout': Case(
        'IncompatibleError',
        (*DQN, f'{ENV}=bad_inputs:BadEnv', "env.kwargs={'fault': 'image'}", f'{MODEL}.image_layout=chw'),
    ),
    '23': bad_env('text', error='IncompatibleError'),
    '24 empty': bad_env('empty', error='IncompatibleError', base=PENDULUM),
    '24 infinite': bad_env('unbounded', error='IncompatibleError', base=PENDULUM),
    '37': bad_env('start', error='EnvStartError'),
    '38': bad_env('reset', error='EnvContractError', code=1, leaves=RUN),
    '39': bad_env('step', error='EnvContractError', code=1, leaves=RUN),
    '70': bad_env('mask', error='ActionMaskError', code=1, leaves=RUN),
}
WHILE_RUNNING = {
    '29': Case(
        'BufferUnderflowError',
        (*DQN, 'policy.learn.batch_size=400', 'policy.collect.n_sample=6'),
        1,
        edit='impatient',
        leaves=RUN,
    ),
    '31 evaluation': Case(
        'ConfigWarning', (*DQN, '--train-iter', '5', 'evaluator.eval_freq=500'), 0, leaves=RUN
    ),
    '31 no update': Case('ConfigWarning', (*DQN, '--env-step', '7'), 0, leaves=RUN),
    '40': broken('obs of 5'),
    '41': broken('obs of objects'),
    '42': Case(
        'ConfigWarning',
        (*DQN, '--env-step', '40', f'{ENV}=broken_envs:BrokenEnv', "env.kwargs={'fault': 'out of bounds'}"),
        0,
        leaves=RUN,
    ),
    '43 nan': broken('reward nan', error='NonFiniteError'),
    '43 array': broken('reward array'),
    '43 none': broken('reward none'),
    '43 text': broken('reward text'),
    '44': broken('flag int'),
    '45': Case(
        'NonFiniteError',
        (*DQN, f'{RATE}=1e30', '--env-step', '2000', 'evaluator.eval_freq=100000'),
        1,
        leaves=RUN,
    ),
    '67': Case(
        'EpisodeTooLongError',
        (
            *DQN,
            f'{ENV}=broken_envs:BrokenEnv',
            "env.kwargs={'length': 1000000000}",
            'evaluator.max_episode_len=20',
            'collector.max_episode_len=40',
        ),
        1,
        leaves=RUN,
    ),
    'evaluated nan': broken('obs nan', error='NonFiniteError', at=3),
}
TUNE = {
    '47 stop': Case('ConfigError', tune('--stop', 'reward_typo=4')),
    '47 metric': Case('ConfigError', tune('--metric', 'eval/mean_rewrd')),
    '48': Case('ConfigError', tune('--search', 'policy.learn.lr=uniform(0,1)')),
    '49': Case('ExperimentDirError', tune('--out', '/proc/x/y')),
    'no env': Case('EnvError', tune(f'{ENV}=CartPole-v9')),
}
RUNS = {
    '50': Case('ExperimentDirError', DQN, edit='proc'),
    '51': Case('ExperimentExistsError', (*DQN, '--exp-name', 'run'), edit='named'),
    '51 out': Case('ExperimentExistsError', (*DQN, '--out', 'run'), edit='named'),
    '52': Case('ExperimentLockedError', ('--resume', '<run>', '--env-step', '90'), edit='locked'),
    '53': Case('CheckpointNotFoundError', ('--resume', '<run>'), edit='stripped'),
    '54 truncated': Case('CheckpointCorruptError', ('eval', '<run>/ckpt/latest'), edit='truncated'),
    '54 empty': Case('CheckpointCorruptError', ('eval', '<run>/ckpt/latest'), edit='empty'),
    '54 text': Case('CheckpointCorruptError', ('eval', '<run>/ckpt/latest'), edit='text'),
    '55': Case(
        'CheckpointMismatchError',
        (*DQN, 'policy.init_from=<run>/ckpt/latest', f'{MODEL}.encoder_hidden_size_list=[32]')
    ),
    '56 policy': Case(
        'CheckpointMismatchError',
        (*PPO, 'policy.init_from=<run>/ckpt/latest')
    ),
    '56 env': Case(
        'CheckpointMismatchError',
        (*DQN, 'policy.init_from=<run>/ckpt/latest', f'{ENV}=Acrobot-v1')
    ),
    '57': Case('CheckpointVersionError', ('eval', '<run>/ckpt/latest'), edit='newer'),
    '58': Case('UnsafeCheckpointError', ('eval', '<run>/ckpt/latest'), edit='pickled'),
    '59': Case(
        'ConfigError',
        ('--resume', '<run>', 'env.collector_env_num=2', '--env-step', '90')
    ),
}  # fmt: skip
DATA = {
    '60 missing': option('collector.data=none.npz', base=BC),
    '60 columns': option('collector.data=<file>/few.npz', base=BC),
    '60 objects': option('collector.data=<file>/objects.npz', base=BC),
    '60 nan': option('collector.data=<file>/nan.npz', base=BC),
    '60 action': option('collector.data=<file>/action.npz', base=BC),
}

TABLE = FILES | OPTIONS | ENVS | WHILE_RUNNING | TUNE | RUNS | DATA

ELSEWHERE = {
    '17': 'test_registered_twice',
    '34': 'tests/ray: it needs a Ray',
    '36': 'test_unpicklable_closure',
    '46': 'test_action_outside_the_space',
    '61': 'test_disk_full',
}
"""Rows that no command line of this process shows, and the tests beside the table that show them."""
