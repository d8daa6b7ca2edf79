"""Loggers: they write the metrics of a run to files, or send them to a server.

A run has one ``MetricWriter``, to which its workers give their records; it hands them to every logger of the config.
"""

from rlframe.utils.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
