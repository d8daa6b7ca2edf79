"""Parts of policies that learn: optimizers, normalisation, schedules, networks and devices."""
