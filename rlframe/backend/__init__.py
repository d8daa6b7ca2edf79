"""Where collection and evaluation run."""
