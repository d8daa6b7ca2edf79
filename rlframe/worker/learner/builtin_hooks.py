"""The hooks that come with rlframe: load a checkpoint, save one, show metrics, average them over processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlframe.run.metrics import write_record
from rlframe.worker.learner.learner_hook import LearnerHook, register_learner_hook

if TYPE_CHECKING:
    from rlframe.worker.learner.base_learner import BaseLearner

TAGS = {'cur_lr': 'learning_rate'}
"""Training variables with a different tag name."""


@register_learner_hook('load_ckpt')
class LoadCkptHook(LearnerHook):
    """Loads weights, optimizer and counters from the checkpoint ``load_path``."""

    position, priority = 'before_run', 20
    load_path = ''

    def __call__(self, learner: BaseLearner) -> None:
        if self.load_path:
            learner.load_checkpoint(self.load_path)


@register_learner_hook('save_ckpt')
class SaveCkptHook(LearnerHook):
    """Saves a checkpoint every ``freq`` train iterations, or once after the run."""

    position, priority = 'after_iter', 20
    freq = 1

    def __call__(self, learner: BaseLearner) -> None:
        if learner.rank == 0 and (self.position == 'after_run' or learner.train_iter % self.freq == 0):
            learner.save_checkpoint()


@register_learner_hook('log_show')
class LogShowHook(LearnerHook):
    """Writes the means of the training variables over the last ``freq`` train iterations."""

    position, priority = 'after_iter', 20
    freq = 100

    def __call__(self, learner: BaseLearner) -> None:
        if learner.train_iter % self.freq:
            return
        means = learner.monitor.take_means()
        if learner.rank == 0 or not learner.only_monitor_rank0:
            values = {f'train/{TAGS.get(name, name)}': value for name, value in means.items()}
            write_record(learner.tb_logger, values, learner.collector_envstep, train_iter=learner.train_iter)
            if learner.tb_logger is not None and hasattr(learner.tb_logger, 'add_histogram'):
                for name, histogram in learner.log_buffer['histogram'].items():
                    learner.tb_logger.add_histogram(f'train/{name}', histogram, learner.collector_envstep)
            shown = ', '.join(f'{name} {value:.4g}' for name, value in means.items())
            learner.debug(f'train_iter {learner.train_iter}: {shown}')


@register_learner_hook('log_reduce')
class LogReduceHook(LearnerHook):
    """Averages the training variables over all processes of a distributed run, in one all-reduce.

    Variables whose name starts with ``noreduce_`` are not averaged. It does nothing in a single process.
    """

    position, priority = 'after_iter', 10

    def __call__(self, learner: BaseLearner) -> None:
        if learner.world_size == 1:
            return
        import torch
        import torch.distributed as dist

        scalars = learner.log_buffer['scalar']
        names = sorted(name for name in scalars if not name.startswith('noreduce_'))
        packed = torch.stack(
            [torch.as_tensor(scalars[name], dtype=torch.float64).detach().cpu() for name in names]
        )
        dist.all_reduce(packed)
        learner.monitor.replace_last(dict(zip(names, (packed / learner.world_size).tolist(), strict=True)))
