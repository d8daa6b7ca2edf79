"""Names that the command line and the search share; importing them imports no Ray."""

METRIC = 'eval/mean_reward'
"""What trials are compared by where nothing is said: the mean return of the last evaluation."""
SCHEDULERS = ('asha', 'hyperband', 'median', 'pbt', 'pb2', 'none')
"""Which trials end early, or take over what better ones learned."""
SEARCHES = ('random', 'optuna')
"""Ways to draw from domains."""
