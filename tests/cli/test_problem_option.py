"""My shape from the command line: the op's form for a problem, `--dry-run`, and a file of recorded problems."""

import json
import shutil
from pathlib import Path

import jsonschema
import pytest
import torch
from hypothesis import given, strategies as st
from torch.nn.functional import scaled_dot_product_attention
from typer.testing import CliRunner

import autotuner as package
from autotuner.cli.app import app
from autotuner.devices import DEVICES, Wishes
from autotuner.ops.sdpa.problem import SdpaProblem
from autotuner.serve import record
from autotuner.spaces.problem_files import parsed_problem
from autotuner.store import Store
from autotuner.tuning.foresight import Foresight
from autotuner.values.errors import InputError
from autotuner.views import foresight_words
from tests.helpers.command_line import autotuner, lay_out, one_line
from tests.helpers.files import refusals
from tests.helpers.judging import KERNELS
from tests.helpers.refusing import refused

SIZES = st.integers(1, 300)


@st.composite
def problems(draw: st.DrawFn) -> SdpaProblem:
    """Any problem."""
    heads_kv, causal = draw(SIZES), draw(st.booleans())
    return SdpaProblem(
        batch=draw(SIZES),
        heads=heads_kv * draw(st.integers(1, 8)),
        heads_kv=heads_kv,
        seq_q=draw(SIZES),
        seq_k=draw(SIZES),
        head_dim=draw(SIZES),
        dtype=draw(st.sampled_from(["float32", "bfloat16", "float16"])),
        causal=causal,
        corner=draw(st.sampled_from(["top_left", "bottom_right"])) if causal else "top_left",
        key_lengths=draw(st.booleans()),
        layout=draw(st.sampled_from(["bhsd", "bshd", "packed qkv"])),
        lse=draw(st.booleans()),
    )


@given(problems())
def test_what_is_printed_can_be_typed(problem: SdpaProblem) -> None:
    assert SdpaProblem.parse(str(problem)) == problem


@pytest.mark.parametrize(("typed", "said"), refusals("problem"))
def test_what_is_refused_says_why(typed: str, said: str) -> None:
    with refused(InputError, says=said):
        parsed_problem(typed)


# `tune --dry-run` -----------------------------------------------------------------------------------------------------


