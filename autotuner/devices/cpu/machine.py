"""Facts of the processor. An export copies this file: it imports nothing of autotuner."""

import re
from pathlib import Path

INSTRUCTIONS = re.compile(
    r"(avx|sse|ssse|pni|fma|f16c|bmi|abm|popcnt|movbe|adx|amx|gfni|vaes|vpclmul|sha_ni|asimd|sve|bf16)"
)
"""How the names of features begin that stand for instructions a compiler may use."""


def cpu_flags() -> set[str]:
    """Names of the processor's features, as Linux lists them; none where it does not."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return set()
    found = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", text, re.MULTILINE)
    return set(found[1].split()) if found else set()


def _cache_bytes(level: int) -> int:
    """Size of the data or unified cache of that level that the first CPU sees; 0 when the system does not say."""
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            if int((index / "level").read_text()) == level and (index / "type").read_text().strip() != "Instruction":
                size = (index / "size").read_text().strip()
                return int(size[:-1]) * {"K": 1 << 10, "M": 1 << 20}[size[-1]]
        except (OSError, ValueError, KeyError):
            continue
    return 0


def cpu_facts(threads: int) -> dict[str, int | str | bool]:
    """What the constraints of a CPU space may say about the machine."""
    flags = cpu_flags()
    vector = 64 if "avx512f" in flags else 32 if "avx2" in flags else 16
    return {
        "THREADS_ALLOWED": threads,
        "CPU_VECTOR_BYTES": vector,
        "CPU_FMA": "fma" in flags or "asimd" in flags,
        "CPU_BF16_DOT": "avx512_bf16" in flags,
        "L1D_BYTES": _cache_bytes(1),
        "L2_BYTES": _cache_bytes(2),
        "L3_BYTES": _cache_bytes(3),
    }


def instructions() -> list[str]:
    """The features that stand for instructions a compiler may use, sorted."""
    return sorted(flag for flag in cpu_flags() if INSTRUCTIONS.match(flag))
