"""Mutants of IMPL = wgmma: its own sources with edits (warpgroups.toml), built and judged like the kernel itself."""

import shutil
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from pydantic import Field

from autotuner.forge.family import Family
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.values import config
from autotuner.values.model import Model
from autotuner.values.variant import Value, Variant
from tests.emulator.points import WGMMA

TABLE = Path(__file__).parent / "warpgroups.toml"
POINT: dict[str, Value] = {**WGMMA, "SCHEDULE": "static"}


def edit(folder: Path, edits: Iterable[tuple[str, str, str]]) -> None:
    """Files, and in each what is replaced by what; it is there once."""
    for name, old, new in edits:
        text = (folder / name).read_text()
        assert text.count(old) == 1, f"{name} has {text.count(old)} times: {old}"
        (folder / name).write_text(text.replace(old, new))


class Setting(Model):
    """A problem, of two heads where nothing else is said, and how its inputs are drawn."""

    batch: int = 1
    heads: int = 2
    heads_kv: int | None = None
    seq_q: int = 150
    seq_k: int = 300
    head_dim: int = 64
    causal: bool = False
    layout: str = "bhsd"
    lse: bool = False
    distribution: str = "randn"

    def problem(self) -> SdpaProblem:
        fields = self.model_dump(exclude={"distribution"}, exclude_none=True)
        return SdpaProblem.model_validate({"dtype": "float16", **fields})


class Mutant(Model):
    """One entry of warpgroups.toml, where the fields are explained."""

    name: str
    what: str
    edits: tuple[tuple[str, str, str], ...]
    point: dict[str, Value] = Field(default_factory=dict)
    problem: Setting = Setting()
    emulator: str | None = None
    why: str | None = None
    gate: tuple[str, ...] = ()
    unseen: str | None = None

    @property
    def full(self) -> SdpaProblem:
        """The problem with more work items than a GPU has multiprocessors: some mutants are wrong from a block's second
        item on."""
        like = self.problem.problem()
        sizes = {"batch": 9, "heads": 16, "heads_kv": 16 // like.group, "seq_q": 330, "seq_k": 330}
        return like.model_copy(update=sizes)

    @property
    def parameters(self) -> dict[str, Value]:
        return {**POINT, **self.point}

    @property
    def variant(self) -> Variant:
        return Variant(family="sdpa", backend="cuda", impl="wgmma", parameters=self.parameters)

    def write(self, parent: Path) -> Path:
        """The kernel's family with the edits, in a folder of `parent`; each finds the text that it replaces once."""
        folder = parent / self.name / "sdpa"
        shutil.copytree(config.kernels_dir() / "sdpa", folder)
        edit(folder, self.edits)
        return folder

    def family(self, parent: Path) -> Family:
        return Family.load(self.write(parent))


@cache
def mutants() -> tuple[Mutant, ...]:
    return tuple(Mutant.model_validate(entry) for entry in tomllib.loads(TABLE.read_text())["mutants"])
