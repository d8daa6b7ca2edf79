"""Where collection and evaluation run: in this process, in Ray actors, or in a custom backend.

A config chooses a backend for its collector and one for its evaluator by the option ``backend``, a name in
``BACKEND_REGISTRY``. Everything that depends on it is a method of the backend, so no other module knows the names of
backends.
"""

from rlframe.backend.base import Backend, LocalBackend

__all__ = ['Backend', 'LocalBackend']
