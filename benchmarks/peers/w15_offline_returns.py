"""d3rlpy's side of offline_returns.py: learns from data by its own ``fit``, and plays the episodes.

usage: python w15_offline_returns.py CASE DATA ENV UPDATES SEED
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from typing import Any

import d3rlpy
import numpy as np
import torch
from offline_episodes import returns

Widths = d3rlpy.models.VectorEncoderFactory


@dataclass
class Line(d3rlpy.optimizers.LRSchedulerFactory):  # type: ignore[misc]
    """A learning rate that falls to 0 along a line."""

    steps: int
    """Steps of the optimizer."""

    @staticmethod
    def get_type() -> str:
        """Returns its name in the config that d3rlpy saves."""
        return 'line'

    def create(self, optim: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
        """Returns the schedule of an optimizer."""
        return torch.optim.lr_scheduler.LambdaLR(optim, lambda step: max(0.0, 1 - step / self.steps))


def learner(case: dict[str, Any], updates: int, dims: int) -> Any:
    """Returns the learner of a case, for actions of some dimensions between -scale and scale; of none: discrete ones."""
    arguments: dict[str, Any] = dict(case['theirs'])
    if case['decays']:
        kind = getattr(d3rlpy.algos, f'{case["peer"]}Config')
        steps = {'critic': updates, 'actor': updates // getattr(kind, 'update_actor_interval', 1)}
        for network, number in steps.items():
            line = Line(number)
            arguments[f'{network}_optim_factory'] = d3rlpy.optimizers.AdamFactory(lr_scheduler_factory=line)
    for name in case['encoders']:
        arguments[name] = Widths(case['widths'], use_layer_norm=name in case['layer_norm'])
    if case['normalize_obs']:
        arguments['observation_scaler'] = d3rlpy.preprocessing.StandardObservationScaler()
    if dims:
        bounds = {'minimum': [-case['scale']] * dims, 'maximum': [case['scale']] * dims}
        arguments['action_scaler'] = d3rlpy.preprocessing.MinMaxActionScaler(**bounds)
    return getattr(d3rlpy.algos, f'{case["peer"]}Config')(**arguments).create(device=False)


def main() -> None:
    """Prints the returns and the CPU seconds of learning as JSON."""
    case, path, env_id, updates, seed = json.loads(sys.argv[1]), *sys.argv[2:]
    torch.set_num_threads(1)
    d3rlpy.seed(int(seed))
    with np.load(path) as file:
        data = {name: file[name] for name in file.files if name != 'rlframe'}
    is_discrete = data['action'].ndim == 1
    dataset = d3rlpy.dataset.MDPDataset(
        data['obs'],
        data['action'][:, None] if is_discrete else data['action'],
        data['reward'],
        data['terminated'].astype(np.float32),
        data['truncated'].astype(np.float32),
    )
    algorithm = learner(case, int(updates), 0 if is_discrete else data['action'].shape[1])
    start = time.process_time()
    algorithm.fit(
        dataset,
        n_steps=int(updates),
        n_steps_per_epoch=int(updates),
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
        show_progress=False,
    )
    spent = time.process_time() - start
    print(json.dumps({'cpu_seconds': spent, 'returns': returns(env_id, algorithm.predict)}))


if __name__ == '__main__':
    main()
