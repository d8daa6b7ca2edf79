"""A device that a replay buffer cannot use is refused before anything starts, with the nearest one that it can."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ray_runs import config_of

from rlframe.errors import ConfigError, DeviceError, ResourceError
from rlframe.pipeline import build, memory_needs
from rlframe.run import machine
from rlframe.worker.replay_buffer import create_buffer

KEY = 'policy.other.replay_buffer.device'
AUTO = 'policy.cuda=None'
"""The cases of tests are on the CPU by ``policy.cuda``; this leaves the choice to ``policy.device``."""
Gpus = Callable[..., None]


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Gpus:
    """Lets torch believe that there are GPUs, which only refusals do with impunity."""

    def pretend(count: int, free: int = 2**30) -> None:
        monkeypatch.setattr(torch.cuda, 'is_available', lambda: count > 0)
        monkeypatch.setattr(torch.cuda, 'device_count', lambda: count)
        monkeypatch.setattr(torch.cuda, 'current_device', lambda: 0)
        monkeypatch.setattr(torch.cuda, 'mem_get_info', lambda device: (free, 2**40))

    return pretend


def policy_on(device: str) -> Any:
    """Stands for a policy on a device that this machine may lack."""
    return SimpleNamespace(get_attribute={'device': torch.device(device)}.get)


@pytest.mark.parametrize(
    ('words', 'expected'),
    [
        (
            (AUTO, 'policy.normalize_obs=True'),
            r"policy.normalize_obs=True changes.*expected 'cpu', or .*=False",
        ),
        (
            (AUTO, 'env.env_id=image_env:Dot', 'policy.learn.random_shift=2'),
            r"policy.learn.random_shift=2 changes.*expected 'cpu', or policy.learn.random_shift=0",
        ),
    ],
)
def test_options_that_contradict_a_device_are_refused(words: tuple[str, ...], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected) as caught:
        config_of('dqn naive', *words, f'{KEY}=cuda:1')
    assert caught.value.where == KEY


@pytest.mark.parametrize(('policy', 'buffer'), [('cuda', 'cuda:0'), ('cuda:0', 'cuda'), ('auto', 'cuda')])
def test_the_first_gpu_has_two_names(policy: str, buffer: str, gpus: Gpus) -> None:
    cfg = config_of('dqn naive', AUTO, f'policy.device={policy}', f'{KEY}={buffer}')
    gpus(1)
    spec = build.make_factory(cfg).spec
    memory_needs.check_memory(cfg, spec, policy_on('cuda:0'))
    memory_needs.check_memory(cfg, spec, policy_on('cuda'))


@pytest.mark.parametrize('bad', ['auto', 'cuda:x', ''])
def test_devices_of_other_names_are_refused(bad: str) -> None:
    with pytest.raises(ConfigError, match="expected 'cpu', 'cuda' or 'cuda:0', 'cuda:1'") as caught:
        create_buffer({'type': 'naive', 'device': bad})
    assert caught.value.where.endswith('device')


def test_buffers_of_sequences_and_episodes_are_in_main_memory(gpus: Gpus) -> None:
    gpus(1)
    expected = r"expected 'cpu'.*'naive', 'advanced' and 'elastic' can keep transitions on a GPU"
    for kind in ('sequence', 'episode'):
        with pytest.raises(ConfigError, match=expected):
            create_buffer({'type': kind, 'device': 'cuda'})
    with pytest.raises(ConfigError, match=expected) as caught:
        config_of('r2d2', AUTO, f'{KEY}=cuda')
    assert caught.value.where == KEY


@pytest.mark.parametrize(('count', 'name'), [(0, 'cuda'), (1, 'cuda:1')])
def test_a_device_that_does_not_exist_is_refused(count: int, name: str, gpus: Gpus) -> None:
    gpus(count)
    cfg = config_of('dqn naive', AUTO, f'{KEY}={name}')
    expected = f"no device '{name}'.*{count} CUDA devices.*{KEY}='cpu' keeps"
    with pytest.raises(DeviceError, match=expected) as caught:
        memory_needs.check_memory(cfg, build.make_factory(cfg).spec, policy_on('cpu'))
    assert caught.value.where == KEY
    with pytest.raises(DeviceError, match=expected):
        create_buffer({'type': 'advanced', 'device': name})


def test_main_memory_is_needed_only_for_columns_that_are_there_and_for_frames(
    gpus: Gpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 'policy.other.replay_buffer.replay_buffer_size=1_000_000'
    images = ('env.env_id=image_env:Dot', 'env.frame_stack=4', 'policy.model.encoder_hidden_size_list=[8]')
    for module in (machine, memory_needs):
        monkeypatch.setattr(module, 'available_memory', lambda: 10**6)
    gpus(1)
    there = config_of('dqn naive', AUTO, size, f'{KEY}=cuda')
    memory_needs.check_memory(there, build.make_factory(there).spec, policy_on('cuda'))
    for words in ((), (*images, f'{KEY}=cuda')):
        cfg = config_of('dqn naive', AUTO, size, *words)
        with pytest.raises(ResourceError, match=r'0\.0 GiB are free\. At most') as caught:
            memory_needs.check_memory(cfg, build.make_factory(cfg).spec, policy_on('cuda'))
        assert caught.value.where == 'policy.other.replay_buffer.replay_buffer_size'


def test_parallel_mode_refuses_a_device() -> None:
    from rlframe.config.rules import parallel_errors

    (error,) = parallel_errors({KEY: 'cuda'})
    assert (error.where, error.expected) == (KEY, "'cpu'")
    assert parallel_errors({KEY: 'cpu'}) == []
