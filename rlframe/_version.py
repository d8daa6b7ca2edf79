"""The version of rlframe, which everything may import."""

__version__ = '0.1.0'
