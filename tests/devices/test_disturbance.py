"""Who uses a device is named, for a run that waits for it to be calm."""

import os
import subprocess
import sys
import time

import pytest

from autotuner.devices import cpu


@pytest.mark.timed
def test_who_uses_the_cpus_is_named_and_we_ourselves_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "NAMED", 10_000)  # others may use more
    busy = "import time; end = time.monotonic() + 60\nwhile time.monotonic() < end: pass"
    ours = subprocess.Popen([sys.executable, "-c", busy])
    command = ["sh", "-c", f"'{sys.executable}' -c '{busy}' >/dev/null 2>&1 & echo $!"]  # whose parent is gone then
    foreign = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    try:
        time.sleep(0.5)
        said = cpu.who_disturbs()
    finally:
        os.kill(foreign, 9)
        ours.kill()
        ours.wait()
    assert f"(pid {foreign})" in said
    assert f"(pid {ours.pid})" not in said
    assert "load" in said
