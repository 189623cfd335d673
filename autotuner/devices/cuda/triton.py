"""The Triton that is installed here."""

import importlib.util
import re
from pathlib import Path

from autotuner.values.errors import ToolchainError
from autotuner.values.versions import version_of

OLDEST = (3, 6)


def is_usable() -> bool:
    """Whether kernels of Triton can be built here."""
    return tuple(map(int, re.findall(r"\d+", version_of("triton"))[:2])) >= OLDEST


def require() -> str:
    """Its version. Raises ToolchainError where there is none, or one that is too old."""
    found = version_of("triton")
    if not is_usable():
        here = "there is none" if found == "absent" else f"this is {found}"
        wanted = ".".join(map(str, OLDEST))
        raise ToolchainError(f"a kernel of Triton needs Triton {wanted} or newer, and {here}; pip install triton")
    return found


def sites() -> list[str]:
    """The folders that hold its package."""
    spec = importlib.util.find_spec("triton")
    return [str(Path(root).parent) for root in (spec.submodule_search_locations or ())] if spec else []
