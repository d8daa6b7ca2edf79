"""rlframe's half of every workload, through its public components only. Prints one JSON line.

usage: rlframe_side.py w1|w2|w2_native|w3|w4|w5|w6_sac|w6_td3|w7|w7_async|w9|w9_base|w9_pool|w9_halves|w9_update|w9_ppo|w10
           |w11_crossq|w11_tqc|w12|w13_impala|w13_appo [SIZE ...]
    w1 [ENV_STEPS], w2 [ENV_NUM] [ENV_STEPS], w2_native [ENV_NUM] [ENV_STEPS], w3 [CAPACITY] [CYCLES], w4 [ENV_STEPS],
    w5 [ACTORS] [MICROSECONDS] [ENV_STEPS],
    w6_sac [UPDATES], w6_td3 [UPDATES], w7 and w7_async [ENV_NUM] [MILLISECONDS] [SLOW_MILLISECONDS] [ENV_STEPS],
    w9, w9_base, w9_pool, w9_halves and w9_ppo [ENV_NUM] [ENV_STEPS], w9_update [UPDATES] [BATCH_SIZE],
    w10 [ENV_STEPS], w11_crossq and w11_tqc [UPDATES], w12 [ENV_STEPS],
    w13_impala and w13_appo [ACTORS] [MICROSECONDS] [ENV_STEPS]

The peers' halves, with the same networks, sizes and counts, are in peers/.
"""

import json
import os
import sys
import tempfile
from functools import partial
from itertools import cycle
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch
from timed import step_ready, timed_collection, timed_cycles, timed_training

from rlframe.config import compile_config
from rlframe.data import Batch, EnvSpec
from rlframe.pipeline import SerialPipeline
from rlframe.pipeline.build import (
    collector_backend,
    make_factory,
    make_policy,
)
from rlframe.policy import create_policy
from rlframe.registry import BUFFER_REGISTRY, ENV_MANAGER_REGISTRY

ENV = {'env_id': 'CartPole-v1', 'collector_env_num': 8, 'evaluator_env_num': 1, 'n_evaluator_episode': 1}
NO_EVALUATION = {'evaluator': {'eval_freq': 10**9}}
NO_CHECKPOINT = {'learner': {'hook': {'save_ckpt_after_iter': False, 'save_ckpt_after_run': False}}}
PLACES = ('replay_unique_id', 'replay_buffer_idx')


def dqn_config(env_num: int = 8, n_sample: int = 8) -> dict:
    """The network, optimizer, schedule and buffer of W1 and W2."""
    learn = {'update_per_collect': 5, 'batch_size': 64, 'learning_rate': 1e-3, 'target_update_freq': 100}
    return {
        'exp_name': 'benchmark',
        'env': ENV | {'collector_env_num': env_num, 'stop_value': 1e9},
        'policy': {
            'device': 'cpu',
            'double': False,
            'nstep': 1,
            'discount_factor': 0.97,
            'model': {'encoder_hidden_size_list': [128, 128, 64], 'dueling': False},
            'learn': learn | NO_CHECKPOINT,
            'collect': {'n_sample': n_sample},
            'eval': NO_EVALUATION,
            'other': {
                'eps': {'type': 'linear', 'start': 0.95, 'end': 0.1, 'decay': 8500},
                'replay_buffer': {'replay_buffer_size': 20000},
            },
        },
    }


def ppo_config() -> dict:
    """The networks, optimizer and loss of W4."""
    learn = {
        'epoch_per_collect': 4,
        'batch_size': 256,
        'learning_rate': 2.5e-4,
        'clip_ratio': 0.2,
        'value_weight': 0.5,
        'entropy_weight': 0.01,
        'grad_clip_norm': 0.5,
    }
    return {
        'exp_name': 'benchmark',
        'env': ENV | {'stop_value': 1e9},
        'policy': {
            'device': 'cpu',
            'model': {'encoder_hidden_size_list': [64, 64]},
            'learn': learn | NO_CHECKPOINT,
            'collect': {'n_sample': 8 * 128, 'discount_factor': 0.99, 'gae_lambda': 0.95},
            'eval': NO_EVALUATION,
        },
    }


