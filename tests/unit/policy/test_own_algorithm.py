"""The page about own algorithms lists what policies define, and its examples compute what it says."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import registrations
import torch
from doc_blocks import ROOT, blocks_of
from error_texts import raises
from policy_toys import MASKED, PLAIN, random_rows

import rlframe
from rlframe.data import Batch, EnvSpec
from rlframe.data.observation import zero_obs
from rlframe.errors import ActionMaskError
from rlframe.policy import Policy, create_policy
from rlframe.policy.dqn import DQNPolicy, DQNUpdate
from rlframe.policy.parts.outputs import Values
from rlframe.policy.update import Update
from rlframe.registry import POLICY_REGISTRY

PAGE = ROOT / 'docs' / 'how_to' / 'own_algorithm.md'
OF_UPDATE, OF_POLICY, COLUMNS, *_ = re.split(
    r'^## .*\n', PAGE.read_text(encoding='utf-8'), flags=re.MULTILINE
)[1:]
LISTED = OF_UPDATE + OF_POLICY
NOT_LISTED = {
    'counted',
    'gain',
    'outputs',
    'check_spec',
    'best_step',
    'model_kwargs',
    'state_dict',
    'load_state_dict',
    'set_envstep',
}
"""Public methods that an algorithm need not define: parts of networks with a core, rules and arguments of constructors."""
SMALL: dict[str, Any] = {'cuda': False, 'model': {'encoder_hidden_size_list': [16], 'dueling': True}}


def policies() -> list[type[Policy]]:
    return [POLICY_REGISTRY.get(name) for name in POLICY_REGISTRY.names() if POLICY_REGISTRY.is_builtin(name)]


def updates() -> list[type[Any]]:
    return [Update, *(cls.update_class for cls in policies())]


def test_each_method_on_the_page_exists_and_is_documented() -> None:
    names = {
        name for row in re.findall(r'^\|.*', LISTED, re.MULTILINE) for name in re.findall(r'`(\w+)\(', row)
    }
    assert len(names) > 20
    for name in names:
        found = [getattr(cls, name) for cls in [Policy, *policies(), *updates()] if hasattr(cls, name)]
        assert found, name
        assert all(inspect.getdoc(method) for method in found), name


def test_each_public_method_that_a_policy_overrides_is_on_the_page() -> None:
    listed = set(re.findall(r'`(\w+)\(', LISTED))
    for cls in [*policies(), *updates()]:
        kinds = [kind for kind in cls.__mro__ if kind.__module__.startswith('rlframe.policy')]
        for i, kind in enumerate(kinds):
            own = {name for name, value in vars(kind).items() if inspect.isfunction(value) and name[0] != '_'}
            above = {name for base in kinds[i + 1 :] for name in vars(base)}
            assert own & above <= listed | NOT_LISTED, kind.__name__


def test_the_columns_that_updates_read_are_on_the_page() -> None:
    for cls in updates():
        assert set(cls.inputs) <= set(re.findall(r'`(\w+)`', COLUMNS)), cls.__name__


@pytest.fixture(autouse=True)
def examples() -> Iterator[None]:
    """Registers the policies of the page."""
    before = registrations.now()
    for block in blocks_of(PAGE):
        if block.mark == 'file':
            exec(compile(block.text, block.note, 'exec'), {'__name__': Path(block.note).stem})
    yield
    registrations.restore(before)


def made(kind: str, spec: EnvSpec = PLAIN, **cfg: Any) -> Any:
    torch.manual_seed(0)
    return create_policy({'type': kind, **SMALL, **cfg}, spec)


def batch_of(size: int = 32) -> Batch:
    rows = random_rows(size)
    return rows.replace(next_obs=rows['obs'] + rows['action'][:, None] / np.float32(4))


def with_masks(obs: np.ndarray, mask: np.ndarray) -> np.ndarray:
    rows = zero_obs(MASKED.observation_space, len(obs))
    rows['observation'], rows['action_mask'] = obs, mask
    return rows


@pytest.mark.parametrize('spec', [PLAIN, MASKED], ids=['free', 'masked'])
def test_the_munchausen_example_learns_the_weights_of_the_built_in_one(spec: EnvSpec) -> None:
    own, ours = made('munchausen', spec), made('mdqn', spec)
    for _ in range(20):
        batch = batch_of()
        if spec is MASKED:
            mask = np.eye(4)[batch['action']] + np.eye(4)[0]
            batch = batch.replace(**{name: with_masks(batch[name], mask) for name in ('obs', 'next_obs')})
        for policy in (own, ours):
            policy.learn_mode.forward(batch)
    for mine, theirs in zip(own.model.parameters(), ours.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def test_the_distilled_actor_learns_the_probabilities_of_its_teacher(monkeypatch: pytest.MonkeyPatch) -> None:
    teacher = made('dqn')
    with torch.no_grad():
        teacher.model.advantage_head.weight.mul_(20)  # so that it has preferences
    monkeypatch.setattr(rlframe, 'load', lambda path: type('Loaded', (), {'policy': teacher}))
    learn = dict(teacher='of the test', teacher_weight=10.0, learning_rate=1e-2)
    student = create_policy({'type': 'distilled_ppo', 'cuda': False, 'learn': learn}, PLAIN)
    rows = batch_of(64)
    data = Batch(
        obs=rows['obs'],
        action=rows['action'].astype(np.int64),
        log_prob=np.full(64, np.log(0.25), np.float32),
        advantage=rows['reward'],
        return_=rows['reward'],
    )
    wanted = teacher.q_value(rows['obs']).softmax(1)

    def distance() -> float:
        with torch.no_grad():
            log_prob = student.model.logit(torch.from_numpy(rows['obs'])).log_softmax(1)
        return float((wanted * (wanted.log() - log_prob)).sum(1).mean())

    before = distance()
    for _ in range(20):
        logged = [update() for update in student.learn_mode.forward(data)]
    assert distance() < 0.2 * before
    assert 'distillation_loss' in logged[-1]


def test_the_head_of_the_example_learns_to_predict_the_next_observation() -> None:
    policy = made('predicting_dqn', learn=dict(learning_rate=1e-2, target_update_freq=10))
    names = dict(policy.update.targets.network.named_parameters())
    assert 'prediction.weight' in names, 'the head is a part of the network'
    first, *_, last = (float(policy.learn_mode.forward(batch_of())['prediction_loss']) for _ in range(300))
    assert last < 0.1 * first


class ValuedUpdate(DQNUpdate):
    def output(self, network: Any, obs: Any, tau: Any = None) -> Any:
        return Values(network(obs) + 1 + torch.arange(4))


class Valued(DQNPolicy):
    update_class = ValuedUpdate


class Optimistic(DQNPolicy):
    def values(self, obs: Any) -> Any:
        count = len(obs['observation'])
        return torch.arange(4.0).expand(count, 4) + count


class Stubborn(DQNPolicy):
    def forward_collect(self, obs: Any, env_id: Any, **settings: Any) -> Batch:
        return self.actions.batch(np.full(len(obs), 3))

    def forward_eval(self, obs: Any, env_id: Any, **settings: Any) -> Batch:
        return self.actions.batch(np.full(len(obs), 3))


@pytest.mark.parametrize('kind', [Valued, Optimistic, Stubborn])
def test_masks_hold_whatever_a_policy_overrides(kind: type[DQNPolicy]) -> None:
    policy = kind(SMALL, MASKED)
    obs, ids = (
        with_masks(np.zeros((3, 3)), np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]])),
        np.arange(3),
    )
    modes = policy.collect_mode, policy.greedy_collect_mode, policy.eval_mode
    for forward in (mode.forward for mode in modes):
        if kind is Stubborn:
            with raises(ActionMaskError):
                forward(obs, ids)
            assert forward(obs[2:], ids[2:])['action'] == [3], 'no action is allowed where an episode ends'
        else:
            assert forward(obs, ids)['action'].tolist() == [1, 2, 3]
