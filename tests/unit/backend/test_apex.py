"""Ape-X: what its config may say, the ladder of eps, and the priorities that collectors compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from runs import CASES, ROOT

from rlframe.config import as_played, compile_config, config_data, split_config
from rlframe.config.reader import read_config
from rlframe.errors import ConfigError, ConfigErrors, NonFiniteError, ResourceError
from rlframe.pipeline import SerialPipeline, build, memory_needs

RAY = ('replay_buffer.backend=ray',)
SHARDS, BUFFER = 'policy.other.replay_buffer.num_shards', 'policy.other.replay_buffer'


def config_of(case: str, *overrides: str) -> Any:
    _, config, *given = CASES[case]
    return compile_config(*read_config(str(ROOT / config)), seed=3, overrides=[*given, *overrides])


@pytest.mark.parametrize(
    ('case', 'words', 'says'),
    [
        ('dqn advanced', ('replay_buffer.backend=rray',), (f'{BUFFER}.backend', "'rray'", "'ray'?")),
        ('dqn advanced', ('replay_buffer.num_shards=2',), (SHARDS, "the backend 'ray' has", f"{BUFFER}.backend='ray'")),
        ('dqn advanced', (*RAY, 'replay_buffer.num_shards=0'), (SHARDS, 'got 0', '[1, inf)')),
        (
            'dqn advanced',
            (*RAY, 'replay_buffer.num_shards=9', 'replay_buffer.replay_buffer_size=60', 'policy.learn.batch_size=20'),
            (SHARDS, 'a shard of 6 transitions', 'a batch of 20', 'at most 3', 'at least 180'),
        ),
        ('dqn advanced', (*RAY, 'policy.priority=false', 'policy.priority_IS_weight=false'), ('policy.priority', 'True')),
        ('dqn advanced', (*RAY, 'replay_buffer.max_use=3'), (f'{BUFFER}.max_use', 'got 3', 'inf')),
        ('dqn naive', RAY, (f'{BUFFER}.type', "'naive'", "'advanced'")),
        ('r2d2', (*RAY, 'replay_buffer.priority=false'), (f'{BUFFER}.priority', 'True')),
        (
            'r2d2',
            (*RAY, 'replay_buffer.priority=true', 'policy.priority=true', 'replay_buffer.num_shards=5'),
            (SHARDS, 'there are 3 envs', 'at most 3'),
        ),
        ('dqn advanced', ('policy.other.eps_ladder=7',), ('policy.other.eps_ladder', 'there is 1', "backend='ray'")),
        ('dqn naive', ('policy.first_priority=error',), (f'{BUFFER}.type', "'advanced'", "'largest'")),
        (
            'r2d2',
            ('policy.first_priority=error', 'policy.priority=false', 'policy.priority_IS_weight=false', 'replay_buffer.priority=false'),
            ('policy.priority', "'sequence'", 'True'),
        ),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_with_what_does(case: str, words: tuple[str, ...], says: Any) -> None:
    with pytest.raises((ConfigError, ConfigErrors)) as caught:
        config_of(case, *words)
    assert all(text in str(caught.value) for text in says), caught.value


def test_shards_belong_to_serial_mode() -> None:
    given = ('replay_buffer.type=advanced', 'policy.priority=true', *RAY)
    with pytest.raises((ConfigError, ConfigErrors), match='parallel mode'):
        compile_config(*read_config(str(ROOT / 'configs/cartpole_dqn_parallel.py')), overrides=given)


@pytest.mark.parametrize('name', ['cartpole_apex', 'lunarlander_apex'])
def test_what_was_trained_is_played_without_actors(name: str) -> None:
    cfg = compile_config(*read_config(str(ROOT / f'configs/{name}.py')))
    played = as_played(config_data(*split_config(cfg)))
    cfg = compile_config(played['main_config'], played['create_config'])
    sections = cfg.policy.collect.collector, cfg.policy.other.replay_buffer
    assert [section.backend for section in sections] == ['local', 'local']


def test_only_the_memory_of_this_machine_limits_shards_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = config_of('dqn advanced', *RAY, 'replay_buffer.replay_buffer_size=100_000_000_000')
    spec = build.make_factory(cfg).spec
    monkeypatch.delenv('RAY_ADDRESS', raising=False)
    with pytest.raises(ResourceError, match='the replay buffer needs'):
        memory_needs.check_memory(cfg, spec)
    monkeypatch.setenv('RAY_ADDRESS', 'there:6379')
    memory_needs.check_memory(cfg, spec)


def test_eps_of_collectors_form_a_ladder(tmp_path: Path) -> None:
    words = (
        'collector.backend=ray',
        'collector.num_collectors=3',
        'policy.other.eps_ladder=7',
        'policy.other.eps=0.4',
    )
    cfg = config_of('dqn advanced', *words)
    cfg.policy.collect.collector.backend = 'local'
    with SerialPipeline(cfg, tmp_path) as pipeline:
        settings_of = pipeline.policy.get_attribute('settings_of')
        assert settings_of is not None
        ladder = [settings_of({'eps': 0.4}, place, 3)['eps'] for place in range(3)]
    assert ladder == pytest.approx([0.4, 0.4**4.5, 0.4**8])


def test_first_priorities_are_the_errors_of_the_acting_network(tmp_path: Path) -> None:
    cfg = config_of('dqn advanced', 'policy.first_priority=error', 'policy.normalize_obs=false')
    with SerialPipeline(cfg, tmp_path) as pipeline:
        data = pipeline.collector.collect(40, policy_kwargs={'eps': 0.5})
        model, gamma = pipeline.policy.get_attribute('model'), cfg.policy.discount_factor
        with torch.inference_mode():
            value = model(torch.as_tensor(data['obs'])).numpy()[np.arange(40), data['action']]
            reached = model(torch.as_tensor(data['next_obs'])).numpy().max(1)
        target = data['reward'] + data.columns.get('value_gamma', gamma) * reached * ~data['terminated']
        assert data['priority'] == pytest.approx(np.abs(target - value), abs=1e-5)
        buffer: Any = pipeline.replay_buffer
        buffer.push(data, 40)
        drawn = next(buffer.batches(1, 30, 0))
        assert set(np.round(drawn['priority'], 3)) <= set(np.round(data['priority'] + np.float32(1e-5), 3))


@pytest.mark.parametrize('name', ['c51', 'qrdqn', 'mdqn'])
def test_first_priorities_are_those_of_an_update_whose_network_is_its_own_target(
    name: str, tmp_path: Path
) -> None:
    cfg = config_of('dqn advanced', 'policy.first_priority=error', f'policy.type={name}')
    with SerialPipeline(cfg, tmp_path) as pipeline:
        data = pipeline.collector.collect(40, policy_kwargs={'eps': 0.5})
        update = pipeline.policy.learn_mode.forward(data.replace(IS=np.ones(40, np.float32)))
    assert data['priority'] == pytest.approx(
        update['priority'].numpy(), abs=1e-5
    )  # the networks are still equal


def test_first_priorities_of_sequences_reach_their_replay_buffer(tmp_path: Path) -> None:
    cfg = config_of('r2d2', 'policy.first_priority=error')
    with SerialPipeline(cfg, tmp_path) as pipeline:
        data = pipeline.collector.collect(160, policy_kwargs={'eps': 0.5})
        buffer: Any = pipeline.replay_buffer
        buffer.push(data, 160)
        drawn = buffer.sample(200, 4, 0)
        assert drawn['priority'] == pytest.approx(
            data['priority'][drawn['replay_buffer_idx']] + 1e-5, rel=1e-4
        )
        assert len(set(drawn['priority'])) > 10
        with pytest.raises(NonFiniteError, match='1 of 160 priorities'):
            buffer.push(data.replace(priority=np.where(np.arange(160) == 7, np.nan, 1.0)), 320)
        assert buffer.count() == 160
