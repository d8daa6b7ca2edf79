"""A custom learner hook: it stops training when the loss diverges."""

from __future__ import annotations

from rlframe.worker import BaseLearner, LearnerHook, register_learner_hook


@register_learner_hook('stop_on_divergence')
class StopOnDivergenceHook(LearnerHook):
    """Raises an error when the loss exceeds ``limit``."""

    position, priority = 'after_iter', 10  # lower runs earlier
    limit = 1e6  # an option: dict(type='stop_on_divergence', limit=100.0)

    def __call__(self, learner: BaseLearner) -> None:
        loss = float(learner.log_buffer['scalar']['total_loss'])
        if loss > self.limit:
            raise ArithmeticError(f'the loss is {loss:.3g} at train_iter {learner.train_iter}')
