"""How DI-engine's training loop is timed alone: from its hook before the run to the one after, without evaluation."""

from collections.abc import Callable
from time import perf_counter

from easydict import EasyDict


def cartpole_config(policy_type: str, policy: dict, env_num: int) -> tuple[EasyDict, EasyDict]:
    """Returns DI-engine's main and create config."""
    env = {
        'collector_env_num': env_num,
        'evaluator_env_num': 1,
        'n_evaluator_episode': 1,
        'stop_value': 1e9,
        'manager': {'shared_memory': False},
    }
    create = {
        'env': {'type': 'cartpole', 'import_names': ['dizoo.classic_control.cartpole.envs.cartpole_env']},
        'env_manager': {'type': 'base'},
        'policy': {'type': policy_type},
    }
    return EasyDict(exp_name='benchmark', env=env, policy=policy), EasyDict(create)


def clock_of_training(train: Callable[[], object]) -> float:
    """Returns the seconds between the learner's hooks ``before_run`` and ``after_run``."""
    from ding.worker import BaseLearner, InteractionSerialEvaluator
    from ditk import logging

    logging.getLogger().setLevel(logging.ERROR)
    InteractionSerialEvaluator.should_eval = lambda self, train_iter: False
    moments: dict[str, float] = {}
    call_hook = BaseLearner.call_hook

    def noting(self: BaseLearner, name: str) -> None:
        if name in ('before_run', 'after_run'):
            moments.setdefault(name, perf_counter())
        call_hook(self, name)

    BaseLearner.call_hook = noting
    try:
        train()
    except UnboundLocalError:  # its epilogue expects that there was an evaluation
        assert 'after_run' in moments
    return moments['after_run'] - moments['before_run']
