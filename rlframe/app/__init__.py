"""What users do with whole experiments: train, score, compare, plot and report, and check envs and configs.

Here are the Python API (``rlframe.train``, ``Run``) and the functions behind the verbs of the command line. How a run
trains belongs to ``pipeline``, how a command line is read to ``entry``.
"""
