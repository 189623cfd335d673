"""Spaces: what a space file may say, which points are valid, neighbours, nearest points, identity."""

from pathlib import Path

import pytest

from autotuner.spaces import enumeration
from autotuner.spaces.space import Space, SpaceFile
from autotuner.tuning.workbench import load_space
from autotuner.values.errors import SpaceError
from autotuner.values.variant import Value
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
    assert [(sum(branch.removed), branch.alone) for branch in space.branches] == [(18, (8, 4, 12)), (2, (2,))]
    assert space.point(space.default_index) == space.file.default


VECTORS: list[dict[str, int]] = [{"VEC_WIDTH": 4, "FUSE": 0}, {"VEC_WIDTH": 8, "FUSE": 0}, {"VEC_WIDTH": 8, "FUSE": 1}]


BAD_FILES = [
    (
        ("heads = 8\nseq_q = 96", "heads = 8.0\nseq_q = 96"),
        "problems[1].heads: found 8.0 (a float), expected an integer",
    ),
    (("title =", "titel ="), "titel: unknown key; did you mean title?"),
    (("threads = 2", "thread = 2"), "thread: unknown key; did you mean threads?"),
    (("seq_q = 512", "seq_q = 1000000000000"), "problems[0]: seq_q is 1000000000000, expected at most 2147483647"),
    (("seq_q = 512", "seq_q = 2000000000"), "problems[0]: its tensors have"),
    (("[32, 64, 128, 256]", "[" * 5000 + "]" * 5000), "nested deeper than 24 tables and lists"),
    (("[32, 64, 128, 256]", "9" * 5000), "a number beyond 64 bits"),
    (("seq_q = 512", "seqq = 512"), "problems[0].seqq: unknown key; did you mean seq_q?"),
    (('reason = "whole tiles"', ""), "constraints[2].reason: missing"),
    (('reason = "whole tiles"', 'reason = ""'), "constraints[2].reason: found '', expected a string of at least 1"),
    (('title = "An example"', "title = 3"), "title: found 3, expected a string"),
    (('title = "An example"', 'path = "x"'), "path: unknown key"),
    (("threads = 2", "threads = 0"), 'threads: found 0, expected "all" or a positive integer'),
    (("threads = 2", "threads = true"), "threads: found true (a boolean)"),
    (("threads = 2", 'cache = "hot"'), "cache: found 'hot', expected 'cold' or 'warm'"),
    (('dtype = "float32"', 'dtype = "float64"'), "problems[0].dtype: found 'float64', expected 'float32'"),
    (('dtype = "float32"', 'dtype = "bfloat16"'), "problems[1].dtype: found 'float32', expected 'bfloat16' as in"),
    (
        ("head_dim = 64", "head_dim = 128"),
        "problems[1].head_dim: found 64, expected 128 as in problems[0]: head_dim is",
    ),
    (("head_dim = 64", "head_dim = 64\ncausal = true"), "problems[1].causal: found false (a boolean), expected true"),
    (("seq_q = 96", "seq_q = 512"), "problems[1]: found the same problem twice"),
    (("batch = 1", "batch = 0"), "problems[0].batch: found 0, expected a number greater than 0"),
    (("[32, 64, 128, 256]", "[]"), "parameters.BLOCK_N: found no values"),
    (("[32, 64, 128, 256]", "[32, 64, 32]"), "parameters.BLOCK_N: found 32 twice"),
    (("[32, 64, 128, 256]", "[32, true]"), "parameters.BLOCK_N[1]: found true (a boolean), expected an integer"),
    (("[32, 64, 128, 256]", "[32, 64.5]"), "parameters.BLOCK_N[1]: found 64.5 (a float), expected an integer"),
    (("[32, 64, 128, 256]", "[32, [64]]"), "parameters.BLOCK_N[1]: found [64] (a list)"),
    (("[32, 64, 128, 256]", "[32, 1979-05-27]"), "parameters.BLOCK_N[1]: found datetime.date(1979, 5, 27)"),
    (("[32, 64, 128, 256]", '[32, "64"]'), "parameters.BLOCK_N: found both integers and strings"),
    (("[32, 64, 128, 256]", "[9223372036854775808]"), "parameters.BLOCK_N[0]: a number beyond 64 bits"),
    (("[32, 64, 128, 256]", '["a b"]'), "parameters.BLOCK_N[0]: found 'a b', expected a string of 1 to 64"),
    (("[32, 64, 128, 256]", "64"), "parameters.BLOCK_N: found 64, expected a list"),
    (("[problems]", "[problems]]\n[[problemz]"), "problemz: unknown key; did you mean problems?"),
    (("[problems]]", "problems]]"), "not TOML"),
    (("[default]", "[default.x]"), "default.x: found {'IMPL': 'simd', 'BLOCK_N': 64, 'VEC_WIDTH': 4} (a table)"),
    (("BLOCK_N = [32", "Block_N = [32"), "parameters.Block_N: expected a name of capitals"),
    (("BLOCK_N = [32", "SEQ_K = [32"), "parameters.SEQ_K: a parameter or a fact has this name"),
    (("IMPL = [", "KIND = ["), "parameters.IMPL: missing"),
    (('["scalar", "simd"]', "[1, 2]"), "parameters.IMPL: found integers"),
    (
        ('"VEC_WIDTH * 4 <= CPU_VECTOR_BYTES"', '"VEC_WIDTH.x"'),
        "constraints[0].expression: found 'VEC_WIDTH.x': an att",
    ),
    (('"VEC_WIDTH * 4 <= CPU_VECTOR_BYTES"', '"vec_width < 4"'), "did you mean VEC_WIDTH?"),
    (
        ('"VEC_WIDTH * 4 <= CPU_VECTOR_BYTES"', "3"),
        "constraints[0].expression: found 3, expected a string with an expr",
    ),
    (("[parameters.simd]", "[parameters.smid]"), "parameters.smid: no such implementation; did you mean simd?"),
    (("VEC_WIDTH = [4, 8, 16]", "VEC_WIDTH = [4, 4]"), "parameters.simd.VEC_WIDTH: found 4 twice"),
    (("CPU_FMA)", "CPU_FMA and IMPL == 'smid')"), "compares IMPL with 'smid', expected one of its values"),
    (('reason = "whole tiles"', 'reason = "x"\nplace = "cpu"'), "constraints[2].place: unknown key"),
    (("[default]", '[amounts]\nROWS = "ROWS + 1"\nROWZ = "FUSE +"\n[default]'), "amounts.ROWZ: found 'FUSE +'"),
    (("[default]", '[amounts]\nrows = "3"\n[default]'), "amounts.rows: expected a name of capitals"),
    (("[default]", '[amounts]\nFUSE = "3"\n[default]'), "amounts.FUSE: a parameter or a fact has this name"),
    (("[default]", '[amounts]\nA = "3"\n[derived]\nA = "4"\n[default]'), "derived.A: amounts has this name"),
    (
        ("[default]", "[amounts]\nA = 'IMPL == \"smid\"'\n[default]"),
        "amounts.A: compares IMPL with 'smid', expected one of its values; did you mean simd?",
    ),
    (("BLOCK_N = 64\n", "BLOCK_N = 63\n"), "default.BLOCK_N: found 63, expected one of 32, 64, 128, 256"),
    (("BLOCK_N = 64\n", "BLOCK_N = true\n"), "default.BLOCK_N: found true (a boolean), expected an integer"),
    (("BLOCK_N = 64\n", "BLOCK_M = 64\n"), "default.BLOCK_M: unknown parameter; did you mean BLOCK_N?"),
    (('title = "An example"', "title = "), "not TOML: Invalid value (at line 1"),
    (("VEC_WIDTH = 4\n", "IMPL = 'scalar'\n"), "not TOML: Cannot overwrite a value (at line"),
    (("VEC_WIDTH = 4\n", "VEC_WIDTH = 4\nX = ["), "not TOML: Invalid value (at end of document) (line"),
]


