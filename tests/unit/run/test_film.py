"""``eval --video`` films the env that is scored, under the manager that steps it, or says why it cannot."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from error_texts import raises
from fakes import config_pair
from zoo import Toy

from rlframe import config
from rlframe.app.scoring import Request, score
from rlframe.entry.__main__ import main
from rlframe.errors import MissingDependencyError
from rlframe.pipeline import SerialPipeline
from rlframe.worker.evaluator.base_serial_evaluator import Clips

pytestmark = pytest.mark.usefixtures('cwd')

BAD = {'nothing': None, 'flat': np.zeros((4, 4), np.uint8)}


class Filmed(Toy):
    """Its episodes take 1 to 9 steps, as their seeds say; each picture tells how many are left, or is bad."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    metadata = {'render_modes': ['rgb_array'], 'render_fps': 12}

    def __init__(self, render_mode: str | None = None, picture: str = 'step') -> None:
        self.picture = picture

    def begin(self, seed: int | None) -> None:
        self.length = int(self.np_random.integers(1, 10))

    def render(self) -> Any:
        if self.picture == 'unknown':
            return super().render()
        left = self.length - self.steps
        return np.full((16, 16, 3), left, np.uint8) if self.picture == 'step' else BAD[self.picture]


def trained(env_id: Any, manager: str = 'base', **sections: Any) -> str:
    """Returns the run folder of an untrained policy."""
    pair = config_pair(env_id=env_id, manager=manager, **sections)
    with SerialPipeline(config.compile_config(*pair, seed=1)) as pipeline:
        pipeline.checkpoints.save_best('best')
        return pipeline.folder.name


def film(folder: str) -> int:
    return main(['eval', folder, '--episodes', '1', '--video', 'films'])


def test_the_film_is_a_file(cwd: Path) -> None:
    assert film(trained('CartPole-v1')) == 0
    assert [file.suffix for file in (cwd / 'films').iterdir()] == ['.mp4']


def test_films_are_of_the_worst_median_and_best_of_the_episodes_played(
    cwd: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    made: dict[str, list[int]] = {}

    def write(path: Path, frames: list[Any], fps: int) -> None:
        assert path.parent == Path('films') and fps == 12
        made[path.name] = [int(picture[0, 0, 0]) for picture in frames]

    monkeypatch.setattr('rlframe.run.film.write_film', write)
    folder = trained('test_film:Filmed', 'gym_vector')
    capsys.readouterr()
    assert main(['eval', folder, '--episodes', '9', '--video', 'films', '--json']) == 0
    result = json.loads(capsys.readouterr().out)
    pictures = {name.partition('_return_')[0]: frames for name, frames in made.items()}
    assert [*pictures] == ['worst', 'median', 'best']
    assert all(frames == [*reversed(range(len(frames)))] for frames in pictures.values()), 'whole episodes'
    lengths = {label: len(frames) - 1 for label, frames in pictures.items()}
    assert (lengths['worst'], lengths['best']) == (result['min'], result['max']) and result['min'] < result[
        'max'
    ]
    assert [float(name.rpartition('_')[2]) for name in made] == [*lengths.values()]
    returns = score(folder, Request(9))[0]
    assert lengths['median'] == np.median(returns), 'films change no episode'


def test_films_of_training_lie_in_the_run_folder(cwd: Path) -> None:
    pair = config_pair('dqn', 'test_film:Filmed', evaluator={'render': {'render_freq': 0}}, loggers=[])
    with SerialPipeline(config.compile_config(*pair, seed=1)) as pipeline:
        pipeline.evaluator.eval(envstep=7)
        names = sorted(path.name for path in (pipeline.folder / 'films').iterdir())
    assert [name.partition('_return_')[0] for name in names] == ['envstep_7_best', 'envstep_7_worst']


def test_films_without_moviepy_are_refused_before_a_run_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'moviepy', None)
    pair = config_pair(evaluator={'render': {'render_freq': 0}})
    with raises(MissingDependencyError):
        SerialPipeline(config.compile_config(*pair, seed=1))
    assert list(Path().iterdir()) == []


def test_only_clips_that_may_be_shown_are_kept() -> None:
    rng = np.random.default_rng(0)
    for count in (1, 2, 3, 21):
        clips, returns = Clips(count), rng.permutation(count).astype(float)
        for number, return_ in enumerate(returns):
            clips.add(0, np.full((2, 2, 3), int(return_), np.uint8))
            clips.end(0, number, return_)
            assert sum(bool(clip.pictures) for clip in clips._ended) <= max(4, count - number + 3)
        assert sum(bool(clip.pictures) for clip in clips._ended) <= 4
        films = clips.films()
        wanted = {1: [0], 2: [0, 1]}.get(count, [0, count // 2, count - 1])
        assert [int(film.frames[0][0, 0, 0]) for film in films] == wanted == [film.return_ for film in films]


@pytest.mark.parametrize(
    ('manager', 'options', 'told'),
    [
        ('base', {'picture': 'nothing'}, 'got None'),
        ('base', {'picture': 'unknown'}, "got 'NotImplementedError'"),
        ('gym_vector', {'picture': 'flat'}, "got 'uint8 [4, 4]'"),
    ],
)
def test_an_env_without_pictures_is_named_with_the_remedy(
    manager: str, options: Any, told: str, capsys: Any, cwd: Path
) -> None:
    folder = trained('test_film:Filmed', manager, env=dict(kwargs=options))
    assert film(folder) == 2
    error = capsys.readouterr().err
    where = 'env.env_id: evaluation: Filmed cannot be rendered'
    assert all(word in error for word in (where, told, 'uint8 [H, W, 3]', 'Leave --video out'))
    assert not (cwd / 'films').exists()
