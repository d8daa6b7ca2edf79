"""What every registered learner hook has to do, also those of modules named in ``RLFRAME_IMPORT``.

To check your own: ``RLFRAME_IMPORT=my_module pytest tests/contract/test_hook.py``.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from checked_names import names_of
from fakes import FakeBoard, ScriptedPolicy

from rlframe.registry import LEARNER_HOOK_REGISTRY
from rlframe.worker import BaseLearner, LearnerHook, build_learner_hook_by_cfg

POSITIONS = ('before_run', 'after_run', 'before_iter', 'after_iter')


@pytest.fixture(params=names_of(LEARNER_HOOK_REGISTRY))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def test_is_a_documented_learner_hook_with_a_place_of_its_own(name: str) -> None:
    cls = LEARNER_HOOK_REGISTRY.get(name)
    assert issubclass(cls, LearnerHook) and inspect.getdoc(cls)
    hook = cls()
    assert hook.position in POSITIONS and hook.priority >= 0 and hook.name


def test_runs_at_any_position_of_a_run(name: str, tmp_path: Path) -> None:
    hooks = {'load_ckpt_before_run': None, 'log_show_after_iter': None, 'save_ckpt_after_iter': None}
    mine = {f'my_{place}': {'type': name, 'position': place, 'priority': 7} for place in POSITIONS}
    hooks |= {'save_ckpt_after_run': False, **mine}
    policy = ScriptedPolicy({'total_loss': 1.0, 'cur_lr': 0.1}, batch_size=2)
    learner = BaseLearner(
        {'hook': hooks, 'train_iterations': 3}, policy.learn_mode, FakeBoard(), exp_name=str(tmp_path / 'run')
    )
    assert all([hook.name for hook in learner.hooks[place]] == [f'my_{place}'] for place in POSITIONS)
    learner.get_data = lambda size: {}
    learner.start()
    assert learner.train_iter == 3


def test_options_come_from_the_config(name: str) -> None:
    def only(cfg: dict[str, Any]) -> LearnerHook:
        return next(hook for own in build_learner_hook_by_cfg({'mine': cfg}).values() for hook in own)

    direct, unpacked = only({'type': name, 'option': 3}), only({'type': name, 'ext_args': {'option': 3}})
    assert direct.option == unpacked.option == 3 and direct.name == 'mine'
