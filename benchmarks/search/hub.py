"""A study for the hub of the AutoTuning Association: its T1 input, T4 results, metadata, and a cache of Kernel Tuner.

T1 describes a space, T4 what came of its points; `t4` writes the latter. Kernel Tuner plays a space in its simulation
mode from T1 and the cache. T1 knows CUDA, OpenCL and Vulkan; a kernel in C++ is called what the hub calls whatever is
only simulated.
"""

import ast
import gzip
import json
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from autotuner.forge.family import Family
from autotuner.spaces.branch import Branch
from autotuner.spaces.space import SpaceFile
from autotuner.values.errors import AutotunerError, InputError
from autotuner.values.files import why, write_atomically
from autotuner.values.outcome import Device
from autotuner.values.problem import Problem

LANGUAGES = {".cu": "CUDA"}
"""By the name of a source."""
SIMULATED = "Hypertuner"
ERRORS = {
    "constraints": "InvalidConfig",
    "compile": "CompilationFailedConfig",
    "timeout": "RuntimeFailedConfig",
    "runtime": "RuntimeFailedConfig",
    "correctness": "RuntimeFailedConfig",
}
"""What Kernel Tuner's cache calls what T4 calls so; it has no word for a kernel that is wrong."""
TIMES = {"compile_time": "compilation_time", "verification_time": "validation", "benchmark_time": "benchmark"}
VERSION = "1.0.0"


def files(name: str, file: SpaceFile, device: Device, results: Mapping[str, Any]) -> dict[str, bytes]:
    """Every file of a study as the hub keeps them. `results`: T4."""
    suffix, source = _source(file)
    host = re.sub(r"\W+", "_", device.name).strip("_")
    described = t1(name, file, device, f"{name}{suffix}")
    cached = f"cachefiles/{name}/{host}"
    return {
        f"kernels/{name}.json": _text(described),
        f"kernels/{name}{suffix}": source,
        f"{cached}_T4.json.gz": _packed(results),
        f"{cached}-metadata.json.gz": _packed(metadata(device)),
        f"{cached}.json.gz": _packed(cache(name, device, described, results["results"])),
    }


def write(folder: Path, found: Mapping[str, bytes]) -> None:
    """Writes the files under a folder, beside those of other studies. Raises InputError where that fails."""
    try:
        for name, content in found.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / name, content)
    except OSError as error:
        raise InputError(f"{folder}: {why(error)}; choose another --out") from None


def _source(file: SpaceFile) -> tuple[str, bytes]:
    """The first implementation's source where its family is here. Kernel Tuner reads it, and builds nothing."""
    with suppress(AutotunerError, OSError):
        family = Family.find(file.family, near=Path(file.path).resolve().parent)
        source = family.implementation(file.backend, file.branches[0].impl).source
        if source:
            return Path(source).suffix, (family.folder / source).read_bytes()
    return ".txt", b"its family of kernels was not there"


def _text(document: Mapping[str, Any]) -> bytes:
    return f"{json.dumps(document, indent=1, allow_nan=False)}\n".encode()


def _packed(document: Mapping[str, Any]) -> bytes:
    return gzip.compress(json.dumps(document, allow_nan=False).encode(), mtime=0)


def metadata(device: Device) -> dict[str, Any]:
    """What the numbers depend on."""
    described = {"device": device.name, "facts": device.facts, "environment": device.environment}
    hardware = {"hardware_description": [described], "operating_system": platform.system()}
    requirements = [f"{name}=={device.environment[name]}" for name in ("torch", "optuna") if name in device.environment]
    around = {"device_query": device.environment, "requirements": requirements}
    return {"schema_version": VERSION, "metadata": {"hardware": hardware, "environment": around}}


