"""BenchMARL's side of teams.py: trains one team of MPE2 by BenchMARL's own settings, and prints a line for each evaluation."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from typing import Any

import torch
from benchmarl import algorithms
from benchmarl.environments import PettingZooTask
from benchmarl.experiment import Experiment, ExperimentConfig
from benchmarl.experiment.callback import Callback
from benchmarl.models.mlp import MlpConfig

NAMES = {
    'simple_spread_v3': 'SIMPLE_SPREAD',
    'simple_speaker_listener_v4': 'SIMPLE_SPEAKER_LISTENER',
    'simple_reference_v3': 'SIMPLE_REFERENCE',
}


CLOCK = argparse.Namespace(spent=0.0, since=time.process_time())
"""CPU seconds outside evaluations, and when the last of them ended."""


def with_mpe2() -> None:
    """Gives TorchRL the games of MPE2 under the name that they had before they left PettingZoo."""
    package = importlib.import_module('mpe2')
    modules = importlib.import_module('mpe2.all_modules')
    modules.mpe_environments = {f'mpe/{name}': importlib.import_module(f'mpe2.{name}') for name in NAMES}  # type: ignore[attr-defined]
    sys.modules |= {'pettingzoo.mpe': package, 'pettingzoo.mpe.all_modules': modules}


class Watch(Callback):
    """Prints returns of evaluations, whose time does not count."""

    def on_evaluation_end(self, rollouts: list[Any]) -> None:
        returns = []
        for rollout in rollouts:
            groups = [rollout['next', group, 'reward'] for group in self.experiment.group_map]
            returns.append(float(torch.cat(groups, 1).sum(0).mean()))
        line = {
            'steps': self.experiment.total_frames,
            'return': sum(returns) / len(returns),
            'seconds': CLOCK.spent,
        }
        print(json.dumps(line), flush=True)


class Timed(Experiment):
    """Counts the CPU seconds outside evaluations."""

    def _evaluation_loop(self) -> None:
        CLOCK.spent += time.process_time() - CLOCK.since
        super()._evaluation_loop()
        CLOCK.since = time.process_time()


def main() -> None:
    """Trains."""
    parser = argparse.ArgumentParser()
    parser.add_argument('game')
    parser.add_argument('algorithm')
    parser.add_argument('--frames', type=int, required=True)
    parser.add_argument('--cycles', type=int, required=True)
    parser.add_argument('--every', type=int, required=True)
    parser.add_argument('--episodes', type=int, required=True)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--folder', required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with_mpe2()

    config = ExperimentConfig.get_from_yaml()
    config.prefer_continuous_actions = False
    config.max_n_frames = args.frames
    config.evaluation_interval = args.every
    config.evaluation_episodes = args.episodes
    config.render = False
    config.loggers = []
    config.create_json = True  # BenchMARL evaluates only what it logs
    config.save_folder = args.folder
    task = PettingZooTask[NAMES[args.game]].get_from_yaml()
    task.config['max_cycles'] = args.cycles
    experiment = Timed(
        task=task,
        algorithm_config=getattr(algorithms, f'{args.algorithm.capitalize()}Config').get_from_yaml(),
        model_config=MlpConfig.get_from_yaml(),
        critic_model_config=MlpConfig.get_from_yaml(),
        seed=args.seed,
        config=config,
        callbacks=[Watch()],
    )
    experiment.run()


if __name__ == '__main__':
    main()
