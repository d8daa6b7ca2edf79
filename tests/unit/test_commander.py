"""The commander tells the policy what happened and hands on what it answers."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from fakes import ScriptedPolicy

from rlframe.worker import BaseSerialCommander


def test_settings_are_asked_with_the_counters_of_learner_and_collector() -> None:
    learner = SimpleNamespace(learn_info={'learner_step': 5, 'learner_done': False})
    collector = SimpleNamespace(envstep=70)
    policy = ScriptedPolicy(settings={'eps': 0.5}).command_mode
    commander = BaseSerialCommander({}, learner, collector, None, None, policy)
    told = {'learner_step': 5, 'learner_done': False, 'envstep': 70}
    assert commander.step() == {'eps': 0.5, 'told': told}
    collector.envstep = 90
    assert commander.step()['told'] == told | {'envstep': 90}
    assert commander.learn_settings() == {'eps': 0.5} and commander.policy is policy


def test_each_answer_is_the_caller_s_own() -> None:
    learner, collector = SimpleNamespace(learn_info={}), SimpleNamespace(envstep=0)
    policy = ScriptedPolicy(settings={'noise': np.zeros(2)}).command_mode
    commander = BaseSerialCommander({}, learner, collector, None, None, policy)
    commander.learn_settings().clear()
    assert set(commander.learn_settings()) == {'noise'}
