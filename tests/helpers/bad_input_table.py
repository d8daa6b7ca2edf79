"""The table of bad inputs: row and case to what is given and what the user must see."""

from __future__ import annotations

from bad_inputs import BC, PENDULUM, PLACE, RUN, Case, bad_env, broken, file, option, pair, tune
from runs import DQN, PPO

ENV, MODEL = 'env.env_id', 'policy.model'
RATE = 'policy.learn.learning_rate'

FILES = {
    '1': Case('ConfigError', ('-c', 'missing.py'), ('not found', '/missing.py', 'There are: ')),
    '2 folder': Case('ConfigError', ('-c', '<file>'), ('is a directory', '.py, .json, .yaml')),
    '2 suffix': file('x', "'.txt'", '.py, .json, .yaml', name='a.txt'),
    '2 empty': file(' ', 'is empty', '.py, .json, .yaml'),
    '3': file('x = 1\nmain_config = dict(\n', 'mine.py:2', 'SyntaxError', 'main_config = dict(', '^'),
    '4': file('x = 1\nmain_config = y\n', 'mine.py:2', 'NameError', "'y'"),
    '5': file('main_config = {}\n', 'create_config', 'Needed: main_config, create_config', "['main_config']"),
    '13': file(pair('dict(env=dict(stop_value=1))'), 'env.env_id', 'required', "'CartPole-v1'"),
    '63 twice': file('a: 1\na: 2\n', 'a.yaml:2', "'a' is duplicated", name='a.yaml'),
    '63 tab': file('a:\n\tb: 1\n', 'a.yaml:2', '\\t', name='a.yaml'),
    '63 float': file(
        'main_config: {env: {env_id: CartPole-v1}, policy: {learn: {learning_rate: 1e-4}}}\n'
        'create_config: {policy: {type: dqn}}\n',
        *(RATE, "'1e-4'", 'YAML wants a dot', '1.0e-4'),
        name='a.yaml',
    ),
    '66 number': file(pair("dict(env=dict(env_id='X', kwargs={3: 1}))"), 'bad key 3', 'keys are text', 'int'),
    '66 items': file(
        pair("dict(env=dict(env_id='X', kwargs={'items': 1}))"), "'items'", 'reserved', 'EasyDict'
    ),
    'encoding': file('', 'a.yaml:1', 'UTF-8', name='a.yaml', edit='latin'),
    'nested': file('a: ' + '[' * 6_000, 'nested too deeply', name='a.yaml'),
}
OPTIONS = {
    '6': option(
        'policy.learn.lerning_rate=1', f'policy.learn.lerning_rate is not a known key. Did you mean {RATE}?'
    ),
    '6 lr': option('policy.learn.lr=1', f'policy.learn.lr is not a known key. Did you mean {RATE}?'),
    '6 gamma': option('policy.gamma=1', 'Did you mean policy.discount_factor?'),
    '7': option('policy.batch_size=1', 'it belongs to policy.learn.batch_size'),
    '8': option(f"{RATE}='3e-4'", RATE, 'type str', "'3e-4'", 'float', 'remove the quotes'),
    '9 zero': option(f'{RATE}=0', RATE, 'got 0', '> 0'),
    '9 negative': option(f'{RATE}=-1', RATE, 'got -1', '> 0'),
    '9 inf': option(f'{RATE}=inf', RATE, 'got inf', 'number'),
    '9 nan': file(
        pair("dict(env=dict(env_id='X'), policy=dict(learn=dict(learning_rate=nan)))"), RATE, 'got nan'
    ),
    '10': option('policy.discount_factor=1.5', 'policy.discount_factor', 'got 1.5', '[0, 1]'),
    '11': option('env.collector_env_num=True', 'env.collector_env_num', 'a bool is not a number'),
    '12 zero': option('env.collector_env_num=0', 'got 0', 'int in [1, inf)'),
    '12 negative': option('env.collector_env_num=-3', 'got -3', 'int in [1, inf)'),
    '12 fraction': option('env.collector_env_num=2.5', 'got 2.5', 'int in [1, inf)'),
    '16': option(
        'policy.type=dqnn', "unknown policy 'dqnn'", "'dqn'?", "'ppo'", 'import_names', error='RegistryError'
    ),
    '22': option(f'{MODEL}.obs_shape=5', f'{MODEL}.obs_shape', 'got 5', 'expected [4]', 'Leave it out'),
    '25 negative': option('policy.collect.n_sample=-1', 'policy.collect.n_sample', 'got -1', '[1, inf)'),
    '25 zero': option('policy.collect.n_sample=0', 'policy.collect.n_sample', 'got 0', '[1, inf)'),
    '26 both': option('policy.collect.n_episode=4', 'exactly one', 'n_sample (6)', 'n_episode (4)'),
    '26 neither': option(
        'policy.collect.n_sample=none', 'exactly one', 'n_sample (None)', 'n_episode (None)'
    ),
    '27': option('policy.collect.n_sample=50', '50', 'not divisible by 3', '48 or 51', base=PPO),
    '28': option('policy.learn.batch_size=501', 'policy.learn.batch_size', 'got 501', 'at most 500'),
    '30 on-policy': option(
        'replay_buffer.type=naive', 'on-policy', "'ppo'", 'create_config.replay_buffer', base=PPO
    ),
    '30 off-policy': option(
        'replay_buffer=none',
        "off-policy policy 'dqn'",
        'create_config.replay_buffer is None',
        "type='advanced'",
    ),
    '32': option('collector.backend=rays', 'policy.collect.collector.backend', "'rays'", "'local', 'ray'"),
    '33': option(
        *(
            'collector.backend=ray',
            'policy.collect.collector.backend',
            'Ray cannot be imported',
            'pip install',
        ),
        error='MissingDependencyError',
        absent='ray',
    ),
    'ray start': option(
        *(
            'collector.backend=ray',
            'policy.collect.collector.ray_init_config',
            'Ray could not be started',
            '/proc/nowhere',
        ),
        error='ResourceError',
        edit='ray tmp',
    ),
    '35': option(
        'policy.cuda=True', 'policy.cuda', 'is_available()=False', "device='auto'", error='DeviceError'
    ),
    '62 negative': option('seed=-1', 'seed', 'got -1', '[0, 4294967296)'),
    '62 large': option(f'seed={2**40}', 'seed', str(2**40), '[0, 4294967296)'),
    '62 text': option('seed=abc', 'seed', "'abc'", '[0, 4294967296)'),
    '64': option('exp_name=../../x', 'exp_name', '../../x', 'A-Z a-z 0-9'),
    '65': option(
        'replay_buffer.replay_buffer_size=1e12',
        'replay_buffer_size',
        'GiB',
        'free',
        'At most',
        error='ResourceError',
    ),
    '68 episodes': option('env.n_evaluator_episode=0', 'env.n_evaluator_episode', 'got 0', '[1, inf)'),
    '68 stop': option('env.stop_value=high', 'env.stop_value', "'high'", 'a number'),
    '69 flag': Case('', (*DQN, '--bogus'), ('usage: rlframe', 'unrecognized arguments: --bogus')),
    '69 no config': Case('', ('train',), ('usage: rlframe train', '-c/--config')),
    'wrappers': option("env.wrappers=[dict(type='Flat')]", 'env.wrappers', "'Flat'", 'gymnasium.wrappers'),
    'wrapper text': option('env.wrappers=[Flat]', 'env.wrappers', "'[Flat]'", 'quotes for the shell'),
}
ENVS = {
    '14': option(f'{ENV}=CartPole-v9', ENV, "'CartPole-v9'", '`v1`', "'CartPole-v1'?", error='EnvError'),
    '14 module': option(
        f'{ENV}=highway-fast-v0', 'highway_env', "env.env_id='highway_env:highway-fast-v0'", error='EnvError'
    ),
    '15': option(
        f'{ENV}=ALE/Pong-v5',
        "'ALE/Pong-v5'",
        'pip install "rlframe[atari]"',
        error='MissingDependencyError',
        absent='ale_py',
    ),
    '18': option(
        *(f'{ENV}=Pendulum-v1', 'DQNPolicy cannot act in Pendulum-v1', 'Discrete', 'Box(-2.0, 2.0', 'sac'),
        error='IncompatibleError',
    ),
    '19': option(
        f'{ENV}=CartPole-v1', 'CartPole-v1', 'Supported: Box', 'dqn', base=PENDULUM, error='IncompatibleError'
    ),
    '20': bad_env('graph', 'obs has the space Graph', 'Supported: Box', error='IncompatibleError'),
    '21 vector': option(
        f'{MODEL}.conv_layers=[[8,3,1]]', 'conv_layers', 'Box', '(4,)', error='IncompatibleError'
    ),
    '21 layout': Case(
        'IncompatibleError',
        (*DQN, f'{ENV}=bad_inputs:BadEnv', "env.kwargs={'fault': 'image'}", f'{MODEL}.image_layout=chw'),
        (f'{MODEL}.image_layout', '84 channels of 84x3', "got 'chw'", "'hwc' or 'auto'"),
    ),
    '23': bad_env(
        'text', "obs['mission']", 'FilterObservation', "filter_keys=['image']", error='IncompatibleError'
    ),
    '24 empty': bad_env(
        'empty', 'action dimension [1]', 'low[1] = 2', 'high[1] = 1', error='IncompatibleError', base=PENDULUM
    ),
    '24 infinite': bad_env(
        'unbounded',
        'action dimension [0]',
        'from -inf to inf',
        'finite bounds',
        error='IncompatibleError',
        base=PENDULUM,
    ),
    '37': bad_env(
        'start', 'env 0', 'its constructor raised RuntimeError', 'not licensed', error='EnvStartError'
    ),
    '38': bad_env(
        'reset',
        'reset() of env 0, episode 1',
        'expected (obs, info)',
        'shimmy',
        error='EnvContractError',
        code=1,
        leaves=RUN,
    ),
    '39': bad_env(
        'step',
        'step() of env 0, episode 1, step 1',
        '4 values, expected 5',
        error='EnvContractError',
        code=1,
        leaves=RUN,
    ),
    '70': bad_env('mask', 'env 0', 'episode 1', 'mask', error='ActionMaskError', code=1, leaves=RUN),
}
WHILE_RUNNING = {
    '29': Case(
        'BufferUnderflowError',
        (*DQN, 'policy.learn.batch_size=400', 'policy.collect.n_sample=6'),
        ('of the 400 transitions', 'policy.random_collect_size', 'policy.learn.batch_size'),
        1,
        edit='impatient',
        leaves=RUN,
    ),
    '31 evaluation': Case(
        'ConfigWarning',
        (*DQN, '--train-iter', '5', 'evaluator.eval_freq=500'),
        ('eval_freq (500) > max_train_iter (5)', 'will not be evaluated'),
        0,
        leaves=RUN,
    ),
    '31 no update': Case(
        'ConfigWarning',
        (*DQN, '--env-step', '7'),
        ('max_env_step (7) ends the run with 12 transitions', 'a batch of 16', 'there will be no update'),
        0,
        leaves=RUN,
    ),
    '40': broken('obs of 5', PLACE, 'shape (5,)', 'declared is (4,)'),
    '41': broken('obs of objects', PLACE, 'dtype object', 'float32'),
    '42': Case(
        'ConfigWarning',
        (*DQN, '--env-step', '40', f'{ENV}=broken_envs:BrokenEnv', "env.kwargs={'fault': 'out of bounds'}"),
        ('lies in [10, 40]', 'declared is float32 in [-1, 1]'),
        0,
        leaves=RUN,
    ),
    '43 nan': broken('reward nan', PLACE, 'reward is nan', error='NonFiniteError'),
    '43 array': broken('reward array', PLACE, 'array of shape (1,)', 'one number'),
    '43 none': broken('reward none', PLACE, 'reward None'),
    '43 text': broken('reward text', PLACE, "reward '1.5' (str)"),
    '44': broken('flag int', PLACE, 'terminated=1 (int)', 'expected a bool'),
    '45': Case(
        'NonFiniteError',
        (*DQN, f'{RATE}=1e30', '--env-step', '2000', 'evaluator.eval_freq=100000'),
        ('train_iter ', 'total_loss', 'gradient norm', 'learning rate 1e+30', 'checkpoint'),
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
        ('policy.collect.collector.max_episode_len', 'more than 40 env steps', 'TimeLimit'),
        1,
        leaves=RUN,
    ),
    'evaluated nan': broken('obs nan', 'evaluation: env ', 'step 3: obs is [', error='NonFiniteError', at=3),
}
TUNE = {
    '47 stop': Case(
        'ConfigError', tune('--stop', 'reward_typo=4'), ("'reward_typo'", 'eval/mean_reward', 'envstep')
    ),
    '47 metric': Case(
        'ConfigError', tune('--metric', 'eval/mean_rewrd'), ('metric', "Did you mean 'eval/mean_reward'?")
    ),
    '48': Case('ConfigError', tune('--search', 'policy.learn.lr=uniform(0,1)'), ('policy.learn.lr', RATE)),
    '49': Case('ExperimentDirError', tune('--out', '/proc/x/y'), ('cannot write here', '/proc')),
    'no env': Case('EnvError', tune(f'{ENV}=CartPole-v9'), (ENV, "'CartPole-v9'", "'CartPole-v1'?")),
}
RUNS = {
    '50': Case('ExperimentDirError', DQN, ('cannot write here', '/proc', 'You are user'), edit='proc'),
    '51': Case('ExperimentExistsError', (*DQN, '--exp-name', 'run'), ('/run', 'holds a run', '--resume', '--out'), edit='named'),
    '51 out': Case('ExperimentExistsError', (*DQN, '--out', 'run'), ('/run', 'holds a run', '--resume', '--out'), edit='named'),
    '52': Case('ExperimentLockedError', ('--resume', '<run>', '--env-step', '90'), ('in use', '"pid"', '"host"', '"since"'), edit='locked'),
    '53': Case('CheckpointNotFoundError', ('--resume', '<run>'), ('<run>',), edit='stripped'),
    '54 truncated': Case('CheckpointCorruptError', ('eval', '<run>/ckpt/latest'), ('tensors.safetensors', 'bytes'), edit='truncated'),
    '54 empty': Case('CheckpointCorruptError', ('eval', '<run>/ckpt/latest'), ('state.json', 'got 0, expected'), edit='empty'),
    '54 text': Case('CheckpointCorruptError', ('eval', '<run>/ckpt/latest'), ('tensors.safetensors',), edit='text'),
    '55': Case(
        'CheckpointMismatchError',
        (*DQN, 'policy.init_from=<run>/ckpt/latest', f'{MODEL}.encoder_hidden_size_list=[32]'),
        ('in the checkpoint', '(16, 4)', '(32, 4)', f'{MODEL}.encoder_hidden_size_list: [16]'),
    ),
    '56 policy': Case(
        'CheckpointMismatchError',
        (*PPO, 'policy.init_from=<run>/ckpt/latest'),
        ("saved by policy 'dqn' in CartPole-v1 and is given to policy 'ppo' in CartPole-v1", 'missing'),
    ),
    '56 env': Case(
        'CheckpointMismatchError',
        (*DQN, 'policy.init_from=<run>/ckpt/latest', f'{ENV}=Acrobot-v1'),
        ("saved by policy 'dqn' in CartPole-v1 and is given to policy 'dqn' in Acrobot-v1", '(16, 6)'),
    ),
    '57': Case('CheckpointVersionError', ('eval', '<run>/ckpt/latest'), ('99', '2'), edit='newer'),
    '58': Case('UnsafeCheckpointError', ('eval', '<run>/ckpt/latest'), ('tensors.safetensors', 'pickle'), edit='pickled'),
    '59': Case(
        'ConfigError',
        ('--resume', '<run>', 'env.collector_env_num=2', '--env-step', '90'),
        ('cannot change', 'env.collector_env_num: 3 before, 2 now', 'policy.init_from'),
    ),
}  # fmt: skip
DATA = {
    '60 missing': option('collector.data=none.npz', 'collector.data', 'no such file', '/none.npz', base=BC),
    '60 columns': option('collector.data=<file>/few.npz', 'few.npz', 'no column action', "['obs']", base=BC),
    '60 objects': option(
        'collector.data=<file>/objects.npz', 'objects.npz', 'not an archive of plain arrays', base=BC
    ),
    '60 nan': option('collector.data=<file>/nan.npz', 'row 3 of the data', 'obs is [', 'nan', base=BC),
    '60 action': option(
        'collector.data=<file>/action.npz',
        'row 2 of the data',
        'action space of CartPole-v1 (and 1 more)',
        'got 7',
        base=BC,
    ),
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
