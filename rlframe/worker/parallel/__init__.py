"""Parallel mode's collectors: long-lived workers that drive a serial collector and a serial evaluator, task by task.

None of them knows configs, envs or policies: their parts are created by functions that are passed in. The room ``comm``
connects them with a coordinator.
"""
