"""What contracts are checked for: all that is registered, also by modules named in ``RLFRAME_IMPORT``."""

from __future__ import annotations

import os

from policies import SAME

from rlframe.registry import Registry, import_modules


def names_of(registry: Registry) -> list[str]:
    """Returns the names of the classes to check."""
    import_modules([name for name in os.environ.get('RLFRAME_IMPORT', '').split(',') if name])
    return [name for name in registry.names() if name not in SAME]
