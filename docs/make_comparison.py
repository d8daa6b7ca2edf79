"""Draws the picture of docs/pictures.md with ``rlframe compare``, from the runs in ``docs/results.json``.

usage: python docs/make_comparison.py
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from rlframe import config
from rlframe.app.figure import compare
from rlframe.run.metrics import METRICS

HERE = Path(__file__).parent
PICTURE = HERE / 'curves' / 'compare.png'
COLORS = 64
"""Of the picture, which makes its file small."""
CONFIGS = ('cartpole_dqn', 'cartpole_ppo')


def main() -> None:
    """Writes the picture."""
    runs = json.loads((HERE / 'results.json').read_text(encoding='utf-8'))['runs']
    with tempfile.TemporaryDirectory() as folder:
        chosen = [run for run in runs if run['config'] in CONFIGS]
        compare([write_run(Path(folder), run) for run in chosen], str(PICTURE))
    Image.open(PICTURE).convert('RGB').quantize(COLORS).save(PICTURE, optimize=True)


def write_run(parent: Path, run: Mapping[str, Any]) -> Path:
    """Writes the folder of a run as far as a comparison reads it."""
    folder = parent / f'{run["config"]}_seed{run["seed"]}'
    folder.mkdir()
    pair = config.read_config(run['config'])
    cfg = config.compile_config(*pair, seed=run['seed'])
    config.write_total_config(folder, *config.split_config(cfg))
    lines = [{'envstep': step, 'eval/mean_reward': mean} for step, mean in run['curve']]
    text = ''.join(json.dumps(line) + '\n' for line in lines)
    (folder / METRICS).write_text(text, encoding='utf-8')
    return folder


if __name__ == '__main__':
    main()
