"""Whatever learns from rows that are paid learns as if the env had paid, resumes bit for bit, and learns alike from other processes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import CountingEnv, config_pair
from gymnasium import spaces
from parallel_parts import compiled
from runs import differences, end_of

from rlframe import config
from rlframe.data import Batch
from rlframe.data.timestep import EnvSpec, FloatArray
from rlframe.errors import ConfigError, RegistryError
from rlframe.pipeline import SerialPipeline
from rlframe.policy import create_policy
from rlframe.registry import REWARD_MODEL_REGISTRY
from rlframe.reward_model.base import RewardModel
from rlframe.reward_model.paid import RewardModels

SPEC = EnvSpec(spaces.Box(-9, 9, (3,), np.float32), spaces.Discrete(4), name='Toy')
TIME, ENVS = 6, 3
COUNTS = "reward_model=dict(type='counts', cell=0.1, weight=0.5)"


class Drawn(RewardModel):
    """Pays the first number of what a row led to, and counts the rows that it was shown."""

    shown = 0

    def collected(self, rows: Batch) -> None:
        self.shown += len(rows)

    def reward(self, rows: Batch) -> FloatArray:
        return np.asarray(rows['next_obs'][:, 0])


class Instead(Drawn):
    """The same, in place of the env's reward."""

    replaces_reward = True


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for cls in (Drawn, Instead):
        monkeypatch.setitem(REWARD_MODEL_REGISTRY._classes, cls.__name__.lower(), cls)


def block() -> Batch:
    """Returns a round of three envs with episodes that end in it."""
    rng = np.random.default_rng(0)
    shape = TIME, ENVS
    done = np.zeros(shape, bool)
    done[2, 0] = done[4, 1] = True
    step = np.arange(TIME)[:, None] + np.array([5, 0, 2])
    step[3:, 0] = np.arange(3)
    step[5:, 1] = 0
    obs = rng.normal(size=(TIME + 1, ENVS, 3)).astype(np.float32)
    return Batch(
        obs=obs[:-1],
        next_obs=obs[1:].copy(),
        action=rng.integers(4, size=shape),
        logit=rng.normal(size=(*shape, 4)).astype(np.float32),
        reward=rng.normal(size=shape).astype(np.float32),
        terminated=done & (np.arange(ENVS) == 0),
        truncated=done & (np.arange(ENVS) == 1),
        env_id=np.broadcast_to(np.arange(ENVS), shape),
        episode_step=step,
        collect_iter=np.full(shape, 7, np.int32),
    )