def w1(env_steps: int = 20_000) -> dict:
    """DQN: 5 updates of 64 after every step of 8 envs."""
    create = {'env': {'type': 'gym'}, 'policy': {'type': 'dqn'}, 'replay_buffer': {'type': 'naive'}}
    return timed_training(dqn_config(), create, env_steps)


def w2(env_num: int = 8, env_steps: int = 40_000, manager: str = 'base') -> dict:
    """Collection under one epsilon-greedy network; only transitions that could be trained on are counted."""
    create = {'env': {'type': 'gym'}, 'env_manager': {'type': manager}, 'policy': {'type': 'dqn'}}
    return timed_collection(
        compile_config(dqn_config(env_num, n_sample=env_num * 100), create, seed=0), env_num, env_steps
    )


def w3(capacity: int = 100_000, cycles: int = 300) -> dict:
    """Prioritized replay: push 64, sample 256 as tensors with importance weights, update 256 priorities."""
    rng = np.random.default_rng(0)
    buffer = BUFFER_REGISTRY.get('advanced')({'replay_buffer_size': capacity, 'alpha': 0.6, 'beta': 0.4})

    def transitions(count: int) -> Batch:
        return Batch(
            obs=rng.standard_normal((count, 4), np.float32),
            next_obs=rng.standard_normal((count, 4), np.float32),
            action=rng.integers(0, 2, count),
            reward=rng.standard_normal(count, np.float32),
            terminated=np.zeros(count, bool),
        )

    for _ in range(0, capacity, 10_000):
        buffer.push(transitions(min(10_000, capacity)), 0)
    block = transitions(64)

    def push() -> None:
        buffer.push(block, 0)

    def sample_and_update() -> None:
        batch = buffer.sample(256, 0)
        places = {name: batch[name] for name in PLACES}
        # policies make tensors in the same way
        tensors = {name: torch.from_numpy(c) for name, c in batch.items() if name not in PLACES}
        buffer.update({'priority': rng.random(len(tensors['IS'])), **places})

    return {'capacity': capacity, **timed_cycles(push, sample_and_update, cycles)}


def w4(env_steps: int = 51_200) -> dict:
    """PPO: 8 envs x 128 steps, 4 epochs of minibatches of 256."""
    return timed_training(ppo_config(), {'env': {'type': 'gym'}, 'policy': {'type': 'ppo'}}, env_steps)


def w5(actors: int = 1, microseconds: int = 0, env_steps: int = 40_000) -> dict:
    """Collection in Ray actors of 8 envs each, 4,000 transitions a batch of each; without actors: in this process."""
    sys.path.append(str(Path(__file__).parent / 'peers'))
    begin = perf_counter()
    main = dqn_config(8, n_sample=4000 * max(actors, 1))
    if microseconds:
        main['env'] |= {'env_id': 'busy:Busy', 'kwargs': {'microseconds': microseconds}}
    config = {'num_cpus': 2, 'log_to_driver': False}
    backend = {'backend': 'ray', 'num_collectors': actors, 'ray_init_config': config} if actors else {}
    create = {'env': {'type': 'gym'}, 'policy': {'type': 'dqn'}, 'collector': {'type': 'sample', **backend}}
    cfg = compile_config(main, create, seed=0)
    factory = make_factory(cfg)
    place = collector_backend(cfg, factory)
    collector = place.make_collector(cfg, make_policy(cfg, factory.spec))
    count, train_iter = 0, 0

    def collect() -> int:
        nonlocal train_iter
        train_iter += 1
        return len(collector.collect(train_iter=train_iter, policy_kwargs={'eps': 0.1}))

    collect()
    start = perf_counter()
    while count < env_steps:
        count += collect()
    seconds = perf_counter() - start
    collector.close()
    return {
        'actors': actors,
        'env_steps': count,
        'seconds': seconds,
        'startup_s': start - begin,
        'env_steps_per_s': count / seconds,
    }


