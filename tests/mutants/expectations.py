"""What the gate must say of every mutant and every right implementation, read from expected.toml (CPU) and
expected_cuda.toml, and how one of them is judged."""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from autotuner.forge.family import Family
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.run.executor import Executor
from autotuner.run.jobs import BuildJob
from autotuner.values.conditions import Conditions
from autotuner.values.outcome import Outcome
from autotuner.values.problem import Problem
from autotuner.values.variant import Value, Variant
from tests.helpers.judging import briefly, judged

MUTANTS = Path(__file__).parent
Backend = Literal["cpu", "cuda"]
Seeds = tuple[int, int, int, int]
FILES: dict[Backend, str] = {"cpu": "expected.toml", "cuda": "expected_cuda.toml"}
TABLES = ("numeric", "systemic", "clock", "right")
"""There is one more, "unseen": numeric mutants that need not be found and are not judged, with their error."""

LASTING = 1536
"""Keys and queries of a problem with long forwards."""

SEEDS: Seeds = (11, 22, 33, 44)


def family(table: str) -> Family:
    """The kernel family of a table's entries; what no case shows are numeric mutants too."""
    return Family.load(MUTANTS / ("numeric" if table == "unseen" else table))


class Expectation(NamedTuple):
    """One implementation in one dtype, mask and head dim, and the codes of first failure that are acceptable."""

    backend: Backend
    table: str
    name: str
    dtype: str
    causal: bool
    head_dim: int
    codes: tuple[str, ...]
    audited: bool = False
    """Whether it goes all the way, through audit and soak, on a problem whose time means something."""
    lasting: bool = False
    """Whether that problem is so large that a forward takes a tenth of a second on a CPU: audits of such are others."""
    brief: bool = False
    """Whether it gains nothing there: it knows the next call by how soon it comes."""
    chosen_s: float = 0
    """Seconds of launches, at most, of one that is judged as the variant to use is (G6.many, then G8's memory check),
    on a problem of which many launches fit in a second; 0: it is not."""
    length: int = 64
    """Rows and keys of a problem whose time means nothing."""

    def __str__(self) -> str:
        return f"{self.name}-{self.dtype}-{'causal' if self.causal else 'full'}-{self.head_dim}"

    @property
    def variant(self) -> Variant:
        """The variant to judge."""
        document = family(self.table).document
        impl, implementation = next(iter(document.devices[self.backend].items()))
        known: dict[str, Value] = {"MUTANT": self.name, "KIND": self.name, "BLOCK_N": 32}
        parameters = {name: known[name] for name in implementation.parameters}
        return Variant(family=document.family, backend=self.backend, impl=impl, parameters=parameters)

    @property
    def problem(self) -> Problem:
        """A small problem to tune it for. Where time matters, a forward takes some hundred microseconds on a CPU, and
        has the blocks to fill a GPU."""
        heads, length = {"cpu": (2, 128), "cuda": (32, 128)}[self.backend] if self.audited else (2, self.length)
        length = LASTING if self.lasting else length
        if self.chosen_s:
            heads, length = 2, 16
        fields = {"batch": 1, "heads": heads, "seq_q": length, "seq_k": length, "head_dim": self.head_dim}
        return SdpaProblem.model_validate({**fields, "dtype": self.dtype, "causal": self.causal})

    def conditions(self, seeds: Seeds = SEEDS) -> Conditions:
        """Conditions under which it is judged, with a short race."""
        return briefly(self.problem, seeds, blocks=6 if self.audited else 2)

    def build_job(self) -> BuildJob:
        """The job that builds it."""
        return BuildJob(variant=self.variant, conditions=self.conditions())

    def judge(self, executor: Executor, seeds: Seeds = SEEDS) -> Outcome:
        """The outcome of its job; audit and soaks run only where they must find the mutant."""
        if self.chosen_s:
            return judged(executor, self.variant, self.conditions(seeds), "chosen", self.chosen_s)
        promoted = self.audited or "G6.soak" in self.codes
        return judged(executor, self.variant, self.conditions(seeds), "promoted" if promoted else "never")


def meets(outcome: Outcome, codes: Iterable[str]) -> bool:
    """The first failure, by its code or verdict, is one that is expected, or there is none where that is ("pass");
    without a pass no latency."""
    said = {outcome.fault.code, str(outcome.verdict)} if outcome.fault else {"pass"}
    return bool(said & {*codes}) and (outcome.measurement is not None) == (outcome.fault is None)


def entries(backend: Backend, table: str) -> list[dict[str, Any]]:
    """The entries of a table as they are written."""
    found: list[dict[str, Any]] = tomllib.loads((MUTANTS / FILES[backend]).read_text())[table]
    return found


def expectations(backend: Backend, table: str) -> list[list[Expectation]]:
    """For each entry of a table all its settings. Of a mutant that is unseen no code is expected."""
    usual = {"right": ("pass",)}
    return [
        [
            Expectation(
                backend,
                table,
                entry["name"],
                dtype,
                causal,
                head_dim,
                tuple(entry.get("codes", usual.get(table, ()))),
                audited=table == "clock",
                brief=entry.get("brief", False),
                chosen_s=entry.get("chosen_s", 0),
                length=entry.get("length", 64),
            )
            for dtype in entry["dtype"]
            for causal in entry.get("causal", [False, True])
            for head_dim in entry.get("head_dim", [64])
        ]
        for entry in entries(backend, table)
    ]
