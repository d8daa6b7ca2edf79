"""All registries of rlframe, with the modules of the built-in components, which are imported when they are first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlframe.base_registry import Registry as Registry
from rlframe.base_registry import import_modules as import_modules
from rlframe.base_registry import is_list_of_names as is_list_of_names
from rlframe.base_registry import nearest as nearest
from rlframe.base_registry import with_type as with_type

if TYPE_CHECKING:
    from torch import nn

    from rlframe.backend import Backend
    from rlframe.envs import EnvFactory, IEnvManager
    from rlframe.logger import Logger
    from rlframe.pipeline.parallel.launcher import Launcher
    from rlframe.policy import Policy
    from rlframe.transport.base import Transport
    from rlframe.worker import (
        BaseCommCollector,
        BaseCommLearner,
        BaseLearner,
        BaseParallelCollector,
        BaseParallelCommander,
        BaseSerialCommander,
        EvalMetric,
        IBuffer,
        ISerialCollector,
        ISerialEvaluator,
        LearnerHook,
    )
    from rlframe.worker.hooks import RunHook


def _in(package: str, **modules: str) -> dict[str, str]:
    return {name: f'rlframe.{package}.{module}' for name, module in modules.items()}


ENV_REGISTRY: Registry[EnvFactory] = Registry(
    'env', _in('envs', gym='gym_env', pettingzoo='pettingzoo_env', atari='atari.factory')
)
"""Factories of envs, by name."""
ENV_MANAGER_REGISTRY: Registry[IEnvManager] = Registry(
    'env manager',
    _in(
        'envs',
        base='env_manager',
        gym_vector='vector_env',
        torch_vector='tensor.manager',
        subprocess='workers.subprocess_manager',
        async_subprocess='workers.async_manager',
        env_pool='pool_manager',
    ),
)
"""Env managers, which step N envs together."""
POLICY_REGISTRY: Registry[Policy] = Registry(
    'policy',
    _in(
        'policy',
        dqn='dqn',
        c51='c51',
        qrdqn='qrdqn',
        r2d2='r2d2',
        ppo='ppo',
        a2c='a2c',
        ddpg='ddpg',
        td3='ddpg',
        sac='sac',
        sac_discrete='sac',
        bc='bc',
    ),
)
"""Policies."""
MODEL_REGISTRY: Registry[nn.Module] = Registry(
    'model',
    _in(
        'model',
        q_net='q_net',
        recurrent_q_net='recurrent_q_net',
        actor_critic='actor_critic',
        recurrent_actor_critic='recurrent_actor_critic',
        recurrent_qac='recurrent_qac',
        actor='actor_critic',
        qac='qac',
    ),
)
"""Networks of policies."""
SERIAL_COLLECTOR_REGISTRY: Registry[ISerialCollector] = Registry(
    'serial collector',
    _in(
        'worker',
        sample='collector.serial_collector',
        episode='collector.episode_serial_collector',
        dataset='collector.dataset_collector',
        tensor='collector.tensor_collector',
        sample_1v1='players.battle_collector',
        episode_1v1='players.battle_collector',
    ),
    interface='rlframe.worker.collector.collector_interface:ISerialCollector',
)
"""Serial collectors, which turn env steps into training samples."""
SERIAL_EVALUATOR_REGISTRY: Registry[ISerialEvaluator] = Registry(
    'serial evaluator',
    _in(
        'worker',
        interaction='evaluator.serial_evaluator',
        battle_interaction='players.battle_evaluator',
        metric='evaluator.metric_evaluator',
    ),
    interface='rlframe.worker.evaluator.base_serial_evaluator:ISerialEvaluator',
)
"""Evaluators, which measure a policy."""
BACKEND_REGISTRY: Registry[Backend] = Registry('backend', _in('backend', local='local', ray='ray.backend'))
"""Backends, in which collectors and evaluators run."""
LEARNER_REGISTRY: Registry[BaseLearner] = Registry('learner', _in('worker.learner', base='base_learner'))
"""Learners, which update a policy and run the hooks around each update."""
LEARNER_HOOK_REGISTRY: Registry[LearnerHook] = Registry(
    'learner hook',
    _in(
        'worker.learner',
        load_ckpt='builtin_hooks',
        save_ckpt='builtin_hooks',
        log_show='builtin_hooks',
        log_reduce='builtin_hooks',
    ),
    interface='rlframe.worker.learner.learner_hook:LearnerHook',
)
"""Learner hooks, which run before or after training or one iteration of it."""
HOOK_REGISTRY: Registry[RunHook] = Registry(
    'hook',
    _in(
        'worker.hooks',
        doctor='doctor',
        early_stop='early_stop',
        wall_clock='wall_clock',
        gradient_histogram='gradient_histogram',
        profile='profiler',
        notify='notify',
    ),
    interface='rlframe.worker.hooks.run_hook:RunHook',
)
"""Hooks of a whole run, which are called at its events."""
BUFFER_REGISTRY: Registry[IBuffer] = Registry(
    'replay buffer',
    _in(
        'worker.replay_buffer',
        naive='buffer',
        advanced='advanced_buffer',
        sequence='sequence_buffer',
        episode='episode_buffer',
        elastic='elastic_buffer',
    ),
    interface='rlframe.worker.replay_buffer.base_buffer:IBuffer',
)
"""Replay buffers, which store transitions and sample from them."""
PARALLEL_COLLECTOR_REGISTRY: Registry[BaseParallelCollector] = Registry(
    'parallel collector',
    _in('worker.parallel', zergling='zergling_parallel_collector', marine='marine_parallel_collector'),
    interface='rlframe.worker.parallel.base_parallel_collector:BaseParallelCollector',
)
"""Parallel collectors, which collect and evaluate as the tasks of a coordinator say."""
COMM_COLLECTOR_REGISTRY: Registry[BaseCommCollector] = Registry(
    'comm collector',
    _in(
        'worker.comm',
        naive='naive_collector',
        in_process='transport_collector',
        flask_fs='flask_fs',
        ray='ray_comm',
    ),
    interface='rlframe.worker.comm.comm_interface:BaseCommCollector',
)
"""Comm collectors, which connect a parallel collector with a coordinator."""
COMM_LEARNER_REGISTRY: Registry[BaseCommLearner] = Registry(
    'comm learner',
    _in('worker.comm', in_process='transport_learner', flask_fs='flask_fs', ray='ray_comm'),
    interface='rlframe.worker.comm.comm_interface:BaseCommLearner',
)
"""Comm learners, which connect a learner with a coordinator."""
COMMANDER_REGISTRY: Registry[BaseSerialCommander] = Registry(
    'commander',
    _in('worker.commanders', base='base_serial_commander'),
    interface='rlframe.worker.commanders.base_serial_commander:BaseSerialCommander',
)
"""Commanders, which decide what a round of training does."""
PARALLEL_COMMANDER_REGISTRY: Registry[BaseParallelCommander] = Registry(
    'parallel commander',
    _in(
        'worker.commanders',
        naive='naive_commander',
        solo='solo_commander',
        one_vs_one='one_vs_one_commander',
    ),
    interface='rlframe.worker.commanders.base_parallel_commander:BaseParallelCommander',
)
"""Commanders of parallel mode, which decide what collectors and learners do."""
TRANSPORT_REGISTRY: Registry[Transport] = Registry(
    'transport',
    _in('transport', in_process='in_process', flask_fs='flask_fs.client', ray='ray.client'),
    interface='rlframe.transport.base:Transport',
)
"""Transports, by which the roles of parallel mode talk to their coordinator."""
LAUNCHER_REGISTRY: Registry[Launcher] = Registry(
    'launcher',
    {
        **_in('pipeline.parallel', in_process='threads', flask_fs='processes'),
        **_in('backend.ray', ray='launcher'),
    },
    interface='rlframe.pipeline.parallel.launcher:Launcher',
)
"""Launchers, which start the workers of a parallel run, by the transport that the workers use."""

EVAL_METRIC_REGISTRY: Registry[EvalMetric] = Registry(
    'eval metric',
    dict.fromkeys(
        ('returns', 'length', 'success_rate', 'median', 'iqm'), 'rlframe.worker.evaluator.eval_metric'
    ),
    interface='rlframe.worker.evaluator.eval_metric:EvalMetric',
)
"""Metrics of the episodes of an evaluation."""
LOGGER_REGISTRY: Registry[Logger] = Registry(
    'logger',
    _in(
        'logger',
        jsonl='json_lines',
        tensorboard='tensorboard',
        csv='csv_table',
        wandb='wandb',
        mlflow='mlflow',
    ),
    interface='rlframe.logger.logger:Logger',
)
"""Loggers, which write the metrics of a run to files or send them to a server."""

REGISTRIES: dict[str, Registry[Any]] = {
    'env': ENV_REGISTRY,
    'env_manager': ENV_MANAGER_REGISTRY,
    'policy': POLICY_REGISTRY,
    'model': MODEL_REGISTRY,
    'collector': SERIAL_COLLECTOR_REGISTRY,
    'evaluator': SERIAL_EVALUATOR_REGISTRY,
    'backend': BACKEND_REGISTRY,
    'learner': LEARNER_REGISTRY,
    'learner_hook': LEARNER_HOOK_REGISTRY,
    'hook': HOOK_REGISTRY,
    'replay_buffer': BUFFER_REGISTRY,
    'commander': COMMANDER_REGISTRY,
    'parallel_collector': PARALLEL_COLLECTOR_REGISTRY,
    'comm_collector': COMM_COLLECTOR_REGISTRY,
    'comm_learner': COMM_LEARNER_REGISTRY,
    'logger': LOGGER_REGISTRY,
    'eval_metric': EVAL_METRIC_REGISTRY,
}
"""Registries under the names that a config's ``create_config`` uses; a backend is chosen by the option ``backend``,
loggers by ``loggers``, metrics of evaluations by ``metrics``.
In parallel mode, the commander is one of ``PARALLEL_COMMANDER_REGISTRY``."""
