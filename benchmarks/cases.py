"""What is measured against whom, at which size, and which goal is set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Measure = Literal['seconds', 'us_cycle', 'env_steps_per_s']
"""Key of a side's output that is compared; of the first two less is better, of the last one more."""

DISTRIBUTIONS = {
    'sb3': 'stable_baselines3',
    **dict.fromkeys(('sb3_contrib', 'contrib_crossq', 'contrib_tqc'), 'sb3_contrib'),
    'tianshou': 'tianshou',
    'ding': 'DI-engine',
    'cpprb': 'cpprb',
    'torchrl_sync': 'torchrl',
    'torchrl_async': 'torchrl',
    **dict.fromkeys(('rllib', 'rllib_impala', 'rllib_appo'), 'ray'),
}
"""Peers that must be installed; the others are loops written by hand."""


@dataclass(frozen=True)
class Goal:
    """What rlframe is to reach."""

    peer: str
    """Whom the ratio is against."""
    at_least: float
    """Smallest ratio 'rlframe is x times faster than'."""


@dataclass(frozen=True)
class Case:
    """One workload at one size."""

    name: str
    title: str
    script: str
    """File of the peers' halves, below peers/."""
    side: str
    """Name of the workload in rlframe_side.py."""
    measure: Measure
    peers: tuple[str, ...]
    goals: tuple[Goal, ...]
    sizes: tuple[int, ...]
    """Arguments of either half."""
    quick_sizes: tuple[int, ...] | None = None
    """The same for a smoke test; None leaves the case out of it."""

    @property
    def workload(self) -> str:
        """The option of ``--workloads`` that it belongs to."""
        return self.side.partition('_')[0]

    def sizes_of(self, quick: bool) -> tuple[int, ...] | None:
        """Returns the arguments of either half; None where the case is left out."""
        return self.quick_sizes if quick else self.sizes


WORKLOADS = {
    'w1': 'DQN, CartPole-v1: 8 envs, 5 updates of 64 after each step of the 8; MLP 4-128-128-64-2, Adam, no evaluation;'
    ' 20,000 env steps.'
    ' Seconds of the training loop alone, with the metrics that each system writes by default.',
    'w2': 'Collection alone, CartPole-v1 under an epsilon-greedy MLP 4-128-128-64-2. Transitions per second, not'
    ' counting rows that only reset an env. The hand-written loops raw and native only append the arrays to a list.',
    'w3': 'Prioritized replay, full, obs float32 [4]. A cycle pushes 64, samples 256 as torch tensors with importance'
    ' weights and updates 256 priorities. raw_uniform, without priorities, is a lower bound.',
    'w4': 'PPO, CartPole-v1: 8 envs x 128 steps, 4 epochs of minibatches of 256; actor and critic MLP 64-64 tanh;'
    ' 51,200 env steps.'
    ' Seconds of the training loop alone.',
    'w5': 'Collection in Ray actors of 8 envs each, CartPole-v1 under an epsilon-greedy MLP 4-128-128-64-2, batches of 4,000'
    ' transitions per actor, with new weights for each. Transitions per second after the first batch. in_process and'
    ' one_actor are rlframe itself; in cases with a step cost, the env computes for that time.',
    'w6': 'One update of SAC or TD3 from prepared batches of 256: obs float32 [17], action [6]; actor and two critics'
    ' MLP 256-256 ReLU, fused Adam. Microseconds per update, including metrics.',
    'w7': 'Envs in processes, stepped as fast as possible, without policy or recording; one process per env.'
    ' Transitions per second. If an env is slow, subprocess (rlframe itself) and the other peers wait for it in every'
    ' step.',
    'w9': "Pong of 84 x 84 pixels, 4 frames, as OpenAI Baselines set it; Nature's CNN. Collection by an epsilon-greedy DQN in"
    " 8 envs: in ALE's threads, in this process (base) and in EnvPool's threads (pool), there also in halves: the network acts"
    ' in the 4 envs that answer first while the others step. SB3 steps its own Atari wrappers in one process, raw a loop over'
    " Gymnasium's. One update of double DQN from 32 prepared stacks. PPO in EnvPool with the settings of CleanRL's"
    ' ppo_atari_envpool, 8 envs x 128 steps; cleanrl is such a loop written by hand.',
    'w10': 'Recurrent PPO, CartPole-v1 without velocities, by the hyper-parameters of rl-zoo3: 8 envs x 32 steps, 20 epochs of'
    ' minibatches of 256; actor and critic with an LSTM of 64 units and a hidden layer of 64 each; observations and rewards'
    ' normalised; 10,240 env steps. Seconds of the training loop alone.',
    'w11': 'One update of CrossQ or TQC from a replay buffer of 20,000 transitions, batches of 256: obs float32 [17], action'
    ' [6]; actor and two critics MLP 256-256 ReLU. CrossQ: batch renorm in its warm-up, Adam 1e-3 with beta1 0.5, the actor'
    ' at every third update. TQC: 25 quantiles a critic, 2 dropped, Adam 3e-4. Microseconds of CPU time per update, including sampling and metrics.',
    'w12': 'PPO on Hopper-v5 in EnvPool with one thread: 64 envs x 64 steps, 8 epochs of minibatches of 1,024; actor and critic'
    ' MLP 64-64 tanh, nothing normalised; 49,152 env steps. SB3 gets the pool as a VecEnv; cleanrl is a loop written by hand as'
    ' CleanRL writes it, which also learns from the steps in which EnvPool resets an env.',
    'w13': 'IMPALA and APPO, CartPole-v1 with 2 Ray actors of 8 envs each, which do not wait for the learner: an update of each 512'
    ' steps, MLP 64-64, no evaluation; in the other cases the env computes for the time named. Env steps per second after the first'
    " batch. rllib is RLlib's algorithm of the same name with its learner in the driver's process, too.",
}
"""What a workload is, for the report."""