def continuous(policy: str, learn: dict) -> Any:
    """The update of a policy in the spaces of HalfCheetah, as a function of a batch."""
    import gymnasium

    spaces = gymnasium.spaces.Box(-np.inf, np.inf, (17,)), gymnasium.spaces.Box(-1, 1, (6,))
    cfg = {'type': policy, 'device': 'cpu', 'learn': learn}
    return create_policy(cfg, EnvSpec(*spaces, name='HalfCheetah')).learn_mode.forward


def transitions_of(rng: np.random.Generator, size: int) -> Batch:
    """Random transitions in the spaces of HalfCheetah."""
    return Batch(
        obs=rng.standard_normal((size, 17), np.float32),
        next_obs=rng.standard_normal((size, 17), np.float32),
        action=rng.uniform(-1, 1, (size, 6)).astype(np.float32),
        reward=rng.standard_normal(size, np.float32),
        terminated=rng.random(size) < 0.01,
    )


def w6(updates: int = 2000, policy: str = 'sac') -> dict:
    """One update of a policy for continuous actions, of batches that lie ready."""
    rng = np.random.default_rng(0)
    learn = continuous(policy, {'learning_rate_actor': 3e-4, 'learning_rate_critic': 3e-4})
    stream = cycle([transitions_of(rng, 256) for _ in range(16)])
    for _ in range(20):
        learn(next(stream))
    start = perf_counter()
    for _ in range(updates):
        learn(next(stream))
    return {'us_cycle': (perf_counter() - start) / updates * 1e6, 'updates': updates}


def w11(updates: int = 160, policy: str = 'crossq') -> dict:
    """Updates of 256 from a full replay buffer, 8 at a time; the options are those of the policy."""
    buffer = BUFFER_REGISTRY.get('naive')({'replay_buffer_size': 20_000})
    buffer.push(transitions_of(np.random.default_rng(0), 20_000), 0)
    learn, done = continuous(policy, {}), 0

    def train() -> None:
        nonlocal done
        for batch in buffer.batches(8, 256, done):
            learn(batch)
            done += 1

    for _ in range(3):
        train()
    start, before = process_time(), done
    for _ in range(0, updates, 8):
        train()
    seconds, count = process_time() - start, done - before
    return {'us_cycle': seconds / count * 1e6, 'updates': count}


def w7(
    env_num: int = 4,
    milliseconds: int = 0,
    slow: int = 0,
    env_steps: int = 40_000,
    manager: str = 'subprocess',
) -> dict:
    """Envs in processes of their own, one in each, stepped as fast as they go."""
    sys.path.append(str(Path(__file__).parent / 'peers'))
    from sleeping import sleeping_envs

    env_fn = sleeping_envs(env_num, milliseconds, slow)
    env = ENV_MANAGER_REGISTRY.get(manager)(env_fn, {'worker_num': env_num})
    env.reset(seed=list(range(env_num)))
    actions = cycle((1, 0))

    def step_until(count: int) -> None:
        while count > 0:
            count -= step_ready(env, next(actions))

    step_until(50 * env_num)
    start = perf_counter()
    step_until(env_steps)
    seconds = perf_counter() - start
    env.close()
    return {
        'env_num': env_num,
        'env_steps': env_steps,
        'seconds': seconds,
        'env_steps_per_s': env_steps / seconds,
    }


def pong(policy: dict, env_num: int) -> dict:
    """The config of W9: Pong as OpenAI's Baselines set it, Nature's CNN."""
    env = dict(env_id='ALE/Pong-v5', protocol='baselines', collector_env_num=env_num, evaluator_env_num=1)
    model = dict(encoder='nature', encoder_hidden_size_list=[512], activation='relu')
    model |= policy.pop('model')
    return {
        'exp_name': 'benchmark',
        'env': env | {'stop_value': 1e9},
        'policy': {'device': 'cpu', 'model': model, 'eval': NO_EVALUATION, **policy},
    }


