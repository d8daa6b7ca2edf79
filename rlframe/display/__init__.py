"""The output of a run: its progress on terminals, pipes and in notebooks, its first and its last lines.

The command line and the functions that train from Python use the same ones.
"""
