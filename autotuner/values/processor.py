"""What Linux says of the processor."""

import re
from pathlib import Path


def processor() -> dict[str, str]:
    """The fields of the first processor in /proc/cpuinfo; none where there is no such file."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return {}
    return dict(re.findall(r"^([^\t:]+)\s*:\s*(.*)$", text.split("\n\n")[0], re.MULTILINE))