def _collect(env_num: int, quick_steps: int, raw: float) -> Case:
    return Case(
        name=f'w2-{env_num}',
        title=f'W2 collect, {env_num} envs',
        script='w2_collect.py',
        side='w2',
        measure='env_steps_per_s',
        peers=('raw', 'sb3', 'tianshou', 'ding'),
        goals=(Goal('raw', raw), Goal('tianshou', 4.0), Goal('ding', 4.0)),
        sizes=(env_num, 40_000),
        quick_sizes=(env_num, quick_steps),
    )


def _through_ray(actors: int, microseconds: int, peers: tuple[str, ...], goals: tuple[Goal, ...]) -> Case:
    cost = f', {microseconds} us more a step' if microseconds else ''
    return Case(
        name=f'w5-{actors}-{microseconds}us',
        title=f'W5 collect through Ray, {actors} actor{"s" if actors > 1 else ""}{cost}',
        script='w5_ray.py',
        side='w5',
        measure='env_steps_per_s',
        peers=peers,
        goals=goals,
        sizes=(actors, microseconds, 16_000 * actors if microseconds else 80_000 * actors),
        quick_sizes=(actors, microseconds, 4000 * actors) if (actors, microseconds) == (1, 0) else None,
    )


def _asynchronous(policy: str, microseconds: int) -> Case:
    cost = f', {microseconds} us more a step' if microseconds else ''
    return Case(
        name=f'w13-{policy}-{microseconds}us',
        title=f'W13 {policy.upper()}, 2 actors{cost}',
        script='w13_async.py',
        side=f'w13_{policy}',
        measure='env_steps_per_s',
        peers=(f'rllib_{policy}',),
        goals=(Goal(f'rllib_{policy}', 4.0),),
        sizes=(2, microseconds, 10_000),
    )


def _replay(capacity: int, quick: bool = False) -> Case:
    return Case(
        name=f'w3-{capacity}',
        title=f'W3 prioritized replay, {capacity:,} transitions',
        script='w3_buffer.py',
        side='w3',
        measure='us_cycle',
        peers=('raw_uniform', 'cpprb', 'tianshou', 'ding'),
        goals=(Goal('cpprb', 4.0),),
        sizes=(capacity, 300),
        quick_sizes=(capacity, 20) if quick else None,
    )


def _update(policy: str, limit: float) -> Case:
    return Case(
        name=f'w6-{policy}',
        title=f'W6 one update of {policy.upper()}',
        script='w6_update.py',
        side=f'w6_{policy}',
        measure='us_cycle',
        peers=(f'{policy}_limit',),
        goals=(Goal(f'{policy}_limit', limit),),
        sizes=(2000,),
        quick_sizes=(20,),
    )


def _contrib(policy: str, name: str) -> Case:
    return Case(
        name=f'w11-{policy}',
        title=f'W11 one update of {name}',
        script='w11_contrib.py',
        side=f'w11_{policy}',
        measure='us_cycle',
        peers=(f'contrib_{policy}',),
        goals=(Goal(f'contrib_{policy}', 2.5),),
        sizes=(160,),
        quick_sizes=(16,),
    )


def _processes(
    name: str, title: str, sizes: tuple[int, ...], quick_steps: int, goals: tuple[Goal, ...]
) -> Case:
    is_uneven = sizes[1] != sizes[2]
    return Case(
        name=f'w7-{name}',
        title=f'W7 envs in processes, {title}',
        script='w7_processes.py',
        side='w7_async' if is_uneven else 'w7',
        measure='env_steps_per_s',
        peers=('subprocess', 'async_vector', 'sb3') if is_uneven else ('async_vector', 'sb3'),
        goals=goals,
        sizes=sizes,
        quick_sizes=(*sizes[:3], quick_steps),
    )


