"""W3 of the peers: prioritized replay, full, observations float32 [4].

One cycle pushes 64 transitions, samples 256 as torch tensors with importance weights and updates 256 priorities.
Microseconds a cycle. ``raw_uniform`` is the floor: numpy columns without priorities.

usage: w3_buffer.py raw_uniform|tianshou|ding|cpprb [CAPACITY] [CYCLES]
"""

import numpy as np
import torch
from harness import quiet, run, timed_cycles

PUSHED, SAMPLED = 64, 256
ALPHA, BETA = 0.6, 0.4
rng = np.random.default_rng(0)


def transitions(count: int) -> dict[str, np.ndarray]:
    return {
        'obs': rng.standard_normal((count, 4), np.float32),
        'act': rng.integers(0, 2, count),
        'rew': rng.standard_normal(count, np.float32),
        'done': np.zeros(count, bool),
        'obs_next': rng.standard_normal((count, 4), np.float32),
    }


def raw_uniform(capacity: int = 100_000, cycles: int = 300) -> dict:
    block = transitions(PUSHED)
    columns = {name: np.zeros((capacity, *c.shape[1:]), c.dtype) for name, c in block.items()}
    position = 0

    def push() -> None:
        nonlocal position
        slot = np.arange(position, position + PUSHED) % capacity
        for name, rows in block.items():
            columns[name][slot] = rows
        position = (position + PUSHED) % capacity

    def sample() -> dict[str, torch.Tensor]:
        slot = rng.integers(0, capacity, SAMPLED)
        return {name: torch.from_numpy(column[slot]) for name, column in columns.items()}

    return {'capacity': capacity, **timed_cycles(push, sample, cycles)}


def tianshou(capacity: int = 100_000, cycles: int = 300) -> dict:
    from tianshou.data import Batch, PrioritizedVectorReplayBuffer

    quiet()
    buffer = PrioritizedVectorReplayBuffer(capacity, PUSHED, alpha=ALPHA, beta=BETA)
    rows = transitions(PUSHED)
    done = rows.pop('done')
    block = Batch(**rows, terminated=done, truncated=done, info=Batch())
    for _ in range(capacity // PUSHED):
        buffer.add(block)

    def sample_and_update() -> None:
        batch, index = buffer.sample(SAMPLED)
        batch.to_torch_()
        buffer.update_weight(index, rng.random(SAMPLED))

    return {'capacity': capacity, **timed_cycles(lambda: buffer.add(block), sample_and_update, cycles)}


def cpprb(capacity: int = 100_000, cycles: int = 300) -> dict:
    from cpprb import PrioritizedReplayBuffer

    columns = {'obs': {'shape': 4}, 'act': {}, 'rew': {}, 'done': {}, 'obs_next': {'shape': 4}}
    buffer = PrioritizedReplayBuffer(capacity, columns, alpha=ALPHA)
    buffer.add(**transitions(capacity))
    block = transitions(PUSHED)

    def sample_and_update() -> dict[str, torch.Tensor]:
        batch = buffer.sample(SAMPLED, beta=BETA)
        tensors = {name: torch.from_numpy(c) for name, c in batch.items() if name != 'indexes'}
        buffer.update_priorities(batch['indexes'], rng.random(SAMPLED))
        return tensors

    return {'capacity': capacity, **timed_cycles(lambda: buffer.add(**block), sample_and_update, cycles)}


def ding(capacity: int = 100_000, cycles: int = 300) -> dict:
    from ding.worker import AdvancedReplayBuffer
    from easydict import EasyDict

    quiet()
    cfg = AdvancedReplayBuffer.default_config()
    cfg.replay_buffer_size, cfg.priority = capacity, True
    cfg.thruput_controller = EasyDict(
        push_sample_rate_limit={'max': float('inf'), 'min': 0}, window_seconds=30, sample_min_limit_ratio=1
    )
    buffer = AdvancedReplayBuffer(cfg, exp_name='benchmark')
    many, block = ding_rows(transitions(1000)), ding_rows(transitions(PUSHED))
    for _ in range(capacity // 1000):
        buffer.push([dict(row) for row in many], 0)

    def sample_and_update() -> list[torch.Tensor]:
        rows = buffer.sample(SAMPLED, 0)
        tensors = [
            torch.stack([row[name] for row in rows]) for name in ('obs', 'next_obs', 'action', 'reward')
        ]
        places = {name: [row[name] for row in rows] for name in ('replay_unique_id', 'replay_buffer_idx')}
        buffer.update({**places, 'priority': rng.random(SAMPLED).tolist()})
        return tensors

    def push() -> None:
        buffer.push([dict(row) for row in block], 0)

    return {'capacity': capacity, **timed_cycles(push, sample_and_update, cycles)}


def ding_rows(columns: dict[str, np.ndarray]) -> list[dict]:
    """Makes transitions as DI-engine's collector does: a dict of tensors each."""
    return [
        {
            'obs': torch.from_numpy(columns['obs'][i]),
            'action': torch.as_tensor(columns['act'][i]),
            'reward': torch.as_tensor(columns['rew'][i]),
            'done': False,
            'next_obs': torch.from_numpy(columns['obs_next'][i]),
        }
        for i in range(len(columns['act']))
    ]


if __name__ == '__main__':
    run({'raw_uniform': raw_uniform, 'tianshou': tianshou, 'cpprb': cpprb, 'ding': ding})
