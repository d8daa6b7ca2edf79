"""The gallery shows a small film of each of its configs, and says what the films reached."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doc_blocks import ROOT

Image = pytest.importorskip('PIL.Image')


@pytest.fixture(scope='module')
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / 'docs' / 'make_gallery.py'))


def test_the_page_is_what_the_films_say_and_each_film_is_small(script: dict[str, Any]) -> None:
    facts = json.loads(script['FACTS'].read_text(encoding='utf-8'))
    assert facts.keys() == set(script['CONFIGS'])
    assert script['PAGE'].read_text(encoding='utf-8') == script['page'](facts)
    for config in facts:
        assert (ROOT / 'configs' / f'{config}.py').exists()
        film = script['FILMS'] / f'{config}.webp'
        assert film.stat().st_size <= script['MOST_BYTES']
        with Image.open(film) as opened:
            assert opened.n_frames > 5 and opened.size[0] == script['WIDTH']


def test_a_film_has_the_frames_of_its_first_seconds(script: dict[str, Any], tmp_path: Path) -> None:
    frames = [np.full((40, 60, 3), 255 * (i % 2), np.uint8) for i in range(120)]
    script['write_webp'](tmp_path / 'film.webp', frames, 10)
    with Image.open(tmp_path / 'film.webp') as opened:
        assert opened.n_frames == 10 * script['SECONDS'] and opened.size == (300, 200)
        assert opened.info['loop'] == 0
