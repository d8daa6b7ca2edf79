"""Trains with the roles of parallel mode, all in this process: a coordinator, a learner and two collectors."""

import time

from rlframe import config
from rlframe.parallel.roles import make_worker
from rlframe.worker import Coordinator

main_config = dict(env=dict(env_id='CartPole-v1', stop_value=100), policy=dict(cuda=False))
create_config = dict(
    policy=dict(type='dqn'),
    commander=dict(type='solo'),
    comm_collector=dict(type='in_process'),
    comm_learner=dict(type='in_process'),
)
cfg = config.compile_config(main_config, create_config, seed=0, parallel=True)

coordinator = Coordinator(cfg)
coordinator.start()
names = {'learner': 'learner', 'collector-0': 'collector', 'collector-1': 'collector'}
workers = [
    make_worker(cfg, role, name, transport=coordinator.server.connect()) for name, role in names.items()
]
for worker in workers:
    worker.start()
while not coordinator.system_shutdown_flag:
    coordinator.check()  # raises an error if no collector or no learner is left
    time.sleep(0.1)
for worker in workers:
    worker.close()
coordinator.close()
best, steps = coordinator.commander.best, coordinator.progress.envstep
print(f'best return {best:.1f} after {steps:,} env steps; {coordinator.pushed:,} rows')
