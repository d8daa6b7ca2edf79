"""Where collection and evaluation run: in this process, in Ray actors, or in a backend of your own.

A config chooses a backend for its collector and one for its evaluator by the option ``backend``, a name in
``BACKEND_REGISTRY``. Everything that depends on the place is asked of the backend, so no other part knows their names.
"""

from rlframe.backend.base import Backend
from rlframe.backend.local import LocalBackend

__all__ = ['Backend', 'LocalBackend']