def t1(name: str, file: SpaceFile, device: Device, source: str) -> dict[str, Any]:
    """The space as T1 input. A parameter that an implementation lacks is None there, as it is null in T4."""
    values: dict[str, dict[Any, None]] = {"IMPL": dict.fromkeys(branch.impl for branch in file.branches)}
    for branch in file.branches:
        for parameter, its in branch.parameters.items():
            values.setdefault(parameter, {}).update(dict.fromkeys(its))
    for parameter, found in values.items():
        if any(parameter not in ("IMPL", *branch.parameters) for branch in file.branches):
            found[None] = None
    parameters = [
        {
            "Name": parameter,
            "Type": "int" if all(isinstance(each, int) for each in found) else "string",
            "Values": repr([*found]),
        }
        for parameter, found in values.items()
    ]
    conditions = [each for branch in file.branches for each in _conditions(branch, values, file, device)]
    return {
        "General": {"BenchmarkName": name, "FormatVersion": 1, "TimeUnit": "Milliseconds", "OutputFormat": "JSON"},
        "ConfigurationSpace": {"TuningParameters": parameters, "Conditions": conditions},
        "Search": {"Name": "random_sample"},
        "KernelSpecification": {
            "Device": {"Name": device.name},
            "Language": LANGUAGES.get(Path(source).suffix, SIMULATED),
            "KernelName": name,
            "KernelFile": source,
            "ProblemSize": [int(each) for each in file.problems[0].shape[:3]],
            "GlobalSize": {"X": "1"},
            "LocalSize": {"X": "1"},
            "Arguments": [],
        },
    }


def _conditions(
    branch: Branch, values: Mapping[str, Iterable[Any]], file: SpaceFile, device: Device
) -> Iterable[dict[str, Any]]:
    """Which of all values a branch has, and its constraints on this device and for every problem."""
    several = len(file.branches) > 1
    # Kernel Tuner takes what has an `or` as it stands; a comparison alone it rewrites, and fails at `if` and at calls.
    guard = f"IMPL != {branch.impl!r} or " if several else "False or "
    for name, every in values.items():
        own = branch.parameters.get(name, (None,))
        if name != "IMPL" and {*own} != {*every}:
            yield {"Parameters": ["IMPL", name], "Expression": f"{guard}{name} in {[*own]!r}"}
    for constraint in branch.constraints:
        texts = dict.fromkeys(_plain(constraint.expression, branch, device, each) for each in file.problems)
        for text in texts:
            named = {each.id for each in ast.walk(ast.parse(text)) if isinstance(each, ast.Name)}
            names = [name for name in branch.parameters if name in named]
            if names:
                yield {"Parameters": [*(["IMPL"] if several else []), *names], "Expression": f"{guard}({text})"}


def _plain(text: str, branch: Branch, device: Device, problem: Problem) -> str:
    """An expression of a space file in Python that names parameters alone."""
    known = {**device.facts, **problem.facts(), "IMPL": branch.impl}
    return ast.unparse(_Inlined(known, branch.amounts).visit(ast.parse(" ".join(text.split()), mode="eval")))


class _Inlined(ast.NodeTransformer):
    """Puts numbers in the place of facts, and what amounts stand for in theirs."""

    def __init__(self, known: Mapping[str, Any], amounts: Mapping[str, str]) -> None:
        self._known, self._amounts = known, amounts

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """A parameter stays."""
        if node.id in self._amounts:
            found: ast.expr = self.visit(ast.parse(" ".join(self._amounts[node.id].split()), mode="eval")).body
            return found
        return ast.Constant(self._known[node.id]) if node.id in self._known else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """min and max are Python's; ceil_div is not."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "ceil_div":
            return ast.parse(f"-(-({ast.unparse(node.args[0])}) // ({ast.unparse(node.args[1])}))", mode="eval").body
        return node


def cache(
    name: str, device: Device, described: Mapping[str, Any], results: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The same results as a cache of Kernel Tuner, whose names are in the order of T1's."""
    parameters = described["ConfigurationSpace"]["TuningParameters"]
    values = {each["Name"]: ast.literal_eval(each["Values"]) for each in parameters}
    return {
        "device_name": device.name,
        "kernel_name": name,
        "problem_size": described["KernelSpecification"]["ProblemSize"],
        "tune_params_keys": list(values),
        "tune_params": values,
        "objective": "time",
        "cache": dict(_cached(values, each) for each in results),
    }


def _cached(names: Iterable[str], result: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    point = {name: result["configuration"].get(name) for name in names}
    key = ",".join(map(str, point.values()))
    found = {**point, **{ours: result["times"][theirs] for ours, theirs in TIMES.items()}}
    if result["invalidity"] != "correct":
        return key, {**found, "time": ERRORS[result["invalidity"]], "__error__": ERRORS[result["invalidity"]]}
    (ms,) = (each["value"] for each in result["measurements"] if each["name"] == "time")
    return key, {**found, "time": ms, "times": result["times"]["runtimes"]}
