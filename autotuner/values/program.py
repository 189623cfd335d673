"""The modules that the running program consists of, as they say themselves when they are imported.

What a process imports first is imported once, in the fork server, if it is known there (`run/fork_server.py`).
"""

_MODULES: list[str] = []


def consists_of(name: str) -> None:
    """Said by a module that takes long to import: it is part of the program that runs."""
    _MODULES.append(name)


def modules() -> tuple[str, ...]:
    """Those that were imported so far, each once."""
    return tuple(dict.fromkeys(_MODULES))
