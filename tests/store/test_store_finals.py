"""Finals and heats in the store: read back whole, also those that were cut off."""

import subprocess
import sys
from pathlib import Path

import pytest

from autotuner.race.confirm import confirm
from autotuner.store import FinalsResult, Proof, Store, Validation, queries
from autotuner.tuning.finals import standings
from autotuner.values.errors import StoreError
from autotuner.values.gate_report import CheckResult
from tests.helpers.recorded import (
    PROBLEM,
    artifact,
    heat,
    lineup,
    measured,
    passed_gate,
    record_all,
)

MICROS = {16: 50.0, 32: 60.0}


def test_finals_are_read_back_whole(store: Store, session: int) -> None:
    record_all(store, session, [measured(16, 48.0), measured(32, 59.0)])
    line = lineup({16: 0, 32: 1}, {16: 48.0, 32: 59.0})
    heats = tuple(heat(MICROS, process) for process in range(3))
    number = store.start_finals("scalar-abc", line, {"torch": "2.12"}, session_id=session)
    for each in heats:
        store.record_heat("scalar-abc", "finals", each, finals_id=number)
    check = CheckResult(code="G6.many", status="pass", seconds=10.0, launches=31_000)
    proof = Proof(number=0, digest=line.finalists[0].digest, checks=(check,))
    standing = FinalsResult(**dict(confirm(heats, line.tie, line.objective)), proofs=(proof,))
    store.finish_finals(number, standing)
    found = standings.finals(store, "scalar-abc")
    assert (found.id, found.study, found.session, found.environment) == (
        number,
        "scalar-abc",
        session,
        {"torch": "2.12"},
    )
    assert (found.heats, found.standing, found.finalists, found.tie) == (heats, standing, line.finalists, line.tie)
    assert found.finished_at is not None
    assert found.finished_at >= found.started_at
    assert (found.blocks, found.revoked) == (40, ())


def test_validations_are_read_back_whole(store: Store, session: int) -> None:
    record_all(store, session, [measured(16, 48.0)])
    others = tuple(PROBLEM.model_copy(update={"seq_q": each, "seq_k": each}) for each in (701, 1441))
    validation = Validation(
        number=0,
        digest=artifact(16).digest,
        problems=others,
        vary=("seq_q", "seq_k"),
        baselines=("flash", "math"),
        gate=passed_gate(16),
        heats=(heat({16: 50.0}), heat({16: 51.0})),
    )
    assert queries.validations(store, "scalar-abc") == ()
    store.record_validation("scalar-abc", validation, {"torch": "2.12"})
    (found,) = queries.validations(store, "scalar-abc")
    assert (found.study, found.environment) == ("scalar-abc", {"torch": "2.12"})
    assert Validation(**{name: getattr(found, name) for name in Validation.model_fields}) == validation
    with pytest.raises(StoreError):
        store.record_validation("nothing", validation, {})


def test_a_kill_during_finals_leaves_the_heats_that_were_run(store: Store, path: Path) -> None:
    code = f"""
import os
from autotuner.store import Store
from tests.helpers.recorded import heat, lineup
store = Store.open({str(path)!r})
number = store.start_finals("scalar-abc", lineup({{16: 0, 32: 1}}, {MICROS}), {{}})
for process in range(2):
    store.record_heat("scalar-abc", "finals", heat({MICROS}, process), finals_id=number)
os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent.parent.parent).returncode == -9
    assert standings.finals(store, "scalar-abc") is None
    (killed,) = queries.all_finals(store, "scalar-abc")
    assert killed.heats == (heat(MICROS, 0), heat(MICROS, 1))
    assert (killed.finished_at, killed.standing) == (None, None)
