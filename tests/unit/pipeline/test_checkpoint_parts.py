"""``Checkpoints`` saves and restores whatever parts it is given; none of them needs a pipeline."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from runs import ROOT

from rlframe import config
from rlframe.data.timestep import EnvSpec
from rlframe.errors import CheckpointMismatchError
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


BOX = spaces.Box(-1, 1, (3,), np.float32)
SPEC = EnvSpec(spaces.Dict(a=BOX, b=spaces.Discrete(3)), spaces.Discrete(4), name='a simulator farm')


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Returns a function that makes the checkpoints of a run from parts."""
    writer = MetricWriter(tmp_path)
    pair = config.read_config(str(ROOT / 'configs' / 'cartpole_dqn.py'))

    def checkpoints(
        settle: Callable[[str], object] = str,
        inexact: Inexactness | None = None,
        spec: EnvSpec = SPEC,
        **parts: Stateful | None,
    ) -> Checkpoints:
        cfg = config.compile_config(*pair)
        return Checkpoints(
            {name.replace('_if_any', '?'): part for name, part in parts.items()},
            RunFacts(cfg, spec, lambda: 7.5),
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


CHANGES = {
    'kind': (spaces.Discrete(4), spaces.MultiDiscrete([4])),
    'count': (spaces.Discrete(4), spaces.Discrete(3)),
    'start': (spaces.Discrete(4), spaces.Discrete(4, start=1)),
    'parts': (SPEC.observation_space, spaces.Dict(a=BOX)),
    'shape': (BOX, spaces.Box(-1, 1, (2,), np.float32)),
    'type': (BOX, spaces.Box(-1, 1, (3,), np.float64)),
    'one bound': (BOX, spaces.Box(np.array([-1, -1, -2], np.float32), np.ones(3, np.float32))),
}


@pytest.mark.parametrize('which', ['observation_space', 'action_space'])
@pytest.mark.parametrize('case', CHANGES)
def test_a_run_is_not_resumed_in_an_env_with_other_spaces(
    make: Make, tmp_path: Path, case: str, which: str
) -> None:
    before, after = (dataclasses.replace(SPEC, **{which: space}) for space in CHANGES[case])
    path = make(spec=before, policy=Part(a=1), progress=Progress()).save(tmp_path / 'saved')
    policy = Part()
    with pytest.raises(CheckpointMismatchError) as caught:
        restore(make(spec=after, policy=policy, progress=Progress()), path)
    there, here = (repr(getattr(spec, which)) for spec in (before, after))
    assert str(caught.value) == f'{path}: {which}: {there!r} there, {here!r} here'
    assert policy.state == {}, 'it is refused before anything is loaded'
    restore(make(spec=before, policy=policy, progress=Progress()), path)
    assert policy.state == {'a': 1}
