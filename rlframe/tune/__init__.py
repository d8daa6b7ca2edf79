"""Experiments under Ray Tune: ``RLTrainable`` is one as a trial, ``make_tuner`` searches over the options of a config.

``import rlframe.tune`` is cheap: Ray is imported on first use.
"""

from typing import Any

from rlframe.utils.lazy import lazy_exports

_found, __dir__, __all__ = lazy_exports(__name__, __file__)


def __getattr__(name: str) -> Any:
    """Returns an exported name.

    Raises:
        MissingDependencyError: If the packages of Ray Tune are not installed; with the way to install them.
    """
    try:
        return _found(name)
    except ImportError:
        from rlframe.backend.ray.session import check_installed

        check_installed('rlframe.tune', 'ray.tune', 'rlframe[tune]')
        raise