def w9(env_num: int = 8, env_steps: int = 4096, manager: str = 'gym_vector', halves: bool = False) -> dict:
    """Collection of Pong under one epsilon-greedy network; in halves, it acts in some envs while others step."""
    policy = dict(model={'dueling': False}, double=False, collect={'n_sample': env_num * 16})
    create = {'env': {'type': 'atari'}, 'env_manager': {'type': manager}, 'policy': {'type': 'dqn'}}
    main = pong(policy, env_num)
    if halves:
        main['env']['manager'] = {'batch_size': env_num // 2}
    return timed_collection(compile_config(main, create, seed=0), env_num, env_steps)


def w9_update(updates: int = 100, batch_size: int = 32) -> dict:
    """One update of double DQN from stacks that lie ready."""
    import gymnasium

    rng = np.random.default_rng(0)
    spaces = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8), gymnasium.spaces.Discrete(6)
    model = dict(encoder='nature', encoder_hidden_size_list=[512], activation='relu', dueling=False)
    cfg = {'type': 'dqn', 'device': 'cpu', 'model': model, 'discount_factor': 0.99}
    learn = create_policy(cfg, EnvSpec(*spaces, name='W9')).learn_mode.forward
    batches = [
        Batch(
            obs=rng.integers(0, 256, (batch_size, 4, 84, 84), np.uint8),
            next_obs=rng.integers(0, 256, (batch_size, 4, 84, 84), np.uint8),
            action=rng.integers(0, 6, batch_size).astype(np.uint8),
            reward=rng.standard_normal(batch_size, np.float32),
            terminated=rng.random(batch_size) < 0.01,
        )
        for _ in range(8)
    ]
    stream = cycle(batches)
    for _ in range(5):
        learn(next(stream))
    start = perf_counter()
    for _ in range(updates):
        learn(next(stream))
    return {'us_cycle': (perf_counter() - start) / updates * 1e6, 'updates': updates}


def w9_ppo(env_num: int = 8, env_steps: int = 4096) -> dict:
    """PPO in EnvPool: 8 envs x 128 steps, 4 epochs of minibatches of 256."""
    learn = dict(
        epoch_per_collect=4, batch_size=256, learning_rate=2.5e-4, clip_ratio=0.1, entropy_weight=0.01
    )
    policy = dict(
        model={'share_encoder': True},
        learn=learn | {'value_clip': 0.1} | NO_CHECKPOINT,
        collect={'n_sample': 128 * env_num, 'discount_factor': 0.99, 'gae_lambda': 0.95},
    )
    create = {
        'env': {'type': 'atari'},
        'env_manager': {'type': 'env_pool', 'num_threads': 2},
        'policy': {'type': 'ppo'},
    }
    done = timed_training(pong(policy, env_num), create, env_steps)
    return done | {'env_steps_per_s': done['env_steps'] / done['seconds']}


def w12(env_steps: int = 49_152) -> dict:
    """PPO on Hopper in EnvPool: 64 envs x 64 steps, 8 epochs of minibatches of 1,024."""
    main = ppo_config()
    main['env'] |= {'env_id': 'Hopper-v5', 'collector_env_num': 64}
    main['policy']['learn'] |= {
        'epoch_per_collect': 8,
        'batch_size': 1024,
        'learning_rate': 3e-4,
        'entropy_weight': 0.0,
    }
    main['policy']['collect'] |= {'n_sample': 64 * 64}
    manager = {'type': 'env_pool', 'num_threads': 1}
    create = {'env': {'type': 'gym'}, 'env_manager': manager, 'policy': {'type': 'ppo'}}
    done = timed_training(main, create, env_steps)
    return done | {'env_steps_per_s': done['env_steps'] / done['seconds']}


