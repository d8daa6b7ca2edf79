"""Compiles a config file and a command line into one tree in which every key is declared and every value valid.

``reader`` reads files, ``schema`` declares the sections and the options of a run, ``components`` finds the chosen classes and their
options, ``compile`` merges the user's settings and checks them, ``rules`` checks options across components, and ``writer`` writes the
result and compares it with the config of a resumed run. ``trust`` checks what a foreign config may set, and ``ding``
translates DI-engine configs before any of this. Options themselves are declared by the components that read them.
Nothing here imports torch, gymnasium or ray.
"""

from rlframe.utils.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)
