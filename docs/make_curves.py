"""Draws the learning curves of the README from the runs in ``docs/results.json``.

usage: python docs/make_curves.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RECORDS, PICTURE = HERE / 'results.json', HERE / 'curves' / 'readme.png'
CONFIGS = {'DQN': 'cartpole_dqn', 'PPO': 'cartpole_ppo'}
GOAL = 500
"""Return at which these configs stop, the largest of CartPole-v1."""


def main() -> None:
    """Writes the picture."""
    runs = json.loads(RECORDS.read_text(encoding='utf-8'))['runs']
    draw({label: [run for run in runs if run['config'] == config] for label, config in CONFIGS.items()})


def draw(groups: dict[str, list[dict[str, Any]]]) -> None:
    """Draws one panel per algorithm and one line per seed, up to a dot where it reaches the goal and training stops by itself."""
    import matplotlib as mpl

    mpl.use('Agg')
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, len(groups), figsize=(8, 3), sharey=True, layout='constrained')
    for i, (axes, (label, runs)) in enumerate(zip(panels, groups.items(), strict=True)):
        for run in runs:
            last = next(i for i, (_, value) in enumerate(run['curve']) if value >= GOAL)
            steps, returns = zip(*run['curve'][: last + 1], strict=True)
            axes.plot(steps, returns, f'C{i}', alpha=0.7, linewidth=1.3)
            axes.plot(steps[-1], returns[-1], f'C{i}o', markersize=5, clip_on=False)
        axes.axhline(GOAL, color='gray', linestyle='--', linewidth=1)
        axes.text(0, GOAL - 8, f' goal {GOAL}', color='gray', va='top', fontsize=9)
        axes.set(title=f'{label}, {len(runs)} seeds', xlabel='env steps', xlim=(0, None), ylim=(0, 510))
        axes.xaxis.set_major_formatter('{x:,.0f}')
        axes.grid(alpha=0.3)
    panels[0].set_ylabel('return of an evaluation')
    figure.savefig(PICTURE, dpi=110, metadata={'Software': None})
    plt.close(figure)


if __name__ == '__main__':
    main()
