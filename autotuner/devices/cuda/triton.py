"""The Triton that is installed here."""

import importlib.util
import re
from importlib import metadata
from pathlib import Path

from autotuner.values.errors import ToolchainError

OLDEST = (3, 6)


def version() -> str | None:
    """Its version; None where there is none."""
    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:
        return None


def require() -> str:
    """Its version. Raises ToolchainError where there is none, or one that is too old."""
    found = version()
    if found is None or _release(found) < OLDEST:
        here = "there is none" if found is None else f"this is {found}"
        wanted = ".".join(map(str, OLDEST))
        raise ToolchainError(f"a kernel of Triton needs Triton {wanted} or newer, and {here}; pip install triton")
    return found


def is_usable() -> bool:
    """Whether kernels of Triton can be built here."""
    found = version()
    return found is not None and _release(found) >= OLDEST


def sites() -> list[str]:
    """The folders that hold its package."""
    spec = importlib.util.find_spec("triton")
    return [str(Path(root).parent) for root in (spec.submodule_search_locations or ())] if spec else []


def _release(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)[:2]))
