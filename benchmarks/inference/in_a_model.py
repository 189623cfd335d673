"""An example of examples/ from an empty store to times before and after, by the commands that a user runs.

    python -m benchmarks.inference.in_a_model encoder --out docs/results/encoder_cpu.json
    python -m benchmarks.inference.in_a_model gpt --device cuda --dtype float16 --out docs/results/gpt_cuda_float16.json

Recorded, tuned, tried between the tuned lengths, exported, loaded. It keeps what the example's `compare` found, with
the commands. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.markdown import QUARTILES
from benchmarks.provenance import provenance

ROOT = Path(__file__).parent.parent.parent
MODELS = {"encoder": "examples.encoder.encoder", "gpt": "examples.gpt.gpt"}
SPACES = {"cpu": "sdpa_cpu", "cuda": "sdpa_cuda"}
BUDGET = "--trials 24 --minutes 2 --finals-minutes 0.5"
"""Of `autotuner tune`: minutes of search over all studies, and of finals for each."""
NOTHING_TO_DO = ("no length varies", "one length was tuned", "no variant to try", "has no finals")
"""Why a study cannot be validated that is none the worse for it."""


OWN_PATH = (
    "Where it has a mask, in prompts and under torch.compile, transformers' own sdpa path repeats K and V for the heads"
    " of Q that share them: a gain is of kernel and interface together."
)
"""Of a model with groups of heads."""


def called(arguments: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """A module with its arguments, run there. What it prints is printed as it comes: a run that is stopped has shown
    what it was at."""
    print("$", *arguments, flush=True)
    command, lines = [sys.executable, "-m", *arguments], list[str]()
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, cwd=folder, env=environment(folder), text=True
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            print(line, end="", flush=True)
        process.wait()
        errors.seek(0)
        return subprocess.CompletedProcess(command, process.returncode, "".join(lines), errors.read())


def run(arguments: Sequence[str], folder: Path) -> str:
    """What it prints. Exits where it fails."""
    done = called(arguments, folder)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def environment(folder: Path) -> dict[str, str]:
    """With a store of its own, and the builds of this user."""
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "AUTOTUNER_STORE": str(folder / "studies.db"), "PYTHONPATH": paths}


class Steps:
    """The commands that a folder has seen to their end, noted there: what was cut off goes on behind them. Behind a
    command that was not noted all are run, as what they read may be another."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._file = folder, folder / "commands.json"
        self._noted: dict[str, bool] = json.loads(self._file.read_text()) if self._file.exists() else {}
        """Whether it did something, by command."""
        self._passed: dict[str, bool] = {}
        """Of this run."""

    def run(self, *command: str, may_be_refused_for: Sequence[str] = ()) -> str | None:
        """Runs a command unless it has been run, and returns it; None where it had nothing to do, for one of these
        reasons. Exits where it fails."""
        line = " ".join(command)
        if line in self._noted:
            self._passed[line] = self._noted[line]
        else:
            self._noted = {}
            done = called(command, self.folder)
            if done.returncode and not any(each in done.stderr for each in may_be_refused_for):
                sys.exit(done.stderr)
            print(done.stderr, end="", flush=True)
            self._passed[line] = not done.returncode
            self._file.write_text(json.dumps(self._passed, indent=1) + "\n")
        return line if self._passed[line] else None


def commands(said: argparse.Namespace, folder: Path) -> Iterator[str | None]:
    """Each command, once it has been run; None for one that had nothing to do."""
    model, steps = said.model, Steps(folder)
    sizes = [*said.sizes.split(), "--device", said.device, "--dtype", said.dtype]
    yield steps.run(MODELS[model], "record", *sizes)
    yield steps.run("autotuner", "tune", SPACES[said.device], *said.tune.split(), "--problems", "problems.toml")
    found = json.loads(run(["autotuner", "status", "--json"], folder))
    studies = [each["name"] for each in found if each["finals"] is not None]
    if not studies:
        sys.exit("no study came to its finals: give it more --trials or --minutes, on a quiet machine")
    for study in studies:
        yield steps.run("autotuner", "validate", study, *said.validate.split(), may_be_refused_for=NOTHING_TO_DO)
    beside = [word for study in studies[1:] for word in ("--with", study)]
    yield steps.run("autotuner", "export", studies[0], *beside, "--out", "best.json")
    rounds = ["--rounds", str(said.rounds)]
    yield steps.run(MODELS[model], "compare", "best.json", *sizes, *rounds, "--out", "compared.json")


