"""Run folders written by hand, for tests of what reads them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def write_run(
    folder: Path,
    scores: Iterable[float | None] = (10.0, 20.0, 30.0),
    *,
    policy: str = 'dqn',
    seed: int = 0,
    env: str = 'CartPole-v1',
    more: Mapping[str, Any] | None = None,
    **options: Any,
) -> Path:
    """Writes a run folder with an evaluation every 100 env steps.

    Args:
        folder: The folder, which is created.
        scores: Returns of the evaluations.
        policy: Type of the policy.
        seed: Seed of the run.
        env: Id of the env.
        more: Further metrics of each evaluation.
        options: Options of ``policy.learn``.
    """
    folder.mkdir(parents=True)
    main = {
        'exp_name': folder.name,
        'seed': seed,
        'env': {'env_id': env, 'stop_value': 30.0},
        'policy': {'learn': {'learning_rate': 0.001, **options}},
    }
    config = {'main_config': main, 'create_config': {'policy': {'type': policy}}}
    (folder / 'config.json').write_text(json.dumps(config), encoding='utf-8')
    lines = [
        {
            'envstep': 100 * i,
            'train_iter': 10 * i,
            'eval/mean_reward': score,
            **(more or {}),
            'time': 1000.0 + i,
        }
        for i, score in enumerate(scores)
    ]
    text = ''.join(json.dumps(line) + '\n' for line in lines)
    (folder / 'metrics.jsonl').write_text(text, encoding='utf-8')
    return folder
