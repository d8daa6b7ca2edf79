"""Every cell of docs/support.md is true: what has a mark trains, and everything else is refused.

To check your own policy: ``RLFRAME_IMPORT=my_module pytest tests/contract/test_support.py``.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checked_names import names_of
from exported import toy_config
from policies import SAME, tried_policies
from runs import ROOT
from space_envs import ACTIONS, OBS, SpaceEnv

from rlframe.data.timestep import EnvSpec
from rlframe.envs.gym_env import GymEnvFactory
from rlframe.errors import IncompatibleError
from rlframe.pipeline import SerialPipeline
from rlframe.policy import create_policy
from rlframe.policy.parts.fit import fitting
from rlframe.registry import POLICY_REGISTRY

PATH = ROOT / 'docs' / 'make_support_table.py'


def load() -> Any:
    spec = importlib.util.spec_from_file_location('make_support_table', PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DOCS = load()
CELLS = [
    (policy, obs, action, mask)
    for policy in names_of(POLICY_REGISTRY)
    for obs in OBS
    for action in ACTIONS
    for mask in (('', 'info') if action not in ('Box', 'MultiBinary') else ('',))
]
MARKED = [cell for cell in CELLS if DOCS.works(*cell[:3], bool(cell[3]))]
REFUSED = [*{(cell[0], *cell[2:]): cell for cell in CELLS if cell not in MARKED}.values()]
"""One for each policy and kind of actions: observations are refused alike."""


def tried() -> list[Any]:
    """Returns marked cells: each policy with one kind of each, and, slow, with each kind of actions and of observations."""
    found = []
    for shift, policy in enumerate(tried_policies()):
        own = [cell for cell in MARKED if cell[0] == policy]
        obs, actions = [*dict.fromkeys(cell[1] for cell in own)], [*dict.fromkeys(cell[2:] for cell in own)]
        for i in range(max(len(obs), len(actions))):
            cell = (policy, obs[(i + shift) % len(obs)], *actions[i % len(actions)])
            marks = [] if i == 0 else [pytest.mark.slow]
            found += [pytest.param(*cell, marks=marks)] if cell in own else []
    return found


def test_table_is_up_to_date_and_has_the_same_kinds() -> None:
    assert DOCS.table() == DOCS.FILE.read_text(encoding='utf-8'), 'run: python docs/make_support_table.py'
    assert (list(DOCS.OBS), list(DOCS.ACTIONS)) == (list(OBS), list(ACTIONS))
    for ours, theirs in ((OBS, DOCS.OBS), (ACTIONS, DOCS.ACTIONS)):
        assert [type(space) for space, _ in ours.values()] == [type(space) for space in theirs.values()]


@pytest.mark.parametrize(('policy', 'obs', 'action', 'mask'), tried())
def test_what_has_a_mark_trains(policy: str, obs: str, action: str, mask: str, cwd: Path) -> None:
    env = dict(env_id=SpaceEnv, kwargs=dict(obs=obs, action=action, mask=mask))
    with SerialPipeline(toy_config(policy, env, updates=6)) as pipeline:
        before = {k: v.clone() for k, v in pipeline.policy.collect_mode.state_dict()['model'].items()}
        pipeline.run()
        after = pipeline.policy.collect_mode.state_dict()['model']
    assert pipeline.progress.train_iter >= 6 and 0 <= pipeline.evaluator.best <= 8
    assert any(not before[key].equal(after[key]) for key in before)
    assert all(np.isfinite(value.numpy()).all() for value in after.values())


@cache
def fit(obs: str, action: str, mask: str) -> tuple[EnvSpec, list[str]]:
    """Returns the spec of an env of these kinds, and the policies that fit it."""
    spec = GymEnvFactory({'env_id': SpaceEnv, 'kwargs': dict(obs=obs, action=action, mask=mask)}).spec
    return spec, fitting(spec)


@pytest.mark.parametrize('policy', names_of(POLICY_REGISTRY))
def test_what_has_none_is_refused_and_the_policies_that_fit_are_named(policy: str) -> None:
    cls = POLICY_REGISTRY.get(policy)
    for _, *kinds in (cell for cell in REFUSED if cell[0] == policy):
        spec, names = fit(*kinds)
        with pytest.raises(IncompatibleError) as caught:
            create_policy({'type': policy, 'device': 'cpu'}, spec)
        text = str(caught.value)
        assert cls.__name__ in text and 'SpaceEnv' in text and f'Supported: {cls.supported_actions}.' in text
        assert [name for name in names if name not in SAME] == [
            name for name, *others in MARKED if others == kinds
        ]
        assert f'Policies that fit: {", ".join(names)}.' in text if names else 'No registered policy' in text