def table(encoders: Sequence[dict[str, Any]], gpts: Sequence[dict[str, Any]]) -> str:
    """What models gained: a row a result and way to run it."""
    lines = ["| model | on | run | served | speedup, by batch or prompt |", "| --- | --- | --- | ---: | --- |"]
    for model, results in (("encoder", encoders), ("GPT, prompt and generation", gpts)):
        for found in results:
            for how in ("eager", "compiled"):
                served = f"{100 * found[how]['served']:.0f} %"
                lines.append(f"| {model} | {where(found)} | {how} | {served} | {', '.join(gained(found[how]))} |")
    largest = max(found[how]["largest_difference"] for found in (*encoders, *gpts) for how in ("eager", "compiled"))
    tokens = "; ".join(
        [
            f"The encoder's batches are of {', '.join(map(str, encoders[0]['tokens']))} tokens, the last one padded",
            f"the GPT's prompts of {', '.join(map(str, gpts[0]['prompts']))}",
        ]
    )
    said = f"{tokens}. {QUARTILES} {OWN_PATH} Outputs and logits differ by {largest:.1e} at most."
    return "\n".join([*lines, "", said, "", made([*encoders, *gpts])])


def gained(one: Mapping[str, Any]) -> list[str]:
    """How many times as fast each run is, with the quartiles over the rounds where they are kept."""
    spreads = one.get("quartiles") or [None] * len(one["speedups"])
    pairs = zip(one["speedups"], spreads, strict=True)
    return [f"{middle:.2f}x" + (f" ({of[0]:.2f}-{of[1]:.2f})" if of else "") for middle, of in pairs]


def where(found: Mapping[str, Any]) -> str:
    """What a result was measured on. Earlier ones do not name the CPU."""
    if found.get("kind") == "cuda":
        return f"{found['device']}, {found['dtype']}"
    return f"{'a CPU' if found['device'] == 'cpu' else found['device']}, {found['threads']} threads"


def made(results: Sequence[Mapping[str, Any]]) -> str:
    """Where results come from, in a sentence: each JSON has its command."""
    versions = ", ".join(
        dict.fromkeys(f"torch {found['torch']}, transformers {found['transformers']}" for found in results)
    )
    days = [found["when"][:10] for found in results]
    return f"Made by `python -m benchmarks.inference.in_a_model`, {min(days)} to {max(days)}: {versions}."


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--sizes", default="", help="options of the example, such as '--layers 2 --heads 2'")
    parser.add_argument("--device", default="cpu", choices=SPACES)
    parser.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"))
    parser.add_argument("--tune", default=BUDGET, help=f"options of `autotuner tune`: {BUDGET}")
    parser.add_argument("--validate", default="--minutes 0.5", help="options of `autotuner validate`")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="a folder for store and exports; what it has is not made again")
    parser.add_argument("--out", type=Path)
    said = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="autotuner-model-") as name:
        folder = said.keep or Path(name)
        folder.mkdir(exist_ok=True)
        done = [each for each in commands(said, folder) if each is not None]
        table = json.loads((folder / "best.json").read_text())["table"]
        compared = json.loads((folder / "compared.json").read_text())
    document = {
        **provenance([]),
        "commands": done,
        "problems": (problems := len(table["entries"])),
        "problems_served": problems - [each["use"] for each in table["entries"]].count(None),
        "ranges": len(table["ranges"]),
        "proven_on": table["proven_on"],
        **{name: value for name, value in compared.items() if name != "command"},
    }
    text = json.dumps(document, indent=1) + "\n"
    if said.out is not None:
        said.out.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