@pytest.mark.parametrize('kind', ['drawn', 'instead'])
@pytest.mark.parametrize('name', ['ppo', 'a2c', 'pg', 'pqn', 'impala'])
def test_training_samples_are_those_of_an_env_that_had_paid(name: str, kind: str) -> None:
    collect = {'keep_rows': True}
    policy: Any = create_policy({'type': name, 'cuda': False, 'collect': collect}, SPEC, seed=0)
    given = block()
    section = {'own': {'type': kind, 'normalize': False, 'weight': 0.5}}
    models = RewardModels(section, SPEC, policy.learn_mode, False)
    found = models.pay(policy.collect_mode.get_train_sample(given))
    reward = np.float32(0.5) * given['next_obs'][..., 0] + (given['reward'] if kind == 'drawn' else 0)
    plain: Any = create_policy({'type': name, 'cuda': False}, SPEC, seed=0)
    expected = plain.collect_mode.get_train_sample(given.replace(reward=reward))
    assert found.keys() == expected.keys()
    order = np.lexsort((np.arange(TIME * ENVS) // ENVS, np.arange(TIME * ENVS) % ENVS))
    is_by_env = name == 'impala'
    for column, values in expected.items():
        np.testing.assert_allclose(found[column], values if is_by_env else values[order], atol=2e-6)


CASES = {
    'ppo': ('cartpole_ppo', COUNTS, 'policy.collect.n_sample=48', 'policy.learn.epoch_per_collect=2'),
    'curious ppo': (
        *('cartpole_ppo', COUNTS, 'policy.collect.n_sample=48', 'policy.learn.epoch_per_collect=2'),
        'policy.type=curious_ppo',
    ),
    'ppo lstm': (
        *('cartpole_ppo', COUNTS, 'policy.collect.n_sample=48', 'policy.learn.epoch_per_collect=2'),
        'policy.model.core=lstm',
    ),
    'dqn': ('cartpole_dqn', 'reward_model=dict(counts=dict(cell=0.1), drawn=dict(weight=0.1))'),
    'dqn networks': (
        'cartpole_dqn',
        'reward_model=dict(rnd=dict(batch_size=16), icm=dict(batch_size=16), noveld={}, ngu={})',
    ),
    'r2d2': ('cartpole_novel_r2d2', COUNTS, 'policy.learn.batch_size=4', 'policy.model.lstm_hidden_size=16'),
}

OFTEN = ('ppo', 'dqn')
"""Cases that are tried every time."""


def trained(folder: Path, updates: int, case: str, *words: str, resume: Path | None = None) -> dict[str, Any]:
    name, *own = CASES[case]
    cfg = compiled(name, *own, *words, 'evaluator.eval_freq=20', f'max_train_iter={updates}')
    return end_of(cfg, folder, 'policy', 'reward_models', 'evaluator', resume=resume)


@pytest.mark.parametrize(
    'case', [case if case in OFTEN else pytest.param(case, marks=pytest.mark.slow) for case in CASES]
)
def test_a_resumed_run_ends_with_the_bits_of_an_uninterrupted_one(case: str, tmp_path: Path) -> None:
    straight = trained(tmp_path / 'straight', 40, case)
    trained(tmp_path / 'half', 20, case)
    assert differences(straight, trained(tmp_path / 'whole', 40, case, resume=tmp_path / 'half')) == []


@pytest.mark.slow
@pytest.mark.parametrize('case', ['ppo', 'dqn'])
def test_steps_of_a_process_are_paid_as_those_collected_here(case: str, tmp_path: Path) -> None:
    here = trained(tmp_path / 'here', 20, case)
    there = trained(tmp_path / 'there', 20, case, 'collector.backend=process')
    assert differences(here, there) == []


def test_sampled_rows_are_paid_anew_and_replaced_rewards_are_gone() -> None:
    policy: Any = create_policy({'type': 'dqn', 'cuda': False}, SPEC, seed=0)
    batch = Batch(
        reward=np.ones(2, np.float32), next_obs=np.array([[3.0], [5.0]], np.float32), bonus=np.float32([1, 2])
    )
    for kind, expected in (('drawn', [3.5, 5.5]), ('instead', [2.5, 4.5])):
        models = RewardModels(
            {'own': {'type': kind, 'normalize': False, 'weight': 0.5}}, SPEC, policy.learn_mode, True
        )
        assert models.pay_sampled(batch)['reward'].tolist() == expected


class Placed(CountingEnv):
    """Counts steps, and says so in its info."""

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        return (
            obs,
            reward,
            terminated,
            truncated,
            info | {'place': np.array([self.step_number, 7]), 'said': 'no'},
        )


@pytest.mark.parametrize('policy', ['dqn', 'ppo'])
def test_rows_carry_what_infos_say(policy: str, cwd: Path) -> None:
    section = {'counts': {'infos': ['place'], 'normalize': False, 'lifelong': False}}
    cfg = config.compile_config(*config_pair(policy, Placed, reward_model=section, max_train_iter=20))
    with SerialPipeline(cfg) as pipeline:
        pipeline.run()
        assert pipeline.reward_models is not None
        assert (
            pipeline.reward_models.metrics()['reward_model/counts/mean'] == 1.0
        )  # each step is at a place of its own


@pytest.mark.parametrize(
    ('env', 'name', 'words'),
    [
        (Placed, 'plac', "Did you mean 'place'"),
        (Placed, 'said', r"expected some of \['place'\]"),
        (CountingEnv, 'place', 'they have no numbers'),
    ],
)
def test_a_number_that_infos_do_not_have_is_named_before_training(
    env: Any, name: str, words: str, cwd: Path
) -> None:
    section = {'counts': {'infos': ['place', name]}}
    cfg = config.compile_config(*config_pair('dqn', env, reward_model=section, max_train_iter=20))
    with pytest.raises(ConfigError, match=rf'reward_model\.counts\.infos: .*{words}'):
        SerialPipeline(cfg)
    assert not list(cwd.iterdir())


def test_options_of_one_model_are_set_by_its_name_in_either_form() -> None:
    for given in ("reward_model=dict(type='counts', cell=0.1)", 'reward_model=dict(counts=dict(cell=0.1))'):
        cfg = compiled('cartpole_dqn', given, 'reward_model.counts.weight=0.25')
        assert cfg.reward_model.counts.weight == 0.25 and cfg.reward_model.counts.cell == 0.1


BAD = {
    'no quotes': ('reward_model=dict(type=counts, infos=[agent_pos])', 'put strings inside it in quotes'),
    'no dict': ('reward_model=3', 'dict(type=NAME'),
    'weight': ("reward_model=dict(type='counts', weight=0)", 'reward_model.counts.weight'),
    'name': ("reward_model=dict(type='count')", "Did you mean 'counts'"),
    'option': ("reward_model=dict(type='counts', wieght=1)", 'reward_model.counts.weight'),
    'twice': (
        "reward_model=[dict(type='counts'), dict(type='counts')]",
        "two reward models are called 'counts'",
    ),
    'nothing': ("reward_model=dict(type='counts', episodic=False, lifelong=False)", 'nothing is counted'),
    'n steps': (COUNTS, 'policy.nstep', 'policy.nstep=3'),
    'no marks': (COUNTS, 'mark_episodes', 'collector.mark_episodes=false'),
}


@pytest.mark.parametrize('case', BAD)
def test_bad_options_are_named_before_training(case: str) -> None:
    words, said, *more = BAD[case]
    with pytest.raises((ConfigError, RegistryError), match=re.escape(said)):
        compiled('cartpole_dqn', words, *more)


def test_an_unknown_feature_is_named_before_a_folder_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cfg = compiled('cartpole_dqn', "reward_model=dict(type='counts', features=['agent_pos'])")
    with pytest.raises(ConfigError, match=r'reward_model\.counts\.features'):
        SerialPipeline(cfg)
    assert not list(tmp_path.iterdir())