def w10(env_steps: int = 10_240) -> dict:
    """Recurrent PPO: 8 envs x 32 steps, 20 epochs of minibatches of 256, an LSTM of 64 units for actor and critic each."""
    main = ppo_config()
    main['env']['env_id'] = 'rlframe/CartPoleNoVelocity-v1'

    def falling(start: float) -> dict:
        return {'type': 'linear', 'start': start, 'end': 0.0, 'decay': env_steps}

    main['policy'] |= {'normalize_obs': True, 'normalize_reward': True}
    main['policy']['model'] = {
        'encoder_hidden_size_list': [64],
        'activation': 'relu',
        'core': 'lstm',
        'core_hidden_size': 64,
    }
    main['policy']['learn'] |= {
        'epoch_per_collect': 20,
        'learning_rate': falling(1e-3),
        'clip_ratio': falling(0.2),
        'entropy_weight': 0.0,
    }
    main['policy']['collect'] = {'n_sample': 256, 'discount_factor': 0.98, 'gae_lambda': 0.8}
    return timed_training(main, {'env': {'type': 'gym'}, 'policy': {'type': 'ppo'}}, env_steps)


def w13(policy: str, actors: int = 2, microseconds: int = 0, env_steps: int = 40_000) -> dict:
    """Asynchronous policy gradients: Ray actors of 8 envs that do not wait, an update of each 512 steps."""
    sys.path.append(str(Path(__file__).parent / 'peers'))
    main, options = ppo_config(), {'num_cpus': 2, 'log_to_driver': False}
    main['env'] |= {'env_id': 'busy:Busy', 'kwargs': {'microseconds': microseconds}}
    main['policy']['learn'] = NO_CHECKPOINT | (
        {'epoch_per_collect': 1, 'batch_size': 512} if policy == 'appo' else {}
    )
    main['policy']['collect'] = {'n_sample': 512, 'discount_factor': 0.99}
    ray = {'backend': 'ray', 'num_collectors': actors, 'sync': False, 'max_in_flight': 2}
    collector = {'type': 'sample', **ray, 'ray_init_config': options}
    create = {'env': {'type': 'gym'}, 'policy': {'type': policy}, 'collector': collector}
    with SerialPipeline(compile_config(main, create, seed=0)) as pipeline:
        pipeline.evaluator.should_eval = lambda *_: False
        pipeline.step()
        first, start = pipeline.progress.envstep, perf_counter()
        while (count := pipeline.progress.envstep - first) < env_steps:
            pipeline.step()
        seconds = perf_counter() - start
    return {'actors': actors, 'env_steps': count, 'seconds': seconds, 'env_steps_per_s': count / seconds}


WORKLOADS = {
    'w1': w1,
    'w2': w2,
    'w2_native': partial(w2, manager='gym_vector'),
    'w3': w3,
    'w4': w4,
    'w5': w5,
    'w6_sac': partial(w6, policy='sac'),
    'w6_td3': partial(w6, policy='td3'),
    'w7': w7,
    'w7_async': partial(w7, manager='async_subprocess'),
    'w9': w9,
    'w9_base': partial(w9, manager='base'),
    'w9_pool': partial(w9, manager='env_pool'),
    'w9_halves': partial(w9, manager='env_pool', halves=True),
    'w9_update': w9_update,
    'w9_ppo': w9_ppo,
    'w10': w10,
    'w12': w12,
    'w13_impala': partial(w13, 'impala'),
    'w13_appo': partial(w13, 'appo'),
    'w11_crossq': partial(w11, policy='crossq'),
    'w11_tqc': partial(w11, policy='tqc'),
}


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)  # a random network changes the length of episodes, and so the time
    name, *sizes = sys.argv[1:]
    start = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # the run folder is not to be left behind
        measured = WORKLOADS[name](*map(int, sizes))
        os.chdir(start)
    print(json.dumps({'peer': 'rlframe', **measured}), flush=True)


if __name__ == '__main__':
    main()
