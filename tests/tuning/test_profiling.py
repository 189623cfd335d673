"""Profiles: what ncu prints is read, refusals have their remedy, and what is kept stands beside its trial."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autotuner.cli.app import app
from autotuner.devices.cpu import counters as cpu
from autotuner.devices.cuda import counters as cuda
from autotuner.ops import OPS
from autotuner.store import Store, queries, whole_study
from autotuner.tuning.finals import standings
from autotuner.values.errors import InputError
from autotuner.values.outcome import Ceilings
from autotuner.values.profile import Counted, Profile, Side
from autotuner.views.drawings import trial as drawn
from autotuner.views.profile_table import holds_back, profile_table
from tests.helpers.files import FILES
from tests.helpers.simulated import DEVICE
from tests.helpers.stores import sample_store

PROBLEM = OPS["sdpa"].problem.parse("(1,32,2048,128) float16 full")
SIDE = Side(problem=PROBLEM, artifact=None, baseline="cudnn", threads=1, cache="cold")
NCU = """#!/bin/sh
case "$*" in
*ERR*|*--export*side*) [ -n "$REFUSED" ] && { echo "$REFUSED"; exit 1; }
  while [ "$1" != --export ]; do shift; done; : >"$2";;
*--import*) cat "%s";;
*) echo "Version 2025.3.1.0 (build 36398880)";;
esac
"""


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the PATH, something that prints what the real one printed on an H200."""
    (tmp_path / "ncu").write_text(NCU % (FILES / "ncu.csv"))
    (tmp_path / "ncu").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")


def _profile(variant: Counted, baseline: Counted) -> Profile:
    ceilings = Ceilings(flops=8e14, bytes=4e12)
    device = DEVICE.model_copy(update={"environment": {"driver_module": "580.159.04", "torch": "2.11.0"}})
    given = {"baseline": "cudnn", "variant": variant, "beside": baseline, "us": (110.0, 130.0), "ceilings": ceilings}
    given |= {"device": device, "parameters": {"IMPL": "wgmma"}}
    return Profile.taken_from(SIDE, **given, acts=("STAGES (31%)",), counted_at=datetime.now(UTC), host="there")


@pytest.mark.usefixtures("ncu")
def test_what_ncu_prints_is_read_and_its_refusal_has_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    found = cuda.count(SIDE)
    assert (found.tool, found.kernels) == ("ncu 2025.3.1.0", 2)
    assert found.counters["gpu__time_duration.sum"] == 145_856 + 145_760
    assert found.counters["launch__registers_per_thread"] == 168
    assert holds_back(_profile(found, found)) == "The variant is compute-bound: the tensor pipe is at 68 % of its peak."
    monkeypatch.setenv("REFUSED", "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission")
    with pytest.raises(InputError, match="NVreg_RestrictProfilingToAdminUsers=0, or start the container with"):
        cuda.count(SIDE)
    monkeypatch.setenv("REFUSED", "==PROF== Connected\n==ERROR== The application returned an error code (1).")
    with pytest.raises(InputError, match=r"counted no kernel, and says: ==ERROR== The application returned"):
        cuda.count(SIDE)


def test_a_cpu_counts_its_own_forwards_or_says_why_not() -> None:
    side = SIDE.model_copy(
        update={"problem": OPS["sdpa"].problem.parse("(1,2,64,64) float32 full"), "baseline": "math"}
    )
    found = cpu.run(side, {"task-clock": (1, 1), "page-faults": (1, 2)})  # virtual machines have these, too
    assert 0 < found["task-clock"] < 1e9
    with pytest.raises(InputError, match="shows no counters"):
        cpu.opened({"none": (0, 1 << 20)})
    assert "perf_event_paranoid" in cpu.refused(1)


@pytest.mark.usefixtures("ncu")
def test_it_is_kept_beside_the_trial_and_travels(tmp_path: Path) -> None:
    name = sample_store(tmp_path / "studies.db")
    found = _profile(cuda.count(SIDE), cuda.count(SIDE))
    with Store.open(str(tmp_path / "studies.db")) as store, Store.open(str(tmp_path / "other.db")) as other:
        number = standings.required_best(store, name).record.number
        before = queries.revision(store, name)
        store.record_profile(name, number, found)
        assert queries.revision(store, name) != before
        whole_study.add(other, whole_study.data_of(store, name))
        assert queries.profile(store, name, number) == queries.profile(other, name, number) == found
        whole_study.remove(other, name)
    shown = CliRunner().invoke(app, ["show", str(number), "--store", str(tmp_path / "studies.db")]).output
    assert "tensor, % of peak" in shown
    assert "on simulated, driver 580.159.04, torch 2.11.0." in " ".join(shown.split())
    assert "STAGES (31%)" in shown
    figure = drawn.counters("counters", found)
    assert str(figure.svg).count("<circle") == 2
    assert len(figure.table.rows) == len(profile_table(found).rows) > 20
