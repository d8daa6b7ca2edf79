"""What every registered hook of a run has to do, also those of modules named in ``RLFRAME_IMPORT``.

To check your own: ``RLFRAME_IMPORT=my_module pytest tests/contract/test_run_hook.py``.
"""

from __future__ import annotations

import copy
import inspect
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checked_names import names_of
from foreign import CREATE, MAIN
from test_reaches import NAMES, WORDS, leaves

from rlframe import config
from rlframe.config.schema import EVERY_RUN
from rlframe.errors import UnsafeCheckpointError
from rlframe.pipeline import SerialPipeline
from rlframe.registry import HOOK_REGISTRY
from rlframe.run.read_checkpoint import load_checkpoint
from rlframe.utils.field import REQUIRED
from rlframe.worker.hooks import RunHook
from rlframe.worker.hooks.run_hook import EVENTS, overrides

GIVEN: dict[str, dict[str, Any]] = {
    'wall_clock': dict(seconds=1e6),
}
"""Options of hooks that need some, or are quicker with them."""


@pytest.fixture(params=names_of(HOOK_REGISTRY))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def compiled(name: str, *overrides: str) -> Any:
    hooks = {**dict.fromkeys(EVERY_RUN, False), name: GIVEN.get(name, {})}
    return config.compile_config({**MAIN, 'hooks': hooks}, CREATE, overrides=list(overrides))


def test_is_a_documented_hook_of_some_event(name: str) -> None:
    cls = HOOK_REGISTRY.get(name)
    assert issubclass(cls, RunHook) and inspect.getdoc(cls) and inspect.getdoc(cls) != inspect.getdoc(RunHook)
    assert any(overrides(cls, event) for event in EVENTS)
    for key, field in leaves(cls.config_fields()):
        assert field.doc, key


@pytest.mark.slow
def test_a_run_with_it_saves_and_resumes(name: str, cwd: Path) -> None:
    with SerialPipeline(compiled(name, 'max_train_iter=2')) as pipeline:
        pipeline.run()
    saved = pipeline.folder / 'ckpt' / 'latest'
    state = load_checkpoint(saved)[0]['hooks']['hooks'].get(name, {})
    with SerialPipeline(compiled(name, 'max_train_iter=3'), resume=saved) as again:
        np.testing.assert_equal(again.hooks.state_dict()['hooks'].get(name, {}), state)
        again.run()
    assert again.progress.train_iter == 3


def test_its_state_is_a_copy_of_plain_values(name: str) -> None:
    hook = HOOK_REGISTRY.get(name)(GIVEN.get(name))
    state = hook.state_dict()
    assert pickle.loads(pickle.dumps(state)) == state
    before = copy.deepcopy(state)
    hook.load_state_dict(state)
    assert hook.state_dict() == before


def test_a_foreign_config_may_only_choose_it_if_it_reaches_nothing(name: str) -> None:
    cls = HOOK_REGISTRY.get(name)
    data = {'main_config': {**MAIN, 'hooks': {name: GIVEN.get(name, {})}}, 'create_config': CREATE}
    if cls.reaches or not HOOK_REGISTRY.is_builtin(name):
        with pytest.raises(UnsafeCheckpointError):
            config.check_trust(data, 'here', trust=False)
    else:
        config.check_trust(data, 'here', trust=False)
        for key, field in leaves(cls.config_fields()):
            looks = (
                NAMES.search(key) or WORDS.search(field.doc) or set(field.types) & {str, dict, list, object}
            )
            assert not looks or field.choices or key in REVIEWED, f'{key}: what does it reach?'


REVIEWED = {'every'}
"""Options that look as if they reached something, and do not."""


def test_required_options_are_those_that_the_test_gives(name: str) -> None:
    required = {
        key for key, field in leaves(HOOK_REGISTRY.get(name).config_fields()) if field.default is REQUIRED
    }
    assert required <= set(GIVEN.get(name, {})), name
