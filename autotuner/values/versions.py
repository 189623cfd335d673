"""What a number depends on beside the sources: the installed versions, and the processor."""

import re
from importlib import metadata
from pathlib import Path


def version_of(package: str) -> str:
    """The installed version of a package; "absent" without it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"


def processor() -> dict[str, str]:
    """The fields of the first processor in /proc/cpuinfo; none where there is no such file."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return {}
    return dict(re.findall(r"^([^\t:]+)\s*:\s*(.*)$", text.split("\n\n")[0], re.MULTILINE))
