"""Old names of moved modules, which are accepted with one warning each."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MOVED = {
    'build': 'pipeline.build',
    'checkpointing': 'pipeline.checkpoints',
    'ending': 'pipeline.ending',
    'entry.stop': 'run.stop_signal',
    'entry.terminal': 'display',
    'entry.terminal.display': 'display.live',
    'entry.terminal.lines': 'display.lines',
    'entry.terminal.parallel_display': 'display.workers',
    'entry.terminal.saying': 'display.saying',
    'envs.async_group': 'envs.workers.async_group',
    'envs.async_manager': 'envs.workers.async_manager',
    'envs.contract': 'envs.checks.contract',
    'envs.env_state': 'envs.state.env_state',
    'envs.env_worker': 'envs.workers.env_worker',
    'envs.harmless': 'envs.checks.harmless',
    'envs.loose_ends': 'envs.checks.loose_ends',
    'envs.mask_contract': 'envs.checks.mask_contract',
    'envs.partial_cartpole': 'envs.masked_velocity',
    'envs.saved_states': 'envs.state.saved_states',
    'envs.shared_arrays': 'envs.workers.shared_arrays',
    'envs.subprocess_manager': 'envs.workers.subprocess_manager',
    'envs.worker_group': 'envs.workers.worker_group',
    'envs.worker_pool': 'envs.workers.worker_pool',
    'envs.worker_process': 'envs.workers.worker_process',
    'policy.actions': 'policy.acting.actions',
    'policy.bounds': 'policy.acting.bounds',
    'policy.compatibility': 'policy.acting.compatibility',
    'policy.device': 'policy.learning.device',
    'policy.episode_states': 'policy.acting.episode_states',
    'policy.faces': 'data.faces',
    'policy.guard': 'policy.learning.optim',
    'policy.learning.guard': 'policy.learning.optim',
    'policy.masks': 'policy.acting.masks',
    'policy.model_options': 'policy.learning.model_options',
    'policy.moments': 'policy.learning.moments',
    'policy.network_check': 'pipeline.network_check',
    'policy.noise': 'policy.acting.noise',
    'policy.normalize': 'policy.learning.normalize',
    'policy.optim': 'policy.learning.optim',
    'policy.random_policy': 'policy.acting.random_policy',
    'policy.schedule': 'policy.learning.schedule',
    'policy.tensors': 'policy.learning.tensors',
    'remote': 'backend.ray.remote',
    'resume': 'pipeline.resume',
    'run_output': 'pipeline.run_output',
    'utils.attributes': 'envs.state.attributes',
    'utils.checkpoint': 'checkpoint',
    'utils.checkpoint.compare': 'checkpoint.compare',
    'utils.checkpoint.files': 'checkpoint.files',
    'utils.checkpoint.keep': 'checkpoint.keep',
    'utils.checkpoint.manifest': 'checkpoint.manifest',
    'utils.checkpoint.read': 'checkpoint.read',
    'utils.checkpoint.rows': 'checkpoint.rows',
    'utils.checkpoint.schema': 'utils.schema',
    'utils.checkpoint.tree': 'checkpoint.tree',
    'utils.checkpoint.unsafe': 'checkpoint.unsafe',
    'utils.checkpoint.write': 'checkpoint.write',
    'utils.crash_report': 'run.crash_report',
    'utils.event_file': 'run.event_file',
    'utils.exit_guard': 'run.exit_guard',
    'utils.finite': 'utils.arithmetic',
    'utils.limits': 'safety.limits',
    'utils.metrics': 'run.metrics',
    'utils.private_file': 'safety.private_file',
    'utils.progress': 'run.progress',
    'utils.ray_address': 'backend.ray.actors.address',
    'utils.ray_guard': 'backend.ray.actors.guard',
    'utils.ray_session': 'backend.ray.actors.session',
    'utils.run_folder': 'run.run_folder',
    'utils.secrets': 'safety.secrets',
    'utils.stall': 'run.stall',
    'utils.strict_json': 'safety.strict_json',
    'utils.trust_key': 'safety.trust_key',
    'worker.collector.backend_state': 'backend.state',
    'worker.collector.base_serial_evaluator': 'worker.evaluator.base_serial_evaluator',
    'worker.collector.battle_collector': 'worker.players.battle_collector',
    'worker.collector.battle_evaluator': 'worker.players.battle_evaluator',
    'worker.collector.evaluated_episodes': 'worker.evaluator.evaluated_episodes',
    'worker.collector.joint_policy': 'worker.players.joint_policy',
    'worker.collector.metric': 'worker.evaluator.metric',
    'worker.collector.metric_evaluator': 'worker.evaluator.metric_evaluator',
    'worker.collector.past_selves': 'worker.players.past_selves',
    'worker.collector.player_recorder': 'worker.players.player_recorder',
    'worker.collector.ray_actor': 'backend.ray.actors.actor',
    'worker.collector.ray_arguments': 'backend.ray.constructor.arguments',
    'worker.collector.ray_calls': 'backend.ray.actors.calls',
    'worker.collector.ray_checks': 'backend.ray.checks',
    'worker.collector.ray_collector': 'backend.ray.collector',
    'worker.collector.ray_compat': 'backend.ray.constructor.compat',
    'worker.collector.ray_deaths': 'backend.ray.actors.deaths',
    'worker.collector.ray_evaluator': 'backend.ray.evaluator',
    'worker.collector.ray_facts': 'backend.ray.constructor.facts',
    'worker.collector.ray_keys': 'backend.ray.actors.keys',
    'worker.collector.ray_last_words': 'backend.ray.actors.last_words',
    'worker.collector.ray_lists': 'backend.ray.constructor.lists',
    'worker.collector.ray_losses': 'backend.ray.actors.losses',
    'worker.collector.ray_options': 'backend.ray.actors.options',
    'worker.collector.ray_pool': 'backend.ray.actors.pool',
    'worker.collector.ray_publisher': 'backend.ray.actors.publisher',
    'worker.collector.ray_serial_collector': 'backend.ray.serial_collector',
    'worker.collector.ray_shares': 'backend.ray.shares',
    'worker.collector.ray_staleness': 'backend.ray.staleness',
    'worker.collector.ray_weights': 'backend.ray.actors.weights',
    'worker.collector.resettable': 'worker.collector.collector_interface',
    'worker.collector.serial_evaluator': 'worker.evaluator.serial_evaluator',
    'worker.coordinator.base_serial_commander': 'worker.commanders.base_serial_commander',
    'worker.replay_buffer.block': 'worker.replay_buffer.stores.block',
    'worker.replay_buffer.priority_info': 'worker.replay_buffer.stores.block',
    'worker.replay_buffer.state_file': 'worker.replay_buffer.stores.state_file',
    'worker.replay_buffer.storage': 'worker.replay_buffer.stores.ring',
}
"""Maps old names to new ones, both without ``rlframe.``."""


class _Alias:
    """Loads the module with the new name in place of the old one."""

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: ModuleSpec) -> None:
        """Leaves the creation of a module, which is thrown away, to Python."""

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(self._name)


class _OldNames:
    """Finds moved modules by their old names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, old = fullname.partition('.')
        if package != 'rlframe' or old not in MOVED:
            return None
        new = f'rlframe.{MOVED[old]}'
        warnings.warn(f'{fullname} moved to {new}: import it from there', FutureWarning, stacklevel=2)
        alias: Any = _Alias(new)
        return ModuleSpec(fullname, alias)


def accept_old_names() -> None:
    """Makes moved modules importable by their old names."""
    if not any(isinstance(finder, _OldNames) for finder in sys.meta_path):
        finder: Any = _OldNames()
        sys.meta_path.insert(0, finder)
