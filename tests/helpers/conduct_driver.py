"""A driver as a process of its own: `python -m tests.helpers.conduct_driver ACT...` judges variants of the
family conduct.

Prints one line a verdict. Where the logs and builds go is up to TMPDIR and AUTOTUNER_CACHE.
"""

import sys
from contextlib import closing
from pathlib import Path

from autotuner.devices.cpu.toolchain import CpuToolchain
from autotuner.forge.family import Family
from autotuner.run.local import Deadlines, LocalExecutor
from autotuner.values.variant import Variant
from tests.helpers import preload
from tests.helpers.judging import KERNELS, PROBLEM, briefly, cpu_line, judged

CONDITIONS = briefly(PROBLEM)


def conduct(act: str) -> Variant:
    return Variant(family="conduct", backend="cpu", impl="act", parameters={"ACT": act})


def judges(toolchain: CpuToolchain, folder: Path, check: float) -> LocalExecutor:
    """An executor with the real backend for that family."""
    settings = cpu_line(toolchain, Family.load(folder))
    return LocalExecutor(settings, preload=preload.CPU, deadlines=Deadlines(check=check))


def main() -> None:
    with closing(judges(CpuToolchain.discover(), KERNELS / "conduct", check=30)) as executor:
        for act in sys.argv[1:]:
            sys.stdout.write(f"{judged(executor, conduct(act), CONDITIONS).verdict}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
