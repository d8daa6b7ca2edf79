"""d3rlpy's side of offline.py: does as many updates as it is told, and answers with the CPU time they took."""

from __future__ import annotations

import argparse
import sys
import time

import d3rlpy
import numpy as np
import torch

WIDTHS = d3rlpy.models.VectorEncoderFactory([256, 256])
BOTH = {'actor_encoder_factory': WIDTHS, 'critic_encoder_factory': WIDTHS, 'batch_size': 256}
ALGORITHMS = {
    'td3_bc': lambda: d3rlpy.algos.TD3PlusBCConfig(**BOTH),
    'iql': lambda: d3rlpy.algos.IQLConfig(**BOTH, value_encoder_factory=WIDTHS),
    'awac': lambda: d3rlpy.algos.AWACConfig(**BOTH),
    'rebrac': lambda: d3rlpy.algos.ReBRACConfig(**BOTH),
    'cql': lambda: d3rlpy.algos.CQLConfig(**BOTH, n_action_samples=10),
    'cql_4': lambda: d3rlpy.algos.CQLConfig(**BOTH, n_action_samples=4),
    'discrete_cql': lambda: d3rlpy.algos.DiscreteCQLConfig(encoder_factory=WIDTHS, batch_size=256),
    'discrete_bcq': lambda: d3rlpy.algos.DiscreteBCQConfig(
        encoder_factory=WIDTHS, batch_size=256, share_encoder=False
    ),
    'bcq': lambda: d3rlpy.algos.BCQConfig(**BOTH, imitator_encoder_factory=WIDTHS, n_action_samples=10),
}


def main() -> None:
    """Waits for numbers of updates."""
    parser = argparse.ArgumentParser()
    parser.add_argument('name')
    parser.add_argument('data')
    args = parser.parse_args()
    torch.set_num_threads(1)
    with np.load(args.data) as file:
        data = {name: file[name] for name in file.files}
    dataset = d3rlpy.dataset.MDPDataset(
        data['obs'],
        data['action'] if data['action'].ndim > 1 else data['action'][:, None],
        data['reward'],
        data['terminated'].astype(np.float32),
        data['truncated'].astype(np.float32),
    )
    algorithm = ALGORITHMS[args.name]().create(device=False)
    algorithm.build_with_dataset(dataset)
    print('ready', flush=True)
    for line in sys.stdin:
        start = time.process_time()
        for _ in range(int(line)):
            algorithm.update(dataset.sample_transition_batch(algorithm.batch_size))
        print(time.process_time() - start, flush=True)


if __name__ == '__main__':
    main()
