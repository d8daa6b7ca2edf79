"""Names that the command line and the search share; importing them imports no Ray."""

METRIC = 'eval/mean_reward'
"""Default score that trials are compared by: the mean return of the last evaluation."""
SCHEDULERS = ('asha', 'hyperband', 'median', 'pbt', 'pb2', 'none')
"""Schedulers, which end trials early or copy better ones."""
SEARCHES = ('random', 'optuna')
"""Ways to draw from domains."""
