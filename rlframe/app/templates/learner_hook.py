"""A custom learner hook: it logs the running mean of the loss.

    rlframe train -c cartpole_dqn "import_names=['new_learner_hook']" "learner.hook.new_learner_hook=dict(type='new_learner_hook')"

A hook sees the learner at one of four positions: before_run, before_iter, after_iter, after_run. What it gives to
learner.tb_logger goes to metrics.jsonl and to all loggers of the config.
"""

from rlframe.worker import BaseLearner, LearnerHook, register_learner_hook


@register_learner_hook('new_learner_hook')
class NewLearnerHook(LearnerHook):
    """Logs ``train/smooth_loss``."""

    position, priority = 'after_iter', 50  # lower runs earlier
    freq = 50  # an option: dict(type='new_learner_hook', freq=10)
    mean = 0.0

    def __call__(self, learner: BaseLearner) -> None:
        self.mean += 0.05 * (float(learner.log_buffer['scalar']['total_loss']) - self.mean)
        if learner.tb_logger is not None and learner.train_iter % self.freq == 0:
            learner.tb_logger.add_scalar('train/smooth_loss', self.mean, learner.collector_envstep)
