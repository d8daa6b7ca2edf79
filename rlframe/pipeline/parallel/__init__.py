"""Parallel mode: a coordinator with its run folder, and the collectors and learners that work for it."""
