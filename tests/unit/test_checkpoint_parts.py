"""``Checkpoints`` saves and restores whatever parts it is given; none of them needs a pipeline."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import ROOT

from rlframe import config
from rlframe.pipeline.build import Inexactness, Stateful
from rlframe.pipeline.checkpoints import Checkpoints, RunFacts
from rlframe.run.metric_writer import MetricWriter
from rlframe.run.progress import Progress
from rlframe.run.read_checkpoint import load_checkpoint, open_checkpoint

Make = Callable[..., Checkpoints]


class Part:
    """Holds any state."""

    def __init__(self, **state: Any) -> None:
        self.state = state

    def state_dict(self) -> dict[str, Any]:
        return dict(self.state)

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        self.state = dict(state)


class Buffer(Part):
    """A replay buffer that tells whether it is locked."""

    is_locked = False

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        self.is_locked = True
        yield
        self.is_locked = False

    def checkpoint_state(self) -> dict[str, Any]:
        assert self.is_locked
        return self.state_dict()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Returns a function that makes the checkpoints of a run from parts."""
    writer = MetricWriter(tmp_path)
    pair = config.read_config(str(ROOT / 'configs' / 'cartpole_dqn.py'))

    def checkpoints(
        settle: Callable[[str], object] = str, inexact: Inexactness | None = None, **parts: Stateful | None
    ) -> Checkpoints:
        cfg = config.compile_config(*pair)
        return Checkpoints(
            {name.replace('_if_any', '?'): part for name, part in parts.items()},
            RunFacts(cfg, 'a simulator farm', lambda: 7.5),
            folder=tmp_path,
            writer=writer,
            options=cfg.checkpoint,
            inexact=inexact or Inexactness(),
            settle=settle,
        )

    yield checkpoints
    writer.close()


def restore(checkpoints: Checkpoints, path: Path) -> None:
    saved = open_checkpoint(path)
    checkpoints.restore(saved.state(), saved.manifest, saved.path)


def test_optional_part_is_saved_if_it_has_a_state_and_restored_if_it_was_saved(
    make: Make, tmp_path: Path
) -> None:
    both = {'policy': Part(), 'progress': Progress()}
    without = make(**both, commander_if_any=Part(), league=None).save(tmp_path / 'without')
    saved = make(**both, commander_if_any=Part(n_sample=8)).save(tmp_path / 'saved')
    assert load_checkpoint(without)[0].keys() == {'policy', 'progress'}
    assert load_checkpoint(saved)[0]['commander'] == {'n_sample': 8}
    commander = Part(n_sample=3)
    restore(make(**both, commander_if_any=commander), without)
    assert commander.state == {'n_sample': 3}
    restore(make(**both, commander_if_any=commander), saved)
    assert commander.state == {'n_sample': 8}


def test_replay_buffer_is_locked_while_it_is_saved_in_files_of_its_own(make: Make, tmp_path: Path) -> None:
    both, inexact = {'policy': Part(), 'progress': Progress()}, Inexactness()
    saved = make(**both, replay_buffer_if_any=Buffer(rows=np.arange(4))).save(tmp_path / 'saved')
    assert load_checkpoint(saved)[1]['replay_buffer'] == 'saved'
    buffer = Buffer()
    restore(make(**both, replay_buffer_if_any=buffer, inexact=inexact), saved)
    assert buffer.state['rows'].tolist() == [0, 1, 2, 3] and inexact.reasons == []
    bare = make(**both).save(tmp_path / 'bare')
    restore(make(**both, replay_buffer_if_any=buffer, inexact=inexact), bare)
    assert 'begins with an empty one' in inexact.reasons[0]


def test_requested_checkpoint_is_saved_at_the_end_of_the_round_when_its_parts_are_settled(
    make: Make, tmp_path: Path
) -> None:
    settled: list[str] = []
    checkpoints = make(settled.append, policy=Part(), progress=Progress(train_iter=2))
    checkpoints.request('iteration_2')
    assert settled == [] and not (tmp_path / 'ckpt').exists()
    checkpoints.finish_round()
    checkpoints.save_latest()
    assert settled == ['iteration_2'], 'not again, as it has just been saved'
    assert (tmp_path / 'ckpt' / 'latest').resolve().name == 'iteration_2'
    make(settled.append, policy=Part(), progress=Progress(train_iter=3)).save_emergency()
    assert settled == ['iteration_2'], 'an emergency waits for nothing'
