"""Trains with the roles of parallel mode, all in this process: a coordinator, a learner and two collectors."""

import time

from rlframe import config
from rlframe.pipeline import build
from rlframe.pipeline.parallel import roles
from rlframe.transport.in_process import InProcessServer
from rlframe.worker import ZerglingParallelCollector
from rlframe.worker.comm.transport_collector import TransportCollector
from rlframe.worker.comm.transport_learner import TransportLearner
from rlframe.worker.coordinator.coordinator import Coordinator

main_config = dict(env=dict(env_id='CartPole-v1', stop_value=100), policy=dict(cuda=False))
cfg = config.compile_config(main_config, dict(policy=dict(type='dqn')), seed=0)

server = InProcessServer()
commander = roles.solo_commander(cfg, build.make_factory(cfg).spec, collector_task_space=2)
coordinator = Coordinator(server=server, commander=commander, data=roles.training_data(cfg))
coordinator.start()

learner = TransportLearner(make_learner=roles.learner_maker(cfg), transport=server.connect(), name='learner')
collectors = [
    TransportCollector(
        collector=ZerglingParallelCollector({}, roles.collector_maker(cfg), roles.evaluator_maker(cfg)),
        transport=server.connect(),
        name=f'collector-{number}',
    )
    for number in range(2)
]
for worker in (learner, *collectors):
    worker.start()
while not coordinator.system_shutdown_flag:
    coordinator.check()  # raises an error if no collector or no learner is left
    time.sleep(0.1)
for worker in (*collectors, learner):
    worker.close()
coordinator.close()
print(
    f'best return {commander.best:.1f} after {coordinator.progress.envstep:,} env steps; {coordinator.pushed:,} rows'
)