@pytest.mark.parametrize(("change", "message"), BAD_FILES)
def test_what_a_file_may_not_say(change: tuple[str, str], message: str) -> None:
    with pytest.raises(SpaceError) as caught:
        SpaceFile.parse(replaced(change), "dir/x.toml")
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
    path = tmp_path / "x.toml"
    path.write_text(f'title = "x"\nlike = "sdpa_cuda"\n{key}\n')
    with pytest.raises(SpaceError) as caught:
        load_space(str(path))
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    assert message in str(caught.value)


MINIMAL = {
    "title": '"x"',
    "family": '"x"',
    "backend": '"cpu"',
    "problems": '[{batch=1, heads=1, seq_q=1, seq_k=1, head_dim=1, dtype="float32"}]',
    "parameters": '{IMPL=["x"]}',
    "default": '{IMPL="x"}',
}


def text_of(document: dict[str, str]) -> str:
    return "\n".join(f"{key} = {value}" for key, value in document.items())


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("problems", "3", "problems: found 3, expected a list"),
        ("problems", "[]", "problems: found (), expected a list of at least 1 item"),
        ("problems", "[3]", "problems[0]: found 3, expected a table: Problem"),
        ("parameters", "[3]", "parameters: found [3] (a list), expected a table"),
        ("constraints", "[3]", "constraints[0]: found 3, expected a table: Rule"),
        ("default", "3", "default: found 3, expected a table"),
    ],
)
def test_keys_of_another_kind(key: str, value: str, message: str) -> None:
    with pytest.raises(SpaceError) as caught:
        made(text_of({**MINIMAL, key: value}))
    assert str(caught.value) == f"dir/x.toml: {message}"


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
    monkeypatch.setattr(enumeration, "MAX_POINTS", 1000)
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
    known = made().digest
    assert known == "83c978c3d67b86aeb0d05cefd0c5886dc364118bd3761ab1a87e58db28c870be"
    assert known == made(L2_BYTES=4096).digest
    assert [made(replaced(change)).digest for change in SAME] == [known] * len(SAME)
    others = [made(replaced(change)).digest for change in OTHER]
    others += [made(CPU_VECTOR_BYTES=64).digest, made(CPU_FMA=False).digest]
    assert len({known, *others}) == len(others) + 1