def _pixels(side: str, where: str, goals: tuple[Goal, ...]) -> Case:
    return Case(
        name=side.replace('_', '-'),
        title=f'W9 collect pixels, 8 envs {where}',
        script='w9_pixels.py',
        side=side,
        measure='env_steps_per_s',
        peers=('sb3', 'raw'),
        goals=goals,
        sizes=(8, 4096),
        quick_sizes=(2, 64) if side == 'w9' else None,
    )


CASES = (
    Case(
        name='w1',
        title='W1 DQN',
        script='w1_dqn.py',
        side='w1',
        measure='seconds',
        peers=('limit', 'sb3', 'tianshou', 'ding'),
        goals=(Goal('limit', 2.0), Goal('sb3', 3.0), Goal('ding', 2.2)),
        sizes=(20_000,),
        quick_sizes=(400,),
    ),
    _collect(8, 1600, 1.3),
    _collect(64, 6400, 1.2),
    Case(
        name='w2-native-64',
        title="W2 collect, CartPole's own vector env of 64",
        script='w2_collect.py',
        side='w2_native',
        measure='env_steps_per_s',
        peers=('native',),
        goals=(Goal('native', 1.05),),
        sizes=(64, 160_000),
        quick_sizes=(64, 6400),
    ),
    _replay(10_000, quick=True),
    _replay(100_000),
    _replay(1_000_000),
    Case(
        name='w4',
        title='W4 PPO',
        script='w4_ppo.py',
        side='w4',
        measure='seconds',
        peers=('limit', 'sb3', 'tianshou', 'ding'),
        goals=(Goal('limit', 1.0), Goal('sb3', 2.5), Goal('tianshou', 2.0)),
        sizes=(51_200,),
        quick_sizes=(2048,),
    ),
    _through_ray(
        1,
        0,
        ('in_process', 'torchrl_sync', 'torchrl_async', 'rllib'),
        (Goal('in_process', 0.9), Goal('torchrl_sync', 7.0), Goal('rllib', 4.0)),
    ),
    _through_ray(
        2,
        0,
        ('in_process', 'torchrl_sync', 'torchrl_async', 'rllib'),
        (Goal('torchrl_sync', 7.0), Goal('rllib', 4.0)),
    ),
    _through_ray(2, 20, ('in_process',), ()),
    _through_ray(2, 200, ('in_process', 'one_actor'), (Goal('one_actor', 1.5),)),
    _update('sac', 1.6),
    _update('td3', 0.9),
    _processes('4', '4 CartPoles', (4, 0, 0, 40_000), 400, (Goal('async_vector', 1.0),)),
    _processes('8', '8 CartPoles', (8, 0, 0, 40_000), 800, (Goal('async_vector', 1.0),)),
    _processes('1ms', '4 envs of 1 ms', (4, 1, 1, 8000), 400, (Goal('async_vector', 1.0),)),
    _processes(
        'uneven', '3 envs of 2 ms and one of 20 ms', (4, 2, 20, 4000), 100, (Goal('subprocess', 2.5),)
    ),
    _pixels('w9', "in ALE's threads", (Goal('sb3', 1.5),)),
    _pixels('w9_base', 'in this process', (Goal('raw', 0.95),)),
    _pixels('w9_pool', 'in EnvPool', ()),
    _pixels('w9_halves', 'in EnvPool, 4 at a time', (Goal('sb3', 1.5),)),
    Case(
        name='w9-update',
        title='W9 one update of DQN, 32 stacks',
        script='w9_pixels.py',
        side='w9_update',
        measure='us_cycle',
        peers=('update_limit',),
        goals=(Goal('update_limit', 0.9),),
        sizes=(100, 32),
        quick_sizes=(2, 4),
    ),
    Case(
        name='w9-ppo',
        title='W9 PPO in EnvPool',
        script='w9_pixels.py',
        side='w9_ppo',
        measure='env_steps_per_s',
        peers=('cleanrl',),
        goals=(),
        sizes=(8, 4096),
    ),
    Case(
        name='w10',
        title='W10 recurrent PPO',
        script='w10_recurrent.py',
        side='w10',
        measure='seconds',
        peers=('sb3_contrib',),
        goals=(Goal('sb3_contrib', 2.0),),
        sizes=(10_240,),
        quick_sizes=(512,),
    ),
    Case(
        name='w12',
        title='W12 PPO on Hopper in EnvPool',
        script='w12_envpool.py',
        side='w12',
        measure='env_steps_per_s',
        peers=('sb3', 'cleanrl'),
        goals=(Goal('sb3', 1.5), Goal('cleanrl', 1.15)),
        sizes=(49_152,),
    ),
    *(_asynchronous(policy, cost) for policy in ('impala', 'appo') for cost in (0, 200)),
    _contrib('crossq', 'CrossQ'),
    _contrib('tqc', 'TQC'),
)