RECORD = """\
[[problems]]
batch = 1
heads = 2
seq_q = 128
seq_k = 128
head_dim = 64
dtype = "float32"
causal = false
count = 10
us = 200.0
between_us = 1000.0
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOTUNER_STORE", str(tmp_path / "studies.db"))
    return tmp_path


def foretold(*words: str) -> str:
    done = CliRunner().invoke(app, ["tune", "--dry-run", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_it_says_who_serves_and_what_is_to_be_hoped_for_and_makes_nothing(folder: Path) -> None:
    said = foretold("sdpa_cpu", "--problem", "(1,4,160,64) float32", "--minutes", "2")
    assert "can serve it: simd (" in said
    assert "times its bound" in said
    assert "near it: (1,4,128,64) float32 full: simd 1.836x" in said
    assert "to hope for: 1." in said
    assert ("; where it is 1, SDPA stays" in said) == (DEVICES["cpu"].choose(Wishes()).device.name not in said)
    assert "A search takes about 2 min" in said
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--start nonsense", "expected NAME=VALUE"),
        ("--start BLOCK_N=3", "sdpa_cpu has BLOCK_N ="),
        ("--from nobody", "there is no store yet, and so no study 'nobody'"),
        ("--from a.t4.json", "cannot be read"),
        ("--dry-run --from nobody", "there is no store yet"),
        ("--devices cuda:0", "has no such choice"),
        ("--baseline nothing:here", "cannot be imported"),
        ("--dry-run --baseline nothing:here", "cannot be imported"),
        ("--dry-run --store /etc/passwd", "is not a study store"),
    ],
)
def test_a_wrong_wish_is_refused_and_makes_nothing(folder: Path, words: str, said: str) -> None:
    done = CliRunner().invoke(app, ["tune", "sdpa_cpu", "--problem", "(1,4,128,64) float32", *words.split()])
    with refused(InputError, says=said):
        raise done.exception or AssertionError(done.output)
    assert not list(folder.iterdir())


def test_what_the_sources_do_not_read_is_said_before_anything_is_built(folder: Path) -> None:
    shutil.copytree(KERNELS / "tiny", folder / "tiny")
    source = folder / "tiny" / "plain.cpp"
    source.write_text("#if TYPO\n#endif\n" + source.read_text() + "\n#error cannot be built\n")
    (folder / "space.toml").write_text(
        'title = "t"\nfamily = "tiny"\nbackend = "cpu"\n[parameters]\nIMPL = ["plain"]\nSIZE = [3, 4]\n'
        'MODE = ["whole", "half"]\nDEAD = [1]\n[default]\nIMPL = "plain"\nSIZE = 3\nMODE = "whole"\nDEAD = 1\n'
        '[[problems]]\nop = "sdpa"\nbatch = 1\nheads = 2\nseq_q = 8\nseq_k = 16\nhead_dim = 64\ndtype = "float32"\n'
    )
    line = "tiny, plain: plain.cpp asks for TYPO in an #if, and nothing defines it"
    assert line in foretold("space.toml")
    done = CliRunner().invoke(app, ["gate", "IMPL=plain", "--space", "space.toml"])
    assert line in done.output
    assert "cannot be built" in str(done.exception)


def test_of_a_problem_that_nothing_near_is_known_of_the_bound_is_all_there_is() -> None:
    assert "nothing near it is known; by the bound" in foretold("sdpa_cpu", "--problem", "(1,1,64,256) bfloat16")


def test_an_implementation_that_reaches_less_than_the_device_has_a_bound_of_its_own() -> None:
    found = Foresight(
        problem=SdpaProblem.parse("(1,8,512,64) float16"),
        serves={"mma": 7, "scalar": 5},
        left_out={},
        us=20.0,
        bound_us=10.0,
        bounds_us={"mma": 10.0, "scalar": 150.0},
        near=(),
        low=1.0,
        high=2.0,
        weight=20.0,
    )
    assert not any("were they free" in line for line in foresight_words.lines([found], "SDPA", 1.0, 60.0))
    said = foresight_words.lines([found, found], "SDPA", 0.5, 60.0)
    assert "  can serve it: mma (7 points), scalar (5 points, 150.0 us at least)" in said
    assert "All together: 1.00x of SDPA's speed, with 1 for what nothing near is known of." in said
    assert any("could become 1.00x as fast, with 1 for what" in line for line in said)


def test_torch_is_timed_on_the_threads_of_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def noted(called: record.Called) -> float:
        threads.append(torch.get_num_threads())
        return 100.0

    monkeypatch.setattr(record, "microseconds", noted)
    foretold("sdpa_cpu", "--problem", "(1,4,160,64) float32", "--threads", "2")
    assert threads == [2]


def test_of_a_record_it_says_what_the_whole_model_could_gain(folder: Path) -> None:
    (folder / "problems.toml").write_text(RECORD)
    said = foretold("sdpa_cpu", "--problems", "problems.toml")
    assert "They are 20 % of the model's time" in said
    assert "at most 1.250x were they free" in said


def test_a_record_that_is_given_as_a_study_is_told_where_it_goes(folder: Path) -> None:
    Store.open(str(folder / "studies.db")).close()
    with pytest.raises(InputError, match=r"the problems of problems\.toml go to --problems"):
        foretold("sdpa_cpu", "--from", "problems.toml")


# From a file of recorded problems to an export ------------------------------------------------------------------------


SCHEMA = json.loads((Path(__file__).parent.parent.parent / "docs" / "best.schema.json").read_text())


def attend(lengths: tuple[int, ...]) -> None:
    for length in lengths:
        q = torch.zeros(1, 2, length, 64)
        scaled_dot_product_attention(q, q, q)
        scaled_dot_product_attention(q, q, q, is_causal=length == 16)


@pytest.mark.timed
@pytest.mark.sampled(1, of="whole sweeps")
@pytest.mark.slow
def test_recorded_tuned_exported_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(tmp_path)
    with package.record() as calls:
        attend((16, 33))
    calls.write(tmp_path / "problems.toml")
    budget = ("--trials", "1", "--finals-minutes", "0.05", "--cold")
    done = autotuner(tmp_path, "tune", "space.toml", "--problems", "problems.toml", *budget)
    assert done.returncode == 0, done.stderr
    assert "2 studies, one for each set of problems that one variant can serve" in done.stdout
    document = json.loads((tmp_path / "best.json").read_text())
    jsonschema.validate(document, SCHEMA)
    problems = [entry["problem"] for entry in document["table"]["entries"]]
    assert sorted((each["seq_q"], each["causal"]) for each in problems) == [(16, False), (16, True), (33, False)]

    studies = [each["name"] for each in json.loads(autotuner(tmp_path, "status", "--json").stdout)]
    for study in studies:
        tried_between(tmp_path, study)
    named = autotuner(tmp_path, "export", studies[0], "--with", studies[1], "--loss", "0", "--out", "both.json")
    assert named.returncode == 0, named.stderr
    assert "The table serves 3 problems" in named.stdout
    one_line(autotuner(tmp_path, "export", studies[0], "--loss", "2"), "--loss")

    ours = package.load(tmp_path / "both.json")
    q, k, v = (torch.randn(1, 2, 33, 64) for _ in range(3))
    torch.testing.assert_close(ours(q, k, v), scaled_dot_product_attention(q, k, v), atol=1e-5, rtol=1e-4)
    assert sum(ours.counters.values()) == 1


def tried_between(folder: Path, study: str) -> None:
    """Of a study with two lengths the variant is tried between them; of one with a single length nothing can be."""
    done = autotuner(folder, "validate", study, "--minutes", "0.01")
    if done.returncode:
        one_line(done)
        assert any(why in done.stderr for why in ("such as --lengths 128-2048", "no variant to try"))
        return
    assert "An export of this study serves beside the tuned problems:" in done.stdout
    table = json.loads(autotuner(folder, "export", study, "--json").stdout)["table"]
    served = [each["problem"] for one in table["ranges"] for each in one["validated"]]
    tried = {each["seq_q"] for each in [*served, *(each["problem"] for each in table["left_out"])]}
    assert tried
    assert all(16 < each < 33 for each in tried)
