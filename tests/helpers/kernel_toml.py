"""A kernel.toml that is right, for tests of what may be wrong in one."""

from pathlib import Path

GOOD = """
family = "mine"
abi = 2
op = "sdpa"

[cpu.fast]
source = "fast.cpp"
parameters = ["WIDTH", "EXP"]
dtypes = ["float32"]
head_dims = [64]

[[cpu.fast.asserts]]
when = 'EXP == "libm" and WIDTH > 4'
contains = "<expf@plt>"
reason = "EXP=libm calls the C library"

[[cpu.fast.asserts]]
lacks = "<abort@plt>"
reason = "never"
"""


def family(folder: Path, text: str = GOOD, name: str = "mine") -> Path:
    """A family's folder with that kernel.toml and an empty source."""
    (folder / name).mkdir(parents=True)
    (folder / name / "kernel.toml").write_text(text)
    (folder / name / "fast.cpp").touch()
    return folder / name
