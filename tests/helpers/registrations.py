"""What tests register is theirs alone: the registries come back, whatever the order of test modules."""

from __future__ import annotations

from rlframe.registry import REGISTRIES

Registered = dict[str, dict[str, type]]
"""Classes by kind and name."""


def now() -> Registered:
    """Returns all classes that are registered."""
    return {kind: dict(registry._classes) for kind, registry in REGISTRIES.items()}


def put_aside(before: Registered, module: str) -> Registered:
    """Removes and returns what a module has registered since then: what its own classes are, not those that it imported."""
    taken: Registered = {}
    for kind, registry in REGISTRIES.items():
        own = {name: cls for name, cls in registry.registered_in(module).items() if name not in before[kind]}
        taken[kind] = own
        registry._classes = {name: cls for name, cls in registry._classes.items() if name not in own}
    return taken


def put_back(taken: Registered) -> None:
    """Registers what was put aside."""
    for kind, classes in taken.items():
        REGISTRIES[kind]._classes |= classes


def restore(before: Registered) -> None:
    """Removes and replaces what was registered since then, but for built-in classes, whose modules are imported only once."""
    for kind, registry in REGISTRIES.items():
        builtin = {name: cls for name, cls in registry._classes.items() if registry.is_builtin(name)}
        registry._classes = builtin | before[kind]
