"""A coordinator that is created from the config of an experiment."""

from __future__ import annotations

from typing import Any

import pytest

from rlframe import config
from rlframe._version import __version__
from rlframe.errors import ConfigError
from rlframe.parallel.coordinator import assembly
from rlframe.parallel.coordinator.base_parallel_commander import Situation
from rlframe.parallel.coordinator.solo_commander import SoloCommander
from rlframe.parallel.transport import messages as m
from rlframe.parallel.transport.answering import InProcessServer
from rlframe.worker import AdvancedReplayBuffer, Coordinator

DQN = {
    'env': {'env_id': 'CartPole-v1'},
    'policy': {'cuda': False, 'learn': {'batch_size': 2, 'update_per_collect': 3}},
}


def parallel(kind: str, main: dict[str, Any] | None = None, commander: str = 'solo', **section: Any) -> Any:
    """Returns a compiled config of parallel mode."""
    create = {
        'policy': {'type': 'dqn'},
        'commander': {'type': commander},
        'comm_collector': {'type': kind},
        'comm_learner': {'type': kind},
    }
    return config.compile_config(
        {**(main or DQN), 'parallel': {'collector_num': 1, **section}}, create, seed=5, parallel=True
    )


def test_every_part_is_created_from_the_config() -> None:
    cfg = parallel('in_process', coordinator={'wait': 0.5, 'beat_interval': 7.0})
    coordinator = Coordinator(cfg)
    assert isinstance(coordinator.server, InProcessServer)
    assert isinstance(coordinator.commander, SoloCommander)
    coordinator.start()
    link = coordinator.server.connect()
    joined: Any = link.request(m.Join('learner', 'l', __version__, '', 1, 'here')).message
    assert joined.beat_interval == 7.0
    assert coordinator.commander.settings(Situation()) == {'eps': pytest.approx(0.95)}  # of its schedule
    assert coordinator.data.updates_per_part == 3 and coordinator.data.buffer.count() == 0
    assert coordinator.commander.stop_value == 475.0  # CartPole's threshold
    link.close()
    coordinator.close()


def test_options_outside_of_their_section_are_not_passed_over() -> None:
    with pytest.raises(
        ConfigError, match=r'worker_deadline: .*expected parallel\.coordinator\.worker_deadline'
    ):
        Coordinator({'worker_deadline': 3.0})


def test_a_plain_main_config_is_enough() -> None:
    main = {
        'policy': {
            'learn': {'batch_size': 2, 'update_per_collect': 5},
            'other': {
                'replay_buffer': {'type': 'naive', 'replay_buffer_size': 10},
            },
        },
    }
    coordinator = Coordinator(main)
    assert isinstance(coordinator.commander, SoloCommander) and coordinator.data.updates_per_part == 5
    assert Coordinator().data.buffer is None
    assert isinstance(
        assembly.make_data({'policy': {'other': {'replay_buffer': {}}}}).buffer, AdvancedReplayBuffer
    )
