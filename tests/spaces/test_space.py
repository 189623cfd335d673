"""Spaces: what a space file may say, which points are valid, neighbours, nearest points, identity."""

from pathlib import Path

import pytest

from autotuner.spaces import branch_points
from autotuner.spaces.space import Space, SpaceFile
from autotuner.tuning.workbench import find_space_file, load_space
from autotuner.values.errors import SpaceError
from autotuner.values.variant import Value
from tests.helpers.files import refusals
from tests.helpers.space_files import FACTS, TEXT, file_of, made, replaced


def test_the_example(tmp_path: Path) -> None:
    path = tmp_path / "zen4.toml"
    path.write_text(TEXT)
    space = Space.enumerate(SpaceFile.load(path), FACTS)
    assert (space.name, space.file.cache, space.file.threads) == ("zen4", "cold", 2)
    assert space.parameters == ("IMPL", "BLOCK_N", "VEC_WIDTH", "FUSE")
    assert space.values["BLOCK_N"] == (32, 64, 128, 256)
    assert (space.rows.dtype.name, space.rows.shape) == ("int16", (8, 4))
    # BLOCK_N 128 and 256 do not divide the second problem's 96; 4 scalar points and 4 * 3 * 2 simd points are raw
    assert [space.point(i) for i in range(len(space))] == [
        *({"IMPL": "simd", "BLOCK_N": block, **rest} for block in (32, 64) for rest in VECTORS),
        {"IMPL": "scalar", "BLOCK_N": 32},
        {"IMPL": "scalar", "BLOCK_N": 64},
    ]
    assert space.raw_count == 28
    assert [sum(branch.removed) for branch in space.branches] == [18, 2]
    assert space.point(space.default_index) == space.file.default


VECTORS: list[dict[str, int]] = [{"VEC_WIDTH": 4, "FUSE": 0}, {"VEC_WIDTH": 8, "FUSE": 0}, {"VEC_WIDTH": 8, "FUSE": 1}]


BAD_FILES = [
    *refusals("space_file"),
    ("[32, 64, 128, 256]", "[" * 5000 + "]" * 5000, "nested deeper than 24 tables and lists"),
    ("[32, 64, 128, 256]", "9" * 5000, "a number beyond 64 bits"),
]


@pytest.mark.parametrize(("old", "new", "message"), BAD_FILES)
def test_what_a_file_may_not_say(old: str, new: str, message: str) -> None:
    with pytest.raises(SpaceError) as caught:
        SpaceFile.parse(replaced((old, new)), "dir/x.toml")
    found = str(caught.value)
    assert found.startswith("dir/x.toml: ")
    assert "\n" not in found
    assert message in found


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ('backend = "gpu"', "backend: sdpa has no implementation for 'gpu'"),
        ("threads = 2", "threads: a space for cuda has no such key; leave it out"),
    ],
)
def test_what_its_kind_of_device_does_not_have(tmp_path: Path, key: str, message: str) -> None:
    path, text = tmp_path / "x.toml", find_space_file("sdpa_cuda").read_text().partition("[default]")[0]
    text = text.replace('backend = "cuda"', "") if key.startswith("backend") else text
    path.write_text(f"{text}{key}\n")
    with pytest.raises(SpaceError) as caught:
        load_space(str(path))
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    assert message in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match=r"none\.toml: cannot be read: No such file"):
        SpaceFile.load(tmp_path / "none.toml")
    with pytest.raises(SpaceError, match="cannot be read: Is a directory"):
        SpaceFile.load(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'title = "\xe9"')
    with pytest.raises(SpaceError, match=r"latin.toml: not UTF-8 text \(byte 9\)"):
        SpaceFile.load(tmp_path / "latin.toml")


@pytest.mark.parametrize(
    ("changes", "facts", "message"),
    [
        (
            [("CPU_VECTOR_BYTES", "CPU_VECTOR_BITS")],
            {},
            "constraints[0].expression: CPU_VECTOR_BITS is no parameter and no",
        ),
        ([("CPU_VECTOR_BYTES", "CPU_VECTOR_BITS")], {}, "did you mean CPU_VECTOR_BYTES?"),
        ([("CPU_FMA", "CPU_FMAA")], {}, "constraints[1].expression: CPU_FMAA is no parameter"),
        (
            [("CPU_VECTOR_BYTES", "ARCH")],
            {},
            "constraints[0].expression: 'VEC_WIDTH * 4 <= ARCH': a string and an integer",
        ),
        (
            [("BLOCK_N // 2", "BLOCK_N - 64")],
            {},
            "constraints[2].expression: 'SEQ_Q % (BLOCK_N - 64) == 0': division by ze",
        ),
        ([("SEQ_Q % (BLOCK_N // 2) == 0", "DTYPE")], {}, "constraints[2].expression: 'DTYPE': the result is a string"),
        ([("VEC_WIDTH * 4", "VEC_WIDTH * 9223372036854775807")], {}, "64 bits"),
        ([], {"BLOCK_N": 3}, "parameters.BLOCK_N: the device already has a fact of this name"),
        (
            [("BLOCK_N // 2", "BLOCK_N * 64")],
            {},
            "no implementation has a valid point: simd: whole tiles (constraints[2]); scalar: whole",
        ),
    ],
)
def test_what_a_device_refuses(changes: list[tuple[str, str]], facts: dict[str, int], message: str) -> None:
    with pytest.raises(SpaceError) as caught:
        made(replaced(*changes), **facts)
    assert str(caught.value).startswith("dir/x.toml: ")
    assert "\n" not in str(caught.value)
    assert message in str(caught.value)


