"""The commander tells the policy what happened, hands on what it answers, and sets the size of a round."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from error_texts import raises
from fakes import ScriptedPolicy, config_pair
from runs import ROOT, differences

from rlframe.config import as_played, compile_config, config_data, split_config
from rlframe.errors import ConfigError
from rlframe.pipeline import SerialPipeline
from rlframe.registry import COMMANDER_REGISTRY
from rlframe.run.read_checkpoint import load_checkpoint
from rlframe.utils.field import Field
from rlframe.worker import BaseSerialCommander, create_commander


class EveryThirdRound(BaseSerialCommander):
    """Trains hard in every third round and remembers the sizes of all rounds."""

    config: dict[str, Any] = dict(updates=Field(4, range='[0, inf)', doc='updates of every third round'))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rounds = 0

    def begin_round(self) -> None:
        self.rounds += 1

    def collect_target(self) -> int | None:
        return 4 + self.rounds if self.rounds % 2 else None

    def update_per_collect(self) -> int | None:
        return self._cfg.updates if self.rounds % 3 == 0 else 0

    def state_dict(self) -> dict[str, Any]:
        return {'rounds': self.rounds}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.rounds = state['rounds']


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty working directory, from which modules are imported, and commanders that are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    COMMANDER_REGISTRY.register('every_third', EveryThirdRound)
    yield
    COMMANDER_REGISTRY._classes = {k: c for k, c in COMMANDER_REGISTRY._classes.items() if k == 'base'}
    sys.modules.pop('growing_rounds', None)


def pair(kind: str = 'every_third', policy: str = 'dqn', **options: Any) -> tuple[Any, Any]:
    main, create = config_pair(policy)
    main['policy']['other']['commander'] = options
    return main, create | {'commander': dict(type=kind)}


def sizes(pipeline: SerialPipeline, count: int) -> list[tuple[int, int]]:
    """Returns how many env steps and how many updates each of some rounds does."""
    found = []
    for _ in range(count):
        before = pipeline.progress.envstep, pipeline.progress.train_iter
        pipeline.step()
        found.append((pipeline.progress.envstep - before[0], pipeline.progress.train_iter - before[1]))
    return found


@pytest.mark.usefixtures('own')
def test_a_commander_of_the_config_sets_the_size_of_each_round() -> None:
    with SerialPipeline(compile_config(*pair(updates=5))) as pipeline:
        assert isinstance(pipeline.commander, EveryThirdRound)
        counts = sizes(pipeline, 6)
    assert [updates for _, updates in counts] == [0, 0, 5, 0, 0, 5]
    assert sum(steps for steps, _ in counts) >= 5 + 8 + 7 + 8 + 9 + 8


@pytest.mark.usefixtures('own')
def test_what_a_commander_remembers_is_saved_and_restored(tmp_path: Path) -> None:
    cfg = compile_config(*pair())
    with SerialPipeline(cfg) as straight, SerialPipeline(cfg) as resumed:
        sizes(straight, 4)
        resumed.load_checkpoint(straight.save_checkpoint(tmp_path / 'saved'))
        assert resumed.commander.rounds == 4  # type: ignore[attr-defined]
        assert sizes(straight, 8) == sizes(resumed, 8)
        states = [
            load_checkpoint(p.save_checkpoint(tmp_path / f'end_{i}'))[0]
            for i, p in enumerate((straight, resumed))
        ]
    for state in states:
        state['progress'].pop('wall_time')
    assert differences(*states) == []


@pytest.mark.usefixtures('own')
@pytest.mark.parametrize(
    ('kind', 'options'), [('every_thrid', {}), ('every_third', {'updates': -1}), ('base', {'updates': 1})]
)
def test_a_commander_that_is_unknown_or_told_nonsense_is_refused(kind: str, options: Any) -> None:
    with raises(ConfigError):
        compile_config(*pair(kind, **options))


@pytest.mark.usefixtures('own')
@pytest.mark.parametrize(('name', 'answer'), [('collect_target', 0), ('update_per_collect', 1.5)])
def test_an_answer_that_is_no_count_is_named(name: str, answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EveryThirdRound, name, lambda self: answer)
    with (
        SerialPipeline(compile_config(*pair())) as pipeline,
        raises(ConfigError),
    ):
        sizes(pipeline, 9)


@pytest.mark.usefixtures('own')
def test_playing_episodes_needs_no_commander() -> None:
    data = as_played(config_data(*split_config(compile_config(*pair(updates=5)))))
    cfg = compile_config(data['main_config'], data['create_config'])
    assert cfg.policy.other.commander == {'type': 'base', 'import_names': []}


@pytest.mark.usefixtures('own')
def test_create_commander_takes_the_base_one_by_default() -> None:
    commander = create_commander({}, None, None, None, None, ScriptedPolicy().command_mode)
    assert type(commander) is BaseSerialCommander and commander.collect_target() is None
    kind = create_commander({'type': 'every_third', 'updates': 7}, None, None, None, None)
    assert kind.update_per_collect() == 7


@pytest.mark.usefixtures('own')
def test_the_example_of_the_page_grows_its_rounds(tmp_path: Path) -> None:
    page = (ROOT / 'docs' / 'commander.md').read_text(encoding='utf-8')
    module, example = re.findall(r'^```python\n(.*?)^```$', page, re.MULTILINE | re.DOTALL)
    (tmp_path / 'growing_rounds.py').write_text(module)
    names: dict[str, Any] = {}
    exec(example, names)
    pair = names['main_config'], names['create_config']
    quick = {'commander.duration': 100, 'env.n_evaluator_episode': 1, 'env.evaluator_env_num': 1}
    with SerialPipeline(compile_config(*pair, overrides=quick)) as pipeline:
        counts = sizes(pipeline, 14)
        assert pipeline.commander.collect_target() == 32 and counts[0] == (8, 0) and counts[-1] == (32, 8)
    assert max(updates for _, updates in counts) > 16
    assert compile_config(*pair).policy.other.commander.duration == 20_000
