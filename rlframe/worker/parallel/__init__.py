"""Parallel mode's collectors and learners: long-lived workers that get tasks from a coordinator.

A parallel collector drives a serial collector and a serial evaluator; a comm collector or comm learner connects it, or a
``BaseLearner``, with a coordinator over a ``Transport``. None of them knows configs, envs or policies: their parts are
created by functions that are passed in.
"""
