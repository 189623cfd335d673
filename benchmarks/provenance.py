"""Where a kept result comes from: the command, when it ran, and the versions of what it computed with."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from autotuner.devices import DEVICES, Wishes

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results"


def command_line(inputs: Sequence[Path] = ()) -> str:
    """The command of this process as one types it. Of `inputs`, files on the command line, and of absolute paths, which
    are those of one machine, the names alone are kept."""
    module = sys.modules["__main__"].__spec__
    program = [sys.argv[0]] if module is None else ["-m", module.name.removesuffix(".__main__")]
    return shlex.join(["python", *program, *(without_folders(each, inputs) for each in sys.argv[1:])])


def without_folders(argument: str, inputs: Sequence[Path] = ()) -> str:
    """A word of a command as it is kept."""
    path = Path(argument)
    return path.name if path.is_absolute() or path in inputs else argument


def measured_on(kind: str, threads: int | None = None) -> dict[str, Any]:
    """For the JSON of a program that measures: the command, when, and the device with its versions."""
    device = DEVICES[kind].choose(Wishes(threads=threads)).device
    when = datetime.now(UTC).isoformat(timespec="seconds")
    return {"command": command_line(), "when": when, "device": device.name, "environment": device.environment}


def provenance(inputs: Sequence[Path] = ()) -> dict[str, Any]:
    """For the JSON of a program that searches. Of `inputs` the names alone are kept."""
    return {
        "command": command_line(inputs),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("numpy", "optuna", "scipy")},
        "cpu": DEVICES["cpu"].choose(Wishes()).device.name,
        "cpus": os.cpu_count(),
    }


def made(document: Mapping[str, Any]) -> str:
    """The same as a sentence."""
    versions = ", ".join(f"{name} {number}" for name, number in document["versions"].items())
    where = f" on {document['cpus']} CPUs" if "cpus" in document else ""
    processes = f", {document['jobs']} processes{where}" if "jobs" in document else ""
    return f"Made by `{document['command']}` on {document['when'][:10]}{processes}; {versions}."
