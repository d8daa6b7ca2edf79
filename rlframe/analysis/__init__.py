"""Reads the output of runs and shows it: curves, comparisons, a report.

Nothing in a run folder is executed or unpickled: configs are read as JSON, and text from a run is escaped in HTML.
matplotlib is imported where it is used, since it is an extra.
"""
