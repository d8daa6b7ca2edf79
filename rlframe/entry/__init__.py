"""The command line: ``python -m rlframe.entry``, or ``rlframe`` once installed; one short file a verb."""
