"""A learner hook of your own: it ends training when the loss grows out of bounds."""

from __future__ import annotations

from rlframe.worker import BaseLearner, LearnerHook, register_learner_hook


@register_learner_hook('stop_on_divergence')
class StopOnDivergenceHook(LearnerHook):
    """Fails where the loss exceeds ``limit``, instead of training on garbage."""

    position, priority = 'after_iter', 10  # lower runs earlier
    limit = 1e6  # an option: dict(type='stop_on_divergence', limit=100.0)

    def __call__(self, learner: BaseLearner) -> None:
        loss = float(learner.log_buffer['scalar']['total_loss'])
        if loss > self.limit:
            raise ArithmeticError(f'the loss is {loss:.3g} at train_iter {learner.train_iter}')
