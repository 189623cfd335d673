"""Programs in C that are linked with an export, without Python and torch."""

import subprocess
from pathlib import Path

STRICT = ("-Wall", "-Wextra", "-Werror")


def run(folder: Path, *command: str) -> str:
    """What a command prints that must succeed."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def printed(folder: Path, program: str) -> str:
    """What the program prints, linked with the export `demo` in the folder."""
    (folder / "main.c").write_text(program)
    run(folder, "gcc", "-std=gnu11", *STRICT, "-O1", "-Idemo", "-c", "main.c")
    run(folder, "g++", "-std=c++17", *STRICT, "-O2", "-c", "demo/autotuner_demo.cpp")
    objects = ["main.o", "autotuner_demo.o", "demo/autotuner_demo_variants.o"]
    run(folder, "g++", *objects, "-pthread", "-ldl", "-lm", "-o", "it")
    return run(folder, "./it")
