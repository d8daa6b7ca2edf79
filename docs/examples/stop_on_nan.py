"""A learner hook of your own: it ends training at the first NaN."""

from __future__ import annotations

import math

from rlframe.worker import BaseLearner, LearnerHook, register_learner_hook


@register_learner_hook('stop_on_nan')
class StopOnNanHook(LearnerHook):
    """Fails at the first non-finite training variable instead of training on garbage."""

    position, priority = 'after_iter', 10  # lower runs earlier

    def __call__(self, learner: BaseLearner) -> None:
        bad = [name for name, value in learner.log_buffer['scalar'].items() if not math.isfinite(value)]
        if bad:
            raise FloatingPointError(f'non-finite {bad} at train_iter {learner.train_iter}')
