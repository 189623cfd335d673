"""A small space with a known landscape, for tests of samplers and of the driver on the fake backend."""

import math
import tomllib
from pathlib import Path

from autotuner.ops import OPS
from autotuner.spaces.limits import Limits, LimitTable
from autotuner.spaces.space import Space, SpaceFile
from autotuner.values.conditions import Conditions
from autotuner.values.outcome import Device
from autotuner.values.variant import Variant
from autotuner.values.verdict import Verdict
from tests.helpers.fake_line import FakeLine, Truth
from tests.helpers.files import text

TOML = text("simulated.toml")

DEVICE = Device(backend="cpu", name="simulated", facts={"THREADS_ALLOWED": 1}, environment={"os": "none"})


def space() -> Space:
    """516 or so valid points, with conditional parameters."""
    return Space.enumerate(SpaceFile.parse(TOML, Path("simulated.toml")), DEVICE.facts)


def limited(tables: str, impl: str = "") -> Space:
    """The space, with these tables of limits for one of its implementations, or for all."""
    reads = dict.fromkeys(("BLOCK", "UNROLL", "STAGES"), ())
    limits = Limits(
        family="sdpa",
        device="cpu",
        op="sdpa",
        path="limits.toml",
        parameters={"plain": reads, "fancy": {**reads, "WIDTH": (), "MODE": ()}},
        tables={impl: LimitTable.model_validate(tomllib.loads(tables), strict=True)},
    )
    limits.check(frozenset(name.upper() for name in OPS["sdpa"].problem.fact_names()))
    return Space.enumerate(SpaceFile.parse(TOML, Path("simulated.toml"), lambda *_: limits), DEVICE.facts)


def alone(impl: str, text: str = TOML) -> Space:
    """The space of one of its implementations alone."""
    file = SpaceFile.parse(text, Path("simulated.toml"))
    return Space.enumerate(file.only(impl), DEVICE.facts)


def small_space() -> Space:
    """The 21 of them with the smallest block and no unrolling."""
    text = TOML.replace("BLOCK = [8, 16, 32, 64, 128]", "BLOCK = [8]").replace("UNROLL = [1, 2, 4, 8]", "UNROLL = [1]")
    return Space.enumerate(SpaceFile.parse(text, Path("small.toml")), DEVICE.facts)


def conditions() -> Conditions:
    """Conditions for the simulated problem."""
    return Conditions(problems=space().file.problems, threads=1, seeds=(1, 2, 3, 4), baselines=("fake",))


def microseconds(point: dict[str, int | str]) -> float:
    """The true latency: smooth in the numbers, best at fancy, BLOCK 64, WIDTH 16, UNROLL 4, STAGES 2, MODE b."""
    cost = 0.15 * abs(math.log2(int(point["BLOCK"]) / 64)) + 0.1 * abs(math.log2(int(point["UNROLL"]) / 4))
    cost += 0.1 * abs(int(point["STAGES"]) - 2)
    if point["IMPL"] == "fancy":
        cost += 0.2 * abs(math.log2(int(point["WIDTH"]) / 16)) + {"a": 0.1, "b": 0.0, "c": 0.3}[str(point["MODE"])]
    else:
        cost += 1.2
    return 50.0 * math.exp(cost)


def truth(variant: Variant) -> Truth:
    """Latencies as above; STAGES 3 with MODE c is incorrect and UNROLL 8 with BLOCK 128 does not build."""
    point = variant.point
    if point["STAGES"] == 3 and point.get("MODE") == "c":
        return Truth(fault=Verdict.INCORRECT)
    if point["UNROLL"] == 8 and point["BLOCK"] == 128:
        return Truth(fault=Verdict.BUILD_FAILED)
    return Truth(us=microseconds(point))


def backend(noise: float = 0.0) -> FakeLine:
    """The fake backend with this truth."""
    return FakeLine(truth, noise=noise)
