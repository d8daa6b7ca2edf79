"""Trains shipped configs, films what they learned, and writes ``docs/gallery.md`` and ``docs/films``.

usage: python docs/make_gallery.py [CONFIG ...]

Without names all films are made, in about six minutes of CPU time; with names only those, and the page keeps the others.
It needs the extras video, minigrid and box2d.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import rlframe

HERE = Path(__file__).parent
PAGE, FILMS = HERE / 'gallery.md', HERE / 'films'
FACTS = FILMS / 'films.json'
CONFIGS = (
    'cartpole_ppo',
    'lunarlander_ppo',
    'minigrid_doorkey_ppo',
    'pendulum_sac',
    'mountaincar_dqn',
    'acrobot_ppo',
)
EPISODES = 20
"""Episodes of an evaluation, of which the median one is shown."""
WIDTH, FPS, SECONDS = 300, 15, 9
"""Pixels, frames per second and the longest duration of a film."""
MOST_BYTES = 300_000
"""Size of a film; its quality falls until it fits."""
HEAD = """# Gallery

What the shipped configs learn, each in ten seconds to three minutes on one core. A film shows the episode with the median
return of {episodes} that training never saw: a typical one, not the best.

<!-- not run: trains for minutes -->
```bash
rlframe train -c lunarlander_ppo
rlframe eval lunarlander_ppo_seed0 --video films
```

These two commands train and film one of them (the second needs `pip install "rlframe[video]"`); `python docs/make_gallery.py` made
this page. [Results](results.md) has the scores of all configs over several seeds.
"""


def main() -> None:
    """Makes the films that are named, or all, and the page."""
    facts = json.loads(FACTS.read_text(encoding='utf-8')) if FACTS.exists() else {}
    FILMS.mkdir(exist_ok=True)
    for config in sys.argv[1:] or CONFIGS:
        facts[config] = made(config)
        FACTS.write_text(json.dumps(facts, indent=1) + '\n', encoding='utf-8')
    PAGE.write_text(page(facts), encoding='utf-8')


def made(config: str) -> dict[str, Any]:
    """Trains a config, writes its film and returns what the page says about it."""
    from moviepy import VideoFileClip

    with tempfile.TemporaryDirectory() as folder:
        run = rlframe.train(config, folder=Path(folder) / 'run', progress=False)
        score = run.evaluate(EPISODES, video=f'{folder}/films')
        (film,) = Path(folder, 'films').rglob('median*.mp4')
        with VideoFileClip(str(film)) as clip:
            frames = list(clip.iter_frames(fps=min(FPS, clip.fps)))
            fps = min(FPS, clip.fps)
        write_webp(FILMS / f'{config}.webp', frames, fps)
    return {'return': float(f'{score.mean:.4g}'), 'envstep': run.progress.envstep}


def write_webp(path: Path, frames: Sequence[Any], fps: float) -> None:
    """Writes a film of frames, uint8 [H, W, 3] each, that has at most ``MOST_BYTES``."""
    height = round(WIDTH * len(frames[0]) / len(frames[0][0]))
    kept = [
        Image.fromarray(np.asarray(frame)).resize((WIDTH, height)) for frame in frames[: int(SECONDS * fps)]
    ]
    for quality in (75, 60, 45, 30, 15):
        options = dict(save_all=True, append_images=kept[1:], duration=round(1000 / fps), loop=0, method=6)
        kept[0].save(path, quality=quality, **options)
        if path.stat().st_size <= MOST_BYTES:
            return
    raise SystemExit(f'{path.name} has more than {MOST_BYTES} bytes: fewer seconds')


def page(facts: dict[str, Any]) -> str:
    """Returns the page of films, two in a row."""
    cells = [cell(config, facts[config]) for config in CONFIGS if config in facts]
    pairs: Iterable[list[str]] = (cells[i : i + 2] for i in range(0, len(cells), 2))
    rows = [f'| {" | ".join([*pair, ""][:2])} |' for pair in pairs]
    return '\n'.join([HEAD.format(episodes=EPISODES), '| | |', '|---|---|', *rows]) + '\n'


def cell(config: str, facts: dict[str, Any]) -> str:
    """Returns a film, its config and what it reached, as a cell of a table."""
    name = f'[{config}](../configs/{config}.py)'
    film = f'![Film of an episode of {config}](films/{config}.webp)'
    return f'{film}<br>{name}: return {facts["return"]:g} after {facts["envstep"]:,} env steps'


if __name__ == '__main__':
    main()
