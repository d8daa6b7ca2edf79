"""A coordinator that is created from the config of an experiment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlframe import config
from rlframe._version import __version__
from rlframe.data import Batch
from rlframe.parallel.coordinator import assembly
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


def asked(coordinator: Coordinator, *messages: tuple[m.Message, Any]) -> list[Any]:
    """Returns the replies to a worker's messages."""
    link = coordinator.server.connect()
    try:
        return [link.request(message, payload).message for message, payload in messages]
    finally:
        link.close()


def join(role: str) -> m.Join:
    return m.Join(role, role, __version__, '', 1, 'here')


def test_every_part_is_created_from_the_config_and_works() -> None:
    cfg = parallel('in_process', coordinator={'wait': 0.5, 'beat_interval': 7.0})
    coordinator = Coordinator(cfg)
    assert isinstance(coordinator.server, InProcessServer) and isinstance(
        coordinator.commander, SoloCommander
    )
    coordinator.start()
    joined, task, _ = asked(
        coordinator,
        (join('learner'), None),
        (m.AskTask(), None),
        (m.PutWeights('main', 0, 0), {'w': np.zeros(1)}),
    )
    assert joined.beat_interval == 7.0 and task.kind == 'learn'
    _, evaluation, _, work, taken = asked(
        coordinator,
        (join('collector'), None),
        (m.AskTask(), None),
        (m.Finished('evaluate_2', True, '', {'score': 1.0, 'train_iter': 0}), None),
        (m.AskTask(), None),
        (m.Collected('collect_3', 0, 4, 4, 0, 0, {}), Batch(obs=np.zeros((4, 1), np.float32))),
    )
    assert (evaluation.kind, work.kind, taken.pushed) == ('evaluate', 'collect', 4)
    assert work.settings == {'eps': pytest.approx(0.95)}  # of the policy's schedule
    assert coordinator.data.due == 3 and coordinator.data.buffer.count() == 4
    assert coordinator.commander.stop_value == 475.0  # CartPole's threshold
    state = coordinator.state_dict()
    other = Coordinator(cfg)
    other.load_state_dict(state)
    assert other.pushed == 4 and other.data.due == 3
    coordinator.close()
    assert coordinator.system_shutdown_flag and not other.system_shutdown_flag


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
