"""Dead knobs are found and named, and only dead ones."""

from collections.abc import Sequence

from autotuner.spaces.dead_parameters import Knob, diagnose
from autotuner.spaces.space import Space, SpaceFile
from autotuner.values.conditions import Conditions
from autotuner.values.outcome import Artifact
from autotuner.values.variant import Variant
from autotuner.values.verdict import Fault, Verdict
from tests.helpers.fake_line import FakeLine, Truth
from tests.helpers.files import text

TEXT = text("dead_parameters.toml")


def program(variant: Variant) -> Truth:
    """DEAD reaches nothing, ALIAS's b and c are one program, BROKEN=1 does not compile."""
    p = variant.parameters
    if p["BROKEN"]:
        return Truth(fault=Verdict.BUILD_FAILED)
    alias = "b" if p["ALIAS"] == "c" else p["ALIAS"]
    return Truth(program=f"{variant.impl} {p['ALIVE']} {alias} {p.get('ONLY')}")


def findings() -> dict[tuple[str, str], Knob]:
    space = Space.enumerate(SpaceFile.parse(TEXT, "knobs.toml"), {"THREADS_ALLOWED": 1})
    backend = FakeLine(program)
    conditions = Conditions(problems=space.file.problems, seeds=(1, 2, 3, 4))

    def build(points: Sequence[int]) -> list[Artifact | Fault]:
        return [backend.build(Variant.of("fake", "cpu", space.point(point)), conditions) for point in points]

    return {(knob.impl, knob.parameter): knob for knob in diagnose(space, build)}


def test_each_knob_is_judged_for_each_implementation_and_what_never_changes_the_program_is_dead() -> None:
    found = findings()
    assert {name for _, name in found} == {"ALIVE", "DEAD", "ALIAS", "BROKEN", "TIED", "ONLY"}
    assert ("plain", "ONLY") not in found
    assert found["other", "ONLY"].state == "alive"
    assert found["plain", "DEAD"].state == found["other", "DEAD"].state == "dead"
    assert [name for (_, name), knob in found.items() if knob.state == "dead"] == ["DEAD", "DEAD"]


def test_values_that_never_differ_are_named() -> None:
    knob = findings()["plain", "ALIAS"]
    assert knob.state == "same values"
    assert "b and c" in knob.detail
    assert "a and" not in knob.detail


def test_what_could_not_be_tried_says_why() -> None:
    found = findings()
    assert found["plain", "BROKEN"].state == "unbuilt"
    assert "builds failed" in found["plain", "BROKEN"].detail
    assert found["plain", "TIED"].state == "untested"
    assert "differ in it alone" in found["plain", "TIED"].detail