def test_a_default_that_is_not_valid_here_gives_its_place_to_the_nearest_valid_point() -> None:
    """A simd point stays one, though the first scalar point differs in as few values."""
    space = made(CPU_VECTOR_BYTES=16)
    assert space.default == space.file.default
    assert space.why_another_default is None
    narrow = made(replaced(("VEC_WIDTH = 4\n", "VEC_WIDTH = 16\nFUSE = 0\n")))
    assert narrow.default == {"IMPL": "simd", "BLOCK_N": 64, "VEC_WIDTH": 8, "FUSE": 0}
    assert narrow.why_another_default == (
        "default: not valid here: constraints[0] 'VEC_WIDTH * 4 <= CPU_VECTOR_BYTES' (registers are no wider);"
        " the nearest valid point takes its place"
    )
    assert made(CPU_VECTOR_BYTES=8).default["IMPL"] == "scalar"


def test_facts_must_be_scalars() -> None:
    with pytest.raises(TypeError, match="L1D_BYTES"):
        made(L1D_BYTES=1.5)  # type: ignore[arg-type]


def test_too_many_points_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = {f"P{i}": list(range(1000)) for i in range(7)}
    default: dict[str, Value] = {"IMPL": "x", **dict.fromkeys(wide, 0)}
    with pytest.raises(SpaceError, match="64 bits"):
        Space.enumerate(file_of({"IMPL": ["x"], **wide}, [], default), {})
    monkeypatch.setattr(branch_points, "MAX_POINTS", 1000)
    del wide["P6"], default["P6"]
    with pytest.raises(SpaceError, match="more than 1000 points with P1 bound"):
        Space.enumerate(file_of({"IMPL": ["x"], **wide}, [], default), {})


# --- points and identity -------------------------------------------------------------------------------------------


def test_points_that_are_not_there() -> None:
    space = made()
    assert space.index_of({"IMPL": "simd", "BLOCK_N": 32}) is None
    assert space.index_of({"IMPL": "scalar", "BLOCK_N": 32, "VEC_WIDTH": 4}) is None
    assert space.index_of({"IMPL": "scalar", "BLOCK_N": 33}) is None
    assert space.index_of({"IMPL": "scalar", "BLOCK": 32}) is None
    for index in (-1, len(space)):
        with pytest.raises(IndexError):
            space.point(index)
    with pytest.raises(ValueError, match="read-only"):
        space.rows[0, 0] = 1


SAME = [
    ('title = "An example"', 'title = "Another"'),
    ('reason = "whole tiles"', 'reason = "no ragged tile"'),
    ("VEC_WIDTH * 4 <= CPU_VECTOR_BYTES", "4 * VEC_WIDTH <= CPU_VECTOR_BYTES"),
]
OTHER = [
    ("threads = 2", "threads = 1"),
    ("threads = 2", 'cache = "warm"\nthreads = 2'),
    ('family = "sdpa"', 'family = "other"'),
    ("heads = 8", "heads = 4"),
    ("BLOCK_N = [32, 64, 128, 256]", "BLOCK_N = [64, 32, 128, 256]"),
    ("BLOCK_N = [32, 64, 128, 256]", "BLOCK_N = [32, 64, 128]"),
    ("BLOCK_N = 64", "BLOCK_N = 32"),
    ("VEC_WIDTH * 4 <=", "VEC_WIDTH * 8 <="),
]


def test_the_digest_is_the_identity() -> None:
    space = made()
    known = space.digest
    assert SpaceFile.stored('{"like":"older",' + space.file.model_dump_json()[1:]) == space.file
    assert known == "83c978c3d67b86aeb0d05cefd0c5886dc364118bd3761ab1a87e58db28c870be"
    assert known == made(L2_BYTES=4096).digest
    assert [made(replaced(change)).digest for change in SAME] == [known] * len(SAME)
    others = [made(replaced(change)).digest for change in OTHER]
    others += [made(CPU_VECTOR_BYTES=64).digest, made(CPU_FMA=False).digest]
    assert len({known, *others}) == len(others) + 1
