"""The verbs of the command line: one file each, with its arguments and its function."""
