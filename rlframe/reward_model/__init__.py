"""Reward models: what a run pays for beside, or in place of, the reward of its env.

A run has those that its config names under ``reward_model``. They live where the policy learns: rows come from collectors, and
are paid before they enter the replay buffer or the learner. Scores and evaluations never contain what they pay.
"""

__all__: list[str] = []
