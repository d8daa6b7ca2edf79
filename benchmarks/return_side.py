"""W8 of rlframe: trains a shipped config until the published return, or to the end of the published budget.

usage: return_side.py PAIR SEED [ENV_STEPS]
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE / 'peers'))
from return_pairs import pair_of  # noqa: E402
from until_return import UntilReturn  # noqa: E402

import rlframe.envs.own_envs  # noqa: E402, F401  registers them
from rlframe.config import compile_config, read_config  # noqa: E402
from rlframe.data.observation import pack  # noqa: E402
from rlframe.pipeline import SerialPipeline  # noqa: E402


def act(pipeline: SerialPipeline, rows: list[Any]) -> Any:
    """Returns the best actions for a list of observations."""
    space = pipeline.policy.spec.observation_space
    obs = np.stack([pack(space, row) for row in rows])
    return pipeline.policy.eval_mode.forward(obs, np.arange(len(rows)))['action']


def main(name: str, seed: int, env_steps: int | None = None) -> None:
    """Trains once, by the config's own settings but for its evaluations, and prints what was measured."""
    torch.set_num_threads(1)
    pair, pipelines = pair_of(name), []
    watch = UntilReturn(
        pair.env_id,
        pair.published,
        pair.every,
        seed,
        lambda rows: act(pipelines[0], rows),
        pair.cpu_seconds,
    )
    main_config, create_config = read_config(HERE.parent / 'configs' / pair.file)
    main_config['env']['env_id'] = pair.env_id
    budget = env_steps or pair.own_budget or pair.budget
    cfg = compile_config(main_config, create_config, seed=seed, max_env_step=budget)
    with SerialPipeline(cfg) as pipeline:
        pipelines.append(pipeline)
        pipeline.evaluator.should_eval = lambda *_: False
        while not pipeline.finished:
            pipeline.step()
            if watch.is_over(pipeline.progress.envstep):
                break
        watch.print_result('rlframe', pipeline.progress.envstep)


if __name__ == '__main__':
    start = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # the run folder is not to be left behind
        main(sys.argv[1], *map(int, sys.argv[2:]))
        os.chdir(start)
